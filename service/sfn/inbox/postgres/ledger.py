"""The verbs of the inbox over the port to the database: each is one transaction, and none knows which database it is.

The same code runs over SQL and, with several processes at a time, over rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from sfn.inbox.codec import step_text
from sfn.inbox.names import NamedTable, counted_steps, dropped_by, is_counted, without_old_names
from sfn.inbox.postgres.claiming import Claiming
from sfn.inbox.postgres.desk import Desk
from sfn.inbox.postgres.intake import Intake
from sfn.inbox.postgres.settling import Ending, Settled, ask, settle_all
from sfn.inbox.postgres.sheet import Sheet
from sfn.inbox.postgres.unit import Locking, Place, Unit
from sfn.inbox.row import is_held_by, is_renamed
from sfn.inbox.tellings import told_of
from sfn.inbox.terms import Terms
from sfn.pointer.site import layout_location
from sfn.words import Ask, Claim, Step, TableName, Told


class Ledger:
    """All verbs of an inbox for one process.

    Args:
        terms: settings.
        clock: read when a transaction has come to it.

    Attributes:
        intake, claiming, desk: the verbs of receivers, of a worker that asks for more, and of operators.
    """

    def __init__(self, terms: Terms, clock: Callable[[], datetime]) -> None:
        self._terms, self._clock = terms, clock
        self.intake = Intake(terms)
        self.claiming = Claiming(terms, clock, self.intake)
        self.desk = Desk(terms, self.intake)

    async def settle_all(self, unit: Unit, endings: Sequence[Ending]) -> list[Settled]:
        """See `settling.settle_all`."""
        return await settle_all(unit, endings, self._terms)

    async def remember(self, unit: Unit, claim: Claim, site: str, uuid: str | None) -> frozenset[TableName] | None:
        """See `Worklist.remember`."""
        name, place = claim.subject, Place(claim.subject.catalog, layout_location(site))
        row = (await unit.rows.get({name}, Locking.NONE)).rows.get(name)
        if row is None or not is_held_by(row, claim):
            return None
        if site in row.locations:
            return await self._others(unit, claim, place, uuid)
        await unit.roster.hold([place])
        others = await self._others(unit, claim, place, uuid)
        sheet = Sheet(unit.rows)
        numbers = await sheet.lock({name, *others}, len(others))
        row = sheet.load(name)
        if row is None or not is_held_by(row, claim):
            return None
        sheet.save(name, replace(row, locations=row.locations | {site}))
        ask(sheet, [Ask(other) for other in sorted(others)], numbers, self._clock(), self._terms.cap)
        await sheet.write()
        return others

    async def permit(self, unit: Unit, claim: Claim, step: Step, now: datetime) -> bool:
        """See `Worklist.permit`."""
        row = (await unit.rows.get({claim.subject}, Locking.WAIT)).rows.get(claim.subject)
        if row is None or not is_held_by(row, claim):
            return False
        catalog, text = claim.subject.catalog, step_text(claim.subject, step)
        since = now - self._terms.brake_window
        await unit.catalogs.lock(catalog)
        if await unit.catalogs.has_step(catalog, text, since):
            return True
        drop = dropped_by(claim.subject, step, renamed=is_renamed(row))
        tripped = catalog in await unit.catalogs.tripped()
        steps = await unit.catalogs.count_steps(catalog, since)
        drops = await unit.catalogs.drops(catalog, since)
        used = counted_steps(steps, drops)
        allowed = not tripped and await self._allows(unit, catalog, used, [*drops, drop] if drop is not None else [])
        if not allowed and not is_counted(drop, drops):
            await unit.catalogs.trip(catalog, tripped=True)
            return False
        await unit.catalogs.forget_steps(catalog, since)
        await unit.catalogs.add_step(catalog, text, now, drop)
        return True

    async def told(self, unit: Unit, table: TableName) -> Told | None:
        """See `Roster.told`."""
        row = (await unit.rows.get({table}, Locking.NONE)).rows.get(table)
        return told_of(row) if row is not None else None

    async def neighbours(self, unit: Unit, table: TableName, location: str) -> frozenset[TableName]:
        """See `Roster.neighbours`."""
        return frozenset(await unit.roster.live_at(Place(table.catalog, location))) - {table}

    async def limit(self, unit: Unit, catalog: str) -> int:
        """See `Brake.limit`."""
        return self._terms.allowance(catalog, await unit.roster.live_count(catalog))

    async def _others(self, unit: Unit, claim: Claim, place: Place, uuid: str | None) -> frozenset[TableName]:
        live = await unit.roster.live_at(place)
        return frozenset(name for name, other in live.items() if other != uuid and name != claim.subject)

    async def _allows(self, unit: Unit, catalog: str, used: int, drops: Sequence[NamedTable]) -> bool:
        """Return whether one more step is no more than may be; a table that is dropped twice disappears once.

        Args:
            unit: the transaction.
            catalog: the catalog's name.
            used: how many steps count so far.
            drops: the drops so far and this one; none for a step that drops no table.
        """
        # To count the live tables takes long where they are many, and more of them never allow less.
        if used >= self._terms.most_steps(catalog, 0):
            live = await unit.roster.live_count(catalog)
            if used >= self._terms.most_steps(catalog, live):
                return False
        if not drops:
            return True
        gone = {one.name for one in without_old_names(drops)}
        # Of more tables than these no more than half are gone.
        live = await unit.roster.live_count(catalog, 2 * len(gone) + 1)
        return len(gone) <= self._terms.most_drops(catalog, live + await unit.roster.without_file(gone))
