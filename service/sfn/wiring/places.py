"""From the settings to where things are kept: the stores, and the place of the inbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sfn.clock import SystemClock
from sfn.inbox.sqlite import SqliteInbox, held_by
from sfn.inbox.terms import Terms
from sfn.settings import Settings, StoreSettings
from sfn.store import PointerStore
from sfn.store.local import LocalStore
from sfn.wiring.remote import Remotes
from sfn.work.vended import Opened


@dataclass(frozen=True, slots=True)
class Shelf:
    """The stores of one process.

    Attributes:
        stores: those that are configured, by canonical prefix.
        granted: opens others, with what a catalog vends.
    """

    stores: Mapping[str, PointerStore]
    granted: Opened


@asynccontextmanager
async def shelf(settings: Settings) -> AsyncIterator[Shelf]:
    """The stores; their connections are closed in the end.

    Raises:
        SfnError: a store's packages are not installed.
    """
    remotes = Remotes(settings.stores)
    try:
        stores = {one.prefix: _store(name, one, remotes) for name, one in settings.stores.items()}
        yield Shelf(stores, remotes.granted)
    finally:
        await remotes.close()


def _store(name: str, settings: StoreSettings, remotes: Remotes) -> PointerStore:
    if settings.scheme == "file":
        return LocalStore(settings.prefix, unsafe=settings.unsafe_unconditional_writes)
    return remotes.store(name)


def inbox_holder(settings: Settings) -> str | None:
    """Which process has the configured inbox just now, None for none.

    Raises:
        Broken: nobody can tell.
    """
    return held_by(settings.inbox.path.resolve())


async def try_inbox(path: Path) -> None:
    """Make an inbox at a path where there is none, open it and close it again.

    Raises:
        SfnError: none can be kept there.
    """
    async with SqliteInbox.opened(path, Terms(), SystemClock()):
        pass
