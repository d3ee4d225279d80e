"""One history, told to every inbox: all of them answer alike."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, TypeVar

import anyio
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import structs
from typing_extensions import override

from sfn.domain.events import InboxMessage, Intent, IntentOutcome, Notification, PutResult
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import (
    BackwardStep,
    Capacity,
    DeadLettered,
    DeadLetterReason,
    Done,
    IndexedTable,
    LeasedJob,
    Outcome,
    PendingChange,
    PublishCache,
    PublishedPointer,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    StepKind,
    SweepCompleted,
    TableState,
    Wakeup,
)
from sfn.inbox.inbox import Inbox
from sfn.inbox.model import AdminCommand, DeadLetter
from tests.promises.inboxes import ADAPTERS, Ground, Site, pointer, table
from tests.servers.postgres import Postgres
from tests.support.clock import HandClock

T = TypeVar("T")

CATALOGS = ("few", "prod")
names = st.sampled_from([table(name, catalog) for catalog in CATALOGS for name in ("a", "b", "c")])
places = st.sampled_from(["s3://lake/1", "s3://lake/2", "gs://pond/3"])
uuids = st.sampled_from(["u1", "u2"])
pointers = st.integers(0, 3).map(pointer)
pauses = st.sampled_from([0.0, 0.5, 10.0, 30.0, 300.0, 3600.0]).map(lambda seconds: timedelta(seconds=seconds))
subjects = names | st.sampled_from([CatalogName(name) for name in CATALOGS])
ids = st.sampled_from(["i1", "i2", "i3", "i4"])
intents = st.builds(Intent, ids, st.lists(subjects, max_size=2).map(tuple), st.just("gateway"), st.just("10.0.0.1"))
notes = st.lists(
    intents
    | st.builds(IntentOutcome, ids, st.booleans())
    | st.builds(
        Notification,
        subjects,
        sender=st.sampled_from(["etl", "sweep"]),
        event_id=st.none() | st.sampled_from(["e1", "e2", "e3"]),
        min_metadata_location=st.none() | pointers | st.just("s3://lake/1/metadata/plain.json"),
        renamed_to=st.none() | names,
        drop=st.booleans(),
        hold_drops=st.booleans(),
        force=st.booleans(),
        retry=st.booleans(),
    ),
    max_size=4,
)
slots = st.builds(
    Capacity,
    total=st.integers(0, 5),
    live=st.integers(0, 4),
    sweeps=st.integers(0, 2),
    short_lived=st.none() | st.integers(0, 2),
)
steps = st.builds(BackwardStep, st.sampled_from(StepKind), uuids, pointers)


@st.composite
def outcomes(draw: st.DrawFn, claim: LeasedJob, clock: HandClock) -> Outcome:
    """What may come of a claim."""
    now = clock.now()
    at = now + draw(pauses)
    if isinstance(claim.subject, CatalogName):
        ends: list[Outcome] = [
            SweepCompleted(at, now, within_limit=True),
            SweepCompleted(at, now, within_limit=False),
            Retry(at, ""),
        ]
        return draw(st.sampled_from(ends))
    live = st.builds(PublishedPointer, pointers, uuids, places, st.just(now))
    found = PublishResult(
        TableState(
            draw(st.none() | live), has_settled=True, on_hold=draw(st.booleans()), is_short_lived=draw(st.booleans())
        ),
        PublishCache(etag=draw(st.none() | st.just("v1"))),
        wakeups=tuple(
            draw(
                st.lists(
                    st.builds(Wakeup, names, st.none() | places, st.none() | st.just(pointer(2)), st.booleans()),
                    max_size=2,
                )
            )
        ),
        wake_locations=draw(st.frozensets(places, max_size=2)),
        vacated=draw(st.frozensets(places, max_size=1)),
        not_before=draw(st.none() | pauses.map(lambda pause: now + pause)),
    )
    reason = draw(st.sampled_from(DeadLetterReason))
    kinds: list[Outcome] = [
        Done(at, found),
        Done(at, found, forget=True),
        Rescheduled(at, "", structs.replace(claim.pending, is_rechecked=True), found),
        Rescheduled(at, "", PendingChange(), found),
        Retry(at, ""),
        DeadLettered(reason, "", draw(st.sampled_from([None, found])), draw(st.sampled_from([None, at]))),
        Returned(at, ""),
    ]
    return draw(st.sampled_from(kinds))


class Alike(RuleBasedStateMachine):
    """One inbox of each kind, and the claims that were ever made, one of each.

    Attributes:
        server: PostgreSQL.
    """

    server: ClassVar[Postgres]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = HandClock()
        self.pairs: list[tuple[LeasedJob, ...]] = []
        self.stack = AsyncExitStack()
        self.inboxes = self.runner.run(self._opened(list(ADAPTERS)))

    async def _opened(self, adapters: Sequence[str]) -> list[Inbox]:
        site = Site(Path(self.folder.name), lambda: self.server)
        return [await self.stack.enter_async_context(ADAPTERS[name](site, self.clock)) for name in adapters]

    @override
    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()
        self.folder.cleanup()

    def told(self, verb: Callable[[Inbox, int], Awaitable[T]]) -> list[T]:
        """Every inbox's answer."""

        async def tell() -> list[T]:
            return [await verb(inbox, index) for index, inbox in enumerate(self.inboxes)]

        return self.runner.run(tell())

    def agreed(self, verb: Callable[[Inbox, int], Awaitable[T]]) -> T:
        """The one answer of all."""
        first, *others = self.told(verb)
        for other in others:
            assert other == first
        return first

    @rule(notes=notes)
    def put(self, notes: list[InboxMessage]) -> None:
        self.agreed(lambda inbox, _: inbox.put(notes))

    @rule(puts=st.lists(notes, max_size=5))
    def put_at_once(self, puts: list[list[InboxMessage]]) -> None:
        async def put_all(inbox: Inbox, _: int) -> dict[int, PutResult]:
            accepted: dict[int, PutResult] = {}

            async def put(number: int) -> None:
                accepted[number] = await inbox.put(puts[number])

            async with anyio.create_task_group() as tasks:
                for number in range(len(puts)):
                    tasks.start_soon(put, number)
            return accepted

        self.agreed(put_all)

    @rule(pause=pauses)
    def let_time_pass(self, pause: timedelta) -> None:
        self.clock.turn(pause.total_seconds())

    @rule(slots=slots, alive=st.booleans())
    def claim(self, slots: Capacity, *, alive: bool) -> None:
        held = self.pairs[-6:] if alive else []
        answers = self.told(lambda inbox, index: inbox.claim(slots, [pair[index] for pair in held]))
        assert len({answer.expired_leases for answer in answers}) == 1
        assert len({answer.next_due for answer in answers}) == 1
        pairs = list(zip(*(answer.jobs for answer in answers), strict=True))
        for pair in pairs:
            first, *others = (replace(claim, fencing_token=0) for claim in pair)
            assert others == [first] * len(others)
        self.pairs += pairs

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.pairs[-6:]))
        outcome = data.draw(outcomes(pair[0], self.clock))
        self.agreed(lambda inbox, index: inbox.settle(pair[index], outcome, self.clock.now()))

    @precondition(lambda self: self.pairs)
    @rule()
    def renew(self) -> None:
        pairs = self.pairs[-6:]

        async def kept(inbox: Inbox, index: int) -> list[bool]:
            claims = [pair[index] for pair in pairs]
            renewed = await inbox.renew(claims)
            return [claim in renewed for claim in claims]

        self.agreed(kept)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), place=places, uuid=uuids)
    def remember(self, data: st.DataObject, place: str, uuid: str) -> None:
        pair = data.draw(st.sampled_from(self.pairs[-6:]))
        self.agreed(lambda inbox, index: inbox.record_location(pair[index], place, uuid))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), step=steps)
    def permit(self, data: st.DataObject, step: BackwardStep) -> None:
        pair = data.draw(st.sampled_from(self.pairs[-6:]))
        if not isinstance(pair[0].subject, CatalogName):
            self.agreed(lambda inbox, index: inbox.allow_step(pair[index], step, self.clock.now()))

    @rule(catalog=st.sampled_from(CATALOGS))
    def release(self, catalog: str) -> None:
        self.agreed(lambda inbox, _: inbox.release(catalog, AdminCommand("ann", "", self.clock.now())))

    @rule(name=names, place=places, uuid=uuids)
    def ask(self, name: TableIdentifier, place: str, uuid: str) -> None:
        self.agreed(lambda inbox, _: inbox.at_location(name, place))
        self.agreed(lambda inbox, _: inbox.with_uuid(name.catalog, uuid))
        self.agreed(lambda inbox, _: inbox.max_missing(name.catalog))

    @rule()
    def look_at_intents(self) -> None:
        async def open_ones(inbox: Inbox, _: int) -> list[object]:
            figures = await inbox.stats()
            standings = [await inbox.table_status(table("a", catalog)) for catalog in CATALOGS]
            return [figures.open_intents, figures.oldest_intent, [one and one.open_intents for one in standings]]

        self.agreed(open_ones)

    @invariant()
    def they_know_the_same(self) -> None:
        async def knowledge(inbox: Inbox, _: int) -> list[tuple[list[IndexedTable], list[DeadLetter]]]:
            ground = Ground(inbox, self.clock)
            return [(await ground.known(name), await ground.letters(name)) for name in CATALOGS]

        self.agreed(knowledge)


@pytest.fixture(autouse=True, scope="module")
def the_server(postgres: Postgres) -> None:
    Alike.server = postgres


TestInboxesAreAlike = Alike.TestCase
TestInboxesAreAlike.settings = settings(
    max_examples=40, stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)
