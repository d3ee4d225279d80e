"""Scripted histories: nothing happens by chance, and a process can be held, killed or cut off at a chosen call.

One kind is of clients that reach the catalog through a gateway, one of replicas that share an inbox in a database.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import pytest
from typing_extensions import override

from sfn.catalogs import NoSuchTable
from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.identifiers import CatalogName, JobKey, Table, TableIdentifier
from sfn.domain.jobs import Done, LeasedJob, PublishResult, Wakeup
from sfn.inbox.intents import CHECK_DELAYS
from sfn.inbox.model import Job, group_of, to_leased_job
from sfn.sfnfile import version_hint
from sfn.worker.sweep import SweepPhase
from tests.simulation.catalog import first_version, next_version
from tests.simulation.faults import Fate, Faults
from tests.simulation.gateway import Gateway
from tests.simulation.node import Node, Service
from tests.simulation.replicas import SharedReplicaInbox
from tests.simulation.rest_catalog import CatalogServer, Request, created
from tests.simulation.rules import Granted
from tests.simulation.settings import TERMS, UNSWEPT, Setting
from tests.simulation.world import ASKED, World

PLACE = "s3://lake/0"
ELSEWHERE = "s3://lake/1"

FIRST, SECOND, THIRD, LAST = (pause.total_seconds() for pause in CHECK_DELAYS)
MINUTE: Final = 60.0
SOON: Final = 3.0
"""Seconds within which something is published that is looked at now."""
LAGGING: Final = 20.0
"""Seconds after which no answer is too old any more."""
HALF_AN_HOUR: Final = 1790.0
"""For which Iceberg's own server tries a commit."""

_CHANGES: Final = {"write", "delete", "record_location", "allow_step", "settle_all"}

Script = Callable[[Node, str], Awaitable[None]]

LEASE: Final = TERMS.lease.total_seconds()
LOOK: Final = 2.0
"""Seconds within which somebody looks whom nobody told."""
DIRECT: Final = 2
"""A seed whose database has no pooler before it."""


def named(name: str) -> TableIdentifier:
    """A table of the first catalog."""
    return TableIdentifier("cat0", ("n",), name)


class Held:
    """A process that waits at a call until it is let go.

    Args:
        call: which.
        by: the one process that is meant; None for the first that comes to it.

    Attributes:
        node: the process, once it has come there.
    """

    def __init__(self, call: str, by: Node | None = None) -> None:
        self.call, self.node, self._by = call, by, by
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, node: Node, call: str) -> None:
        if call == self.call and not self.reached.is_set() and self._by in {None, node}:
            self.node = node
            self.reached.set()
            await self.go.wait()


