"""The operators' verbs over the port to the database, see `sfn.inbox.desk`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sfn.inbox.figures import BrakeState, Figures, braking, earliest
from sfn.inbox.intents import numbers
from sfn.inbox.keeping import Batch
from sfn.inbox.letters import RELEASED, Order, Status
from sfn.inbox.names import counted_steps, without_old_names
from sfn.inbox.postgres.intake import Intake
from sfn.inbox.postgres.sheet import Sheet
from sfn.inbox.postgres.unit import Locking, Unit
from sfn.inbox.row import Row, standing_of, told_by
from sfn.inbox.standing import Standing
from sfn.inbox.terms import Terms
from sfn.inbox.transitions import released, replayed
from sfn.words import Hint, Reason, Subject


class Desk:
    """What operators ask, and what they tell.

    Args:
        terms: settings.
        intake: takes their hints in.
    """

    def __init__(self, terms: Terms, intake: Intake) -> None:
        self._terms, self._intake = terms, intake

    async def figures(self, unit: Unit, now: datetime) -> Figures:
        """See `Desk.figures`; every row is looked at."""
        tables = await unit.roster.counts()
        oldest = earliest(await unit.roster.oldest(now), await unit.letters.oldest())
        letters = await unit.letters.counts()
        tripped, intents = braking(tables, await unit.catalogs.tripped()), await unit.intents.counts()
        return Figures(tables, oldest, letters, tripped, *numbers(intents), await unit.roster.missing())

    async def standing(self, unit: Unit, subject: Subject) -> Standing | None:
        """See `Desk.standing`."""
        sheet = Sheet(unit.rows)
        await sheet.take((await unit.rows.get({subject}, Locking.NONE)).rows.values(), memos=True)
        row = sheet.load(subject)
        if row is None:
            return None
        return standing_of(row, await unit.events.last(told_by(row)), await unit.intents.of(subject))

    async def brake(self, unit: Unit, catalog: str, now: datetime) -> BrakeState:
        """See `Desk.brake`."""
        on = catalog in await unit.catalogs.tripped() or await unit.roster.is_any_held(catalog)
        since = now - self._terms.brake_window
        steps, live = await unit.catalogs.count_steps(catalog, since), await unit.roster.live_count(catalog)
        drops = await unit.catalogs.drops(catalog, since)
        dropped = await unit.roster.without_file({drop.name for drop in without_old_names(drops)})
        return BrakeState(on, counted_steps(steps, drops), self._terms.allowance(catalog, live, dropped), live)

    async def replay(
        self, unit: Unit, numbers: Sequence[int], hints: Sequence[Hint], order: Order, also: set[Subject]
    ) -> int:
        """See `DeadLetters.replay`.

        Args:
            also: as of `Intake.put_all`.
        """
        letters = await unit.letters.numbered(numbers)
        named = {letter.subject for letter in letters if letter.subject is not None}
        sheet = Sheet(unit.rows)
        drawn = await sheet.lock(named | self._intake.subjects(hints) | also, len(hints), memos=True)
        # Only now: whoever else ends one of them has its row no more.
        ended = await unit.letters.end(numbers, Status.REPLAYED, order.at, order.actor)
        for subject in ended:
            if subject is not None:
                sheet.save(subject, replayed(sheet.load(subject) or Row(subject, order.at), order.at))
        await self._intake.take(unit, sheet, [(hint, order.at) for hint in hints], drawn)
        also |= sheet.lacking
        await sheet.write()
        await unit.letters.note("replay", order, len(ended))
        return len(ended)

    async def discard(self, unit: Unit, numbers: Sequence[int], order: Order) -> int:
        """See `DeadLetters.discard`."""
        count = len(await unit.letters.end(numbers, Status.DISCARDED, order.at, order.actor))
        await unit.letters.note("discard", order, count)
        return count

    async def release(self, unit: Unit, catalog: str, order: Order, before: Batch | None = None) -> Batch:
        """The next batch of `Brake.release`.

        Args:
            before: what the one before answered; None for the first.
        """
        after = before.last if before is not None else ""
        held = await unit.roster.held(catalog, after, RELEASED)
        sheet = Sheet(unit.rows)
        await sheet.lock([subject for _, subject in held])
        rows = [row for row in sheet.rows() if row.reason is Reason.HELD_DROP]
        for row in rows:
            sheet.save(row.subject, released(row, order.at))
        await sheet.write()
        if rows:
            await unit.letters.close({row.subject: order.at for row in rows}, Status.REPLAYED, order.actor)
        if before is None:
            await unit.catalogs.trip(catalog, tripped=False)
            await unit.catalogs.forget_steps(catalog)
            before = Batch(await unit.letters.note("release", order, 0))
        count = before.count + len(rows)
        await unit.letters.recount(before.entry, count)
        return Batch(before.entry, count, held[-1][0] if held else after, more=len(held) == RELEASED)

    async def tell(self, unit: Unit, action: str, hints: Sequence[Hint], order: Order, also: set[Subject]) -> None:
        """See `Custody.reconcile` and `Custody.adopt`; `also` as of `Intake.put_all`."""
        await self._intake.put_all(unit, [(hints, order.at)], also)
        await unit.letters.note(action, order, len(hints))

    async def retire(self, unit: Unit, catalog: str, order: Order, *, retired: bool) -> None:
        """See `Custody.retire`."""
        await unit.catalogs.retire(catalog, retired=retired)
        await unit.letters.note("retire" if retired else "unretire", order, 1)
