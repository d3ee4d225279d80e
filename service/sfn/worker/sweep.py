"""Sweeps: compare every table of a catalog with the inbox or with its files, and notify about each difference."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Generic, TypeVar

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream

from sfn.catalogs import Catalog, Loaded, LoadResult, NoSuchTable, NotModified, UnlistedNamespace
from sfn.clock import Clock
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier, is_in_namespaces
from sfn.domain.jobs import IndexedTable, PublishedPointer, SweepCompleted
from sfn.errors import ErrorScope, ExternalError, FatalError
from sfn.inbox.catalogs import NamedTable, without_old_names
from sfn.inbox.inbox import Inbox
from sfn.publish.dry_run import DifferenceKind, TableDifference, compare_published
from sfn.publish.policy import OnDrop, Policy
from sfn.sfnfile.locations import canonical, store_prefix
from sfn.worker.comparison import CONCURRENT_COMPARISONS, TableComparer, TableComparison

T = TypeVar("T")

MAX_QUEUED: Final = 256
"""Items that wait in a `BoundedQueue`, unless it is created with another bound."""


class BoundedQueue(Generic[T]):
    """A queue from one producer to many consumers, in order.

    Unlike the streams of anyio, `get` does not yield to the event loop while items wait.

    Args:
        max_queued: most items that wait.
    """

    def __init__(self, max_queued: int = MAX_QUEUED) -> None:
        self._queued: deque[T] = deque()
        self._max_queued = max_queued
        self._has_items, self._has_room = anyio.Event(), anyio.Event()
        self._is_closed = False

    async def put(self, item: T) -> None:
        """Add an item, once there is room."""
        while len(self._queued) >= self._max_queued:
            self._has_room = anyio.Event()
            await self._has_room.wait()
        self._queued.append(item)
        self._has_items.set()

    def close(self) -> None:
        """End the queue after the items that wait."""
        self._is_closed = True
        self._has_items.set()

    async def get(self) -> T | None:
        """Return the next item; None at the end."""
        while not self._queued:
            if self._is_closed:
                return None
            if self._has_items.is_set():
                self._has_items = anyio.Event()
            await self._has_items.wait()
        item = self._queued.popleft()
        if len(self._queued) <= self._max_queued // 2:
            self._has_room.set()
        return item


MAX_LISTED: Final = 1_000
"""Most tables that a report names; the others are only counted."""


class SweepPhase(StrEnum):
    """Phase of a sweep."""

    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(slots=True)
class SweepReport:
    """The progress and result of one sweep; updated while the sweep runs.

    Attributes:
        started_at: start of the sweep.
        ended_at: end of the sweep; None while it runs.
        phase: phase of the sweep.
        known_tables: number of tables known before the sweep, about as many as there are to check.
        tables: number of checked tables.
        is_thorough: True if the sweep reads the SFN files, as the sweep of an operator does.
        differences: the first `MAX_LISTED` differing tables with their differences.
        difference_count: number of differing tables.
        held: those of `differences` that the drop limit holds.
        unlisted_namespaces: dotted names of the namespaces that could not be listed. Tables in and below them count as
            present.
        unlisted_reason: reason for the first unlisted namespace; a failure takes precedence over a missing permission.
        listing_failed: the unlisted namespaces with a failed listing; for the others the permission is missing.
        failed_tables: the first `MAX_LISTED` tables that could not be checked.
        failed_count: number of tables that could not be checked.
        failed_reason: text of the first of their errors.
        error: text of the error that ended the sweep.
        missing_tables: number of tables with a live file that the catalog does not show under any name.
        previous: the previous sweep of this process, while this one runs; its result may be out of date.
    """

    started_at: datetime
    ended_at: datetime | None = None
    phase: SweepPhase = SweepPhase.RUNNING
    known_tables: int = 0
    tables: int = 0
    is_thorough: bool = False
    differences: list[TableDifference] = field(default_factory=list)
    difference_count: int = 0
    held: set[TableIdentifier] = field(default_factory=set)
    unlisted_namespaces: list[str] = field(default_factory=list)
    unlisted_reason: str | None = None
    listing_failed: list[str] = field(default_factory=list)
    failed_tables: list[TableIdentifier] = field(default_factory=list)
    failed_count: int = 0
    failed_reason: str | None = None
    error: str | None = None
    missing_tables: int = 0
    previous: SweepReport | None = None

    def add_difference(self, difference: TableDifference, *, is_held: bool = False) -> None:
        """Add a differing table; `is_held` if the drop limit holds it."""
        self.difference_count += 1
        if len(self.differences) < MAX_LISTED:
            self.differences.append(difference)
            self.held |= {difference.table} if is_held else set()

    def add_unlisted(self, name: str, found: UnlistedNamespace) -> None:
        """Add an unlisted namespace by its dotted name."""
        if self.unlisted_reason is None or (found.is_failure and not self.listing_failed):
            self.unlisted_reason = found.message
        self.unlisted_namespaces.append(name)
        if found.is_failure:
            self.listing_failed.append(name)

    def add_failed(self, table: TableIdentifier, reason: str) -> None:
        """Add a table that could not be checked, and the reason."""
        self.failed_count += 1
        self.failed_reason = self.failed_reason or reason
        if len(self.failed_tables) < MAX_LISTED:
            self.failed_tables.append(table)

    def finish(self, phase: SweepPhase, at: datetime, error: str | None = None) -> None:
        """End the report and forget the previous one."""
        self.phase, self.ended_at, self.error, self.previous = phase, at, error, None


CONCURRENT_LOADS = 16
"""Tables that are loaded at a time."""
BATCH_SIZE = 200
"""Notifications per transaction."""
MAX_LOGGED = 100
"""Most namespaces, or tables, that a log record names."""

_ABSENT: Final = "the catalog does not have the table any more"

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SweepPorts:
    """Ports of a sweep."""

    catalog: Catalog
    inbox: Inbox
    clock: Clock


class CatalogSweep:
    """One sweep of a catalog.

    The sweep puts a notification for each difference as soon as it finds one. Missing tables get notifications only
    after every table was checked; all of them are marked `hold_drops` if they are more than the drop limit allows. A
    missing table that has another name now is reported as renamed, because no other part of the listener knows that
    before the job of the new name has settled. Tables in unlisted namespaces count as present. A held table that is
    back gets a notification, which ends the hold.

    The sweep of an operator has a comparer. It reads the files of each table, as a dry run does. Each table that
    differs is checked again without its cache, also if it was given up. A hold of the drop limit stays.

    Args:
        subject: the catalog.
        ports: the ports.
        policy: the settings of the catalog.
        comparer: compares tables with their files; None to compare them with what the inbox remembers.

    Attributes:
        subject: the catalog.
        report: the result so far.
    """

    def __init__(
        self, subject: CatalogName, ports: SweepPorts, policy: Policy, comparer: TableComparer | None = None
    ) -> None:
        self.subject, self._ports, self._policy, self._comparer = subject, ports, policy, comparer
        self._is_thorough = comparer is not None
        self.report = SweepReport(ports.clock.now(), is_thorough=self._is_thorough)
        self._notifications: list[Notification] = []
        self._missing: list[TableIdentifier] = []
        self._name_by_uuid: dict[str, TableIdentifier] = {}
        self._replaced: set[TableIdentifier] = set()
        self._unconfirmed: set[TableIdentifier] = set()
        self._listed: set[TableIdentifier] = set()
        self._unlisted: dict[str, str] = {}
        self._failed_stores: dict[str, str] = {}
        self._notified = 0

    async def run(self, jitter: float) -> SweepCompleted:
        """Run the sweep.

        Args:
            jitter: random number in [0, 1), to spread the start of the next sweep.

        Raises:
            ExternalError: the catalog or the inbox failed; no missing table was reported.
            FatalError: the inbox cannot be trusted any more.
        """
        began = self.report.started_at
        known = {row.table: row async for row in self._ports.inbox.tables(self.subject.catalog)}
        self.report.known_tables = len(known)
        try:
            await self._check_all(known)
        except ExternalError:
            await self._flush()
            raise
        await self._flush()
        self._log_unlisted()
        self._log_failed()
        within_limit = await self._report_missing(known)
        pause = self._policy.sweep_every * (0.9 + jitter / 5)
        # A sweep that takes longer than its interval is also followed by a pause.
        due_at = max(began + pause, self._ports.clock.now() + pause / 10)
        found = self.report
        return SweepCompleted(
            due_at, began, within_limit, found.tables, found.difference_count, frozenset(self._unlisted)
        )

    async def _check_all(self, known: Mapping[TableIdentifier, IndexedTable]) -> None:
        concurrency = CONCURRENT_COMPARISONS if self._is_thorough else CONCURRENT_LOADS
        send, receive = anyio.create_memory_object_stream[TableIdentifier](concurrency)
        try:
            async with anyio.create_task_group() as tasks, send:
                for _ in range(concurrency):
                    tasks.start_soon(self._check_each, receive.clone(), known)
                receive.close()
                async for table in self._covered_tables():
                    self._listed.add(table)
                    await send.send(table)
        except ExceptionGroup as group:
            error = _most_severe(group)
        else:
            return
        raise error

    async def _covered_tables(self) -> AsyncIterator[TableIdentifier]:
        async for found in self._ports.catalog.tables(self._policy.table_filter.excludes_namespace):
            if isinstance(found, UnlistedNamespace):
                if (name := ".".join(found.namespace)) not in self._unlisted:
                    self.report.add_unlisted(name, found)
                self._unlisted[name] = found.message
            elif self._policy.table_filter.covers(found):
                yield found

    async def _check_each(
        self, tables: MemoryObjectReceiveStream[TableIdentifier], known: Mapping[TableIdentifier, IndexedTable]
    ) -> None:
        with tables:
            async for table in tables:
                try:
                    await self._check(table, known.get(table))
                except ExternalError as error:
                    if error.scope is not ErrorScope.TABLE:
                        raise
                    self._unconfirmed.add(table)
                    self.report.add_failed(table, str(error))

    async def _check(self, table: TableIdentifier, row: IndexedTable | None) -> None:
        if self._policy.is_retired and (row is None or row.live is None):
            return
        # A held table needs a full answer: "not modified" does not say whether the table equals its published state.
        # So does a comparison with files, for which the inbox remembers too little of the table.
        needs_full = self._is_thorough or (row is not None and row.is_on_hold)
        etag = row.etag if row is not None and row.live is not None and not needs_full else None
        answer = await self._ports.catalog.load(table, etag)
        compared = await self._compare_files(table, answer)
        self.report.tables += 1
        if row is not None and row.live is not None and not _shows(answer, row.live):
            self._unconfirmed.add(table)
        if isinstance(answer, NoSuchTable):
            self._missing.append(table)
        elif isinstance(answer, Loaded) and _differs(answer, row):
            if answer.table.uuid is not None and answer.table.skip_reason is None:
                self._name_by_uuid[answer.table.uuid] = table
            if row is not None and row.live is not None and row.live.uuid != answer.table.uuid:
                self._replaced.add(table)
            # Files that are right need a check as well: the inbox has an older state of them.
            live = row.live if row is not None else None
            difference = compared.difference if compared else compare_published(table, answer.table, live)
            self._add(difference, is_held=row is not None and row.is_on_hold)
            await self._notify(self._notification(table, answer))
        elif row is not None and row.is_on_hold:
            await self._check_held(table, row, answer, compared)
        elif isinstance(answer, Loaded) and compared is not None and compared.difference is not None:
            self._add(compared.difference)
            await self._notify(self._notification(table, answer))

    async def _check_held(
        self, table: TableIdentifier, row: IndexedTable, answer: LoadResult, compared: TableComparison | None
    ) -> None:
        difference = compared.difference if compared is not None else None
        if isinstance(answer, Loaded) and (_is_published(answer, row) or _was_absent(row)):
            self._add(difference)
            await self._notify(self._notification(table, answer))
        elif isinstance(answer, Loaded):
            self._add(difference or compare_published(table, answer.table, row.live), is_held=True)
        else:
            self._add(TableDifference(table, DifferenceKind.ABSENT, _ABSENT), is_held=True)

    async def _compare_files(self, table: TableIdentifier, answer: LoadResult) -> TableComparison | None:
        """Compare the files of a table with an answer; None if this is not a thorough sweep, or a store failed."""
        # The files of a retired catalog go, whatever they say.
        if self._comparer is None or self._policy.is_retired or not isinstance(answer, Loaded):
            return None
        store = store_prefix(canonical(answer.table.location))
        error_text = self._failed_stores.get(store)
        if error_text is None:
            try:
                return await self._comparer.compare_files(table, answer.table, answer)
            except ExternalError as error:
                if error.scope not in {ErrorScope.TABLE, ErrorScope.STORE}:
                    raise
                error_text = str(error)
                # Each read of a store that does not answer takes long. The sweep must end, to find missing tables.
                if error.scope is ErrorScope.STORE:
                    self._failed_stores[store] = error_text
        self.report.add_failed(table, error_text)
        return None

    def _add(self, difference: TableDifference | None, *, is_held: bool = False) -> None:
        if difference is not None:
            self.report.add_difference(difference, is_held=is_held)

    def _notification(
        self, table: TableIdentifier, answer: Loaded | None = None, *, hold_drops: bool = False
    ) -> Notification:
        """Return the notification about a differing table; `answer` is the catalog's, if it has the table."""
        return Notification(
            table,
            sender="sweep",
            min_metadata_location=answer.table.metadata_location if answer is not None else None,
            hold_drops=hold_drops,
            force=self._is_thorough,
            retry=self._is_thorough,
        )

    async def _notify(self, notification: Notification) -> None:
        self._notifications.append(notification)
        if len(self._notifications) >= BATCH_SIZE:
            await self._flush()

    async def _flush(self) -> None:
        notifications, self._notifications = self._notifications, []
        for start in range(0, len(notifications), BATCH_SIZE):
            batch = notifications[start : start + BATCH_SIZE]
            await self._ports.inbox.put(batch)
            self._notified += len(batch)

    async def _report_missing(self, known: Mapping[TableIdentifier, IndexedTable]) -> bool:
        """Report the missing tables; return True if they are within the drop limit.

        Tables that are held already count as well, because they wait for the same decision of an operator.
        """
        gone = set(self._missing) | (set(known) - self._listed)
        missing: list[TableIdentifier] = []
        excluded: list[TableIdentifier] = []
        unseen = sorted(table for table in gone if table in known and known[table].live is not None)
        if unseen:
            self._record_unchanged(known, gone)
        for table in unseen:
            if not self._policy.table_filter.covers(table):
                excluded.append(table)
            elif (name := self._current_name(known[table])) is not None:
                self._add(TableDifference(table, DifferenceKind.RENAMED, f"the catalog has it as {name.dotted}"))
            elif self._policy.on_drop is not OnDrop.KEEP and not self._is_unlisted(table):
                missing.append(table)
        self.report.missing_tables = len(missing)
        self._report_renames(known, gone)
        limit = await self._ports.inbox.max_missing(self.subject.catalog)
        # Held tables in unlisted namespaces may still be missing.
        unknown = [table for table, row in known.items() if row.is_on_hold and self._is_unlisted(table)]
        lost = without_old_names(_named_table(known[table]) for table in {*missing, *unknown})
        within_limit = len(lost) <= limit
        # A retry of an operator is also for tables that wait for one, except for those that the drop limit holds.
        notified = [
            table
            for table in (*missing, *excluded)
            if not (known[table].is_on_hold if self._is_thorough else known[table].is_stuck)
        ]
        held = {table for table in missing if not within_limit or known[table].is_on_hold}
        left_alone = set(excluded)
        for table in sorted({*notified, *held}):
            kind, detail = (
                (DifferenceKind.LEFT_OVER, "include or exclude leaves the table out")
                if table in left_alone
                else (DifferenceKind.ABSENT, _ABSENT)
            )
            self._add(TableDifference(table, kind, detail), is_held=table in held)
        self._notifications += [self._notification(table, hold_drops=table in held) for table in notified]
        await self._flush()
        if not within_limit:
            _log.warning(
                "drop limit reached",
                catalog=self.subject.catalog,
                missing=len(missing),
                known=sum(row.live is not None for row in known.values()),
                limit=limit,
                remedy=f"if the catalog lost tables, restore them; if they were dropped: sfn release {self.subject}",
            )
        _log.info(
            "sweep finished",
            catalog=self.subject.catalog,
            tables=len(self._listed),
            notifications=self._notified,
            missing=len(missing),
            limit=limit,
        )
        return within_limit

    def _report_renames(self, known: Mapping[TableIdentifier, IndexedTable], gone: set[TableIdentifier]) -> None:
        """Report the new names of missing tables, of tables with a reused name, and of tables missing since before."""
        for table, row in sorted(known.items()):
            lost = set(row.missing_uuids)
            if row.live is not None and row.live.uuid is not None and (table in gone or table in self._replaced):
                lost.add(row.live.uuid)
            names = {self._name_by_uuid[uuid] for uuid in lost & self._name_by_uuid.keys()} - {table}
            if self._policy.table_filter.covers(table):
                self._notifications += [Notification(table, sender="sweep", renamed_to=name) for name in sorted(names)]

    def _record_unchanged(self, known: Mapping[TableIdentifier, IndexedTable], gone: set[TableIdentifier]) -> None:
        """Record the names of the tables that equal their published state, by uuid."""
        for table in sorted(self._listed - gone - self._unconfirmed):
            row = known.get(table)
            if row is not None and row.live is not None and row.live.uuid is not None:
                self._name_by_uuid.setdefault(row.live.uuid, table)

    def _current_name(self, row: IndexedTable) -> TableIdentifier | None:
        """Return the other name under which a missing table was found; None if there is none."""
        return self._name_by_uuid.get(row.live.uuid or "") if row.live is not None else None

    def _is_unlisted(self, table: TableIdentifier) -> bool:
        """Return True if a table may exist in a namespace that could not be listed."""
        return table not in self._listed and is_in_namespaces(table, self._unlisted)

    def _log_unlisted(self) -> None:
        if self._unlisted:
            _log.warning(
                "namespaces not listed",
                catalog=self.subject.catalog,
                namespaces=[namespace or "(all)" for namespace in list(self._unlisted)[:MAX_LOGGED]],
                number=len(self._unlisted),
                why=next(iter(self._unlisted.values())),
            )

    def _log_failed(self) -> None:
        # Nothing else logs these failures: the sweep continues, and no job of these tables is claimed.
        if self.report.failed_tables:
            _log.warning(
                "tables not checked",
                catalog=self.subject.catalog,
                tables=[table.dotted for table in self.report.failed_tables[:MAX_LOGGED]],
                number=self.report.failed_count,
                error=self.report.failed_reason,
            )


