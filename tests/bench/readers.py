"""What readers wait for: a table's metadata file found by its directory, and an unchanged table asked of the facade."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

import sfn
from sfn.sfnfile import document
from tests.bench.clients import CONNECTIONS, reads
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import NAMESPACE, facade, uvicorn
from tests.support.table_directory import UUID, Directory

RESOLVE_GOAL: Final = Goal("ratio", "<=", 2)
RESOLVE_RUNS: Final = 30
TABLES: Final = 200
COMMITS: Final = 100
"""Of which the metadata file tells."""
PASSES: Final = 5
"""Of each run: through all tables."""

_NAME: Final = "sales.orders"

FACADE_GOAL: Final = Goal("ratio", ">=", 0.5)

_TABLE: Final = "orders"


def measure_resolve(runs: int, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Find the metadata files of many tables in turn, by name and by hand, and read them.

    By hand is what is least: the hint is opened and read, then the file that it names. Who resolves reads of that file
    only whose it is. The first figure is of a process that has seen the tables before, the second of one that has not.
    """
    places = [_placed(folder / f"t{number}", number) for number in range(TABLES)]
    known, first = [], []
    for number in range(runs):
        say(f"resolve: run {number + 1}/{runs}")
        known.append(_compared([str(place.path) for place in places], PASSES))
        first.append(_in_a_process_of_its_own(folder))
    short = runs < RESOLVE_RUNS
    by_hand = "version-hint.text, and the file that it names, opened and read"
    much = f"of {TABLES} tables with {COMMITS} commits each"
    return [
        Figure(
            name="resolve_vs_by_hand",
            unit="µs",
            runs=known,
            compared_with=by_hand,
            goal=RESOLVE_GOAL,
            short=short,
            note=f"{much}, seen before",
        ),
        Figure(
            name="resolve_first_vs_by_hand",
            unit="µs",
            runs=first,
            compared_with=by_hand,
            note=f"{much}, never seen before by the process",
        ),
    ]


def _in_a_process_of_its_own(folder: Path) -> Run:
    done = subprocess.run([sys.executable, "-m", __name__, folder], capture_output=True, text=True, check=True)
    value, compared = map(float, done.stdout.split())
    return Run(value, compared)


def _compared(directories: Sequence[str], passes: int) -> Run:
    """Microseconds for each table, ours and by hand in turn: what else the machine does falls on both."""
    ours = hand = 0.0
    for directory in passes * list(directories):
        begun = time.perf_counter()
        _resolved(directory)
        between = time.perf_counter()
        _by_hand(directory)
        ours += between - begun
        hand += time.perf_counter() - between
    each = 1_000_000 / (passes * len(directories))
    return Run(ours * each, hand * each)


def _resolved(directory: str) -> str:
    return sfn.resolve(directory, _NAME).metadata_location


def _by_hand(directory: str) -> bytes:
    with open(f"{directory}/metadata/version-hint.text") as hint:  # noqa: PTH123 - the quickest way
        stem = hint.read()
    with open(f"{directory}/metadata/{stem}.metadata.json", "rb") as file:  # noqa: PTH123 - as above
        return file.read()


def _placed(folder: Path, number: int) -> Directory:
    """A table's directory, with a hint and an SFN file."""
    place, guid = Directory(folder), str(uuid.UUID(int=number))
    commits = range(COMMITS)
    file = place.metadata(
        "00100-a.metadata.json",
        uuid=guid,
        location=str(folder),
        snapshots=[_snapshot(commit, folder) for commit in commits],
        metadata_log=[
            {
                "timestamp-ms": 1_700_000_000_000 + commit,
                "metadata-file": f"{folder}/metadata/{commit:05}-a.metadata.json",
            }
            for commit in commits
        ],
    )
    place.write(_NAME, guid=guid, metadata_file_path=file.as_uri(), snapshot_id=COMMITS)
    (place.path / "metadata" / "version-hint.text").write_text("00100-a")
    return place


