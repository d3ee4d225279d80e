"""From the settings to the inbox: which adapter it is, who has it, whether one could be kept there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import NoReturn, Protocol

from sfn.clock import Clock, SystemClock
from sfn.inbox import AdminQueries, CatalogAdmin, DeadLetters, DropLimit, InboxWriter, JobQueue, TableIndex
from sfn.inbox.model import CommittedTransaction, InboxConfig
from sfn.inbox.postgres import PostgresInbox, PostgresServer, PreflightResult, preflight
from sfn.inbox.sqlite import Doubt, SqliteInbox, held_by, placed
from sfn.settings import Settings
from sfn.wiring.terms import inbox_config


class InboxAdapter(InboxWriter, JobQueue, TableIndex, DropLimit, AdminQueries, DeadLetters, CatalogAdmin, Protocol):
    """All faces of an inbox, and who looks after it."""

    async def run_maintenance(self, retention: timedelta) -> NoReturn:
        """Keep it small, for ever: a sibling of what uses it.

        Args:
            retention: how long events are kept.

        Raises:
            Broken: as soon as the inbox can't be trusted any more.
        """
        ...


def open_inbox(
    settings: Settings, clock: Clock, observe: Callable[[CommittedTransaction], None]
) -> AbstractAsyncContextManager[InboxAdapter]:
    """The configured inbox; closed in the end.

    Args:
        observe: told of every transaction.

    Raises:
        Broken: it can't be used, or not by this process.
        Transient: scope inbox: there is no room, or no answer.
    """
    terms, limit = inbox_config(settings), settings.listener.queue_limit
    if settings.inbox.path is not None:
        return SqliteInbox.opened(settings.inbox.path, terms, clock, queue_limit=limit, observe=observe)
    return PostgresInbox.opened(_server(settings), terms, clock, queue_limit=limit, observe=observe)


def is_shared(settings: Settings) -> bool:
    """Whether other processes may have the configured inbox too: what one of them is told of it, others find there."""
    return settings.inbox.path is None


def process_holding(file: Path) -> str | None:
    """Which process has an inbox in a file just now, None for none.

    Raises:
        Broken: nobody can tell.
    """
    return held_by(file)


def placement_problem(file: Path) -> Doubt | None:
    """What speaks against the place of an inbox in a file; None for nothing.

    Raises:
        Broken: the file is mounted without its folder.
    """
    return placed(file)


async def try_inbox(file: Path) -> None:
    """Make an inbox in a file that is not there, open it and close it again.

    Raises:
        SfnError: none can be kept there.
    """
    async with SqliteInbox.opened(file, InboxConfig(), SystemClock()):
        pass


async def check_database(settings: Settings) -> PreflightResult:
    """What is found of the configured database; no row of it is touched.

    Raises:
        SfnError: none can be kept there.
    """
    return await preflight(_server(settings), SystemClock())


def _server(settings: Settings) -> PostgresServer:
    return PostgresServer(settings.inbox.url, settings.inbox.password_file)
