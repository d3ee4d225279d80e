"""The operations of the inbox, each in one transaction, the same for every database.

Accepting only appends (`Transaction.append`). Everything else folds first: it reads the oldest records that wait, and
applies them to the jobs of their tables in the order of their numbers. A fold happens in the transaction of each claim,
before each command of an operator, and by itself once a second if no worker claims (`sfn.inbox.inbox`).

Start with `Operations.claim`, and `Unit`, which is what one transaction has read and will write.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import structlog
from msgspec.structs import replace

from sfn.domain.events import Intent, IntentOutcome, Notification, UndecodableRequest
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import (
    BackwardStep,
    Capacity,
    ConcurrencyGroup,
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    Outcome,
    PublishResult,
    Rescheduled,
    SweepCompleted,
    Wakeup,
)
from sfn.inbox import ClaimResult, catalogs
from sfn.inbox.dead_letters import LetterChanges
from sfn.inbox.intents import (
    MAX_CHECKS_PER_CLAIM,
    IntentFold,
    OpenIntent,
    due_intents_query,
    notifications_for_due,
    parse_intent,
)
from sfn.inbox.jobs import (
    Jobs,
    KnownGroups,
    UnreadJobError,
    fair_order,
    others_at,
    rotate,
    visitors_query,
)
from sfn.inbox.model import (
    DeadLetterStatus,
    FoldResult,
    InboxConfig,
    Job,
    JobState,
    LastResult,
    LastSweep,
    NewDeadLetter,
    closes_dead_letter,
    group_of,
    has_unprocessed,
    holds_lease,
    poison_letter,
    to_leased_job,
)
from sfn.inbox.schema import UNREAD_CACHE, LogRecord, decode_record, encode_key, from_micros, parse_sweeps, to_micros
from sfn.inbox.transaction import Change, Query, Row, Run, Transaction, Wakes
from sfn.inbox.transitions import (
    is_poison,
    jobs_after_notification,
    on_claim,
    on_lease_expired,
    on_notification,
    on_renew,
    on_settle,
    on_unused_claim,
    on_wakeup,
)
from sfn.sfnfile.naming import layout_location
from sfn.telemetry.logs import key_fields

MAX_FOLDED: Final = 5_000
"""Most records that one transaction folds. In SQLite appends wait meanwhile, some 60 ms; fewer records would cost more
each, because each table's job is read and written once in a transaction."""
MAX_EXPIRED: Final = 500
"""Most expired leases that one claim takes back; the next claim takes the rest."""

_PENDING: Final = (
    # The limit comes first: otherwise the whole log may be read in its order, to find the few records that wait.
    "SELECT event.seq, event.kind, event.received_at, event.record FROM "
    "(SELECT seq FROM sfn.pending ORDER BY seq LIMIT $1::int) AS pending "
    "JOIN sfn.event AS event ON event.seq = pending.seq ORDER BY event.seq"
)
_LEASED: Final = "SELECT concurrency_group, record, CAST(NULL AS bytea) AS cache FROM sfn.job WHERE state = 'leased'"

_log = structlog.stdlib.get_logger(__name__)

Place: TypeAlias = tuple[str, str]
"""A catalog, and a location of tables of it."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """The request of a worker.

    Attributes:
        capacity: the free capacity.
        running: the jobs that the worker still runs.
        unsure: claims with an unknown result of their transaction: no worker has them.
        folds: fold first.
    """

    capacity: Capacity
    running: Sequence[LeasedJob] = ()
    unsure: Sequence[LeasedJob] = ()
    folds: bool = True


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """A claim that is to be settled.

    Attributes:
        claim, outcome, now: the arguments of `JobQueue.settle`.
        tried: the results that earlier attempts left if they were committed, which is not known.
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
    def places(self) -> set[Place]:
        """The locations at which other tables are woken."""
        return {(self.claim.subject.catalog, location) for location in self.result.wake_locations}


@dataclass(slots=True)
class Unit:
    """What one transaction has read, and what it will write.

    Attributes:
        transaction: the transaction.
        jobs, letters: jobs and dead letters with their changes.
        others: further changes.
        records: the records to fold.
        intents: the messages about intents among them.
        fold: what the fold of this transaction did.
    """

    transaction: Transaction
    jobs: Jobs
    letters: LetterChanges = field(default_factory=LetterChanges)
    others: list[Change] = field(default_factory=list)
    records: Sequence[LogRecord] = ()
    intents: IntentFold = field(default_factory=lambda: IntentFold(()))
    fold: FoldResult = FoldResult()

    async def write(self) -> None:
        """Write all changes."""
        await self.jobs.write([*await self.letters.changes(self.transaction), *self.others])


