"""One slice of a run: its tables, looked at by the service's own code in one event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import anyio
from anyio import to_thread

from sfn.app.catalogs import ReadOnlyConnections, open_read_only, table_filter
from sfn.clock import Clock, SystemClock
from sfn.domain.catalog_answer import NoSuchTable
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ExternalError
from sfn.publish.existing_files import has_identifier, parse_or_none
from sfn.report import deep
from sfn.report.columns import AuditState, ReportRow
from sfn.report.earlier import PreviousRow
from sfn.report.entries import error_text
from sfn.report.listing import NamespacePart
from sfn.report.pace import CatalogRateLimiter, RateLimitedCatalog
from sfn.report.terms import AuditOptions
from sfn.report.trials import CatalogRetries
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.compare import TableComparer

TABLE_CONCURRENCY: Final = 32
"""Tables that are looked at, at a time."""


async def audit_slice(
    options: AuditOptions,
    tables: Sequence[TableIdentifier],
    refused: Iterable[NamespacePart],
    before: Mapping[TableIdentifier, PreviousRow],
) -> list[ReportRow]:
    """The rows of a slice.

    Args:
        tables: as the catalogs list them.
        refused: namespaces of which that can't be had.
        before: rows of an earlier run of the same slice.

    Raises:
        SfnError: the catalogs or stores can't be opened at all.
    """
    clock = SystemClock()
    entries = [_row_of_unlisted(options, part, clock) for part in refused]
    by_catalog = {name: [table for table in tables if table.catalog == name] for name in options.catalogs}
    async with open_read_only(options.settings) as parts, anyio.create_task_group() as tasks:
        for name, its in by_catalog.items():
            listed = set(its)
            covers = table_filter(options.settings.catalogs[name]).covers
            left = [table for table in before if table.catalog == name and table not in listed and covers(table)]
            if (why := options.unreachable_catalogs.get(name)) is not None:
                entries += [options.run.failed_row(table, why, clock.now(), before[table]) for table in left]
            elif its or left:
                one = _CatalogAudit(options, name, parts, before, clock)
                tasks.start_soon(one.run, its, left, entries)
    return entries


def _row_of_unlisted(options: AuditOptions, part: NamespacePart, clock: Clock) -> ReportRow:
    namespace = TableIdentifier(part.catalog, part.namespace, "")
    entry = options.run.row(namespace, AuditState.WITHHELD if part.withheld else AuditState.UNLISTED, clock.now())
    entry.error = part.refused
    return entry


class _CatalogAudit:
    """The tables of one catalog."""

    def __init__(
        self,
        options: AuditOptions,
        name: str,
        parts: ReadOnlyConnections,
        before: Mapping[TableIdentifier, PreviousRow],
        clock: Clock,
    ) -> None:
        self._options, self._name, self._parts, self._before, self._clock = options, name, parts, before, clock
        self._retries = CatalogRetries(options.patience)
        self._reading = anyio.CapacityLimiter(2)

    async def run(
        self, listed: Sequence[TableIdentifier], left: Sequence[TableIdentifier], entries: list[ReportRow]
    ) -> None:
        """Look at those that are listed, and at those that were there before and are not any more."""
        try:
            source = await self._retries.call(partial(self._parts.connect, self._name))
        except ExternalError as trouble:
            run, now = self._options.run, self._clock.now()
            entries += [run.failed_row(table, trouble, now, self._before.get(table)) for table in (*listed, *left)]
            return
        paced = ConnectedCatalog(
            RateLimitedCatalog(source.catalog, CatalogRateLimiter(self._options.rate)),
            source.policy,
            source.vended_stores,
        )
        examiner = TableComparer(paced, self._parts.stores)
        waiting = iter([*listed, *left])

        async def some() -> None:
            for table in waiting:
                entry = await self._row(examiner, paced, table)
                if entry is not None:
                    entries.append(entry)

        async with anyio.create_task_group() as tasks:
            for _ in range(TABLE_CONCURRENCY):
                tasks.start_soon(some)

    async def _row(self, examiner: TableComparer, source: ConnectedCatalog, table: TableIdentifier) -> ReportRow | None:
        run, before = self._options.run, self._before.get(table)
        remembered = None if before is None else before.remembered
        try:
            found = await self._retries.call(partial(examiner.compare_table, table, remembered))
            if isinstance(found.answer, NoSuchTable):
                return await self._row_of_gone_table(source, table, before)
            entry = run.found_row(table, found, self._clock.now(), before)
        except Exception as error:  # noqa: BLE001 - one table must not cost the others their rows
            return run.failed_row(table, error, self._clock.now(), before)
        # Where the location is refused nothing is opened.
        is_open = found.comparison is not None and found.table is not None and found.table.skip_reason is None
        if self._options.deep and is_open and entry is not None and found.table is not None:
            await self._check_files(entry, table, found.table, source.policy.allowed_locations)
        return entry

    async def _check_files(
        self, entry: ReportRow, name: TableIdentifier, table: Table, allowed: tuple[str, ...]
    ) -> None:
        """See to the files below the current snapshot; what was found of the table stays, whatever comes of it."""
        check = partial(deep.find_missing_files, name, table, allowed, self._options.options)
        try:
            entry.deep, unseen = await to_thread.run_sync(check, limiter=self._reading)
        except Exception as error:  # noqa: BLE001 - whatever a driver raises
            unseen = error_text(error)
        entry.error = f"files of the current snapshot: {unseen}" if unseen else None

    async def _row_of_gone_table(
        self, source: ConnectedCatalog, table: TableIdentifier, before: PreviousRow | None
    ) -> ReportRow | None:
        """The row of a table that the catalog has not any more, where its file still says that it is there."""
        if before is None or before.sfn_file is None:
            return None
        store = source.stores_for(table, self._parts.stores).store_for(before.sfn_file)
        held = await self._retries.call(partial(store.read, before.sfn_file))
        doc = parse_or_none(held)
        if (
            doc is None
            or not doc.is_live
            or not has_identifier(doc, table)
            or doc.catalog_id != source.policy.catalog_id
        ):
            return None
        entry = self._options.run.row(table, AuditState.GONE, self._clock.now())
        entry.detail = f"{before.sfn_file}: it says {doc.state.value}, the catalog has no such table"
        entry.sfn_file, entry.notified = before.sfn_file, True
        entry.sfn_metadata_location, entry.sfn_written_at = doc.metadata_file_path, doc.written_at
        return entry
