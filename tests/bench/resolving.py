"""How long it takes to find a table's metadata file by its directory, beside doing it by hand."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import sfn
from tests.bench.record import Figure, Goal, Run
from tests.unit.directory import Directory

GOAL: Final = Goal("ratio", "<=", 2)
RUNS: Final = 30
TABLES: Final = 200
COMMITS: Final = 100
"""Of which the metadata file tells."""
PASSES: Final = 5
"""Of each run: through all tables."""

_NAME: Final = "sales.orders"


def measure(runs: int, folder: Path, say: Callable[[str], None]) -> list[Figure]:
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
    short = runs < RUNS
    by_hand = "version-hint.text, and the file that it names, opened and read"
    much = f"of {TABLES} tables with {COMMITS} commits each"
    return [
        Figure(
            name="resolve_vs_by_hand",
            unit="µs",
            runs=known,
            compared_with=by_hand,
            goal=GOAL,
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
    place, guid = Directory(folder), str(UUID(int=number))
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


if __name__ == "__main__":
    _first(Path(sys.argv[1]))
