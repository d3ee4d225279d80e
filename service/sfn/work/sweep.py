"""One walk over a catalog: finds what no event told of, and puts it into the inbox as hints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream

from sfn.catalogs import Catalog, UnlistedNamespace
from sfn.clock import Clock
from sfn.domain.catalog_answer import Loaded, LoadResult, NoSuchTable, NotModified
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier, is_in_namespaces
from sfn.domain.jobs import IndexedTable, PublishedPointer, SweepCompleted
from sfn.errors import ErrorScope, ExternalError, FatalError
from sfn.inbox import DropLimit, InboxWriter, TableIndex
from sfn.inbox.names import NamedTable, without_old_names
from sfn.publish.policy import OnDrop, Policy
from sfn.work.report import SweepDifference, SweepReport

CONCURRENT_LOADS = 16
"""Loads in flight."""
BATCH_SIZE = 200
"""Hints in one transaction."""
MAX_LOGGED = 100
"""Withheld namespaces, or tables, that one record names."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SweepPorts:
    """What one sweep talks to."""

    catalog: Catalog
    writer: InboxWriter
    table_index: TableIndex
    drop_limit: DropLimit
    clock: Clock


class CatalogSweep:
    """One sweep.

    What differs becomes a hint as it is found. Absences become hints only after every table was looked at, all of them
    marked `held` when they are more than the brake allows. A table that was found under another name is told of as
    renamed: until that name's row has settled no other part knows. What the catalog withholds counts as present. A hint
    of a held table that is there again ends the hold.

    Attributes:
        subject: the catalog.
        report: what it has found so far.
    """

    def __init__(self, subject: CatalogName, ports: SweepPorts, policy: Policy) -> None:
        self.subject, self._ports, self._policy = subject, ports, policy
        self.report = SweepReport(ports.clock.now())
        self._notifications: list[Notification] = []
        self._missing: list[TableIdentifier] = []
        self._name_by_uuid: dict[str, TableIdentifier] = {}
        self._replaced: set[TableIdentifier] = set()
        self._unconfirmed: set[TableIdentifier] = set()
        self._listed: set[TableIdentifier] = set()
        self._unlisted: dict[str, str] = {}
        self._first_failure = ""
        self._notified = 0

    async def run(self, jitter: float) -> SweepCompleted:
        """Do it.

        Args:
            jitter: in [0, 1), spreads the next one.

        Raises:
            Trouble: the catalog or the inbox failed; no absence was told of.
            Broken: the inbox can't be trusted any more.
        """
        began = self.report.started_at
        known = {row.table: row async for row in self._ports.table_index.tables(self.subject.catalog)}
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
        # One that takes longer than its interval leaves the catalog in peace for a while too.
        due_at = max(began + pause, self._ports.clock.now() + pause / 10)
        found = self.report
        return SweepCompleted(
            due_at, began, within_limit, found.tables, found.difference_count, frozenset(self._unlisted)
        )

    async def _check_all(self, known: Mapping[TableIdentifier, IndexedTable]) -> None:
        send, receive = anyio.create_memory_object_stream[TableIdentifier](CONCURRENT_LOADS)
        try:
            async with anyio.create_task_group() as tasks, send:
                for _ in range(CONCURRENT_LOADS):
                    tasks.start_soon(self._check_each, receive.clone(), known)
                receive.close()
                async for table in self._covered_tables():
                    self._listed.add(table)
                    await send.send(table)
        except ExceptionGroup as group:
            gravest = _most_severe(group)
        else:
            return
        raise gravest

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
                except ExternalError as trouble:
                    if trouble.scope is not ErrorScope.TABLE:
                        raise
                    self._unconfirmed.add(table)
                    self.report.add_failed(table)
                    self._first_failure = self._first_failure or str(trouble)

    async def _check(self, table: TableIdentifier, row: IndexedTable | None) -> None:
        if self._policy.is_retired and (row is None or row.live is None):
            return
        # Whether a held table is as it was published only a full answer says.
        etag = row.etag if row is not None and row.live is not None and not row.is_on_hold else None
        answer = await self._ports.catalog.load(table, etag)
        self.report.tables += 1
        if row is not None and row.live is not None and not _shows(answer, row.live):
            self._unconfirmed.add(table)
        if isinstance(answer, NoSuchTable):
            self._missing.append(table)
        elif isinstance(answer, Loaded) and _differs(answer, row):
            self.report.add_difference(table, _difference(answer, row))
            if answer.table.uuid is not None and answer.table.skip_reason is None:
                self._name_by_uuid[answer.table.uuid] = table
            if row is not None and row.live is not None and row.live.uuid != answer.table.uuid:
                self._replaced.add(table)
            await self._notify(
                Notification(table, sender="sweep", min_metadata_location=answer.table.metadata_location)
            )
        elif row is not None and row.is_on_hold:
            if isinstance(answer, Loaded) and (_is_published(answer, row) or _was_absent(row)):
                await self._notify(
                    Notification(table, sender="sweep", min_metadata_location=answer.table.metadata_location)
                )
            else:
                self.report.add_difference(table, SweepDifference.HELD)

    async def _notify(self, notification: Notification) -> None:
        self._notifications.append(notification)
        if len(self._notifications) >= BATCH_SIZE:
            await self._flush()

    async def _flush(self) -> None:
        notifications, self._notifications = self._notifications, []
        for start in range(0, len(notifications), BATCH_SIZE):
            batch = notifications[start : start + BATCH_SIZE]
            await self._ports.writer.put(batch)
            self._notified += len(batch)

    async def _report_missing(self, known: Mapping[TableIdentifier, IndexedTable]) -> bool:
        """Whether there were few enough: what is held already counts, it waits for the same operator."""
        gone = set(self._missing) | (set(known) - self._listed)
        missing: list[TableIdentifier] = []
        excluded: list[TableIdentifier] = []
        unseen = sorted(table for table in gone if table in known and known[table].live is not None)
        if unseen:
            self._record_unchanged(known, gone)
        for table in unseen:
            if not self._policy.table_filter.covers(table):
                excluded.append(table)
            elif self._current_name(known[table]) is not None:
                self.report.add_difference(table, SweepDifference.RENAMED)
            elif self._policy.on_drop is not OnDrop.KEEP and not self._is_withheld(table):
                missing.append(table)
        self.report.missing_tables = len(missing)
        self._report_renames(known, gone)
        limit = await self._ports.drop_limit.max_missing(self.subject.catalog)
        # What is held where nothing could be listed may still be gone.
        unknown = [table for table, row in known.items() if row.is_on_hold and self._is_withheld(table)]
        lost = without_old_names(_named_table(known[table]) for table in {*missing, *unknown})
        within_limit = len(lost) <= limit
        notified = [table for table in (*missing, *excluded) if not known[table].is_stuck]
        held = {table for table in missing if not within_limit or known[table].is_on_hold}
        left_alone = set(excluded)
        for table in sorted({*notified, *held}):
            kind = SweepDifference.LEFT_ALONE if table in left_alone else SweepDifference.ABSENT
            self.report.add_difference(table, SweepDifference.HELD if table in held else kind)
        self._notifications += [Notification(table, sender="sweep", hold_drops=table in held) for table in notified]
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
            "sweep told",
            catalog=self.subject.catalog,
            tables=len(self._listed),
            hints=self._notified,
            absences=len(missing),
            limit=limit,
        )
        return within_limit

    def _report_renames(self, known: Mapping[TableIdentifier, IndexedTable], gone: set[TableIdentifier]) -> None:
        """Also of a table whose name another one has by now, and of what a row has missed since before."""
        for table, row in sorted(known.items()):
            lost = set(row.missing_uuids)
            if row.live is not None and row.live.uuid is not None and (table in gone or table in self._replaced):
                lost.add(row.live.uuid)
            names = {self._name_by_uuid[uuid] for uuid in lost & self._name_by_uuid.keys()} - {table}
            if self._policy.table_filter.covers(table):
                self._notifications += [Notification(table, sender="sweep", renamed_to=name) for name in sorted(names)]

    def _record_unchanged(self, known: Mapping[TableIdentifier, IndexedTable], gone: set[TableIdentifier]) -> None:
        """Note under which names tables were found that are as they were published."""
        for table in sorted(self._listed - gone - self._unconfirmed):
            row = known.get(table)
            if row is not None and row.live is not None and row.live.uuid is not None:
                self._name_by_uuid.setdefault(row.live.uuid, table)

    def _current_name(self, row: IndexedTable) -> TableIdentifier | None:
        """Under which other name a row's table was found, if its own has none."""
        return self._name_by_uuid.get(row.live.uuid or "") if row.live is not None else None

    def _is_withheld(self, table: TableIdentifier) -> bool:
        """Whether nobody can tell that a table is gone that was not listed."""
        return table not in self._listed and is_in_namespaces(table, self._unlisted)

    def _log_unlisted(self) -> None:
        if self._unlisted:
            _log.warning(
                "namespaces withheld",
                catalog=self.subject.catalog,
                namespaces=[namespace or "(all)" for namespace in list(self._unlisted)[:MAX_LOGGED]],
                number=len(self._unlisted),
                why=next(iter(self._unlisted.values())),
            )

    def _log_failed(self) -> None:
        """Nothing else does: the sweep goes on without them, and their rows are not claimed."""
        if self.report.failed_tables:
            _log.warning(
                "tables not looked at",
                catalog=self.subject.catalog,
                tables=[table.dotted for table in self.report.failed_tables[:MAX_LOGGED]],
                number=self.report.failed_count,
                error=self._first_failure,
            )