class KilledAt:
    """Kills a process at the n-th call of a publish; counts them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen: list[str] = []

    async def __call__(self, node: Node, call: str) -> None:
        if not node.alive or not self._is_counted(call):
            return
        self.seen.append(call)
        if len(self.seen) == self.number:
            node.service.crash(node)
            await asyncio.Future()

    def _is_counted(self, call: str) -> bool:
        """Everything but the idle turns of the worker and what brought the hint."""
        return call.split(" ", 2)[1] not in {"claim", "append", "renew", "tables_after", "tables", "live_count"}


def changes(calls: Sequence[str]) -> list[int]:
    """Return the numbers, from 1, of the calls that differ in what a process leaves behind that is killed at them.

    A kill at any other call leaves behind the same as a kill directly after the last change.
    """
    of_changes = [number for number, call in enumerate(calls, start=1) if call.split(" ", 2)[1] in _CHANGES]
    return of_changes[:1] + [number for number in of_changes if calls[number - 1].startswith("after ")]


class Stage:
    """A quiet world that a script acts in."""

    def __init__(self, seed: int = 1, setting: Setting | None = None, *, lagging: float = 0.0) -> None:
        chosen = setting or Setting()
        faults = Faults(kill=0, stop=0, fail=0, lagging=lagging, conditional_delete=chosen.conditional_delete)
        self.world = World(seed, chosen, faults)

    @property
    def service(self) -> Service:
        return self.world.services[0]

    def create(self, name: str, place: str = PLACE, *, opaque: bool = False) -> Table:
        """A new table; with `opaque`, its metadata files' names tell no order."""
        return self.create_as(named(name), place, opaque=opaque)

    def create_as(self, name: TableIdentifier, place: str = PLACE, *, opaque: bool = False) -> Table:
        """As `create`, under any identifier."""
        table = first_version(self.world.rng, place, self.world.time)
        if opaque:
            table = _opaque(table)
        self.world.set(0, name, table)
        return table

    async def publish(self, *names: str) -> list[Table]:
        """Create tables, each in a place of its own, the first one in `PLACE`; wait until their files are written."""
        tables = []
        for number, name in enumerate(names):
            tables.append(self.create(name, f"s3://lake/{number}"))
            await self.hint(name)
        await asyncio.sleep(20)
        return tables

    def register_folder(self, name: str, place: str = PLACE, version: int = 2) -> Table:
        """A table that was nothing but a folder (Hadoop's) gets a name; its writers' version hint is there."""
        begun = first_version(self.world.rng, place, self.world.time)
        pointers = [f"{place}/metadata/v{number}.metadata.json" for number in range(1, version + 1)]
        table = replace(begun, metadata_location=pointers[-1], metadata_log=tuple(pointers[:-1]))
        key = version_hint.key_of(place)
        self.world.checker.theirs[key] = str(version).encode()
        self.world.files.lay(key, self.world.checker.theirs[key])
        self.world.set(0, named(name), table)
        return table

    def commit(
        self, name: str, *, place: str | None = None, opaque: bool = False, branches: Mapping[str, int] | None = None
    ) -> Table:
        """One more version, with these branches where they are given."""
        before = self.world.truths[0].true(named(name))
        if not isinstance(before, Table):
            raise TypeError(before)
        after = (
            _next_opaque(self.world, before)
            if opaque
            else next_version(self.world.rng, before, self.world.time, location=place)
        )
        if branches is not None:
            after = replace(after, branches=tuple(sorted(branches.items())))
        self.world.set(0, named(name), after)
        return after

    def drop(self, name: str) -> None:
        """The table is gone."""
        self.world.set(0, named(name), NoSuchTable())

    def rename(self, old: str, new: str) -> None:
        """It has another name."""
        table = self.world.truths[0].true(named(old))
        self.world.set(0, named(new), table)
        self.world.set(0, named(old), NoSuchTable())

    def roll_back(self, name: str, to: Table) -> None:
        """It points to an earlier version again."""
        self.world.ranks.rolled_back[to.uuid].append(self.world.loop.now())
        self.world.set(0, named(name), to)

    def row(self, name: str) -> Job | None:
        """The inbox's row of a table."""
        return self.service.kept.row(named(name))

    def states(self, names: list[str]) -> Counter[str]:
        """How many of the tables' files are in which state."""
        found: Counter[str] = Counter()
        for key, body in self.world.files.bodies.items():
            if key.endswith(".ver") and json.loads(body)["name"] in names:
                found[json.loads(body)["state"]] += 1
        return found

    async def hint(self, name: str, service: int = 0, **what: Any) -> None:
        """An event, durably accepted, by whichever process lives: none is killed for having taken it."""
        await self.hint_as(named(name), service, **what)

    async def hint_as(self, name: TableIdentifier, service: int = 0, **what: Any) -> None:
        """As `hint`, of any identifier."""
        self.world.post.told.add(what.get("min_metadata_location", ""))
        number = self.world.next_event()
        hint = Notification(name, sender="test", event_id=f"s{number}", **what)
        await self.world.services[service].kept.put(hint)
        await asyncio.sleep(0.04)

    def block(self, call: str) -> asyncio.Event:
        """Hold every process that comes to a call until the event is set."""
        free = asyncio.Event()

        async def blocked(_: Node, called: str) -> None:
            if called == call:
                await free.wait()

        self.service.script = blocked
        return free

    def hold(self, call: str) -> Held:
        """Hold the first process that comes to a call, `before …` or `after …`."""
        held = Held(call)
        self.service.script = held
        return held

    def run(self, script: Callable[[], Coroutine[Any, Any, None]], *, briefly: bool = False) -> list[tuple[str, str]]:
        """Act, let everything come to rest, and look: the promises that were broken."""
        faults = self.world.faults

        async def history() -> None:
            self.world.start()
            await asyncio.sleep(20)  # the sweep that every process wants at first is over
            await script()
            self.service.script = None
            faults.is_still = True
            await self.world.rest(briefly=briefly)

        self.world.play(history())
        return self.world.checker.bad


S = TypeVar("S", bound=Stage)
P = ParamSpec("P")
Act = Callable[Concatenate[S, P], Coroutine[Any, Any, None]]


