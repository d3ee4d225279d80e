"""How many readers' questions a second a facade answers, beside a server that does nothing with them.

Each question is for a table that the reader has already: its SFN file is read each time, and the answer is a 304.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from sfn.sfnfile import document
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import NAMESPACE, facade, uvicorn
from tests.bench.wrk import CONNECTIONS, reads
from tests.unit.directory import UUID, Directory

GOAL: Final = Goal("ratio", ">=", 0.5)

_TABLE: Final = "orders"


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


def measure(extent: Extent, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Load both servers in turn, the next time in the reverse order; the first second of each does not count.

    Raises:
        Unmeasured: a question was refused, or was answered with something else than a 304.
    """
    root = folder / "warehouse"
    place = _made(root)
    runs = []
    with facade(root, folder / "facade") as ours, uvicorn("tests.bench.noop:fastapi", folder / "fastapi") as theirs:
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
            goal=GOAL,
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
