"""How claims end: over the port to the database, several in one transaction."""

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
        claim, outcome, now: as of `JobQueue.settle`.
        tried: the job states that earlier attempts left if they were committed, which is not known.
    """

    claim: LeasedJob
    outcome: Outcome
    now: datetime
    tried: tuple[LastResult, ...] = ()

    @property
    def result(self) -> PublishResult:
        """What else there is to settle."""
        found = self.outcome.result if isinstance(self.outcome, Done | Rescheduled | DeadLettered) else None
        return found or PublishResult()

    @property
    def places(self) -> frozenset[TableLocation]:
        """Where other rows are to look."""
        return frozenset(TableLocation(self.claim.subject.catalog, location) for location in self.result.wake_locations)


@dataclass(frozen=True, slots=True)
class SettleResult:
    """What became of it.

    Attributes:
        has_settled: the claim had its row still, or an earlier try was taken.
        stirring: other rows may have fallen due by it.
    """

    has_settled: bool
    stirring: bool = False


@dataclass(slots=True)
class _Beside:
    """What is written beside the rows."""

    opened: list[tuple[NewDeadLetter, datetime]] = field(default_factory=list)
    superseded: dict[JobKey, datetime] = field(default_factory=dict)
    swept: list[tuple[str, SweepCompleted]] = field(default_factory=list)


async def settle_all(
    unit: InboxTransaction, endings: Sequence[SettleRequest], terms: InboxConfig
) -> list[SettleResult]:
    """Several `JobQueue.settle` in one transaction, one after the other."""
    places = {place for ending in endings for place in ending.places}
    visitors: list[TableIdentifier] = []
    if places:
        await unit.table_index.lock_locations(places)
        visitors = await unit.table_index.visitors(places)
    asks = [ask for ending in endings for ask in ending.result.wakeups]
    sheet = JobBatch(unit.rows)
    subjects = {ending.claim.subject for ending in endings} | {ask.table for ask in asks} | set(visitors)
    most = len(asks) + len(subjects) * sum(bool(ending.places) for ending in endings)
    numbers = await sheet.lock(subjects, most)
    beside = _Beside()
    answers = [_settle(sheet, ending, terms, numbers, beside) for ending in endings]
    await sheet.write()
    await _write(unit, beside)
    return answers


def ask(sheet: JobBatch, asks: Sequence[Wakeup], numbers: Iterator[int], now: datetime, cap: timedelta) -> bool:
    """Have other rows look, which are locked; whether one of them changed."""
    changed = False
    for one in asks:
        after = on_wakeup(sheet.load(one.table), one, next(numbers), now, cap)
        if after is not None:
            sheet.save(one.table, after)
            changed = True
    return changed


def _settle(
    sheet: JobBatch, ending: SettleRequest, terms: InboxConfig, numbers: Iterator[int], beside: _Beside
) -> SettleResult:
    claim, outcome, now = ending.claim, ending.outcome, ending.now
    row = sheet.load(claim.subject)
    if row is None or not holds_lease(row, claim):
        return SettleResult(_was_taken(row, ending))
    # The memo is the claim's: nothing else changes it while the claim has its row.
    row = sheet.remind(replace(row, cache=claim.cache))
    sheet.save(claim.subject, on_settle(row, claim, outcome, now, terms.retry_cap))
    if isinstance(outcome, DeadLettered):
        beside.opened.append((NewDeadLetter(claim.subject, outcome.reason, outcome.detail, row.attempt), now))
    elif closes_dead_letter(outcome):
        beside.superseded[claim.subject] = now
    if isinstance(outcome, SweepCompleted):
        beside.swept.append((claim.subject.catalog, outcome))
    stirring = ask(sheet, ending.result.wakeups, numbers, now, terms.retry_cap)
    stirred = {name for place in ending.places for name in _at(sheet, place)} - {claim.subject}
    others = [Wakeup(name) for name in sorted(stirred)]
    return SettleResult(has_settled=True, stirring=ask(sheet, others, numbers, now, terms.retry_cap) or stirring)


def _was_taken(row: Job | None, ending: SettleRequest) -> bool:
    """Whether a try was taken after all: its transaction ended well, though its answer never came."""
    if row is None:
        return bool(ending.tried) and isinstance(ending.outcome, Done) and ending.outcome.forget
    return row.fencing_token == ending.claim.fencing_token and row.last_result in ending.tried


def _at(sheet: JobBatch, place: TableLocation) -> Iterator[TableIdentifier]:
    """The locked rows that may have a file at a place by now."""
    for row in sheet.rows():
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