def history(make: Callable[[], S], *, briefly: bool = False) -> Callable[[Act[S, P]], Callable[P, None]]:
    """Make a test of an act: it runs the act on a stage of its own, in simulated time, and no promise may be broken.

    Args:
        make: makes the stage, which the act gets as its first argument.
        briefly: as in `Stage.run`.
    """

    def as_test(act: Act[S, P]) -> Callable[P, None]:
        @functools.wraps(act)
        def test(*args: P.args, **kwargs: P.kwargs) -> None:
            stage = make()
            broken = stage.run(functools.partial(act, stage, *args, **kwargs), briefly=briefly)
            if broken:
                pytest.fail(f"{len(broken)} broken promises, first item: {broken[0]}, others: {broken[1:]}")

        # pytest reads the names of fixtures and parameters here, and the stage is neither.
        signature = inspect.signature(act)
        test.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
        return test

    return as_test


class Asleep:
    """The first process that comes to a call sleeps, all of it, until it is woken.

    Args:
        stage: where it is.
        call: the call.
        late: calls with this in their names wake a bit later; all others if it is empty.
    """

    def __init__(self, stage: Stage, call: str, late: str = "") -> None:
        self._call, self._late = call, late
        self.reached, self._woken = asyncio.Event(), asyncio.Event()
        self._node: Node | None = None
        stage.service.script = self

    def wake(self) -> None:
        """Let it go on."""
        self._woken.set()

    async def __call__(self, node: Node, call: str) -> None:
        if call.endswith(" append"):
            return  # a script's events come through whichever process is first
        if self._node is None and call == self._call:
            self._node = node
            self.reached.set()
            await self._woken.wait()
        elif node is self._node and not self._woken.is_set():
            await self._woken.wait()
            await asyncio.sleep(1 if self._late in call else 0)


def _opaque(table: Table) -> Table:
    folder, _, name = table.metadata_location.rpartition("/")
    return Table(table.uuid, table.location, f"{folder}/{name.split('-', 1)[1]}", (), table.last_updated_ms)


def _next_opaque(world: World, table: Table) -> Table:
    numbered = Table(
        table.uuid,
        table.location,
        table.metadata_location.replace("/metadata/", "/metadata/00001-"),
        (),
        table.last_updated_ms,
    )
    return _opaque(next_version(world.rng, numbered, world.time))


class KilledAtCall:
    """Kills the first process that comes to a call for so many times."""

    def __init__(self, call: str, times: int = 1) -> None:
        self._call, self._left = call, times

    async def __call__(self, node: Node, call: str) -> None:
        self._left -= call == self._call
        if call == self._call and self._left == 0:
            node.service.crash(node)
            await asyncio.Future()


class Gated(Stage):
    """A quiet world behind a gateway, whose catalog does at once what it is asked for, unless a script says else.

    Args:
        gateway, replicas: see `Setting`.
        lagging: see `Faults`.
        policy: of a `Policy` what is to be otherwise.
    """

    def __init__(self, gateway: str = "refuse", *, replicas: int = 0, lagging: float = 0.0, **policy: Any) -> None:
        setting = Setting(gateway=gateway, replicas=replicas, policies=(UNSWEPT | policy,))
        super().__init__(2, setting, lagging=lagging)
        self._fates: dict[Request, deque[Fate]] = defaultdict(deque)
        self.server.fate = self._fate

    @property
    def server(self) -> CatalogServer:
        """The catalog's."""
        return self.world.servers[0]

    @property
    def gateway(self) -> Gateway:
        """That of the first process."""
        gateway = self.service.nodes[0].gateway
        assert gateway is not None
        return gateway

    def send(self, request: Request, fate: Fate | None = None, *, goes: bool = False) -> asyncio.Future[int]:
        """Send a request, and wait for nothing: what it is answered with, if it ever is."""
        if fate is not None:
            self._fates[request].append(fate)
        return self.gateway.ask(request, goes=goes)

    async def ask(self, request: Request, fate: Fate | None = None) -> int:
        """What a request is answered with; by then all is noted that is noted of it."""
        status = await self.send(request, fate)
        await asyncio.sleep(1)
        return status

    async def begin(self, name: str = "a", place: str = PLACE) -> Table:
        """A table that is created, and published."""
        assert await self.ask(created(named(name), place)) == 200
        await asyncio.sleep(LAGGING)
        assert self.is_published(name)
        return self.table(name)

    def table(self, name: str) -> Table:
        """A table as it is."""
        table = self.world.truths[0].true(named(name))
        assert isinstance(table, Table)
        return table

    def is_published(self, name: str) -> bool:
        """Whether a table's file says what is true."""
        body = self.world.files.bodies.get(f"{self.table(name).location}/metadata/_sfn/n_{name}_main.ver", b"")
        return f'"{self.table(name).metadata_location}"'.encode() in body and b'"current"' in body

    def open_intents(self) -> list[JobKey]:
        """Of what intents are open."""
        return [subject for _, subject in self.service.kept.intents()]

    def kill(self) -> None:
        """Kill the first process."""
        self.service.crash(self.service.nodes[0])

    async def sweep(self) -> None:
        """Have the catalog swept, as at a start."""
        await self.service.kept.put(Notification(CatalogName(self.service.truth.name), sender="start"))

    @override
    def run(self, script: Callable[[], Coroutine[Any, Any, None]], *, briefly: bool = True) -> list[tuple[str, str]]:
        """As `Stage.run`; nothing is asked for any more when all is looked at."""

        async def asked() -> None:
            await script()
            self.world.faults.is_still = True
            await asyncio.sleep(ASKED)

        return super().run(asked, briefly=briefly)

    def _fate(self, request: Request) -> Fate:
        fates = self._fates[request]
        return fates.popleft() if fates else Fate()


