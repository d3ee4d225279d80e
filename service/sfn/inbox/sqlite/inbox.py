"""The inbox of one process, in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn

import anyio
import anyio.to_thread
import structlog

from sfn.clock import Clock
from sfn.domain.events import InboxMessage, Notification, PutResult, TableReport, UndecodableRequest
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import BackwardStep, Capacity, IndexedTable, LeasedJob, Outcome
from sfn.errors import Transient
from sfn.inbox import ClaimResult
from sfn.inbox.maintenance import (
    CLOSED_LETTER_RETENTION,
    INDEX_PAGE_SIZE,
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
from sfn.inbox.scheduling import WorkerSignal
from sfn.inbox.sqlite.database_file import InboxLock, placed
from sfn.inbox.sqlite.errors import refusal
from sfn.inbox.sqlite.group_commit import GroupCommitter
from sfn.inbox.sqlite.operations import SqliteOperations
from sfn.inbox.statistics import DropLimitState, QueueStats

_log = structlog.stdlib.get_logger(__name__)


def _ignore_commit(_: CommittedTransaction) -> None:
    pass


class SqliteInbox:
    """Implements `InboxWriter`, `JobQueue`, `TableIndex`, `DropLimit` and the ports of operators.

    It is for one event loop and one worker; `opened` creates it.
    """

    def __init__(self, committer: GroupCommitter, signal: WorkerSignal, clock: Clock) -> None:
        self._committer, self._signal, self._clock = committer, signal, clock

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        path: Path,
        config: InboxConfig,
        clock: Clock,
        *,
        queue_limit: int = 10_000,
        observe: Callable[[CommittedTransaction], None] = _ignore_commit,
    ) -> AsyncIterator[SqliteInbox]:
        """Open the inbox in a file, or create it; lock it against other processes, and close it at the end.

        All leases of the last process are taken back.

        Args:
            path: the file, or a link to it.
            config: the configuration of the inbox.
            clock: the wall clock.
            queue_limit: most messages that may wait for the disk.
            observe: called after every transaction.

        Raises:
            FatalError: another process has the inbox open, a newer version wrote it, it can't be read and written, or
                it is mounted without its folder.
            Transient: scope inbox: the disk is full.
        """
        lock, operations = await _locked(path, config, clock.now())
        signal = WorkerSignal(clock)

        def committed(commit: CommittedTransaction) -> None:
            if commit.may_make_due:
                signal.notify()
            observe(commit)

        committer = GroupCommitter(
            operations, str(path), missing=lock.missing, queue_limit=queue_limit, committed=committed
        )
        try:
            yield cls(committer, signal, clock)
        finally:
            if await committer.close():
                lock.release()

    async def run_maintenance(self, retention: timedelta, every: float = MAINTENANCE_INTERVAL) -> NoReturn:
        """Delete old events and dead letters at intervals, until cancelled.

        Args:
            retention: time until an event is deleted.
            every: seconds between two runs.

        Raises:
            FatalError: as soon as the inbox cannot be trusted any more.
        """
        troubles = InboxErrorLog(self._clock, "tending")
        while True:
            with anyio.move_on_after(every):
                raise await self._committer.broken()
            # A later run has the same work.
            with suppress(Transient), troubles.log_errors():
                await self.run_maintenance_once(retention)

    async def run_maintenance_once(self, retention: timedelta) -> int:
        """Delete old events and dead letters, and checkpoint; return the number of deleted events."""
        now = self._clock.now()
        total = await self._pruned(lambda operations: operations.prune(now - retention, PRUNE_BATCH_SIZE))
        await self._pruned(lambda operations: operations.admin.prune(now - CLOSED_LETTER_RETENTION, PRUNE_BATCH_SIZE))
        await self._committer.run(SqliteOperations.checkpoint, alone=True)
        return total

    async def _pruned(self, prune: Callable[[SqliteOperations], int]) -> int:
        pruned, total = PRUNE_BATCH_SIZE, 0
        while pruned == PRUNE_BATCH_SIZE:
            pruned = await self._committer.run(prune)
            total += pruned
            await anyio.sleep(0.02)
        return total

    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        return await self._committer.put(messages, self._clock.now())

    async def wait(self, until: datetime | None) -> None:
        await self._signal.wait(until)

    async def claim(self, capacity: Capacity, running: Sequence[LeasedJob] = ()) -> ClaimResult:
        self._signal.clear()
        return await self._committer.run(lambda operations: operations.claim(capacity, self._clock.now(), running))

    async def renew(self, claims: Sequence[LeasedJob]) -> list[LeasedJob]:
        renewed = await self._committer.run(lambda operations: operations.renew(claims, self._clock.now()))
        if len(renewed) < len(claims):
            self._signal.notify()
        return renewed

    async def record_location(
        self, claim: LeasedJob, layout_key: str, uuid: str | None
    ) -> frozenset[TableIdentifier] | None:
        now = self._clock.now()
        others = await self._committer.run(lambda operations: operations.record_location(claim, layout_key, uuid, now))
        if others:
            self._signal.notify()
        return others

    async def allow_step(self, claim: LeasedJob, step: BackwardStep, now: datetime) -> bool:
        return await self._committer.run(lambda operations: operations.allow_step(claim, step, now))

    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        return await self._committer.run(lambda operations: operations.settle(claim, outcome, now), may_make_due=True)

    async def tables(self, catalog: str) -> AsyncIterator[IndexedTable]:
        page: list[tuple[str, IndexedTable]] = []
        while page := await self._known_after(catalog, page[-1][0] if page else ""):
            for _, known in page:
                yield known

    async def _known_after(self, catalog: str, after: str) -> list[tuple[str, IndexedTable]]:
        return await self._committer.run(
            lambda operations: operations.table_index.known(catalog, after, INDEX_PAGE_SIZE)
        )

    async def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        return await self._committer.run(lambda operations: operations.table_index.with_uuid(catalog, uuid))

    async def reported_tables(self, table: TableIdentifier) -> tuple[TableReport, ...]:
        return await self._committer.run(lambda operations: operations.reported_tables(table))

    async def at_location(self, table: TableIdentifier, location: str) -> frozenset[TableIdentifier]:
        return await self._committer.run(lambda operations: operations.at_location(table, location))

    async def max_missing(self, catalog: str) -> int:
        return await self._committer.run(lambda operations: operations.max_missing(catalog))

    async def release(self, catalog: str, command: AdminCommand) -> int:
        batch = await self._released(catalog, command, None)
        while batch.has_more:
            batch = await self._released(catalog, command, batch)
        return batch.count

    async def _released(self, catalog: str, order: AdminCommand, before: CommandProgress | None) -> CommandProgress:
        return await self._committer.run(
            lambda operations: operations.admin.release(catalog, order, before), may_make_due=True
        )

    async def stats(self) -> QueueStats:
        now = self._clock.now()
        return await self._committer.run(lambda operations: operations.admin.stats(now))

    async def table_status(self, subject: JobKey) -> TableStatus | None:
        return await self._committer.run(lambda operations: operations.admin.table_status(subject))

    async def drop_limit_state(self, catalog: str) -> DropLimitState:
        now = self._clock.now()
        return await self._committer.run(lambda operations: operations.admin.drop_limit_state(catalog, now))

    async def audit_log(self, before: int | None, limit: int) -> list[AuditEntry]:
        return await self._committer.run(lambda operations: operations.admin.audit_log(before, limit))

    async def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        return await self._committer.run(lambda operations: operations.admin.list_after(letter_filter, after, limit))

    async def list_newest(self, letter_filter: DeadLetterFilter, limit: int) -> list[DeadLetter]:
        return await self._committer.run(lambda operations: operations.admin.list_newest(letter_filter, limit))

    async def get_many(self, ids: Sequence[int]) -> list[DeadLetter]:
        return await self._committer.run(lambda operations: operations.admin.get_many(ids))

    async def request_of(self, letter_id: int) -> UndecodableRequest | None:
        return await self._committer.run(lambda operations: operations.admin.request_of(letter_id))

    async def replay(self, ids: Sequence[int], notifications: Sequence[Notification], command: AdminCommand) -> int:
        return await self._committer.run(
            lambda operations: operations.admin.replay(ids, notifications, command), may_make_due=True
        )

    async def discard(self, ids: Sequence[int], command: AdminCommand) -> int:
        return await self._committer.run(lambda operations: operations.admin.discard(ids, command))

    async def reconcile(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        await self._committer.run(
            lambda operations: operations.admin.reconcile(notifications, command), may_make_due=True
        )

    async def adopt(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        await self._committer.run(lambda operations: operations.admin.adopt(notifications, command), may_make_due=True)

    async def retire(self, catalog: str, *, retired: bool, command: AdminCommand) -> None:
        await self._committer.run(lambda operations: operations.admin.retire(catalog, retired=retired, command=command))

    async def owner_id(self, catalog: str) -> str | None:
        return await self._committer.run(lambda operations: operations.admin.owner_id(catalog))

    async def record_owner(self, catalog: str, catalog_id: str) -> None:
        await self._committer.run(lambda operations: operations.admin.record_owner(catalog, catalog_id))

    async def retired_catalogs(self) -> frozenset[str]:
        return await self._committer.run(lambda operations: operations.admin.retired_catalogs())


async def _locked(named: Path, config: InboxConfig, now: datetime) -> tuple[InboxLock, SqliteOperations]:
    """Lock a file and open the database in it."""
    # SQLite, too, puts its log next to the target of a link.
    path = Path(await anyio.to_thread.run_sync(os.path.realpath, named))
    doubt = await anyio.to_thread.run_sync(placed, path)
    if doubt is not None:
        _log.warning("doubtful place for the inbox", found=doubt.found, remedy=doubt.remedy)
    lock = InboxLock(path)
    try:
        operations = await anyio.to_thread.run_sync(_opened, path, config, now)
        lock.watch(named)
    except BaseException:
        lock.release()
        raise
    return lock, operations


def _opened(path: Path, config: InboxConfig, now: datetime) -> SqliteOperations:
    try:
        # The log shows whether the inbox is new: its file may be lost, or another disk mounted in its place.
        new = not path.exists() or path.stat().st_size == 0
        operations = SqliteOperations(str(path), config)
        taken_back = operations.recover(now)
    except sqlite3.Error as error:
        refused = refusal(error, str(path))
        if refused is None:
            raise
        raise refused from error
    _log.info("inbox opened", path=str(path), new=new, leases_taken_back=taken_back)
    return operations
