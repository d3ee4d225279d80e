"""One table in two catalogs, a service for each: the files follow the catalog that had them first, at every moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from sfn.sfnfile import version_hint
from tests.faults import inboxes
from tests.faults.files import Pointed
from tests.faults.lake import Lake, Table, serving
from tests.faults.service import Service, Setting, eventually, running

COMMITS = 30
BETWEEN = 0.1
LOOK_EVERY = 0.01
Record = Callable[[str, object], None]


@dataclass
class Poller:
    """A reader that looks at the two files all the time.

    Attributes:
        looks: how often it looked.
        pointers, hints: what it saw, and how often.
    """

    lake: Lake
    name: str
    looks: int = 0
    pointers: list[str | None] = field(default_factory=list)
    hints: list[str | None] = field(default_factory=list)

    async def run(self) -> None:
        """Look for ever; remember every change."""
        while True:
            seen: Pointed = self.lake.pointed(self.name)
            pointer = seen.document.metadata_file_path if seen.document is not None else None
            for history, value in ((self.pointers, pointer), (self.hints, seen.hint)):
                if not history or history[-1] != value:
                    history.append(value)
            self.looks += 1
            await anyio.sleep(LOOK_EVERY)


@pytest.mark.parametrize("name", ["orders", "orders_of_theirs"])
async def test_the_files_follow_their_owner_only(name: str, tmp_path: Path, record_property: Record) -> None:
    """Registered in the second catalog under the same name, or under another."""
    ours = Lake(tmp_path / "warehouse")
    theirs = Lake(ours.warehouse)
    table = ours.create("orders", by="ours-")
    other = Table(table.uuid, table.directory, table.location, [*table.history])
    theirs.tables[name] = other
    async with (
        serving(ours),
        serving(theirs),
        running(Setting(tmp_path / "ours", ours.uri, ours.warehouse, sweep="1s")) as owner,
    ):
        await eventually(lambda: not ours.wrong())
        poller = Poller(ours, "orders")
        async with running(Setting(tmp_path / "theirs", theirs.uri, ours.warehouse, sweep="1s")) as stranger:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(poller.run)
                await _committed((ours, "orders", owner), (theirs, name, stranger))
                await eventually(lambda: not ours.wrong())
                tasks.cancel_scope.cancel()
            letters = inboxes.letters(stranger.setting.database)
    figures = {
        "commits": {"ours": len(table.history), "theirs": len(other.history)},
        "looks": poller.looks,
        "pointers": _whose(poller.pointers),
        "hints": _whose(poller.hints),
        "letters_of_theirs": letters,
    }
    record_property(name, figures)
    print(f"{name}:", figures)
    assert _is_within(poller.pointers, table.history)
    assert _is_within(poller.hints, [version_hint.text_for(pointer) for pointer in table.history])
    assert len(poller.pointers) > COMMITS / 3
    assert letters == ({"foreign-catalog": 1} if name == "orders" else {})


async def _committed(*sides: tuple[Lake, str, Service]) -> None:
    """Commit to both catalogs in turn, and tell each one's service."""
    for number in range(COMMITS):
        for (lake, name, service), by in zip(sides, ("ours-", "theirs-"), strict=True):
            pointer = lake.tables[name].commit(by=by)
            assert await service.post(name, f"{by}{number}", metadata_location=pointer) == 202
            await anyio.sleep(BETWEEN / 2)


def _is_within(seen: list[str | None], history: list[str | None] | list[str]) -> bool:
    """Whether what was seen is a part of a history, in its order."""
    rest = iter(history)
    return all(value in rest for value in seen)


def _whose(seen: list[str | None]) -> dict[str, int]:
    """How many of what was seen are whose."""
    return dict(Counter("none" if value is None else "theirs" if "theirs-" in value else "ours" for value in seen))