class Operations:
    """All operations that receivers and the worker of one process need.

    Args:
        config: the configuration of the inbox.
        clock: read when a transaction starts, so that waiting for the inbox does not shorten a lease.

    Attributes:
        config: the configuration.
        other_folds: what commands and settles folded, until it is observed.
    """

    def __init__(self, config: InboxConfig, clock: Callable[[], datetime]) -> None:
        self.config, self._clock = config, clock
        self._groups = KnownGroups()
        self._turn = 0
        self._unreported = 0
        self.other_folds: deque[FoldResult] = deque(maxlen=1_000)
        self._unreported_letters: list[NewDeadLetter] = []

    def forget_groups(self) -> None:
        """Forget the concurrency groups: another server may answer now, and lack some of them.

        Transactions that run go on with what they have read.
        """
        self._groups = KnownGroups()

    async def fold(self, transaction: Transaction, *, has_written: bool = False) -> FoldResult:
        """Fold the oldest records into jobs."""
        unit = await self.folded(transaction, has_written=has_written)
        await unit.write()
        return unit.fold

    async def folded(
        self, transaction: Transaction, subjects: Collection[JobKey] = (), *, has_written: bool = False
    ) -> Unit:
        """Return the unit of a transaction after a fold that is not written yet.

        Args:
            transaction: the transaction.
            subjects: more jobs to read.
            has_written: see `unfolded`.
        """
        unit, _ = await self._begin(transaction, [], has_written=has_written)
        await self._fold(unit, [])
        unit.others += unit.intents.changes()
        await unit.jobs.load(subjects)
        return unit

    async def unfolded(
        self, transaction: Transaction, subjects: Collection[JobKey], *, has_written: bool = False
    ) -> Unit:
        """Return the unit of a transaction that does not fold.

        Args:
            transaction: the transaction.
            subjects: the jobs to read.
            has_written: another unit of this transaction has written. The groups that this one reads may then be its
                own, which no other transaction may use: if it is undone, they do not exist.
        """
        groups = self._groups.copy() if has_written else self._groups
        unit = Unit(transaction, Jobs(transaction, groups, self.config))
        added, jobs = await transaction.fetch_all([groups.query(), unit.jobs.query(subjects)])
        groups.take(added)
        unit.jobs.take(jobs, subjects)
        return unit

    async def claim(self, transaction: Transaction, request: ClaimRequest, made: list[LeasedJob]) -> ClaimResult:
        """Fold, take back expired leases, and lease due jobs, see `sfn.inbox.JobQueue.claim`.

        Args:
            transaction: the transaction.
            request: what the worker asks for.
            made: filled with the claims before the commit, because the result of the commit may stay unknown.
        """
        now, capacity = self._clock(), request.capacity
        at = to_micros(now)
        queries = [
            due_intents_query(now),
            Query("SELECT min(due_at) FROM sfn.intent WHERE due_at > $1", (at,)),
            Query(f"{_LEASED} AND lease_until <= $1 ORDER BY lease_until LIMIT $2::int", (at, MAX_EXPIRED)),
            Query("SELECT min(lease_until) FROM sfn.job WHERE state = 'leased' AND lease_until > $1", (at,)),
            catalogs.ALL_SWEEPS,
        ]
        unit, rest = await self._begin(transaction, queries, folds=request.folds)
        due_intents, next_intent, overdue, next_expiry, sweeps = rest
        intents = [parse_intent(row) for row in due_intents]
        jobs = unit.jobs
        expired = jobs.take(overdue)
        checked = intents[:MAX_CHECKS_PER_CLAIM]
        also: set[JobKey] = {one.subject for one in checked} | {one.subject for one in request.unsure}
        if expired:
            also |= {one.subject for one in request.running}
        open_groups = [
            (group, number) for group, number in jobs.groups.numbers.items() if capacity.available_in(group) > 0
        ]
        heads = [jobs.due_query(number, capacity.available_in(group) + 1) for group, number in open_groups]
        found = await self._fold(unit, heads, also, caches_below=capacity.total + capacity.sweeps)
        moments = await self._check_intents(unit, checked, now)
        # If jobs that were read belong to another group now, others of their old group were not read that are due.
        are_moved = False
        for rows, (group, _) in zip(found, open_groups, strict=True):
            are_moved |= jobs.take_group(group, rows) < capacity.available_in(group) < len(rows)
        self._give_back(unit, request.unsure, now)
        lost, letters = self._expire(unit, expired, request.running, now)
        claims, waiting = await self._lease(unit, request, now, parse_sweeps(sweeps))
        made[:] = claims
        await unit.write()
        moments += [*waiting, *([now + self.config.lease] if claims else [])]
        moments += [from_micros(row[0]) for row in (*next_expiry, *next_intent) if row[0] is not None]
        if are_moved or len(intents) > len(checked) or unit.fold.has_more or len(expired) == MAX_EXPIRED:
            moments.append(now)
        return ClaimResult(tuple(claims), min(moments, default=None), tuple(letters), lost, unit.fold)

    async def renew(self, transaction: Transaction, claims: Sequence[LeasedJob]) -> list[LeasedJob]:
        """Renew leases, counted from the start of the transaction, and return those that are not lost."""
        unit = await self.unfolded(transaction, {claim.subject for claim in claims})
        renewed = self._renew(unit.jobs, claims, self._clock())
        await unit.write()
        return renewed

    async def recover(self, transaction: Transaction) -> int:
        """Take back every lease, at the start of the only process; return their number. The next claim reports them."""
        now, taken = self._clock(), 0
        while True:
            unit = await self.unfolded(transaction, ())
            leased = unit.jobs.take(await transaction.fetch(f"{_LEASED} LIMIT $1::int", MAX_EXPIRED))
            count, letters = self._expire(unit, leased, (), now)
            await unit.write()
            taken += count
            self.report_later(count, letters)
            if len(leased) < MAX_EXPIRED:
                return taken

    def report_later(self, expired_leases: int, letters: Sequence[NewDeadLetter]) -> None:
        """Have the next claim report expired leases and letters of poison jobs that were not reported yet."""
        self._unreported += expired_leases
        self._unreported_letters += letters

    def with_unreported(self, claimed: ClaimResult) -> ClaimResult:
        """Return a claim that the worker gets, with what was not reported before."""
        letters = (*self._unreported_letters, *claimed.poison_letters)
        expired = self._unreported + claimed.expired_leases
        self._unreported, self._unreported_letters = 0, []
        return dataclasses.replace(claimed, poison_letters=letters, expired_leases=expired)

    async def record_location(
        self, transaction: Transaction, claim: LeasedJob, layout_key: str, uuid: str | None
    ) -> tuple[frozenset[TableIdentifier] | None, Wakes]:
        """Record where a claim will write a file, see `sfn.inbox.JobQueue.record_location`; say whom that wakes."""
        unit = await self.unfolded(transaction, {claim.subject})
        job = unit.jobs.get(claim.subject)
        if job is None or not holds_lease(job, claim):
            return None, Wakes.NO_WORKER
        live = await others_at(transaction, claim.subject, layout_location(layout_key))
        others = frozenset(name for name, other in live.items() if other != uuid)
        is_new = layout_key not in job.locations
        if is_new:
            await unit.jobs.load(others)
            unit.jobs.save(replace(job, locations=job.locations | {layout_key}))
            self._wake(unit, [Wakeup(name) for name in sorted(others)], self._clock())
            await unit.write()
        return others, Wakes.ALL_WORKERS if is_new and others else Wakes.NO_WORKER

    async def allow_step(self, transaction: Transaction, claim: LeasedJob, step: BackwardStep, now: datetime) -> bool:
        """Return whether the drop limit allows a step, see `sfn.inbox.JobQueue.allow_step`."""
        unit = await self.unfolded(transaction, {claim.subject})
        job = unit.jobs.get(claim.subject)
        if job is None or not holds_lease(job, claim):
            return False
        return await catalogs.allow_step(transaction, job, step, self.config, now)

    async def settle_all(self, transaction: Transaction, requests: Sequence[SettleRequest]) -> list[bool] | None:
        """Settle claims, one after the other.

        Returns:
            For each, False if its lease is lost. None if records must be folded first: a sweep is settled only after
            everything that was accepted before.
        """
        places = {place for request in requests for place in request.places}
        subjects: set[JobKey] = {request.claim.subject for request in requests}
        subjects |= {wakeup.table for request in requests for wakeup in request.result.wakeups}
        if any(isinstance(request.outcome, SweepCompleted) for request in requests):
            unit = await self.folded(transaction, subjects)
        else:
            unit = await self.unfolded(transaction, subjects)
        self.other_folds.append(unit.fold)
        if unit.fold.has_more:
            await unit.write()
            return None
        if places:
            query = visitors_query(places)
            unit.jobs.take(await transaction.fetch(query.text, *query.values))
        settled = [self._settle(unit, request) for request in requests]
        await unit.write()
        return settled

    # ── Steps of the operations

    async def _begin(
        self, transaction: Transaction, queries: Sequence[Query], *, folds: bool = True, has_written: bool = False
    ) -> tuple[Unit, list[Sequence[Row]]]:
        """Read the new concurrency groups and the records to fold; return the results of the caller's queries, too."""
        groups = self._groups.copy() if has_written else self._groups
        pending_query = Query(_PENDING, (MAX_FOLDED if folds else 0,))
        added, pending, *rest = await transaction.fetch_all([groups.query(), pending_query, *queries])
        groups.take(added)
        records = [decode_record(*row) for row in pending]
        return Unit(transaction, Jobs(transaction, groups, self.config), records=records), rest

    async def _fold(
        self,
        unit: Unit,
        queries: Sequence[Query],
        subjects: Collection[JobKey] = (),
        *,
        caches_below: int = 0,
    ) -> list[Sequence[Row]]:
        """Apply records to jobs, and return the results of further queries.

        Args:
            unit: the unit of the transaction.
            queries: further queries.
            subjects: more jobs to read.
            caches_below: read the caches of all jobs, if there are not more jobs than this.
        """
        records = unit.records
        unit.intents = intents = IntentFold(
            [
                (record.message, record.received_at)
                for record in records
                if isinstance(record.message, Intent | IntentOutcome)
            ]
        )
        wanted = dict.fromkeys([*self._subjects(records), *intents.subjects(), *subjects])
        missing = [subject for subject in wanted if not unit.jobs.is_read(subject)]
        caches = len(missing) <= caches_below
        intent_queries = intents.queries()
        asked = [*([unit.jobs.query(missing, caches=caches)] if missing else []), *intent_queries, *queries]
        found = await unit.transaction.fetch_all(asked) if asked else []
        if missing:
            unit.jobs.take(found[0], missing, caches=caches)
            found = found[1:]
        if not records:
            return found
        coalesced = 0
        for record in records:
            coalesced += await self._apply(unit, record)
        intents.apply(found[: len(intent_queries)], lambda subject: unit.jobs.get(subject) is not None)
        unit.others.append(unit.transaction.folded([record.seq for record in records]))
        unit.fold = FoldResult(len(records), coalesced, len(records) == MAX_FOLDED)
        return found[len(intent_queries) :]

    def _subjects(self, records: Iterable[LogRecord]) -> set[JobKey]:
        """Return the jobs that records change; in an event-only catalog there may be more."""
        subjects: set[JobKey] = set()
        for record in records:
            message = record.message
            if isinstance(message, Notification):
                subjects.add(message.subject)
                if message.subject.catalog in self.config.event_only_catalogs:
                    subjects.update(one for one in (message.renamed_from, message.renamed_to) if one is not None)
        return subjects

    async def _apply(self, unit: Unit, record: LogRecord) -> bool:
        """Apply one record; return True if another notification of the same table was already waiting.

        A record that cannot be applied becomes a dead letter, and does not keep others from being applied.
        """
        match record.message:
            case Notification() as notification:
                before = unit.jobs.get(notification.subject)
                while (unread := self._notify(unit, record, notification)) is not None:
                    await unit.jobs.load([unread])
                return has_unprocessed(before)
            case UndecodableRequest() as request:
                unit.letters.keep(request, record.received_at)
                # The letter has the body.
                unit.others.append(Run("DELETE FROM sfn.event WHERE seq = $1", (record.seq,)))
            case None:
                detail = (
                    f"record {record.seq} of the inbox's log: expected a record that this version can read, found one "
                    "that is damaged or that a newer version wrote; its event is lost: run `sfn reconcile CATALOG` "
                    "for each catalog, and send the newest events of event-only catalogs again"
                )
                _log.error("record not applied", seq=record.seq, detail=detail)
                unit.letters.keep(UndecodableRequest("", "", None, b"", 0, detail), record.received_at)
            case Intent() | IntentOutcome():
                pass  # all of a fold are applied at once
        return False

    def _notify(self, unit: Unit, record: LogRecord, notification: Notification) -> JobKey | None:
        """Apply a notification to the jobs that it changes; return a job that must be read first, if there is one.

        The job is read by the caller: an error of the database undoes the transaction, and sets no event aside.
        """
        seq, at = record.seq, record.received_at
        try:
            changed = jobs_after_notification(notification, seq, at, self.config, unit.jobs.get)
        except UnreadJobError as unread:
            return unread.subject
        except Exception as error:  # noqa: BLE001 - whatever is wrong, the records behind it must be applied
            self._set_aside(unit, record, notification, error)
        else:
            for job in changed.values():
                unit.jobs.save(job)
        return None

    def _set_aside(self, unit: Unit, record: LogRecord, notification: Notification, error: Exception) -> None:
        """Open a dead letter for a notification that could not be applied, and have its table checked if possible."""
        subject = notification.subject
        detail = (
            f"{subject}: an event that was accepted could not be applied ({type(error).__name__}: {error}); "
            "this is a defect, please report it; the table is checked without what the event said"
        )
        _log.error("event not applied", **key_fields(subject), seq=record.seq, error=f"{type(error).__name__}: {error}")
        try:
            before = unit.jobs.get(subject)
            job = on_notification(before, Notification(subject), record.seq, record.received_at, self.config.retry_cap)
            unit.jobs.save(replace(job, has_letter=True))
        except Exception as again:  # noqa: BLE001 - as above
            _log.error("table not scheduled", **key_fields(subject), error=f"{type(again).__name__}: {again}")
        unit.letters.open(NewDeadLetter(subject, DeadLetterReason.POISON, detail, 0), record.received_at)

    async def _check_intents(self, unit: Unit, due: Sequence[OpenIntent], now: datetime) -> list[datetime]:
        """Move due intents to their next check, and notify their subjects; return when the first one is due again."""
        checked = unit.intents.check(due, now, MAX_CHECKS_PER_CLAIM)
        await unit.jobs.load([one.subject for one in checked])
        for notification in notifications_for_due(checked):
            job = unit.jobs.get(notification.subject)
            unit.jobs.save(on_notification(job, notification, 0, now, self.config.retry_cap))
        unit.others += unit.intents.changes()
        first = unit.intents.next_check_at()
        return [max(first, now)] if first is not None else []

    def _give_back(self, unit: Unit, unsure: Sequence[LeasedJob], now: datetime) -> None:
        """Give back claims that no worker has, because the answer to their transaction never arrived."""
        for claim in unsure:
            job = unit.jobs.get(claim.subject)
            if job is not None and holds_lease(job, claim):
                unit.jobs.save(on_unused_claim(job, now))

    def _expire(
        self, unit: Unit, overdue: Sequence[Job], running: Sequence[LeasedJob], now: datetime
    ) -> tuple[int, list[NewDeadLetter]]:
        """Take back expired leases, but renew those of the worker that claims.

        Returns:
            The number of expired leases, and the letters of poison jobs.
        """
        if not overdue:
            return 0, []
        renewed = {claim.subject for claim in self._renew(unit.jobs, running, now)}
        letters: list[NewDeadLetter] = []
        lost = 0
        for subject in [job.subject for job in overdue if job.subject not in renewed]:
            job = unit.jobs.get(subject)
            if job is None or job.state is not JobState.LEASED:
                continue
            after = unit.jobs.save(on_lease_expired(job, now, self.config))
            lost += 1
            if is_poison(after, self.config):
                letters.append(poison_letter(subject, after.crashes, job.attempt))
                unit.letters.open(letters[-1], now)
        return lost, letters

    def _renew(self, jobs: Jobs, claims: Sequence[LeasedJob], now: datetime) -> list[LeasedJob]:
        renewed = []
        for claim in claims:
            job = jobs.get(claim.subject) if jobs.is_read(claim.subject) else None
            if job is not None and holds_lease(job, claim):
                jobs.save(on_renew(job, now, self.config.lease))
                renewed.append(claim)
        return renewed

    async def _lease(
        self, unit: Unit, request: ClaimRequest, now: datetime, sweeps: dict[str, LastSweep]
    ) -> tuple[list[LeasedJob], list[datetime]]:
        """Lease due jobs in turn over the concurrency groups.

        Returns:
            The claims; and for each group with capacity, when its first job that was not claimed is due.
        """
        capacity, stores = request.capacity, self.config.stores
        queues: dict[ConcurrencyGroup, list[Job]] = {group: [] for group in unit.jobs.groups.numbers}
        for job in unit.jobs.current():
            if job.state is JobState.QUEUED:
                queues.setdefault(group_of(job, stores), []).append(job)
        self._turn = (self._turn + 1) % max(1, len(queues))
        due: list[tuple[ConcurrencyGroup, list[Job]]] = []
        for group in rotate(queues, self._turn):
            available = capacity.available_in(group)
            if available:
                queues[group].sort(key=_due_order)
                due.append((group, [job for job in queues[group][:available] if job.due_at <= now]))
        chosen = fair_order(due, capacity)
        claims: list[LeasedJob] = []
        if chosen:
            token = await unit.transaction.token()
            await unit.jobs.load([job.subject for _, job in chosen], caches=True)
            for group, chosen_job in chosen:
                job = unit.jobs.get(chosen_job.subject) or chosen_job
                leased = unit.jobs.save(on_claim(job, token, now, self.config.lease))
                claims.append(to_leased_job(leased, group, sweeps.get(job.subject.catalog)))
        taken = {claim.subject for claim in claims}
        first = [next((job.due_at for job in queues[group] if job.subject not in taken), None) for group, _ in due]
        return claims, [at for at in first if at is not None]

    def _settle(self, unit: Unit, request: SettleRequest) -> bool:
        claim, outcome, now = request.claim, request.outcome, request.now
        job = unit.jobs.get(claim.subject)
        if job is None or not holds_lease(job, claim):
            return _was_settled(job, request)
        # The claim has the cache as it is stored: nothing else changes it while the job is leased.
        after = on_settle(replace(job, cache=claim.cache), claim, outcome, now, self.config.retry_cap)
        if after is None:
            unit.jobs.delete(claim.subject)
        else:
            unit.jobs.save(replace(after, cache=UNREAD_CACHE) if after.cache == claim.cache else after)
            unit.jobs.add_outcome(replace(after, attempt=job.attempt))
        if isinstance(outcome, DeadLettered):
            unit.letters.open(NewDeadLetter(claim.subject, outcome.reason, outcome.detail, job.attempt), now)
        elif closes_dead_letter(outcome) and job.has_letter:
            unit.letters.close(claim.subject, DeadLetterStatus.SUPERSEDED, now)
        if isinstance(outcome, SweepCompleted):
            sweep = LastSweep.from_completed(outcome)
            unit.others.append(
                catalogs.set_last_sweep(claim.subject.catalog, sweep, is_within_limit=outcome.within_limit)
            )
        self._wake(unit, request.result.wakeups, now)
        visitors = {name for place in request.places for name in _visitors(unit.jobs, place)} - {claim.subject}
        self._wake(unit, [Wakeup(name) for name in sorted(visitors)], now)
        return True

    def _wake(self, unit: Unit, wakeups: Sequence[Wakeup], now: datetime) -> None:
        """Wake other jobs, which were read."""
        for wakeup in wakeups:
            after = on_wakeup(unit.jobs.get(wakeup.table), wakeup, now, self.config.retry_cap)
            if after is not None:
                unit.jobs.save(after)


def _due_order(job: Job) -> tuple[datetime, str]:
    return job.due_at, encode_key(job.subject)


def _was_settled(job: Job | None, request: SettleRequest) -> bool:
    """Return whether an earlier attempt was committed although its answer never arrived."""
    if job is None:
        return bool(request.tried) and isinstance(request.outcome, Done) and request.outcome.forget
    return job.fencing_token == request.claim.fencing_token and job.last_result in request.tried


def _visitors(jobs: Jobs, place: Place) -> list[TableIdentifier]:
    """Return the tables that may have a file at a place."""
    catalog, location = place
    return [
        job.subject
        for job in jobs.current()
        if isinstance(job.subject, TableIdentifier)
        and job.subject.catalog == catalog
        and any(layout_location(one) == location for one in job.locations)
    ]
