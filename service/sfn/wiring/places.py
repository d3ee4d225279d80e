"""From the settings to where things are kept: the stores, and the place of the inbox."""

from __future__ import annotations

from pathlib import Path

from sfn.clock import SystemClock
from sfn.inbox.sqlite import SqliteInbox, held_by
from sfn.inbox.terms import Terms
from sfn.settings import Settings
from sfn.store import PointerStore
from sfn.store.local import LocalStore


def stores_of(settings: Settings) -> dict[str, PointerStore]:
    """The configured stores, by canonical prefix."""
    return {
        one.prefix: LocalStore(one.prefix, unsafe=one.unsafe_unconditional_writes) for one in settings.stores.values()
    }


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
