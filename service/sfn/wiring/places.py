"""From the settings to where things are kept: the stores, and the place of the inbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sfn.clock import SystemClock
from sfn.inbox.sqlite import SqliteInbox, held_by
from sfn.inbox.terms import Terms
from sfn.settings import Settings, StoreSettings
from sfn.store import PointerStore
from sfn.store.local import LocalStore
from sfn.wiring.remote import Remotes


@asynccontextmanager
async def opened_stores(settings: Settings) -> AsyncIterator[dict[str, PointerStore]]:
    """The configured stores, by canonical prefix; their connections are closed in the end.

    Raises:
        SfnError: a store's packages are not installed.
    """
    remotes = Remotes()
    try:
        yield {one.prefix: _store(name, one, remotes) for name, one in settings.stores.items()}
    finally:
        await remotes.close()


def _store(name: str, settings: StoreSettings, remotes: Remotes) -> PointerStore:
    if settings.scheme == "file":
        return LocalStore(settings.prefix, unsafe=settings.unsafe_unconditional_writes)
    return remotes.store(name, settings)


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
