"""What receivers, workers and readers have of the inbox in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

import anyio

from sfn.clock import Clock
from sfn.errors import SfnError, Unsure
from sfn.gathering import Gathering
from sfn.inbox import Claimed
from sfn.inbox.bell import Bell
from sfn.inbox.commits import Commit, overfull
from sfn.inbox.keeping import PAGE
from sfn.inbox.postgres.claiming import Asked
from sfn.inbox.postgres.ear import Ear
from sfn.inbox.postgres.intake import Put, PutAnswer
from sfn.inbox.postgres.ledger import Ledger
from sfn.inbox.postgres.opening import Reached
from sfn.inbox.postgres.settling import Ending, Settled
from sfn.inbox.postgres.transactions import Verb
from sfn.inbox.standing import Said
from sfn.inbox.terms import Terms
from sfn.words import Accepted, Claim, Known, Note, Outcome, Slots, Step, Subject, TableName, Told
from sfn.words.outcome import told

T = TypeVar("T")

POLLED: Final = timedelta(seconds=1)
"""How long a worker waits that nobody rings for: what another process put, or left, is found by then."""
NOTES_AT_ONCE: Final = 1_000
ENDINGS_AT_ONCE: Final = 64
"""Of one transaction: while it runs its rows are locked."""
UNHURRIED: Final = 2
"""Transactions at a time of verbs that puts, claims, renewals and settles must not wait for."""
_FASTER: Final = "raise `listener.queue_limit`, or give the database's server a faster disk"


class PostgresWorklist:
    """Intake, worklist, roster and the brake's limit in one, for one event loop and one worker.

    Args:
        there: the database.
        terms: settings.
        clock: the wall clock.
        queue_limit: how many notes may wait.
        observe: told of every transaction.
    """

    def __init__(
        self,
        there: Reached,
        terms: Terms,
        clock: Clock,
        *,
        queue_limit: int,
        observe: Callable[[Commit], None],
    ) -> None:
        self._transactions, self._where = there.transactions, there.where
        self._clock, self._terms = clock, terms
        self._ledger = Ledger(terms, clock.now)
        self._bell = Bell(clock)
        self._ear = Ear(there.connections, self._bell.ring)
        self._queue_limit, self._observe = queue_limit, observe
        self._queued = 0
        self._puts = Gathering[Put, PutAnswer](
            self._put_all, self._tell, weight=lambda put: len(put[0]), most=NOTES_AT_ONCE
        )
        self._endings = Gathering[Ending, Settled](
            self._settle_all, self._tell, weight=lambda _: 1, most=ENDINGS_AT_ONCE
        )
        self._few = anyio.Semaphore(UNHURRIED)
        # By their tokens, claims that may have been made and settles that may have been taken.
        self._unsure: dict[int, Claim] = {}
        self._tried: dict[int, tuple[Said, ...]] = {}
        self._doubtful_until: dict[int, datetime] = {}

    async def put(self, notes: Sequence[Note]) -> Accepted:
        """See `Intake.put`."""
        if self._queued and self._queued + len(notes) > self._queue_limit:
            raise overfull(self._where, self._queue_limit, self._queued, len(notes), _FASTER)
        self._queued += len(notes)
        try:
            return (await self._puts((notes, self._clock.now()))).accepted
        finally:
            self._queued -= len(notes)

    async def wait(self, until: datetime | None) -> None:
        """See `Worklist.wait`; returns after a second at the latest."""
        await self._ear.listen()
        poll = self._clock.now() + POLLED
        await self._bell.wait(poll if until is None else min(until, poll))

    async def claim(self, slots: Slots, held: Sequence[Claim] = ()) -> Claimed:
        """See `Worklist.claim`."""
        self._bell.clear()
        self._forget_doubts()
        asked = Asked(slots, held, list(self._unsure.values()))
        made: list[Claim] = []
        try:
            return await self._ran(lambda unit: self._ledger.claiming.claim(unit, asked, made))
        except BaseException:
            # If they were made all the same, nobody works on them, and nobody could until their leases run out.
            for claim in made:
                self._doubt(claim)
                self._unsure[claim.token] = claim
            raise

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """See `Worklist.renew`."""
        kept = await self._ran(lambda unit: self._ledger.claiming.renew(unit, claims))
        if len(kept) < len(claims):
            self._bell.ring()
        return kept

    async def remember(self, claim: Claim, site: str, uuid: str | None) -> frozenset[TableName] | None:
        """See `Worklist.remember`."""
        others = await self._unhurried(lambda unit: self._ledger.remember(unit, claim, site, uuid))
        if others:
            await self._stir()
        return others

    async def permit(self, claim: Claim, step: Step, now: datetime) -> bool:
        """See `Worklist.permit`."""
        return await self._unhurried(lambda unit: self._ledger.permit(unit, claim, step, now))

    async def settle(self, claim: Claim, outcome: Outcome, now: datetime) -> bool:
        """See `Worklist.settle`."""
        tried = self._tried.get(claim.token, ())
        try:
            settled = await self._endings(Ending(claim, outcome, now, tried))
        except BaseException as error:
            if isinstance(error, Unsure) or not isinstance(error, SfnError):
                self._doubt(claim)
                self._tried[claim.token] = (*tried, Said(*told(outcome), now))
            raise
        self._tried.pop(claim.token, None)
        return settled.kept

    async def known(self, catalog: str) -> AsyncIterator[Known]:
        """See `Roster.known`."""
        page: list[tuple[str, Known]] = []
        while page := await self._known_after(catalog, page[-1][0] if page else ""):
            for _, known in page:
                yield known

    async def _known_after(self, catalog: str, after: str) -> list[tuple[str, Known]]:
        return await self._unhurried(lambda unit: unit.roster.known(catalog, after, PAGE))

    async def carrying(self, catalog: str, uuid: str) -> list[Known]:
        """See `Roster.carrying`."""
        return await self._unhurried(lambda unit: unit.roster.carrying(catalog, uuid))

    async def told(self, table: TableName) -> Told | None:
        """See `Roster.told`."""
        return await self._unhurried(lambda unit: self._ledger.told(unit, table))

    async def neighbours(self, table: TableName, location: str) -> frozenset[TableName]:
        """See `Roster.neighbours`."""
        return await self._unhurried(lambda unit: self._ledger.neighbours(unit, table, location))

    async def limit(self, catalog: str) -> int:
        """See `Brake.limit`."""
        return await self._unhurried(lambda unit: self._ledger.limit(unit, catalog))

    def _doubt(self, claim: Claim) -> None:
        """What became of a claim is not known until its lease is long over."""
        self._doubtful_until[claim.token] = self._clock.now() + 2 * self._terms.lease

    def _forget_doubts(self) -> None:
        now = self._clock.now()
        for token in [token for token, until in self._doubtful_until.items() if until <= now]:
            del self._doubtful_until[token]
            self._unsure.pop(token, None)
            self._tried.pop(token, None)

    async def _unhurried(self, verb: Verb[T]) -> T:
        """The result of a verb that others need not wait for."""
        async with self._few:
            return await self._ran(verb)

    async def _ran(self, verb: Verb[T], *, wide: bool = False) -> T:
        began = anyio.current_time()
        result = await self._transactions.run(verb, wide=wide)
        self._observe(Commit(1, 0, stirring=False, seconds=anyio.current_time() - began))
        return result

    async def _stir(self) -> None:
        """Something may have fallen due."""
        self._bell.ring()
        await self._ear.tell()

    async def _put_all(self, puts: Sequence[Put]) -> Sequence[PutAnswer]:
        began, also = anyio.current_time(), set[Subject]()
        answers = await self._transactions.run(lambda unit: self._ledger.intake.put_all(unit, puts, also))
        stirring = any(answer.stirring for answer in answers)
        if stirring:
            self._bell.ring()
        notes = sum(len(notes) for notes, _ in puts)
        self._observe(Commit(len(puts), notes, stirring, anyio.current_time() - began))
        return answers

    async def _settle_all(self, endings: Sequence[Ending]) -> Sequence[Settled]:
        began = anyio.current_time()
        answers = await self._transactions.run(lambda unit: self._ledger.settle_all(unit, endings))
        self._bell.ring()
        self._observe(Commit(len(endings), 0, stirring=True, seconds=anyio.current_time() - began))
        return answers

    async def _tell(self, answers: Sequence[PutAnswer | Settled]) -> None:
        if any(answer.stirring for answer in answers):
            await self._ear.tell()