def _most_severe(group: ExceptionGroup[Exception]) -> Exception:
    """Return the error that decides what happens next: a fatal one first, then an external one."""
    return min(
        group.exceptions, key=lambda error: (not isinstance(error, FatalError), not isinstance(error, ExternalError))
    )


def _named_table(row: IndexedTable) -> NamedTable:
    return NamedTable(row.table, row.live.uuid if row.live is not None else None, row.is_renamed)


def _was_absent(row: IndexedTable) -> bool:
    """Return True if the published table was found missing before, in spite of later events."""
    return row.live is not None and (row.live.uuid or "") in row.missing_uuids


def _shows(answer: LoadResult, live: PublishedPointer) -> bool:
    """Return True if an answer shows the published table, and the table may have files."""
    if isinstance(answer, Loaded):
        return answer.table.uuid == live.uuid and answer.table.skip_reason is None
    return isinstance(answer, NotModified)


def _differs(answer: Loaded, row: IndexedTable | None) -> bool:
    """Return True if a table needs a publish.

    A dead job has its own recheck if the problem may go away, so it needs a notification only for a new location.
    """
    if row is not None and row.reason is not None and row.min_metadata_location == answer.table.metadata_location:
        return False
    if row is None or row.live is None:
        return answer.table.skip_reason is None
    return not _is_published(answer, row) or answer.table.skip_reason is not None


