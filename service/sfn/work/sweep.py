"""One walk over a catalog: finds what no event told of, and puts it into the inbox as hints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream

from sfn.catalog import Catalog, UnlistedNamespace
from sfn.clock import Clock
from sfn.errors import Broken, Scope, Trouble
from sfn.inbox import Brake, Intake, Roster
from sfn.inbox.names import NamedTable, without_old_names
from sfn.publish.policy import OnDrop, Policy
from sfn.words import (
    Answer,
    CatalogName,
    Hint,
    Known,
    Loaded,
    Missing,
    NotModified,
    Published,
    Swept,
    TableName,
    lies_below,
)
from sfn.work.report import Difference, SweepReport

WIDTH = 16
"""Loads in flight."""
BATCH = 200
"""Hints in one transaction."""
NAMED = 100
"""Withheld namespaces, or tables, that one record names."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SweepPorts:
    """What one sweep talks to."""

    catalog: Catalog
    intake: Intake
    roster: Roster
    brake: Brake
    clock: Clock


class Sweep:
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
        self._hints: list[Hint] = []
        self._absent: list[TableName] = []
        self._came: dict[str, TableName] = {}
        self._replaced: set[TableName] = set()
        self._unconfirmed: set[TableName] = set()
        self._listed: set[TableName] = set()
        self._withheld: dict[str, str] = {}
        self._failure = ""
        self._told = 0

    async def run(self, jitter: float) -> Swept:
        """Do it.

        Args:
            jitter: in [0, 1), spreads the next one.

        Raises:
            Trouble: the catalog or the inbox failed; no absence was told of.
            Broken: the inbox can't be trusted any more.
        """
        began = self.report.began_at
        known = {row.table: row async for row in self._ports.roster.known(self.subject.catalog)}
        self.report.known = len(known)
        try:
            await self._look_at_all(known)
        except Trouble:
            await self._tell()
            raise
        await self._tell()
        self._tell_withheld()
        self._tell_failed()
        calm = await self._tell_absences(known)
        pause = self._policy.sweep_every * (0.9 + jitter / 5)
        # One that takes longer than its interval leaves the catalog in peace for a while too.
        due_at = max(began + pause, self._ports.clock.now() + pause / 10)
        found = self.report
        return Swept(due_at, began, calm, found.tables, found.differed_count, frozenset(self._withheld))

    async def _look_at_all(self, known: Mapping[TableName, Known]) -> None:
        send, receive = anyio.create_memory_object_stream[TableName](WIDTH)
        try:
            async with anyio.create_task_group() as tasks, send:
                for _ in range(WIDTH):
                    tasks.start_soon(self._look_at_each, receive.clone(), known)
                receive.close()
                async for table in self._interesting():
                    self._listed.add(table)
                    await send.send(table)
        except ExceptionGroup as group:
            gravest = _gravest(group)
        else:
            return
        raise gravest

    async def _interesting(self) -> AsyncIterator[TableName]:
        async for found in self._ports.catalog.tables(self._policy.table_filter.excludes_namespace):
            if isinstance(found, UnlistedNamespace):
                if (name := ".".join(found.namespace)) not in self._withheld:
                    self.report.withholds(name, found)
                self._withheld[name] = found.message
            elif self._policy.table_filter.covers(found):
                yield found

    async def _look_at_each(
        self, tables: MemoryObjectReceiveStream[TableName], known: Mapping[TableName, Known]
    ) -> None:
        with tables:
            async for table in tables:
                try:
                    await self._look_at(table, known.get(table))
                except Trouble as trouble:
                    if trouble.scope is not Scope.TABLE:
                        raise
                    self._unconfirmed.add(table)
                    self.report.fails(table)
                    self._failure = self._failure or str(trouble)

    async def _look_at(self, table: TableName, row: Known | None) -> None:
        if self._policy.is_retired and (row is None or row.live is None):
            return
        # Whether a held table is as it was published only a full answer says.
        etag = row.etag if row is not None and row.live is not None and not row.is_held else None
        answer = await self._ports.catalog.load(table, etag)
        self.report.tables += 1
        if row is not None and row.live is not None and not _shows(answer, row.live):
            self._unconfirmed.add(table)
        if isinstance(answer, Missing):
            self._absent.append(table)
        elif isinstance(answer, Loaded) and _differs(answer, row):
            self.report.differs(table, _difference(answer, row))
            if answer.table.uuid is not None and answer.table.left_alone is None:
                self._came[answer.table.uuid] = table
            if row is not None and row.live is not None and row.live.uuid != answer.table.uuid:
                self._replaced.add(table)
            await self._hint(Hint(table, sender="sweep", floor=answer.table.metadata_location))
        elif row is not None and row.is_held:
            if isinstance(answer, Loaded) and (_is_published(answer, row) or _was_absent(row)):
                await self._hint(Hint(table, sender="sweep", floor=answer.table.metadata_location))
            else:
                self.report.differs(table, Difference.HELD)

    async def _hint(self, hint: Hint) -> None:
        self._hints.append(hint)
        if len(self._hints) >= BATCH:
            await self._tell()

    async def _tell(self) -> None:
        hints, self._hints = self._hints, []
        for start in range(0, len(hints), BATCH):
            batch = hints[start : start + BATCH]
            await self._ports.intake.put(batch)
            self._told += len(batch)

    async def _tell_absences(self, known: Mapping[TableName, Known]) -> bool:
        """Whether there were few enough: what is held already counts, it waits for the same operator."""
        gone = set(self._absent) | (set(known) - self._listed)
        absent: list[TableName] = []
        excluded: list[TableName] = []
        unseen = sorted(table for table in gone if table in known and known[table].live is not None)
        if unseen:
            self._note_unchanged(known, gone)
        for table in unseen:
            if not self._policy.table_filter.covers(table):
                excluded.append(table)
            elif self._name_now(known[table]) is not None:
                self.report.differs(table, Difference.RENAMED)
            elif self._policy.on_drop is not OnDrop.KEEP and not self._is_withheld(table):
                absent.append(table)
        self.report.missing = len(absent)
        self._tell_renames(known, gone)
        limit = await self._ports.brake.limit(self.subject.catalog)
        # What is held where nothing could be listed may still be gone.
        unknown = [table for table, row in known.items() if row.is_held and self._is_withheld(table)]
        lost = without_old_names(_named(known[table]) for table in {*absent, *unknown})
        calm = len(lost) <= limit
        told = [table for table in (*absent, *excluded) if not known[table].is_stuck]
        held = {table for table in absent if not calm or known[table].is_held}
        left_alone = set(excluded)
        for table in sorted({*told, *held}):
            kind = Difference.LEFT_ALONE if table in left_alone else Difference.ABSENT
            self.report.differs(table, Difference.HELD if table in held else kind)
        self._hints += [Hint(table, sender="sweep", held=table in held) for table in told]
        await self._tell()
        if not calm:
            _log.warning(
                "drop limit reached",
                catalog=self.subject.catalog,
                missing=len(absent),
                known=sum(row.live is not None for row in known.values()),
                limit=limit,
                remedy=f"if the catalog lost tables, restore them; if they were dropped: sfn release {self.subject}",
            )
        _log.info(
            "sweep told",
            catalog=self.subject.catalog,
            tables=len(self._listed),
            hints=self._told,
            absences=len(absent),
            limit=limit,
        )
        return calm

    def _tell_renames(self, known: Mapping[TableName, Known], gone: set[TableName]) -> None:
        """Also of a table whose name another one has by now, and of what a row has missed since before."""
        for table, row in sorted(known.items()):
            lost = set(row.missing)
            if row.live is not None and row.live.uuid is not None and (table in gone or table in self._replaced):
                lost.add(row.live.uuid)
            names = {self._came[uuid] for uuid in lost & self._came.keys()} - {table}
            if self._policy.table_filter.covers(table):
                self._hints += [Hint(table, sender="sweep", renamed_to=name) for name in sorted(names)]

    def _note_unchanged(self, known: Mapping[TableName, Known], gone: set[TableName]) -> None:
        """Note under which names tables were found that are as they were published."""
        for table in sorted(self._listed - gone - self._unconfirmed):
            row = known.get(table)
            if row is not None and row.live is not None and row.live.uuid is not None:
                self._came.setdefault(row.live.uuid, table)

    def _name_now(self, row: Known) -> TableName | None:
        """Under which other name a row's table was found, if its own has none."""
        return self._came.get(row.live.uuid or "") if row.live is not None else None

    def _is_withheld(self, table: TableName) -> bool:
        """Whether nobody can tell that a table is gone that was not listed."""
        return table not in self._listed and lies_below(table, self._withheld)

    def _tell_withheld(self) -> None:
        if self._withheld:
            _log.warning(
                "namespaces withheld",
                catalog=self.subject.catalog,
                namespaces=[namespace or "(all)" for namespace in list(self._withheld)[:NAMED]],
                number=len(self._withheld),
                why=next(iter(self._withheld.values())),
            )

    def _tell_failed(self) -> None:
        """Nothing else does: the sweep goes on without them, and their rows are not claimed."""
        if self.report.failed:
            _log.warning(
                "tables not looked at",
                catalog=self.subject.catalog,
                tables=[table.identifier for table in self.report.failed[:NAMED]],
                number=self.report.failed_count,
                error=self._failure,
            )


