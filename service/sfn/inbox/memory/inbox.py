"""All faces of the inbox in memory: what operators ask and tell, on top of the worklist."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime

import anyio.lowlevel

from sfn.inbox.figures import BrakeState, Figures, MissingTables, braking, earliest
from sfn.inbox.intents import numbers
from sfn.inbox.letters import RELEASED, Audited, DeadLetter, Order, Status, Wanted
from sfn.inbox.memory.worklist import MemoryWorklist
from sfn.inbox.names import without_old_names
from sfn.inbox.row import Row, State, counted_as, missing_since, standing_of, told_by
from sfn.inbox.standing import LastEvent, Standing
from sfn.inbox.transitions import released, replayed
from sfn.words import Hint, Reason, Subject, TableName, Undecodable


class MemoryInbox(MemoryWorklist):
    """Intake, worklist, roster, brake, desk, dead letters and custody in one, for one event loop and one worker."""

    async def release(self, catalog: str, order: Order) -> int:
        """See `Brake.release`."""
        self._tripped.discard(catalog)
        self._permits = {asked: permit for asked, permit in self._permits.items() if asked[0].catalog != catalog}
        entry, count = self._letters.note("release", order, 0), 0
        held = [subject for subject, row in self._rows.items() if subject.catalog == catalog and _is_held(row)]
        for start in range(0, len(held), RELEASED):
            for subject in held[start : start + RELEASED]:
                row = self._rows.get(subject)
                if row is not None and _is_held(row):
                    self._save(released(row, order.at))
                    self._letters.close(subject, Status.REPLAYED, order.at, order.actor)
                    count += 1
            self._letters.recount(entry, count)
            self._bell.ring()
            await anyio.lowlevel.checkpoint()
        return count

    async def figures(self) -> Figures:
        """See `Desk.figures`."""
        now = self._clock.now()
        rows = [row for row in self._rows.values() if isinstance(row.subject, TableName)]
        told = [row for row in self._rows.values() if self._lane(row).is_told]
        since = [(row.due_at, row) for row in told if row.state is State.QUEUED]
        since += [(row.waits_since, row) for row in told if row.waits_since is not None]
        overdue = sorted(((at, row.subject.catalog) for at, row in since if at <= now), reverse=True)
        oldest = earliest({catalog: at for at, catalog in overdue}, self._letters.oldest())
        counts = Counter((row.subject.catalog, counted_as(row)) for row in rows)
        tripped, intents = braking(counts, self._tripped), numbers(self._intents.counts())
        return Figures(counts, oldest, self._letters.counts(), tripped, *intents, self._missing(rows))

    def _missing(self, rows: Sequence[Row]) -> dict[str, MissingTables]:
        """See `Figures.missing`."""
        since: dict[str, list[datetime]] = defaultdict(list)
        for row in rows:
            if (at := missing_since(row.story)) is not None:
                since[row.subject.catalog].append(at)
        return {catalog: MissingTables(len(times), min(times)) for catalog, times in since.items()}

    async def standing(self, subject: Subject) -> Standing | None:
        """See `Desk.standing`."""
        row = self._rows.get(subject)
        if row is None:
            return None
        event, intents = self._logged.get(told_by(row)), self._intents.opened(subject)
        if event is None:
            return standing_of(row, None, intents)
        hint, received_at = event
        return standing_of(row, LastEvent(hint.sender, hint.event_id, received_at, hint.body), intents)

    async def brake(self, catalog: str) -> BrakeState:
        """See `Desk.brake`."""
        drops = self._drops(catalog)
        on, live = catalog in (await self.figures()).tripped, self._live_count(catalog)
        gone = {drop.name for drop in without_old_names(drops)} - self._live(catalog).keys()
        return BrakeState(on, self._steps(catalog, drops), self._terms.allowance(catalog, live, len(gone)), live)

    async def audited(self, before: int | None, limit: int) -> list[Audited]:
        """See `Desk.audited`."""
        found = [entry for entry in self._letters.audited if before is None or entry.id < before]
        return found[::-1][:limit]

    async def find(self, wanted: Wanted, after: int, limit: int) -> list[DeadLetter]:
        """See `DeadLetters.find`."""
        return [letter for letter in self._letters.find(wanted) if letter.id > after][:limit]

    async def newest(self, wanted: Wanted, limit: int) -> list[DeadLetter]:
        """See `DeadLetters.newest`."""
        return self._letters.find(wanted)[::-1][:limit]

    async def numbered(self, numbers: Sequence[int]) -> list[DeadLetter]:
        """See `DeadLetters.numbered`."""
        return self._letters.numbered(numbers)

    async def event(self, number: int) -> Undecodable | None:
        """See `DeadLetters.event`."""
        return self._letters.event(number)

    async def replay(self, numbers: Sequence[int], hints: Sequence[Hint], order: Order) -> int:
        """See `DeadLetters.replay`."""
        count = 0
        for letter in self._letters.numbered(numbers):
            if self._letters.end(letter.id, Status.REPLAYED, order.at, order.actor):
                count += 1
                if letter.subject is not None:
                    row = self._rows.get(letter.subject) or Row(letter.subject, order.at)
                    self._save(replayed(row, order.at))
        await self.put(hints)
        self._letters.note("replay", order, count)
        return count

    async def discard(self, numbers: Sequence[int], order: Order) -> int:
        """See `DeadLetters.discard`."""
        count = sum(self._letters.end(number, Status.DISCARDED, order.at, order.actor) for number in set(numbers))
        self._letters.note("discard", order, count)
        return count

    async def reconcile(self, hints: Sequence[Hint], order: Order) -> None:
        """See `Custody.reconcile`."""
        await self.put(hints)
        self._letters.note("reconcile", order, len(hints))

    async def adopt(self, hints: Sequence[Hint], order: Order) -> None:
        """See `Custody.adopt`."""
        await self.put(hints)
        self._letters.note("adopt", order, len(hints))

    async def retire(self, catalog: str, *, retired: bool, order: Order) -> None:
        """See `Custody.retire`."""
        (self._retired.add if retired else self._retired.discard)(catalog)
        self._letters.note("retire" if retired else "unretire", order, 1)

    async def owner(self, catalog: str) -> str | None:
        """See `Custody.owner`."""
        return self._owners.get(catalog)

    async def own(self, catalog: str, catalog_id: str) -> None:
        """See `Custody.own`."""
        self._owners[catalog] = catalog_id

    async def retired(self) -> frozenset[str]:
        """See `Custody.retired`."""
        return frozenset(self._retired)


def _is_held(row: Row) -> bool:
    return row.reason is Reason.HELD_DROP
