"""How often the files of one table are written for events that came while its store was away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench import catalog
from tests.bench.events import create, event, sfn_file, telling
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import Setting, records, service

GOAL: Final = Goal("value", "<=", 1)
EVENTS: Final = 10_000
TABLE: Final = "orders"

_POLLED_EVERY: Final = 0.000_2
_QUIET: Final = 3.0
"""Seconds without a write after which nothing more is expected: the breaker's longest pause three times."""
_PATIENCE: Final = 60.0


def measure(events: int, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Take the store's folder away, commit and tell of it so many times, and bring the folder back.

    Raises:
        Unmeasured: the file does not say the newest pointer in the end.
    """
    warehouse = folder / "warehouse"
    create(warehouse, TABLE)
    file = sfn_file(warehouse, TABLE)
    with (
        catalog.running(folder / "catalog", warehouse) as asked,
        service(Setting(folder / "sfn", asked.uri, warehouse)) as running,
        telling(running.url) as teller,
    ):
        teller.tell(event(TABLE, asked.commit(TABLE)))
        _until(file.exists, f"{file} is not written")
        away = warehouse.rename(folder / "away")
        pointer = ""
        for number in range(events):
            pointer = asked.commit(TABLE)
            teller.tell(event(TABLE, pointer))
            if (number + 1) % 1_000 == 0:
                say(f"coalescing: {number + 1}/{events} events while the store is away")
        _until(lambda: bool(records(running.log, "store unreachable")), "the store was to be away, and is not")
        with _watched(away / file.relative_to(warehouse), file) as seen:
            away.rename(warehouse)
            _until(lambda: _says(file, pointer), f"{file} does not say {pointer}")
            _until(lambda: time.monotonic() - seen.last > _QUIET, "the files are written without end")
    note = f"for {events} commits of one table while the store was away"
    return [
        Figure(
            name="coalesced_writes",
            unit="writes",
            runs=[Run(float(len(seen.contents)))],
            goal=GOAL,
            short=events < EVENTS,
            note=note,
        )
    ]


@dataclass(slots=True)
class _Seen:
    """What was found at a file's place.

    Attributes:
        before: the file that was there.
        contents: those that came after it: each has an inode and a time of its own.
        last: when the newest came, by the monotonic clock.
    """

    before: tuple[int, int]
    contents: set[tuple[int, int]] = field(default_factory=set)
    last: float = field(default_factory=time.monotonic)

    def look(self, file: Path) -> None:
        """See what is there."""
        found = _identity(file)
        if found is not None and found != self.before and found not in self.contents:
            self.contents.add(found)
            self.last = time.monotonic()


@contextmanager
def _watched(known: Path, file: Path) -> Iterator[_Seen]:
    """Every content that a file has while the block runs: it is looked at thousands of times a second."""
    before = _identity(known)
    if before is None:
        raise Unmeasured(f"{known} is not there")
    seen, over = _Seen(before), threading.Event()

    def watch() -> None:
        while not over.wait(_POLLED_EVERY):
            seen.look(file)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _says(file: Path, pointer: str) -> bool:
    try:
        return pointer in file.read_text()
    except FileNotFoundError:
        return False


def _until(holds: Callable[[], bool], otherwise: str) -> None:
    give_up_at = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > give_up_at:
            raise Unmeasured(f"{otherwise} after {_PATIENCE:g} s")
        time.sleep(0.01)
