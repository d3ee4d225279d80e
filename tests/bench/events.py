"""Events, sent one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from sfn.sfnfile.naming import FileLayout, FileOwner
from tests.bench.servers import NAMESPACE, PATH
from tests.bench.wire import Wire, wire
from tests.bench.wrk import TOKEN

_HEADERS: Final = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}


def event(name: str, pointer: str | None = None) -> bytes:
    """An event of a table, with an id of its own."""
    told = {"namespace": [NAMESPACE], "name": name, "event_id": str(uuid4()), "metadata_location": pointer}
    return msgspec.json.encode(told)


@dataclass(frozen=True, slots=True)
class Teller:
    """A sender with one connection."""

    wire: Wire

    def tell(self, body: bytes) -> None:
        """Send an event; returns when it is acknowledged."""
        self.wire.ask("POST", PATH, body, _HEADERS)


@contextmanager
def telling(url: str) -> Iterator[Teller]:
    """A sender to a server, of which `url` is any address."""
    with wire(url) as connected:
        yield Teller(connected)


def directory(warehouse: Path, name: str) -> Path:
    """Where a table lies."""
    return warehouse / NAMESPACE / name


def create(warehouse: Path, *names: str) -> None:
    """Make the folders that tables have before they are published."""
    for name in names:
        (directory(warehouse, name) / "metadata").mkdir(parents=True)


def sfn_file(warehouse: Path, name: str) -> Path:
    """A table's SFN file."""
    (key, *_) = FileLayout(directory(warehouse, name).as_uri()).keys(FileOwner((NAMESPACE,), name))
    return Path(key.removeprefix("file://"))