def _most_severe(group: ExceptionGroup[Exception]) -> Exception:
    """Of what was raised at once, what says most about what to do next."""
    return min(
        group.exceptions, key=lambda error: (not isinstance(error, FatalError), not isinstance(error, ExternalError))
    )


def _named_table(row: IndexedTable) -> NamedTable:
    return NamedTable(row.table, row.live.uuid if row.live is not None else None, row.is_renamed)


def _was_absent(row: IndexedTable) -> bool:
    """Return whether a row is held as its table was missing, whatever events came meanwhile."""
    return row.live is not None and (row.live.uuid or "") in row.missing_uuids


def _shows(answer: LoadResult, live: PublishedPointer) -> bool:
    """Return whether an answer shows the table that was published, and that it may have files."""
    if isinstance(answer, Loaded):
        return answer.table.uuid == live.uuid and answer.table.skip_reason is None
    return isinstance(answer, NotModified)


def _difference(answer: Loaded, row: IndexedTable | None) -> SweepDifference:
    if answer.table.skip_reason is not None:
        return SweepDifference.LEFT_ALONE
    return SweepDifference.NEW if row is None or row.live is None else SweepDifference.CHANGED


def _differs(answer: Loaded, row: IndexedTable | None) -> bool:
    """Whether a row should look.

    One that was given up looks by itself after a while, if it may heal: it is told only of what it was not told yet.
    """
    if row is not None and row.reason is not None and row.min_metadata_location == answer.table.metadata_location:
        return False
    if row is None or row.live is None:
        return answer.table.skip_reason is None
    return not _is_published(answer, row) or answer.table.skip_reason is not None


def _is_published(answer: Loaded, row: IndexedTable) -> bool:
    pointing = answer.table.metadata_location, answer.table.uuid
    return row.live is not None and (row.live.metadata_location, row.live.uuid) == pointing