class Blocked:
    """Every process waits at a call until it is free."""

    def __init__(self, call: str) -> None:
        self._call, self.free = call, asyncio.Event()

    async def __call__(self, _: Node, call: str) -> None:
        if call == self._call:
            await self.free.wait()


class Cut:
    """The connections of the first process that comes to a call are cut there, or at its next call of another kind.

    Args:
        call: the first one.
        then: where they are cut.
    """

    def __init__(self, stage: Replicated, call: str, then: str) -> None:
        self._stage, self._call, self._then = stage, call, then
        self.node: Node | None = None
        self.done = asyncio.Event()

    async def __call__(self, node: Node, call: str) -> None:
        if self.node is None and call == self._call:
            self.node = node
        if node is self.node and call == self._then and not self.done.is_set():
            self.done.set()
            self._stage.kept.database.cut(node)


class Replicated(Stage):
    """A quiet world with replicas, whose database can be seen into."""

    def __init__(self, setting: Setting | None = None, replicas: int = 2) -> None:
        super().__init__(DIRECT, replace(setting or Setting(), replicas=replicas))

    @property
    def kept(self) -> SharedReplicaInbox:
        assert isinstance(self.service.kept, SharedReplicaInbox)
        return self.service.kept

    def claims(self, name: str) -> list[Granted]:
        """The claims of a table's row that were made."""
        return self.kept.rules.claims(named(name))

    async def begin(self, stopped: Held | Asleep) -> None:
        """Have the table `a` made and told of, and its work begun, until it comes to where a process is stopped."""
        self.create("a")
        await self.hint("a")
        await stopped.reached.wait()

    def sweepers(self) -> list[Node]:
        """The processes that sweep just now."""
        catalog = self.service.truth.name
        reports = [(node, node.worker.sweeps().get(catalog)) for node in self.service.nodes]
        return [node for node, report in reports if report is not None and report.phase is SweepPhase.RUNNING]

    def other(self, node: Node | None) -> Node:
        """Another process that lives."""
        return next(one for one in self.service.nodes if one is not node)

    def put(self, node: Node, subject: JobKey, **what: Any) -> asyncio.Task[PutResult]:
        """An event that a certain process gets."""
        number = self.world.next_event()
        return self.note(node, Notification(subject, sender="test", event_id=f"p{number}", **what))

    def note(self, node: Node, *notes: InboxMessage) -> asyncio.Task[PutResult]:
        """What a certain process puts, all at once."""

        async def put() -> PutResult:
            return await node.inbox.put(notes)

        return self.world.loop.create_task(put(), context=node.context)

    def version(self, name: str) -> int:
        """How many changes of a table were told of, as its job knows."""
        row = self.row(name)
        assert row is not None
        return row.version

    def pointer(self, name: str) -> str | None:
        """What a table's file of its plain name says."""
        found: str | None = self.world.checker.document(f"{PLACE}/metadata/_sfn/n_{name}_main.ver")[
            "metadata_file_path"
        ]
        return found

    def claim(self, name: str) -> LeasedJob:
        """What who claimed a table's row last was given."""
        row = self.row(name)
        assert row is not None
        return to_leased_job(row, group_of(row), None)

    def settle(self, node: Node, claim: LeasedJob, asked: str | None = None) -> asyncio.Task[bool]:
        """A settle by a certain process, which has another row look."""
        now = self.world.loop.now()
        asks = () if asked is None else (Wakeup(named(asked)),)

        async def settle() -> bool:
            return await node.inbox.settle(claim, Done(now, PublishResult(wakeups=asks)), now)

        return self.world.loop.create_task(settle(), context=node.context)

    def direct(self, *scripts: Script) -> None:
        """Have scripts followed at once."""

        async def followed(node: Node, call: str) -> None:
            for script in scripts:
                await script(node, call)

        self.service.script = followed
