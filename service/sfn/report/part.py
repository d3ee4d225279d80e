"""One slice of a run: its tables, looked at by the service's own code in one event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import anyio
from anyio import to_thread

from sfn.clock import Clock, SystemClock
from sfn.errors import Trouble
from sfn.publish.inventory import has_identifier, parse_or_none
from sfn.report import deep
from sfn.report.columns import Entry, Standing
from sfn.report.earlier import Earlier
from sfn.report.entries import shown
from sfn.report.listing import Part
from sfn.report.pace import Pace, Paced
from sfn.report.terms import Terms
from sfn.report.trials import Trials
from sfn.wiring.looking import ReadOnlyConnections, open_read_only
from sfn.wiring.terms import table_filter
from sfn.words import Missing, Table, TableName
from sfn.work.examination import Examiner
from sfn.work.sources import Source

WIDTH: Final = 32
"""Tables that are looked at, at a time."""


async def audited(
    terms: Terms, tables: Sequence[TableName], refused: Iterable[Part], before: Mapping[TableName, Earlier]
) -> list[Entry]:
    """The rows of a slice.

    Args:
        tables: as the catalogs list them.
        refused: namespaces of which that can't be had.
        before: rows of an earlier run of the same slice.

    Raises:
        SfnError: the catalogs or stores can't be opened at all.
    """
    clock = SystemClock()
    entries = [_withheld(terms, part, clock) for part in refused]
    by_catalog = {name: [table for table in tables if table.catalog == name] for name in terms.catalogs}
    async with open_read_only(terms.settings) as parts, anyio.create_task_group() as tasks:
        for name, its in by_catalog.items():
            listed = set(its)
            covers = table_filter(terms.settings.catalogs[name]).covers
            left = [table for table in before if table.catalog == name and table not in listed and covers(table)]
            if (why := terms.away.get(name)) is not None:
                entries += [terms.run.failed(table, why, clock.now(), before[table]) for table in left]
            elif its or left:
                one = _Catalog(terms, name, parts, before, clock)
                tasks.start_soon(one.run, its, left, entries)
    return entries


def _withheld(terms: Terms, part: Part, clock: Clock) -> Entry:
    namespace = TableName(part.catalog, part.namespace, "")
    entry = terms.run.entry(namespace, Standing.WITHHELD if part.withheld else Standing.UNLISTED, clock.now())
    entry.error = part.refused
    return entry


class _Catalog:
    """The tables of one catalog."""

    def __init__(
        self, terms: Terms, name: str, parts: ReadOnlyConnections, before: Mapping[TableName, Earlier], clock: Clock
    ) -> None:
        self._terms, self._name, self._parts, self._before, self._clock = terms, name, parts, before, clock
        self._trials = Trials(terms.patience)
        self._reading = anyio.CapacityLimiter(2)

    async def run(self, listed: Sequence[TableName], left: Sequence[TableName], entries: list[Entry]) -> None:
        """Look at those that are listed, and at those that were there before and are not any more."""
        try:
            source = await self._trials.of(partial(self._parts.connect, self._name))
        except Trouble as trouble:
            run, now = self._terms.run, self._clock.now()
            entries += [run.failed(table, trouble, now, self._before.get(table)) for table in (*listed, *left)]
            return
        paced = Source(Paced(source.catalog, Pace(self._terms.rate)), source.policy, source.vended)
        examiner = Examiner(paced, self._parts.stores)
        waiting = iter([*listed, *left])

        async def some() -> None:
            for table in waiting:
                entry = await self._entry(examiner, paced, table)
                if entry is not None:
                    entries.append(entry)

        async with anyio.create_task_group() as tasks:
            for _ in range(WIDTH):
                tasks.start_soon(some)

    async def _entry(self, examiner: Examiner, source: Source, table: TableName) -> Entry | None:
        run, before = self._terms.run, self._before.get(table)
        remembered = None if before is None else before.remembered
        try:
            found = await self._trials.of(partial(examiner.examine, table, remembered))
            if isinstance(found.answer, Missing):
                return await self._gone(source, table, before)
            entry = run.found(table, found, self._clock.now(), before)
        except Exception as error:  # noqa: BLE001 - one table must not cost the others their rows
            return run.failed(table, error, self._clock.now(), before)
        # Where the location is refused nothing is opened.
        is_open = found.compared is not None and found.table is not None and found.table.left_alone is None
        if self._terms.deep and is_open and entry is not None and found.table is not None:
            await self._look_deep(entry, table, found.table, source.policy.allowed_locations)
        return entry

    async def _look_deep(self, entry: Entry, name: TableName, table: Table, allowed: tuple[str, ...]) -> None:
        """See to the files below the current snapshot; what was found of the table stays, whatever comes of it."""
        look = partial(deep.missing, name, table, allowed, self._terms.options)
        try:
            entry.deep, unseen = await to_thread.run_sync(look, limiter=self._reading)
        except Exception as error:  # noqa: BLE001 - whatever a driver raises
            unseen = shown(error)
        entry.error = f"files of the current snapshot: {unseen}" if unseen else None

    async def _gone(self, source: Source, table: TableName, before: Earlier | None) -> Entry | None:
        """The row of a table that the catalog has not any more, where its file still says that it is there."""
        if before is None or before.sfn_file is None:
            return None
        store = source.stores(table, self._parts.stores).store_for(before.sfn_file)
        held = await self._trials.of(partial(store.read, before.sfn_file))
        doc = parse_or_none(held)
        if (
            doc is None
            or not doc.is_live
            or not has_identifier(doc, table)
            or doc.catalog_id != source.policy.catalog_id
        ):
            return None
        entry = self._terms.run.entry(table, Standing.GONE, self._clock.now())
        entry.detail = f"{before.sfn_file}: it says {doc.state.value}, the catalog has no such table"
        entry.sfn_file, entry.hinted = before.sfn_file, True
        entry.sfn_metadata_location, entry.sfn_written_at = doc.metadata_file_path, doc.written_at
        return entry
