"""How rows are leased: over the port to the database. A claim waits for no other transaction that has a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import Capacity, ConcurrencyGroup, FailureCause, LeasedJob, Returned
from sfn.inbox import ClaimResult
from sfn.inbox.intents import MAX_CHECKS_PER_CLAIM, IntentChange, after_check, notifications_for_due
from sfn.inbox.model import InboxConfig, LastSweep, NewDeadLetter, holds_lease, poison_letter, to_leased_job
from sfn.inbox.postgres.apply_puts import PostgresWriter
from sfn.inbox.postgres.job_batch import JobBatch
from sfn.inbox.postgres.transaction import Due, InboxTransaction, Locking, Waiting
from sfn.inbox.scheduling import fair_order, rotate
from sfn.inbox.transitions import is_poison, on_claim, on_lease_expired, on_renew, on_settle

EXPIRED_AT_ONCE: Final = 500
"""Leases that one claim takes back at most; the next one takes the rest."""
NEVER_KNOWN: Final = "whether the claim was made never came to be known"


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a worker asks for.

    Attributes:
        slots: how much.
        held: what it still works on.
        unsure: claims with an unknown result of the transaction: no worker has them.
    """

    slots: Capacity
    held: Sequence[LeasedJob] = ()
    unsure: Sequence[LeasedJob] = ()


class Claiming:
    """Leases rows to the worker of one process.

    Args:
        terms: settings.
        clock: read when a transaction has come to it.
        intake: takes the hints of intents in.
    """

    def __init__(self, terms: InboxConfig, clock: Callable[[], datetime], intake: PostgresWriter) -> None:
        self._terms, self._clock, self._intake = terms, clock, intake
        self._turn = 0

    async def claim(self, unit: InboxTransaction, asked: ClaimRequest, made: list[LeasedJob]) -> ClaimResult:
        """See `JobQueue.claim`.

        Args:
            made: is given the claims as soon as they may come to be.
        """
        now, slots = self._clock(), asked.slots
        next_ask = await ask(unit, self._intake, now)
        await self._give_back(unit, asked.unsure, now)
        lost, letters, expiry = await self._expire(unit, asked.held, now)
        # One more than there are slots: the first that is left.
        queues = await unit.rows.queues(lambda lane: most + 1 if (most := slots.available_in(lane)) else 0)
        self._turn = (self._turn + 1) % max(1, len(queues))
        order = rotate(queues, self._turn)
        due = [(lane, [row for row in queues[lane] if row.due_at <= now][: slots.available_in(lane)]) for lane in order]
        wanted = Counter(lane for lane, _ in fair_order(due, slots))
        found = await unit.rows.due(wanted, now, Locking.SKIP) if wanted else {}
        made[:] = await self._leased(unit, fair_order([(lane, found.get(lane, [])) for lane in order], slots), now)
        gone = {claim.subject for claim in made}
        # A lane that gave less than it showed has rows that somebody else is at.
        busy = {lane for lane, most in wanted.items() if len(found.get(lane, ())) < most}
        soon = now + SOON
        moments = [max(at, soon) if lane in busy else at for lane, rows in queues.items() for at in _next(rows, gone)]
        moments += [now + self._terms.lease] if made else []
        moments += [at for at in (expiry, next_ask) if at is not None]
        return ClaimResult(tuple(made), min(moments, default=None), tuple(letters), lost)

    async def renew(self, unit: InboxTransaction, claims: Sequence[LeasedJob]) -> list[LeasedJob]:
        sheet = JobBatch(unit.rows)
        await sheet.lock({claim.subject for claim in claims})
        renewed = self._renewed(sheet, claims, self._clock())
        await sheet.write()
        return renewed

    async def _give_back(self, unit: InboxTransaction, unsure: Sequence[LeasedJob], now: datetime) -> None:
        if not unsure:
            return
        sheet = JobBatch(unit.rows)
        found = (await unit.rows.get({claim.subject for claim in unsure}, Locking.SKIP)).rows
        for claim in unsure:
            row = found.get(claim.subject)
            if row is not None and holds_lease(row, claim):
                await sheet.take([row], memos=True)
                outcome = Returned(now, NEVER_KNOWN, FailureCause.INBOX)
                sheet.save(
                    row.subject, on_settle(sheet.load(row.subject) or row, claim, outcome, now, self._terms.retry_cap)
                )
        await sheet.write()

    async def _expire(
        self, unit: InboxTransaction, held: Sequence[LeasedJob], now: datetime
    ) -> tuple[int, list[NewDeadLetter], datetime | None]:
        """Take back what ran out, but renew what the one who asks still has.

        Returns:
            How many were lost, what is poison, and when the next lease runs out.
        """
        overdue, next_expiry = await unit.rows.overdue(now, EXPIRED_AT_ONCE, Locking.SKIP)
        if not overdue:
            return 0, [], next_expiry
        sheet = JobBatch(unit.rows)
        lost = {row.subject: row for row in await sheet.take(overdue, memos=True)}
        others = {claim.subject for claim in held} - set(lost)
        await sheet.take((await unit.rows.get(others, Locking.SKIP)).rows.values() if others else ())
        for claim in self._renewed(sheet, [claim for claim in held if sheet.has(claim.subject)], now):
            lost.pop(claim.subject, None)
        letters = []
        for subject, row in lost.items():
            after = on_lease_expired(row, now, self._terms)
            sheet.save(subject, after)
            if is_poison(after, self._terms):
                letters.append(poison_letter(subject, after.crashes, row.attempt))
        await sheet.write()
        if letters:
            await unit.letters.open([(letter, now) for letter in letters])
        return len(lost), letters, (await unit.rows.overdue(now, 0, Locking.NONE)).next

    def _renewed(self, sheet: JobBatch, claims: Sequence[LeasedJob], now: datetime) -> list[LeasedJob]:
        prolonged = []
        for claim in claims:
            row = sheet.load(claim.subject)
            if row is not None and holds_lease(row, claim):
                sheet.save(claim.subject, on_renew(row, now, self._terms.lease))
                prolonged.append(claim)
        return prolonged

    async def _leased(
        self, unit: InboxTransaction, chosen: Sequence[tuple[ConcurrencyGroup, Due]], now: datetime
    ) -> list[LeasedJob]:
        if not chosen:
            return []
        sheet = JobBatch(unit.rows)
        rows = await sheet.take((due.row for _, due in chosen), memos=True)
        swept_at: Mapping[str, LastSweep] = await unit.catalogs.swept_at({row.subject.catalog for row in rows})
        claims = []
        for row, (lane, due) in zip(rows, chosen, strict=True):
            after = on_claim(row, due.number, now, self._terms.lease)
            sheet.save(row.subject, after)
            claims.append(to_leased_job(after, lane, swept_at.get(row.subject.catalog)))
        await sheet.write()
        return claims