def _gravest(group: ExceptionGroup[Exception]) -> Exception:
    """Of what was raised at once, what says most about what to do next."""
    return min(group.exceptions, key=lambda error: (not isinstance(error, Broken), not isinstance(error, Trouble)))


def _named(row: Known) -> NamedTable:
    return NamedTable(row.table, row.live.uuid if row.live is not None else None, row.renamed)


def _was_absent(row: Known) -> bool:
    """Return whether a row is held as its table was missing, whatever events came meanwhile."""
    return row.live is not None and (row.live.uuid or "") in row.missing


def _shows(answer: Answer, live: Published) -> bool:
    """Return whether an answer shows the table that was published, and that it may have files."""
    if isinstance(answer, Loaded):
        return answer.table.uuid == live.uuid and answer.table.left_alone is None
    return isinstance(answer, NotModified)


def _difference(answer: Loaded, row: Known | None) -> Difference:
    if answer.table.left_alone is not None:
        return Difference.LEFT_ALONE
    return Difference.NEW if row is None or row.live is None else Difference.CHANGED


def _differs(answer: Loaded, row: Known | None) -> bool:
    """Whether a row should look.

    One that was given up looks by itself after a while, if it may heal: it is told only of what it was not told yet.
    """
    if row is not None and row.reason is not None and row.told == answer.table.metadata_location:
        return False
    if row is None or row.live is None:
        return answer.table.left_alone is None
    return not _is_published(answer, row) or answer.table.left_alone is not None


def _is_published(answer: Loaded, row: Known) -> bool:
    pointing = answer.table.metadata_location, answer.table.uuid
    return row.live is not None and (row.live.pointer, row.live.uuid) == pointing
