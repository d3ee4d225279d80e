"""The inbox that any number of processes share, in a PostgreSQL database."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final, NoReturn

import anyio
import structlog

from sfn.clock import Clock
from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.errors import Transient
from sfn.inbox.maintenance import (
    CLOSED_LETTER_RETENTION,
    MAINTENANCE_INTERVAL,
    PRUNE_BATCH_SIZE,
    CommandProgress,
    InboxErrorLog,
)
from sfn.inbox.model import (
    AdminCommand,
    AuditEntry,
    CommittedTransaction,
    DeadLetter,
    DeadLetterFilter,
    InboxConfig,
    TableStatus,
)
from sfn.inbox.postgres import schema
from sfn.inbox.postgres.database import OpenedDatabase, prepared, reached
from sfn.inbox.postgres.job_queue import PostgresJobQueue
from sfn.inbox.postgres.schema import MIGRATIONS, Migration
from sfn.inbox.postgres.server import PostgresServer
from sfn.inbox.postgres.transaction import InboxTransaction
from sfn.inbox.statistics import DropLimitState, QueueStats

STATS_MAX_AGE: Final = 5.0
"""Seconds."""
LISTEN_CHECK_INTERVAL: Final = 5.0
"""Seconds between two checks of the schema's version."""

_log = structlog.stdlib.get_logger(__name__)


def _ignore_commit(_: CommittedTransaction) -> None:
    pass


