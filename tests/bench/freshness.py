"""How long after a commit readers see it, beside the same requests done bare.

Bare is what nobody can do without: the event is posted to a server that does nothing with it, and appended to a file
that is synced, as its acknowledgement promises; the catalog is asked for the table with the entity tag of the last
answer, what it says is parsed, and the file is written by a temporary name, `fsync` and `rename`. No inbox is part of
it: that the event waits in one, and that its claim is counted on disk before it starts, is ours to pay. Both are over
once a reader would see the new pointer; what follows that, the sync of the folder and the version hint, counts for
neither.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from tests.bench import servers
from tests.bench.accept import EventSender, create, event, event_sender, sfn_file
from tests.bench.clients import Wire, wire
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import NAMESPACE, Catalog, Setting, service, uvicorn

GOAL: Final = Goal("ratio", "<=", 1.5)
WARM_UP: Final = 20
BESIDE: Final = "the same requests done bare"

_OURS, _BARE = "ours", "bare"
_POLLED_EVERY: Final = 0.000_05
"""Seconds, and some more for the system to wake us: by so much at most our figure is too long."""
_PATIENCE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        runs: how many figures.
        commits: of each kind for each, ours and bare in turn.
    """

    runs: int = 5
    commits: int = 60

    @property
    def short(self) -> bool:
        """Less than what the goal is for."""
        whole = Extent()
        return self.runs < whole.runs or self.commits < whole.commits


def measure(extent: Extent, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Commit to two tables in turn; one is followed by the service, the other one by hand."""
    runs: list[tuple[list[float], list[float]]] = []
    with _ways(folder) as (ours, bare):
        for _ in range(WARM_UP):
            ours()
            bare()
        for number in range(extent.runs):
            pairs = [_pair(ours, bare, reverse=turn % 2 == 1) for turn in range(extent.commits)]
            runs.append(([pair[0] for pair in pairs], [pair[1] for pair in pairs]))
            medians = f"{median(runs[-1][0]):.2f} ms, bare {median(runs[-1][1]):.2f} ms"
            say(f"commit to file {number + 1}/{extent.runs}: {medians}")
    everything = [[each for run in runs for each in run[way]] for way in (0, 1)]
    p99, p99_bare = (quantiles(each, n=100)[98] for each in everything)
    return [
        Figure(
            name="commit_to_file_p50",
            unit="ms",
            runs=[Run(median(one), median(other)) for one, other in runs],
            compared_with=BESIDE,
            goal=GOAL,
            short=extent.short,
        ),
        Figure(
            name="commit_to_file_p99", unit="ms", runs=[Run(p99, p99_bare)], compared_with=BESIDE, short=extent.short
        ),
    ]


def _pair(ours: Callable[[], float], bare: Callable[[], float], *, reverse: bool) -> tuple[float, float]:
    if reverse:
        second = bare()
        return ours(), second
    return ours(), bare()


@contextmanager
def _ways(folder: Path) -> Iterator[tuple[Callable[[], float], Callable[[], float]]]:
    """Both ways, each from one commit to the file that says so: their milliseconds."""
    warehouse = folder / "warehouse"
    create(warehouse, _OURS, _BARE)
    with (
        servers.catalog(folder / "catalog", warehouse) as asked,
        service(Setting(folder / "sfn", asked.uri, warehouse, interval="0s")) as served,
        uvicorn("tests.bench.accept:raw", folder / "noop") as idle,
        event_sender(served.url) as to_us,
        event_sender(idle) as to_nobody,
        wire(asked.uri) as by_hand,
        (folder / "bare.log").open("wb") as log,
    ):
        bare = _Bare(asked, to_nobody, by_hand, log.fileno(), folder)
        yield _Ours(asked, to_us, sfn_file(warehouse, _OURS)).follow, bare.follow


@dataclass(frozen=True, slots=True)
class _Ours:
    """The service does it."""

    catalog: Catalog
    sender: EventSender
    file: Path

    def follow(self) -> float:
        """From a commit to the file that says so: milliseconds."""
        pointer = self.catalog.commit(_OURS)
        sought, told = json.dumps(pointer).encode(), event(_OURS, pointer)
        began = time.perf_counter()
        self.sender.tell(told)
        while not self._says(sought):
            if time.perf_counter() - began > _PATIENCE:
                raise Unmeasured(f"{self.file} does not say {pointer} after {_PATIENCE:g} s")
            time.sleep(_POLLED_EVERY)
        return 1e3 * (time.perf_counter() - began)

    def _says(self, sought: bytes) -> bool:
        try:
            return sought in self.file.read_bytes()
        except FileNotFoundError:
            return False


@dataclass(slots=True)
class _Bare:
    """The same requests without the service."""

    catalog: Catalog
    sender: EventSender
    wire: Wire
    log: int
    folder: Path
    tag: str | None = field(default=None)

    def follow(self) -> float:
        """From a commit to the file that says so: milliseconds."""
        pointer = self.catalog.commit(_BARE)
        told = event(_BARE, pointer)
        began = time.perf_counter()
        self.sender.tell(told)
        os.write(self.log, told)
        os.fdatasync(self.log)
        known = {} if self.tag is None else {"If-None-Match": self.tag}
        reply = self.wire.ask("GET", f"/v1/namespaces/{NAMESPACE}/tables/{_BARE}?snapshots=refs", None, known)
        self.tag = reply.tag
        self._write(json.loads(reply.body)["metadata-location"])
        took = 1e3 * (time.perf_counter() - began)
        if pointer not in self._file.read_text():
            raise Unmeasured(f"the catalog did not tell of {pointer}")
        return took

    @property
    def _file(self) -> Path:
        return self.folder / "bare.ver"

    def _write(self, pointer: str) -> None:
        new = self._file.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            os.write(descriptor, _PADDING + pointer.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        new.replace(self._file)


_PADDING: Final = b" " * 900
"""As much as a document has beside its pointer, about."""
