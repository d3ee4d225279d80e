"""Claims, over the port to the database. A claim does not wait for jobs that another transaction has locked."""

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
"""Most expired leases that one claim takes back; the next claim takes the rest."""
NEVER_KNOWN: Final = "whether the claim was made never came to be known"


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """The request of a worker.

    Attributes:
        slots: the free capacity.
        held: the jobs that the worker still runs.
        unsure: claims with an unknown result of the transaction: no worker has them.
    """

    slots: Capacity
    held: Sequence[LeasedJob] = ()
    unsure: Sequence[LeasedJob] = ()


class Claiming:
    """The claims of the worker of one process.

    Args:
        config: the configuration of the inbox.
        clock: read within the transaction.
        writer: puts the notifications of due intents.
    """

    def __init__(self, config: InboxConfig, clock: Callable[[], datetime], writer: PostgresWriter) -> None:
        self._config, self._clock, self._writer = config, clock, writer
        self._turn = 0

    async def claim(self, unit: InboxTransaction, asked: ClaimRequest, made: list[LeasedJob]) -> ClaimResult:
        """Run `JobQueue.claim`.

        Args:
            made: filled with the claims before the commit, because the result of the commit may stay unknown.
        """
        now, slots = self._clock(), asked.slots
        next_ask = await ask(unit, self._writer, now)
        await self._give_back(unit, asked.unsure, now)
        lost, letters, expiry = await self._expire(unit, asked.held, now)
        # One more than there are slots: the first job that is left.
        queues = await unit.rows.queues(lambda lane: most + 1 if (most := slots.available_in(lane)) else 0)
        self._turn = (self._turn + 1) % max(1, len(queues))
        order = rotate(queues, self._turn)
        due = [(lane, [row for row in queues[lane] if row.due_at <= now][: slots.available_in(lane)]) for lane in order]
        wanted = Counter(lane for lane, _ in fair_order(due, slots))
        found = await unit.rows.due(wanted, now, Locking.SKIP) if wanted else {}
        made[:] = await self._leased(unit, fair_order([(lane, found.get(lane, [])) for lane in order], slots), now)
        gone = {claim.subject for claim in made}
        # A group that returned fewer jobs than it had: another transaction has locked the others.
        busy = {lane for lane, most in wanted.items() if len(found.get(lane, ())) < most}
        soon = now + SOON
        moments = [max(at, soon) if lane in busy else at for lane, rows in queues.items() for at in _next(rows, gone)]
        moments += [now + self._config.lease] if made else []
        moments += [at for at in (expiry, next_ask) if at is not None]
        return ClaimResult(tuple(made), min(moments, default=None), tuple(letters), lost)

    async def renew(self, unit: InboxTransaction, claims: Sequence[LeasedJob]) -> list[LeasedJob]:
        batch = JobBatch(unit.rows)
        await batch.lock({claim.subject for claim in claims})
        renewed = self._renewed(batch, claims, self._clock())
        await batch.write()
        return renewed

    async def _give_back(self, unit: InboxTransaction, unsure: Sequence[LeasedJob], now: datetime) -> None:
        if not unsure:
            return
        batch = JobBatch(unit.rows)
        found = (await unit.rows.get({claim.subject for claim in unsure}, Locking.SKIP)).rows
        for claim in unsure:
            row = found.get(claim.subject)
            if row is not None and holds_lease(row, claim):
                await batch.take([row], memos=True)
                outcome = Returned(now, NEVER_KNOWN, FailureCause.INBOX)
                batch.save(
                    row.subject, on_settle(batch.load(row.subject) or row, claim, outcome, now, self._config.retry_cap)
                )
        await batch.write()

    async def _expire(
        self, unit: InboxTransaction, held: Sequence[LeasedJob], now: datetime
    ) -> tuple[int, list[NewDeadLetter], datetime | None]:
        """Take back expired leases, but renew those of the worker that claims.

        Returns:
            The number of expired leases, the letters of poison jobs, and when the next lease expires.
        """
        overdue, next_expiry = await unit.rows.overdue(now, EXPIRED_AT_ONCE, Locking.SKIP)
        if not overdue:
            return 0, [], next_expiry
        batch = JobBatch(unit.rows)
        lost = {row.subject: row for row in await batch.take(overdue, memos=True)}
        others = {claim.subject for claim in held} - set(lost)
        await batch.take((await unit.rows.get(others, Locking.SKIP)).rows.values() if others else ())
        for claim in self._renewed(batch, [claim for claim in held if batch.has(claim.subject)], now):
            lost.pop(claim.subject, None)
        letters = []
        for subject, row in lost.items():
            after = on_lease_expired(row, now, self._config)
            batch.save(subject, after)
            if is_poison(after, self._config):
                letters.append(poison_letter(subject, after.crashes, row.attempt))
        await batch.write()
        if letters:
            await unit.letters.open([(letter, now) for letter in letters])
        return len(lost), letters, (await unit.rows.overdue(now, 0, Locking.NONE)).next

    def _renewed(self, batch: JobBatch, claims: Sequence[LeasedJob], now: datetime) -> list[LeasedJob]:
        prolonged = []
        for claim in claims:
            row = batch.load(claim.subject)
            if row is not None and holds_lease(row, claim):
                batch.save(claim.subject, on_renew(row, now, self._config.lease))
                prolonged.append(claim)
        return prolonged

    async def _leased(
        self, unit: InboxTransaction, chosen: Sequence[tuple[ConcurrencyGroup, Due]], now: datetime
    ) -> list[LeasedJob]:
        if not chosen:
            return []
        batch = JobBatch(unit.rows)
        rows = await batch.take((due.row for _, due in chosen), memos=True)
        swept_at: Mapping[str, LastSweep] = await unit.catalogs.swept_at({row.subject.catalog for row in rows})
        claims = []
        for row, (lane, due) in zip(rows, chosen, strict=True):
            after = on_claim(row, due.number, now, self._config.lease)
            batch.save(row.subject, after)
            claims.append(to_leased_job(after, lane, swept_at.get(row.subject.catalog)))
        await batch.write()
        return claims


def _next(rows: Sequence[Waiting], gone: set[JobKey]) -> list[datetime]:
    """Return when the first unclaimed job of each group becomes due."""
    return [row.due_at for row in rows if row.subject not in gone][:1]


SOON: Final = timedelta(milliseconds=50)
"""Pause until jobs that another transaction had locked are read again: that transaction may only notify them."""


async def ask(unit: InboxTransaction, writer: PostgresWriter, now: datetime) -> datetime | None:
    """Put the notifications of due intents, and return when the next intent is due.

    Jobs that another transaction has locked are left out; their intents stay due.
    """
    span = await unit.intents.span()
    if not span.is_any_due(now):
        return span.earliest
    due = await unit.intents.due(now, MAX_CHECKS_PER_CLAIM)
    wanted = notifications_for_due(due)
    batch = JobBatch(unit.rows)
    busy, numbers = await batch.lock_free({notification.subject for notification in wanted}, len(wanted))
    free = [intent for intent in due if intent.subject not in busy]
    await writer.take(unit, batch, [(notification, now) for notification in notifications_for_due(free)], numbers)
    await batch.write()
    if free:
        await unit.intents.save([IntentChange(intent, after_check(intent, now)) for intent in free])
    span = await unit.intents.span()
    if not span.is_any_due(now):
        return span.earliest
    return now if len(free) == MAX_CHECKS_PER_CLAIM else now + SOON
