"""Settles, over the port to the database: several in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from msgspec.structs import replace

from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import DeadLettered, Done, LeasedJob, Outcome, PublishResult, Rescheduled, SweepCompleted, Wakeup
from sfn.inbox.model import (
    DeadLetterStatus,
    InboxConfig,
    Job,
    LastResult,
    LastSweep,
    NewDeadLetter,
    closes_dead_letter,
    holds_lease,
)
from sfn.inbox.postgres.job_batch import JobBatch
from sfn.inbox.postgres.transaction import InboxTransaction, TableLocation
from sfn.inbox.transitions import on_settle, on_wakeup
from sfn.sfnfile.naming import layout_location


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """A claim that is to be settled.

    Attributes:
        claim, outcome, now: the arguments of `JobQueue.settle`.
        tried: the job states that earlier attempts left if they were committed, which is not known.
    """

    claim: LeasedJob
    outcome: Outcome
    now: datetime
    tried: tuple[LastResult, ...] = ()

    @property
    def result(self) -> PublishResult:
        """The result of the publish; an empty one if there is none."""
        found = self.outcome.result if isinstance(self.outcome, Done | Rescheduled | DeadLettered) else None
        return found or PublishResult()

    @property
    def places(self) -> frozenset[TableLocation]:
        """The locations; other tables with files there are woken."""
        return frozenset(TableLocation(self.claim.subject.catalog, location) for location in self.result.wake_locations)


@dataclass(frozen=True, slots=True)
class SettleResult:
    """The result of a settle.

    Attributes:
        has_settled: True if the claim still had its job, or an earlier attempt was committed.
        may_make_due: True if other jobs may have become due.
    """

    has_settled: bool
    may_make_due: bool = False


@dataclass(slots=True)
class _Beside:
    """Changes besides those of jobs."""

    opened: list[tuple[NewDeadLetter, datetime]] = field(default_factory=list)
    superseded: dict[JobKey, datetime] = field(default_factory=dict)
    swept: list[tuple[str, SweepCompleted]] = field(default_factory=list)


async def settle_all(
    unit: InboxTransaction, endings: Sequence[SettleRequest], config: InboxConfig
) -> list[SettleResult]:
    """Run several `JobQueue.settle` in one transaction, one after the other."""
    places = {place for ending in endings for place in ending.places}
    visitors: list[TableIdentifier] = []
    if places:
        await unit.table_index.lock_locations(places)
        visitors = await unit.table_index.visitors(places)
    asks = [ask for ending in endings for ask in ending.result.wakeups]
    batch = JobBatch(unit.rows)
    subjects = {ending.claim.subject for ending in endings} | {ask.table for ask in asks} | set(visitors)
    most = len(asks) + len(subjects) * sum(bool(ending.places) for ending in endings)
    numbers = await batch.lock(subjects, most)
    beside = _Beside()
    answers = [_settle(batch, ending, config, numbers, beside) for ending in endings]
    await batch.write()
    await _write(unit, beside)
    return answers


def ask(batch: JobBatch, asks: Sequence[Wakeup], numbers: Iterator[int], now: datetime, cap: timedelta) -> bool:
    """Wake other jobs, which are locked; return whether one of them changed."""
    changed = False
    for one in asks:
        after = on_wakeup(batch.load(one.table), one, next(numbers), now, cap)
        if after is not None:
            batch.save(one.table, after)
            changed = True
    return changed


def _settle(
    batch: JobBatch, ending: SettleRequest, config: InboxConfig, numbers: Iterator[int], beside: _Beside
) -> SettleResult:
    claim, outcome, now = ending.claim, ending.outcome, ending.now
    row = batch.load(claim.subject)
    if row is None or not holds_lease(row, claim):
        return SettleResult(_was_taken(row, ending))
    # The claim has the current cache: nothing else changes it while the job is leased.
    row = batch.remind(replace(row, cache=claim.cache))
    batch.save(claim.subject, on_settle(row, claim, outcome, now, config.retry_cap))
    if isinstance(outcome, DeadLettered):
        beside.opened.append((NewDeadLetter(claim.subject, outcome.reason, outcome.detail, row.attempt), now))
    elif closes_dead_letter(outcome):
        beside.superseded[claim.subject] = now
    if isinstance(outcome, SweepCompleted):
        beside.swept.append((claim.subject.catalog, outcome))
    may_make_due = ask(batch, ending.result.wakeups, numbers, now, config.retry_cap)
    stirred = {name for place in ending.places for name in _at(batch, place)} - {claim.subject}
    others = [Wakeup(name) for name in sorted(stirred)]
    return SettleResult(
        has_settled=True, may_make_due=ask(batch, others, numbers, now, config.retry_cap) or may_make_due
    )


def _was_taken(row: Job | None, ending: SettleRequest) -> bool:
    """Return whether an earlier attempt was committed although its answer never arrived."""
    if row is None:
        return bool(ending.tried) and isinstance(ending.outcome, Done) and ending.outcome.forget
    return row.fencing_token == ending.claim.fencing_token and row.last_result in ending.tried


def _at(batch: JobBatch, place: TableLocation) -> Iterator[TableIdentifier]:
    """Yield the locked tables that may have a file at a location."""
    for row in batch.rows():
        name, there = row.subject, map(layout_location, row.locations)
        if isinstance(name, TableIdentifier) and name.catalog == place.catalog and place.location in there:
            yield name


async def _write(unit: InboxTransaction, beside: _Beside) -> None:
    if beside.opened:
        await unit.letters.open(beside.opened)
    if beside.superseded:
        await unit.letters.close(beside.superseded, DeadLetterStatus.SUPERSEDED)
    for catalog, swept in beside.swept:
        await unit.catalogs.note_sweep(catalog, LastSweep.from_completed(swept))
        if swept.within_limit:
            await unit.catalogs.trip(catalog, tripped=False)
