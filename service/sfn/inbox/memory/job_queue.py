"""The job queue in memory: puts, claims, settles, the table index and the drop limit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from sfn.clock import Clock
from sfn.domain.events import (
    InboxMessage,
    Intent,
    IntentOutcome,
    Notification,
    PutResult,
    TableReport,
    UndecodableRequest,
)
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import (
    BackwardStep,
    Capacity,
    ConcurrencyGroup,
    DeadLettered,
    Done,
    IndexedTable,
    LeasedJob,
    Outcome,
    PublishedPointer,
    Rescheduled,
    SweepCompleted,
    Wakeup,
)
from sfn.inbox import ClaimResult
from sfn.inbox.memory.dead_letters import MemoryDeadLetters
from sfn.inbox.memory.intents import MemoryIntents
from sfn.inbox.model import (
    DeadLetterStatus,
    InboxConfig,
    Job,
    JobState,
    LastSweep,
    NewDeadLetter,
    closes_dead_letter,
    group_of,
    has_unprocessed,
    holds_lease,
    is_renamed,
    poison_letter,
    to_leased_job,
)
from sfn.inbox.scheduling import WorkerSignal, fair_order, makes_due, rotate
from sfn.inbox.statistics import NamedTable, counted_steps, dropped_table, is_already_counted, without_old_names
from sfn.inbox.transitions import (
    is_poison,
    jobs_after_notification,
    on_claim,
    on_lease_expired,
    on_renew,
    on_settle,
    on_wakeup,
)
from sfn.sfnfile.naming import layout_location


class MemoryJobQueue:
    """Implements `InboxWriter`, `JobQueue`, `TableIndex` and `DropLimit`, for one event loop and one worker."""

    def __init__(self, config: InboxConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._signal = WorkerSignal(clock)
        self._rows: dict[JobKey, Job] = {}
        self._lanes: set[ConcurrencyGroup] = set()
        self._events: set[tuple[str, str]] = set()
        self._swept: dict[str, LastSweep] = {}
        self._permits: dict[tuple[JobKey, BackwardStep], tuple[datetime, NamedTable | None]] = {}
        self._tripped: set[str] = set()
        self._last = 0
        self._turn = 0
        self._retired: set[str] = set()
        self._owners: dict[str, str] = {}
        self._logged: dict[int, tuple[Notification, datetime]] = {}
        self._letters = MemoryDeadLetters()
        self._intents = MemoryIntents(self._rows.__contains__)
        self._poisoned: list[NewDeadLetter] = []

    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        now, new, superseded = self._clock.now(), 0, 0
        notifications = [note for note in messages if isinstance(note, Notification)]
        for odd in (note for note in messages if isinstance(note, UndecodableRequest)):
            self._letters.keep(odd, now)
        self._intents.take([(note, now) for note in messages if isinstance(note, Intent | IntentOutcome)])
        for notification in notifications:
            if notification.event_id is None or (notification.sender, notification.event_id) not in self._events:
                new += 1
                superseded += has_unprocessed(self._rows.get(notification.subject))
                if self._take(notification, now):
                    self._signal.notify()
        return PutResult(new, len(notifications) - new, superseded)

    async def wait(self, until: datetime | None) -> None:
        await self._signal.wait(until)

    async def claim(self, capacity: Capacity, running: Sequence[LeasedJob] = ()) -> ClaimResult:
        self._signal.clear()
        now = self._clock.now()
        notifications, next_ask = self._intents.ask(now)
        for notification in notifications:
            self._take(notification, now)
        if self._run_out(now):
            self._prolong(running, now)
        lost = self._run_out(now)
        for row in lost:
            self._expire(row, now)
        claims = tuple(self._leased(row, lane, now) for lane, row in self._due(capacity, now))
        moments = [row.due_at for row in self._of(JobState.QUEUED) if capacity.available_in(self._lane(row))]
        moments += [row.lease_until for row in self._of(JobState.LEASED) if row.lease_until is not None]
        moments += [next_ask] if next_ask is not None else []
        letters, self._poisoned = tuple(self._poisoned), []
        return ClaimResult(claims, min(moments, default=None), letters, len(lost))

    async def renew(self, claims: Sequence[LeasedJob]) -> list[LeasedJob]:
        renewed = self._prolong(claims, self._clock.now())
        if len(renewed) < len(claims):
            self._signal.notify()
        return renewed

    async def record_location(
        self, claim: LeasedJob, layout_key: str, uuid: str | None
    ) -> frozenset[TableIdentifier] | None:
        row = self._held_by(claim)
        if row is None:
            return None
        live = self._live(claim.subject.catalog)
        there = [
            name for name, (_, at) in live.items() if at.location == layout_location(layout_key) and at.uuid != uuid
        ]
        others = frozenset(name for name in there if name != claim.subject)
        if layout_key not in row.locations:
            self._save(replace(row, locations=row.locations | {layout_key}))
            self._ask((Wakeup(name) for name in sorted(others)), self._clock.now())
            self._signal.notify()
        return others

    async def allow_step(self, claim: LeasedJob, step: BackwardStep, now: datetime) -> bool:
        row = self._held_by(claim)
        if row is None:
            return False
        window = self._config.drop_limit_window
        self._permits = {asked: permit for asked, permit in self._permits.items() if permit[0] > now - window}
        if (claim.subject, step) in self._permits:
            return True
        catalog = claim.subject.catalog
        drop, drops = dropped_table(claim.subject, step, is_renamed=is_renamed(row)), self._drops(catalog)
        allowed = catalog not in self._tripped and self._allows(catalog, drop, drops)
        if not allowed and not is_already_counted(drop, drops):
            self._tripped.add(catalog)
            return False
        self._permits[claim.subject, step] = now, drop
        return True

    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        row = self._held_by(claim)
        if row is None:
            return False
        after = on_settle(row, claim, outcome, now, self._config.retry_cap)
        if after is None:
            del self._rows[claim.subject]
        else:
            self._save(after)
        self._note(claim, outcome, row.attempt, now)
        self._signal.notify()
        return True

    async def tables(self, catalog: str) -> AsyncIterator[IndexedTable]:
        for subject, row in list(self._rows.items()):
            if isinstance(subject, TableIdentifier) and subject.catalog == catalog:
                yield _to_indexed_table(subject, row)

    async def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        live = self._live(catalog)
        return [
            _to_indexed_table(name, row) for name, (row, published) in sorted(live.items()) if published.uuid == uuid
        ]

    async def reported_tables(self, table: TableIdentifier) -> tuple[TableReport, ...]:
        row = self._rows.get(table)
        return row.table_state.reported if row is not None else ()

    async def at_location(self, table: TableIdentifier, location: str) -> frozenset[TableIdentifier]:
        live = self._live(table.catalog)
        return frozenset(name for name, (_, at) in live.items() if at.location == location) - {table}

    async def max_missing(self, catalog: str) -> int:
        return self._config.allowed_drops(catalog, self._live_count(catalog))

    def _allows(self, catalog: str, drop: NamedTable | None, drops: Sequence[NamedTable]) -> bool:
        """Return whether the limit allows one more step; a table that is dropped twice counts once."""
        live = self._live_count(catalog)
        if self._steps(catalog, drops) >= self._config.max_steps(catalog, live):
            return False
        if drop is None:
            return True
        gone = {one.name for one in without_old_names([*drops, drop])}
        return len(gone) <= self._config.max_drops_of(catalog, live + len(gone - self._live(catalog).keys()))

    def _steps(self, catalog: str, drops: Sequence[NamedTable]) -> int:
        """Return how many steps of a catalog count; its drops within the hour are given."""
        since = self._clock.now() - self._config.drop_limit_window
        steps = sum(one.catalog == catalog and at > since for (one, _), (at, _) in self._permits.items())
        return counted_steps(steps, drops)

    def _drops(self, catalog: str) -> list[NamedTable]:
        """Return the drops that were allowed within the hour."""
        since = self._clock.now() - self._config.drop_limit_window
        drops = [drop for at, drop in self._permits.values() if drop is not None and at > since]
        return [drop for drop in drops if drop.name.catalog == catalog]

    def _live_count(self, catalog: str) -> int:
        """Return how many tables of a catalog have a live file, under whatever names."""
        live = self._live(catalog).items()
        return len(without_old_names(NamedTable(name, at.uuid, is_renamed(row)) for name, (row, at) in live))

    def _take(self, notification: Notification, now: datetime) -> bool:
        """Log a notification and change its jobs; return whether one may have become due."""
        if notification.event_id is not None:
            self._events.add((notification.sender, notification.event_id))
        may_make_due = False
        for row in jobs_after_notification(notification, self._next(), now, self._config, self._rows.get).values():
            may_make_due = may_make_due or makes_due(self._rows.get(row.subject), row)
            self._save(row)
        self._logged[self._last] = (notification, now)
        return may_make_due

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _save(self, row: Job) -> None:
        self._rows[row.subject] = row
        self._lanes.add(self._lane(row))

    def _lane(self, row: Job) -> ConcurrencyGroup:
        return group_of(row, self._config.stores)

    def _of(self, state: JobState) -> list[Job]:
        return [row for row in self._rows.values() if row.state is state]

    def _prolong(self, claims: Sequence[LeasedJob], now: datetime) -> list[LeasedJob]:
        prolonged = [claim for claim in claims if self._held_by(claim) is not None]
        for claim in prolonged:
            self._save(on_renew(self._rows[claim.subject], now, self._config.lease))
        return prolonged

    def _run_out(self, now: datetime) -> list[Job]:
        return [row for row in self._of(JobState.LEASED) if row.lease_until is not None and row.lease_until <= now]

    def _live(self, catalog: str) -> dict[TableIdentifier, tuple[Job, PublishedPointer]]:
        """Return the jobs of the catalog with a live file."""
        return {
            subject: (row, row.table_state.live)
            for subject, row in self._rows.items()
            if isinstance(subject, TableIdentifier) and subject.catalog == catalog and row.table_state.live is not None
        }

    def _held_by(self, claim: LeasedJob) -> Job | None:
        row = self._rows.get(claim.subject)
        return row if holds_lease(row, claim) else None

    def _expire(self, row: Job, now: datetime) -> None:
        after = on_lease_expired(row, now, self._config)
        self._save(after)
        if is_poison(after, self._config):
            self._poisoned.append(poison_letter(row.subject, after.crashes, row.attempt))
            self._letters.open(self._poisoned[-1], now)

    def _due(self, slots: Capacity, now: datetime) -> list[tuple[ConcurrencyGroup, Job]]:
        waiting: dict[ConcurrencyGroup, list[Job]] = defaultdict(list)
        for row in sorted(self._of(JobState.QUEUED), key=lambda row: (row.due_at, str(row.subject))):
            lane = self._lane(row)
            if row.due_at <= now and len(waiting[lane]) < slots.available_in(lane):
                waiting[lane].append(row)
        self._turn = (self._turn + 1) % max(1, len(self._lanes))
        return fair_order([(lane, waiting[lane]) for lane in rotate(self._lanes, self._turn)], slots)

    def _leased(self, row: Job, lane: ConcurrencyGroup, now: datetime) -> LeasedJob:
        after = on_claim(row, self._next(), now, self._config.lease)
        self._save(after)
        return to_leased_job(after, lane, self._swept.get(row.subject.catalog))

    def _note(self, claim: LeasedJob, outcome: Outcome, attempts: int, now: datetime) -> None:
        """Apply an outcome to other jobs, the dead letters and the drop limit."""
        catalog = claim.subject.catalog
        if isinstance(outcome, DeadLettered):
            self._letters.open(NewDeadLetter(claim.subject, outcome.reason, outcome.detail, attempts), now)
        elif closes_dead_letter(outcome):
            self._letters.close(claim.subject, DeadLetterStatus.SUPERSEDED, now)
        if isinstance(outcome, SweepCompleted):
            self._swept[catalog] = LastSweep.from_completed(outcome)
            if outcome.within_limit:
                self._tripped.discard(catalog)
        if isinstance(outcome, Done | Rescheduled | DeadLettered) and outcome.result is not None:
            self._ask(outcome.result.wakeups, now)
            places = outcome.result.wake_locations
            rows = [row for row in self._rows.values() if row.subject.catalog == catalog]
            there = [row for row in rows if not places.isdisjoint(map(layout_location, row.locations))]
            names = {row.subject for row in there if isinstance(row.subject, TableIdentifier)} - {claim.subject}
            self._ask((Wakeup(name) for name in sorted(names)), now)

    def _ask(self, asks: Iterable[Wakeup], now: datetime) -> None:
        for ask in asks:
            after = on_wakeup(self._rows.get(ask.table), ask, self._next(), now, self._config.retry_cap)
            if after is not None:
                self._save(after)


def _to_indexed_table(name: TableIdentifier, row: Job) -> IndexedTable:
    pending, table_state = row.pending, row.table_state
    seen, min_metadata_location = row.cache.etag, pending.min_metadata_location
    missing, renamed = frozenset(table_state.missing_since), is_renamed(row)
    return IndexedTable(
        name,
        table_state.live,
        seen,
        row.reason,
        min_metadata_location,
        table_state.foreign_catalog_id,
        pending.adopt_catalog_id,
        missing,
        renamed,
    )