def _next(rows: Sequence[Waiting], gone: set[JobKey]) -> list[datetime]:
    """When the first row of a lane falls due that was not claimed, if there is one."""
    return [row.due_at for row in rows if row.subject not in gone][:1]


SOON: Final = timedelta(milliseconds=50)
"""Pause until jobs that another transaction had locked are read again: that transaction may only notify them."""


async def ask(unit: InboxTransaction, intake: PostgresWriter, now: datetime) -> datetime | None:
    """Hint the subjects of intents that are due, but not those that another transaction has; when the next one is due.

    What is left to another transaction stays due until one has asked for it.
    """
    span = await unit.intents.span()
    if not span.is_any_due(now):
        return span.earliest
    due = await unit.intents.due(now, MAX_CHECKS_PER_CLAIM)
    wanted = notifications_for_due(due)
    sheet = JobBatch(unit.rows)
    busy, numbers = await sheet.lock_free({hint.subject for hint in wanted}, len(wanted))
    free = [intent for intent in due if intent.subject not in busy]
    await intake.take(unit, sheet, [(hint, now) for hint in notifications_for_due(free)], numbers)
    await sheet.write()
    if free:
        await unit.intents.save([IntentChange(intent, after_check(intent, now)) for intent in free])
    span = await unit.intents.span()
    if not span.is_any_due(now):
        return span.earliest
    return now if len(free) == MAX_CHECKS_PER_CLAIM else now + SOON