def _snapshot(commit: int, folder: Path) -> dict[str, object]:
    summary = {f"total-{what}": str(commit) for what in ("records", "data-files", "files-size", "delete-files")}
    listed = f"{folder}/metadata/snap-{commit}.avro"
    return {"snapshot-id": commit, "timestamp-ms": commit, "manifest-list": listed, "summary": summary}


def _first(folder: Path) -> None:
    """Print microseconds for each table, ours and by hand, in a process that has seen none of them."""
    first, *others = sorted(str(place) for place in folder.glob("t*"))
    # What is imported when it is first used is no part of it.
    _resolved(first)
    run = _compared(others, 1)
    print(run.value, run.compared)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        runs: how often each server is, in turn.
        seconds: each time.
    """

    runs: int = 5
    seconds: int = 6

    @property
    def short(self) -> bool:
        """Less than what the goal is for."""
        whole = Extent()
        return self.runs < whole.runs or self.seconds < whole.seconds


def measure_facade(extent: Extent, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Load both servers in turn, the next time in the reverse order; the first second of each does not count.

    Raises:
        Unmeasured: a question was refused, or was answered with something else than a 304.
    """
    root = folder / "warehouse"
    place = _made(root)
    runs = []
    with facade(root, folder / "facade") as ours, uvicorn("tests.bench.accept:fastapi", folder / "fastapi") as theirs:
        url = f"{ours}/v1/sfn/namespaces/{NAMESPACE}/tables/{_TABLE}"
        etag = _etag(url)
        questions = {"ours": (url, f"If-None-Match: {etag}"), "fastapi": (f"{theirs}/v1/nothing",)}
        for question in questions.values():
            reads(question[0], 1, CONNECTIONS, *question[1:])
        for number in range(extent.runs):
            rates = {}
            for name in sorted(questions, key=list(questions).index, reverse=number % 2 == 1):
                address, *fields = questions[name]
                rates[name] = reads(address, extent.seconds, CONNECTIONS, *fields).rate
            runs.append(Run(rates["ours"], rates["fastapi"]))
            say(f"facade {number + 1}/{extent.runs}: {rates['ours']:,.0f}/s, FastAPI {rates['fastapi']:,.0f}/s")
        _check(place, url, etag)
    return [
        Figure(
            name="facade_304_vs_fastapi",
            unit="answers/s",
            runs=runs,
            compared_with="a FastAPI no-op GET",
            goal=FACADE_GOAL,
            short=extent.short,
            note=f"{CONNECTIONS} connections; the SFN file is read for each answer",
        )
    ]


def _made(root: Path) -> Directory:
    place = Directory(root / NAMESPACE / _TABLE)
    place.metadata(location=f"file:{place.path}")
    place.write(f"{NAMESPACE}.{_TABLE}")
    return place


def _etag(url: str) -> str:
    answer = httpx.get(url, trust_env=False)
    if answer.status_code != httpx.codes.OK:
        raise Unmeasured(f"the table was answered with {answer.status_code}: {answer.text}")
    return answer.headers["etag"]


def _check(place: Directory, url: str, etag: str) -> None:
    """See that the answers were what they were taken for, and would have told of a commit."""
    fields = {"If-None-Match": etag}
    if (status := httpx.get(url, headers=fields, trust_env=False).status_code) != httpx.codes.NOT_MODIFIED:
        raise Unmeasured(f"the answers were to be 304, and are {status}")
    file = place.metadata("00002-b.metadata.json", location=f"file:{place.path}")
    body = document.render(place.document(f"{NAMESPACE}.{_TABLE}", metadata_file_path=f"file:{file}", guid=UUID))
    place.sfn_file(f"{NAMESPACE}.{_TABLE}").write_bytes(body)
    told = httpx.get(url, headers=fields, trust_env=False)
    if told.status_code != httpx.codes.OK or told.json()["metadata-location"] != f"file:{file}":
        raise Unmeasured("a commit was to be told of at once, and is not")


if __name__ == "__main__":
    _first(Path(sys.argv[1]))