def _is_published(answer: Loaded, row: IndexedTable) -> bool:
    found = answer.table.metadata_location, answer.table.uuid
    return row.live is not None and (row.live.metadata_location, row.live.uuid) == found


class SweepRunner:
    """Runner of the sweeps of one worker.

    A stop ends running sweeps at once. Notifications that were put stay, and the next process starts these sweeps
    again.

    Args:
        clock: the wall clock.

    Attributes:
        latest_reports: by catalog, the report of the running sweep, or of the last one.
    """

    def __init__(self, clock: Clock) -> None:
        self.latest_reports: dict[str, SweepReport] = {}
        self._clock = clock
        self._scopes: set[anyio.CancelScope] = set()
        self._stopped = False

    def stop(self) -> None:
        """Cancel running sweeps, and those that are started from now on."""
        self._stopped = True
        for scope in self._scopes:
            scope.cancel()

    async def run(self, sweep: CatalogSweep, jitter: float) -> SweepCompleted | None:
        """Run a sweep as `CatalogSweep.run` does; return None if a stop ended it."""
        report, catalog = sweep.report, sweep.subject.catalog
        report.previous = self.latest_reports.get(catalog)
        self.latest_reports[catalog] = report
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            # The claim of the sweep may have been under way when the worker was stopped.

            if self._stopped:
                scope.cancel()
            try:
                swept = await sweep.run(jitter)
            except Exception as error:
                report.finish(SweepPhase.FAILED, self._clock.now(), str(error))
                raise
            else:
                report.finish(SweepPhase.ENDED, self._clock.now())
                return swept
            finally:
                self._scopes.remove(scope)
                if report.phase is SweepPhase.RUNNING:
                    report.finish(SweepPhase.STOPPED, self._clock.now())
        return None