class PostgresInbox(PostgresJobQueue):
    """An inbox that implements all ports, for one event loop and one worker; other processes may share the database.

    `opened` makes it.
    """

    def __init__(
        self,
        there: OpenedDatabase,
        config: InboxConfig,
        clock: Clock,
        *,
        queue_limit: int = 10_000,
        observe: Callable[[CommittedTransaction], None] = _ignore_commit,
        stats_max_age: float = STATS_MAX_AGE,
        version: int = len(MIGRATIONS),
    ) -> None:
        super().__init__(there, config, clock, queue_limit=queue_limit, observe=observe)
        self._version = version
        self._figures = CachedStats(self._count, stats_max_age)

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        server: PostgresServer,
        config: InboxConfig,
        clock: Clock,
        *,
        queue_limit: int = 10_000,
        observe: Callable[[CommittedTransaction], None] = _ignore_commit,
        stats_max_age: float = STATS_MAX_AGE,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> AsyncIterator[PostgresInbox]:
        """Open the inbox in a database, and create missing tables; close all connections at the end.

        Args:
            server: address of the database.
            config: the configuration of the inbox.
            clock: the wall clock; the clocks of all processes must agree to a fraction of a lease.
            queue_limit: most messages that may wait.
            observe: called after every transaction.
            stats_max_age: greatest age of the statistics in seconds; 0 for current ones.
            migrations: the migrations of this version.

        Raises:
            FatalError: the database is not suitable, or a newer, incompatible version created the tables.
            Transient: scope inbox: the server has not answered for a while.
        """
        async with reached(server, config.stores) as there:
            new = await prepared(there, migrations)
            _log.info("inbox opened", database=there.where, new=new, pooled=there.connections.is_pooled)
            yield cls(
                there,
                config,
                clock,
                queue_limit=queue_limit,
                observe=observe,
                stats_max_age=stats_max_age,
                version=len(migrations),
            )

    async def run_maintenance(self, retention: timedelta, every: float = MAINTENANCE_INTERVAL) -> NoReturn:
        """Delete old events and dead letters at intervals, until cancelled; one of all processes does so at a time.

        Args:
            retention: time until an event is deleted.
            every: seconds between two runs.

        Raises:
            FatalError: a newer, incompatible version migrated the tables.
        """
        troubles = InboxErrorLog(self._clock, "tending")
        tended_at = anyio.current_time()
        while True:
            await anyio.sleep(min(every, LISTEN_CHECK_INTERVAL))
            # A later run has the same work.
            with suppress(Transient), troubles.log_errors():
                await self.check_version()
                await self._figures.refresh()
                if anyio.current_time() >= tended_at + every:
                    tended_at = anyio.current_time()
                    await self.run_maintenance_once(retention)

    async def run_maintenance_once(self, retention: timedelta) -> int:
        """Delete old events and dead letters unless another process does so; return the number of deleted events."""
        now = self._clock.now()
        total = await self._pruned(lambda unit: unit.events.prune(now - retention, PRUNE_BATCH_SIZE))
        await self._pruned(lambda unit: unit.letters.prune(now - CLOSED_LETTER_RETENTION, PRUNE_BATCH_SIZE))
        return total

    async def check_version(self) -> None:
        """Check that this version may still work on the tables.

        Raises:
            FatalError: a newer, incompatible version migrated them.
        """
        schema.check(await self._transactions.on_tables(schema.found), self._where, self._version)

    async def release(self, catalog: str, command: AdminCommand) -> int:
        batch = await self._released(catalog, command, None)
        while batch.has_more:
            batch = await self._released(catalog, command, batch)
        return batch.count

    async def stats(self) -> QueueStats:
        """Return the statistics of the inbox; they may be some seconds old."""
        return await self._figures()

    async def table_status(self, subject: JobKey) -> TableStatus | None:
        return await self._unhurried(lambda unit: self._operations.admin.table_status(unit, subject))

    async def drop_limit_state(self, catalog: str) -> DropLimitState:
        now = self._clock.now()
        return await self._unhurried(lambda unit: self._operations.admin.drop_limit_state(unit, catalog, now))

    async def audit_log(self, before: int | None, limit: int) -> list[AuditEntry]:
        return await self._unhurried(lambda unit: unit.letters.audit_log(before, limit))

    async def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        return await self._unhurried(lambda unit: unit.letters.list_after(letter_filter, after, limit))

    async def list_newest(self, letter_filter: DeadLetterFilter, limit: int) -> list[DeadLetter]:
        return await self._unhurried(lambda unit: unit.letters.list_newest(letter_filter, limit))

    async def get_many(self, ids: Sequence[int]) -> list[DeadLetter]:
        return await self._unhurried(lambda unit: unit.letters.get_many(ids))

    async def request_of(self, letter_id: int) -> UndecodableRequest | None:
        return await self._unhurried(lambda unit: unit.letters.request_of(letter_id))

    async def replay(self, ids: Sequence[int], notifications: Sequence[Notification], command: AdminCommand) -> int:
        also = set[JobKey]()
        count = await self._unhurried(
            lambda unit: self._operations.admin.replay(unit, ids, notifications, command, also)
        )
        await self._stir()
        return count

    async def discard(self, ids: Sequence[int], command: AdminCommand) -> int:
        return await self._unhurried(lambda unit: self._operations.admin.discard(unit, ids, command))

    async def reconcile(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        await self._notify_all("reconcile", notifications, command)

    async def adopt(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        await self._notify_all("adopt", notifications, command)

    async def retire(self, catalog: str, *, retired: bool, command: AdminCommand) -> None:
        await self._unhurried(lambda unit: self._operations.admin.retire(unit, catalog, command, retired=retired))

    async def owner_id(self, catalog: str) -> str | None:
        return await self._unhurried(lambda unit: unit.catalogs.owner_id(catalog))

    async def record_owner(self, catalog: str, catalog_id: str) -> None:
        await self._unhurried(lambda unit: unit.catalogs.record_owner(catalog, catalog_id))

    async def retired_catalogs(self) -> frozenset[str]:
        return await self._unhurried(lambda unit: unit.catalogs.retired_catalogs())

    async def _count(self) -> QueueStats:
        now = self._clock.now()
        return await self._ran(lambda unit: self._operations.admin.stats(unit, now), wide=True)

    async def _released(self, catalog: str, order: AdminCommand, before: CommandProgress | None) -> CommandProgress:
        batch = await self._unhurried(lambda unit: self._operations.admin.release(unit, catalog, order, before))
        await self._stir()
        return batch

    async def _notify_all(self, action: str, notifications: Sequence[Notification], order: AdminCommand) -> None:
        also = set[JobKey]()
        await self._unhurried(lambda unit: self._operations.admin.notify(unit, action, notifications, order, also))
        await self._stir()

    async def _pruned(self, prune: Callable[[InboxTransaction], Awaitable[int]]) -> int:
        async def alone(unit: InboxTransaction) -> int:
            return await prune(unit) if await unit.alone() else 0

        pruned, total = PRUNE_BATCH_SIZE, 0
        while pruned == PRUNE_BATCH_SIZE:
            pruned = await self._unhurried(alone)
            total += pruned
            await anyio.sleep(0.02)
        return total


SHARE: Final = 20
"""The database counts for at most one of this many seconds."""
WANTED: Final = 300.0
"""Seconds after the last read until the cache is not refreshed any more: most scrapers read more often."""


class CachedStats:
    """A cache of the statistics, a few seconds old, because counting reads all jobs.

    Args:
        count: counts.
        max_age: greatest age in seconds; longer if counting takes long.
    """

    def __init__(self, count: Callable[[], Awaitable[QueueStats]], max_age: float) -> None:
        self._count, self._max_age = count, max_age
        self._figures: QueueStats | None = None
        self._begun_at = self._due_at = self._pause = 0.0
        self._asked_at = -math.inf
        self._counting = anyio.Lock()

    async def __call__(self) -> QueueStats:
        """Return the statistics; the first call, and a call after a long pause, waits until they are counted."""
        self._asked_at = now = anyio.current_time()
        # Twice the pause: a reader must not wait, and `refresh` may.
        if self._figures is None or now >= self._due_at + self._pause:
            return await self._counted()
        return self._figures

    async def refresh(self) -> None:
        """Count the statistics if they are due and were read recently, also if the first reader stopped waiting."""
        now = anyio.current_time()
        if self._due_at <= now < self._asked_at + WANTED:
            await self._counted()

    async def _counted(self) -> QueueStats:
        asked_at = anyio.current_time()
        async with self._counting:
            if self._figures is None or self._begun_at < asked_at:
                self._begun_at = anyio.current_time()
                self._figures = await self._count()
                ended_at = anyio.current_time()
                self._pause = max(self._max_age, SHARE * (ended_at - self._begun_at)) if self._max_age else 0.0
                self._due_at = ended_at + self._pause
            return self._figures
