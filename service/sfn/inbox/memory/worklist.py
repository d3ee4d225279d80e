"""What comes into the inbox in memory, is worked off, and is known of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from sfn.clock import Clock
from sfn.inbox import Claimed
from sfn.inbox.bell import Bell, stirs
from sfn.inbox.letters import Letter, Status, poisoned, supersedes
from sfn.inbox.memory.intents import MemoryIntents
from sfn.inbox.memory.letters import MemoryLetters
from sfn.inbox.names import NamedTable, counted_steps, dropped_by, is_counted, without_old_names
from sfn.inbox.row import LastSweep, Row, State, claim_of, has_news, is_held_by, is_renamed, lane_of
from sfn.inbox.tellings import taken, told_of
from sfn.inbox.terms import Terms
from sfn.inbox.transitions import asked, claimed, expired, is_poison, renewed, settled
from sfn.inbox.turns import dealt, rotated
from sfn.pointer.site import layout_location
from sfn.words import (
    Accepted,
    Answered,
    Ask,
    Claim,
    Dead,
    Done,
    Hint,
    Intent,
    Known,
    Lane,
    Later,
    Note,
    Outcome,
    Published,
    Slots,
    Step,
    Subject,
    Swept,
    TableName,
    Told,
    Undecodable,
)


class MemoryWorklist:
    """Intake, worklist and roster in one, for one event loop and one worker."""

    def __init__(self, terms: Terms, clock: Clock) -> None:
        self._terms, self._clock = terms, clock
        self._bell = Bell(clock)
        self._rows: dict[Subject, Row] = {}
        self._lanes: set[Lane] = set()
        self._events: set[tuple[str, str]] = set()
        self._swept: dict[str, LastSweep] = {}
        self._permits: dict[tuple[Subject, Step], tuple[datetime, NamedTable | None]] = {}
        self._tripped: set[str] = set()
        self._last = 0
        self._turn = 0
        self._retired: set[str] = set()
        self._owners: dict[str, str] = {}
        self._logged: dict[int, tuple[Hint, datetime]] = {}
        self._letters = MemoryLetters()
        self._intents = MemoryIntents(self._rows.__contains__)
        self._poisoned: list[Letter] = []

    async def put(self, notes: Sequence[Note]) -> Accepted:
        """See `Intake.put`."""
        now, new, superseded = self._clock.now(), 0, 0
        hints = [note for note in notes if isinstance(note, Hint)]
        for odd in (note for note in notes if isinstance(note, Undecodable)):
            self._letters.keep(odd, now)
        self._intents.take([(note, now) for note in notes if isinstance(note, Intent | Answered)])
        for hint in hints:
            if hint.event_id is None or (hint.sender, hint.event_id) not in self._events:
                new += 1
                superseded += has_news(self._rows.get(hint.subject))
                if self._take(hint, now):
                    self._bell.ring()
        return Accepted(new, len(hints) - new, superseded)

    async def wait(self, until: datetime | None) -> None:
        """See `Worklist.wait`."""
        await self._bell.wait(until)

    async def claim(self, slots: Slots, held: Sequence[Claim] = ()) -> Claimed:
        """See `Worklist.claim`."""
        self._bell.clear()
        now = self._clock.now()
        hints, next_ask = self._intents.ask(now)
        for hint in hints:
            self._take(hint, now)
        if self._run_out(now):
            self._prolong(held, now)
        lost = self._run_out(now)
        for row in lost:
            self._expire(row, now)
        claims = tuple(self._leased(row, lane, now) for lane, row in self._due(slots, now))
        moments = [row.due_at for row in self._of(State.QUEUED) if slots.of(self._lane(row))]
        moments += [row.lease_until for row in self._of(State.LEASED) if row.lease_until is not None]
        moments += [next_ask] if next_ask is not None else []
        letters, self._poisoned = tuple(self._poisoned), []
        return Claimed(claims, min(moments, default=None), letters, len(lost))

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """See `Worklist.renew`."""
        kept = self._prolong(claims, self._clock.now())
        if len(kept) < len(claims):
            self._bell.ring()
        return kept

    async def remember(self, claim: Claim, site: str, uuid: str | None) -> frozenset[TableName] | None:
        """See `Worklist.remember`."""
        row = self._held_by(claim)
        if row is None:
            return None
        live = self._live(claim.subject.catalog)
        there = [name for name, (_, at) in live.items() if at.location == layout_location(site) and at.uuid != uuid]
        others = frozenset(name for name in there if name != claim.subject)
        if site not in row.locations:
            self._save(replace(row, locations=row.locations | {site}))
            self._ask((Ask(name) for name in sorted(others)), self._clock.now())
            self._bell.ring()
        return others

    async def permit(self, claim: Claim, step: Step, now: datetime) -> bool:
        """See `Worklist.permit`."""
        row = self._held_by(claim)
        if row is None:
            return False
        window = self._terms.brake_window
        self._permits = {asked: permit for asked, permit in self._permits.items() if permit[0] > now - window}
        if (claim.subject, step) in self._permits:
            return True
        catalog = claim.subject.catalog
        drop, drops = dropped_by(claim.subject, step, renamed=is_renamed(row)), self._drops(catalog)
        allowed = catalog not in self._tripped and self._allows(catalog, drop, drops)
        if not allowed and not is_counted(drop, drops):
            self._tripped.add(catalog)
            return False
        self._permits[claim.subject, step] = now, drop
        return True

    async def settle(self, claim: Claim, outcome: Outcome, now: datetime) -> bool:
        """See `Worklist.settle`."""
        row = self._held_by(claim)
        if row is None:
            return False
        after = settled(row, claim, outcome, now, self._terms.cap)
        if after is None:
            del self._rows[claim.subject]
        else:
            self._save(after)
        self._note(claim, outcome, row.attempt, now)
        self._bell.ring()
        return True

    async def known(self, catalog: str) -> AsyncIterator[Known]:
        """See `Roster.known`."""
        for subject, row in list(self._rows.items()):
            if isinstance(subject, TableName) and subject.catalog == catalog:
                yield _known(subject, row)

    async def carrying(self, catalog: str, uuid: str) -> list[Known]:
        """See `Roster.carrying`."""
        live = self._live(catalog)
        return [_known(name, row) for name, (row, published) in sorted(live.items()) if published.uuid == uuid]

    async def told(self, table: TableName) -> Told | None:
        """See `Roster.told`."""
        row = self._rows.get(table)
        return told_of(row) if row is not None else None

    async def neighbours(self, table: TableName, location: str) -> frozenset[TableName]:
        """See `Roster.neighbours`."""
        live = self._live(table.catalog)
        return frozenset(name for name, (_, at) in live.items() if at.location == location) - {table}

    async def limit(self, catalog: str) -> int:
        """See `Brake.limit`."""
        return self._terms.allowance(catalog, self._live_count(catalog))

    def _allows(self, catalog: str, drop: NamedTable | None, drops: Sequence[NamedTable]) -> bool:
        """Whether one more step is no more than may be; a table that is dropped twice disappears once."""
        live = self._live_count(catalog)
        if self._steps(catalog, drops) >= self._terms.most_steps(catalog, live):
            return False
        if drop is None:
            return True
        gone = {one.name for one in without_old_names([*drops, drop])}
        return len(gone) <= self._terms.most_drops(catalog, live + len(gone - self._live(catalog).keys()))

    def _steps(self, catalog: str, drops: Sequence[NamedTable]) -> int:
        """Return how many steps of a catalog count; its drops within the hour are given."""
        since = self._clock.now() - self._terms.brake_window
        steps = sum(one.catalog == catalog and at > since for (one, _), (at, _) in self._permits.items())
        return counted_steps(steps, drops)

    def _drops(self, catalog: str) -> list[NamedTable]:
        """Return the drops that were allowed within the hour."""
        since = self._clock.now() - self._terms.brake_window
        drops = [drop for at, drop in self._permits.values() if drop is not None and at > since]
        return [drop for drop in drops if drop.name.catalog == catalog]

    def _live_count(self, catalog: str) -> int:
        """Return how many tables of a catalog have a live file, under whatever names."""
        live = self._live(catalog).items()
        return len(without_old_names(NamedTable(name, at.uuid, is_renamed(row)) for name, (row, at) in live))

    def _take(self, hint: Hint, now: datetime) -> bool:
        """Log a hint and change rows by it; whether one may have fallen due."""
        if hint.event_id is not None:
            self._events.add((hint.sender, hint.event_id))
        stirring = False
        for row in taken(hint, self._next(), now, self._terms, self._rows.get).values():
            stirring = stirring or stirs(self._rows.get(row.subject), row)
            self._save(row)
        self._logged[self._last] = (hint, now)
        return stirring

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _save(self, row: Row) -> None:
        self._rows[row.subject] = row
        self._lanes.add(self._lane(row))

    def _lane(self, row: Row) -> Lane:
        return lane_of(row, self._terms.stores)

    def _of(self, state: State) -> list[Row]:
        return [row for row in self._rows.values() if row.state is state]

    def _prolong(self, claims: Sequence[Claim], now: datetime) -> list[Claim]:
        kept = [claim for claim in claims if self._held_by(claim) is not None]
        for claim in kept:
            self._save(renewed(self._rows[claim.subject], now, self._terms.lease))
        return kept

    def _run_out(self, now: datetime) -> list[Row]:
        return [row for row in self._of(State.LEASED) if row.lease_until is not None and row.lease_until <= now]

    def _live(self, catalog: str) -> dict[TableName, tuple[Row, Published]]:
        """The catalog's rows that have a live file."""
        return {
            subject: (row, row.story.live)
            for subject, row in self._rows.items()
            if isinstance(subject, TableName) and subject.catalog == catalog and row.story.live is not None
        }

    def _held_by(self, claim: Claim) -> Row | None:
        row = self._rows.get(claim.subject)
        return row if is_held_by(row, claim) else None

    def _expire(self, row: Row, now: datetime) -> None:
        after = expired(row, now, self._terms)
        self._save(after)
        if is_poison(after, self._terms):
            self._poisoned.append(poisoned(row.subject, after.crashes, row.attempt))
            self._letters.open(self._poisoned[-1], now)

    def _due(self, slots: Slots, now: datetime) -> list[tuple[Lane, Row]]:
        waiting: dict[Lane, list[Row]] = defaultdict(list)
        for row in sorted(self._of(State.QUEUED), key=lambda row: (row.due_at, str(row.subject))):
            lane = self._lane(row)
            if row.due_at <= now and len(waiting[lane]) < slots.of(lane):
                waiting[lane].append(row)
        self._turn = (self._turn + 1) % max(1, len(self._lanes))
        return dealt([(lane, waiting[lane]) for lane in rotated(self._lanes, self._turn)], slots)

    def _leased(self, row: Row, lane: Lane, now: datetime) -> Claim:
        after = claimed(row, self._next(), now, self._terms.lease)
        self._save(after)
        return claim_of(after, lane, self._swept.get(row.subject.catalog))

    def _note(self, claim: Claim, outcome: Outcome, attempts: int, now: datetime) -> None:
        """What an outcome means for other rows, the dead letters and the brake."""
        catalog = claim.subject.catalog
        if isinstance(outcome, Dead):
            self._letters.open(Letter(claim.subject, outcome.reason, outcome.detail, attempts), now)
        elif supersedes(outcome):
            self._letters.close(claim.subject, Status.SUPERSEDED, now)
        if isinstance(outcome, Swept):
            self._swept[catalog] = LastSweep.ended(outcome)
            if outcome.calm:
                self._tripped.discard(catalog)
        if isinstance(outcome, Done | Later | Dead) and outcome.findings is not None:
            self._ask(outcome.findings.asks, now)
            places = outcome.findings.stirs
            rows = [row for row in self._rows.values() if row.subject.catalog == catalog]
            there = [row for row in rows if not places.isdisjoint(map(layout_location, row.locations))]
            names = {row.subject for row in there if isinstance(row.subject, TableName)} - {claim.subject}
            self._ask((Ask(name) for name in sorted(names)), now)

    def _ask(self, asks: Iterable[Ask], now: datetime) -> None:
        for ask in asks:
            after = asked(self._rows.get(ask.table), ask, self._next(), now, self._terms.cap)
            if after is not None:
                self._save(after)


def _known(name: TableName, row: Row) -> Known:
    wish, story = row.wish, row.story
    seen, told = row.memo.etag, wish.floor
    missing, renamed = frozenset(story.absent), is_renamed(row)
    return Known(name, story.live, seen, row.reason, told, story.foreign_id, wish.adopts, missing, renamed)
