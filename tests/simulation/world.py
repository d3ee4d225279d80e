"""One history: a seed decides everything that happens, and the checker looks on."""

from __future__ import annotations

import asyncio
import json
import random
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from sfn.catalogs import NoSuchTable, StagedCreate
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, JobKey, Table, TableIdentifier
from sfn.gateway.commits import OnInboxFailure
from sfn.inbox.intents import CHECK_DELAYS
from sfn.inbox.model import AdminCommand, InboxConfig
from sfn.publish.policy import Policy
from tests.simulation.catalog import CatalogTruth, Files, Ranks, metadata_file
from tests.simulation.checker import Checker, Knowledge
from tests.simulation.convergence import Resting, at_rest
from tests.simulation.database import Database
from tests.simulation.events import EventOnlyLife, Post
from tests.simulation.faults import Faults, faults_of
from tests.simulation.gateway import SILENCE, Gateway, Passing
from tests.simulation.inbox import SharedInbox, SharedSqliteInbox
from tests.simulation.incidents import Incidents, Losses
from tests.simulation.loop import SimulatedLoop
from tests.simulation.node import Node, Observer, Service, brief
from tests.simulation.operations import REFUSED, Life
from tests.simulation.replicas import SharedReplicaInbox
from tests.simulation.rest_catalog import CatalogServer
from tests.simulation.settings import DAY, TERMS, Report, Setting, policy_of

QUIET = 420.0
REFRESHED = 2300.0
EXPIRED = 4500.0
STILL = 70.0
"""Seconds of calm after which nothing that befell anybody is left: whoever was stopped is back, whoever died too."""
PUBLISHED = 30
"""Seconds within which a publish ends that is under way."""
ASKED = CHECK_DELAYS[-1].total_seconds() + 2 * SILENCE
"""Seconds after the last request within which the last intent is asked for the last time."""
POISON_PAUSE = timedelta(seconds=60)
POOLED = 0.2
"""Of the histories with a database: a pooler stands before it."""
LOOKS, HOT = 60, 10.0
"""So many looks at one row within so many seconds are a loop without end."""


class World:
    """A store, catalogs, their users and the services that follow them."""

    def __init__(self, seed: int, setting: Setting, faults: Faults | None = None) -> None:
        self.seed, self.setting = seed, setting
        self.rng = random.Random(seed)
        self.loop = SimulatedLoop()
        self.faults = faults or faults_of(setting)
        self.files = Files(self.loop.now)
        self.ranks = Ranks()
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self.acknowledged: set[tuple[int, str]] = set()
        self._events = 0
        self.truths = [CatalogTruth(f"cat{index}", self.loop.time) for index in range(setting.catalogs)]
        self.servers = [CatalogServer(self, index) for index in range(setting.catalogs)]
        self.checker = Checker(self.files, self.ranks, self.loop.now, [truth.catalog_id for truth in self.truths])
        for truth in self.truths:
            truth.any_case = setting.any_case
        if setting.any_case:
            self.checker.listed = lambda identifier: tuple(part.lower() for part in identifier)
        self.checker.is_live, self.checker.strict = self._is_live, setting.strict
        self.knowledge = Knowledge(self)
        self.checker.is_known, self.checker.there_since = self.knowledge.is_known, self.knowledge.there_since
        self.checker.event_only = bool(setting.event_only)
        self.checker.policies = [self._policy(self.truths[0], files) for files in setting.policies]
        self.services: list[Service] = []
        self.switched: set[str | None] = set()
        self.post = Post(self)
        self.checker.is_end_unheard = self.post.is_end_unheard
        self.losses = Losses(self)
        self._looks: dict[JobKey, deque[float]] = defaultdict(lambda: deque(maxlen=LOOKS))

    @property
    def time(self) -> float:
        return self.loop.time()

    def say(self, what: str) -> None:
        """Keep for whoever replays the seed."""
        self.trace.append(f"{self.time:9.2f} {what}")

    def set(self, catalog: int, name: TableIdentifier, value: Table | NoSuchTable | StagedCreate) -> None:
        """Something happened in a catalog."""
        truth = self.truths[catalog]
        before = truth.true(name)
        truth.set(name, value)
        if isinstance(before, Table) and before.uuid not in {table.uuid for table in truth.live().values()}:
            self.ranks.ended.add(before.uuid)
        if isinstance(value, Table):
            places = [site.location for site in self.checker.sites(name, value)]
            self.ranks.note(truth.catalog_id, name, value, places)
            if not value.location.startswith(REFUSED):
                self.checker.places.update(places)
            if value.skip_reason is not None:
                self.switched.add(value.uuid)
            if value.metadata_location not in self.files.bodies:
                self.files.lay(value.metadata_location, metadata_file(value))
            self.say(f"{name} = {value.metadata_location} {value.uuid} at {value.location}")
        else:
            self.say(f"{name} is {'gone' if value == NoSuchTable() else 'begun'}")

    def purge(self, table: Table) -> None:
        """The catalog deletes a dropped table's metadata files."""
        for pointer in (*table.metadata_log, table.metadata_location):
            self.files.bodies.pop(pointer, None)

    def next_event(self) -> int:
        self._events += 1
        return self._events

    def deliver(self, catalog: int, hint: Notification, delay: float) -> None:
        """An event reaches one of the service's processes."""
        if self.setting.any_case:
            hint = self._respelled(hint)
        followers = [service for service in self.services if service.truth is self.truths[catalog]]
        self.loop.create_task(self.post.deliver(self.rng.choice(followers), hint, delay))

    def _respelled(self, hint: Notification) -> Notification:
        """An event as it comes from a client that spells names in its own way."""

        def spelled(name: TableIdentifier) -> TableIdentifier:
            namespace = tuple(level.upper() for level in name.namespace) if self.rng.random() < 0.5 else name.namespace
            return replace(name, namespace=namespace, name=name.name.upper() if self.rng.random() < 0.5 else name.name)

        subject = spelled(hint.subject) if isinstance(hint.subject, TableIdentifier) else hint.subject
        self.count("respelled" if subject != hint.subject else "spelled")
        return replace(hint, subject=subject, renamed_to=spelled(hint.renamed_to) if hint.renamed_to else None)

    def run(self) -> Report:
        """A random history: the busy time, then calm, refreshes and expiry, each with a look at everything."""
        self.play(self._history())
        return Report(self.seed, self.checker.bad, self.checker.stated, self.counts, self.trace)

    def play(self, history: Coroutine[Any, Any, None]) -> None:
        """Let a history happen, and see that nothing in it broke down."""
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(lambda _, context: self.checker.blame("exception", repr(context)))
        self.loop.run_until_complete(history)
        for error in self.loop.failed():
            self.checker.blame("exception", "".join(traceback.format_exception(error)))

    async def _history(self) -> None:
        self.start()
        lives = [life_of(self, index) for index in range(len(self.truths))]
        running = [self.loop.create_task(life.run(self.rng.randint(*self.setting.steps))) for life in lives]
        Incidents(self).plan(lives)
        await asyncio.sleep(self.setting.busy)
        await asyncio.wait(running)
        await self.settle_down()
        await self.rest(briefly=self.setting.briefly)

    async def rest(self, *, briefly: bool = False) -> None:
        """Nothing happens any more: compare everything with the truth three times, or once, or until it is wrong."""
        looks = (("rest", QUIET), ("refreshed", REFRESHED), ("expired", EXPIRED))
        for when, pause in looks[:1] if briefly else looks:
            await asyncio.sleep(pause)
            for _ in range(PUBLISHED):
                if any(self._is_busy(service) for service in self.services):
                    await asyncio.sleep(1)
            self.check(when)
            if self.checker.bad:
                break

    def _is_busy(self, service: Service) -> bool:
        """Whether a publish is under way: what it has half written is not at rest."""
        return any(count for (_, state), count in service.kept.tables().items() if state == "leased")

    def start(self) -> None:
        """Start the services."""
        self.files.watch = self._watch
        self.services = [self._service(truth) for truth in self.truths for _ in range(self.setting.inboxes)]

    async def settle_down(self) -> None:
        """No more faults, and whoever was away is back; a held table is released."""
        if self.setting.away:
            await asyncio.sleep(2 * DAY.total_seconds())
        if self.setting.gateway:
            self.faults.is_still = True
            await asyncio.sleep(ASKED)
        self.faults.calm = self.faults.is_still = True
        self.say("calm")
        if self.setting.replicas:
            self.loop.create_task(self._look_on())
        if self.setting.outage == "emptied":
            await self.losses.end()
        if self.setting.outage == "blank":
            await asyncio.sleep(600)
            for service in self.services:
                await service.kept.release(service.truth.name, AdminCommand("", "", self.loop.now()))
        for service in self.services:
            if service.has_lost_debts:
                await service.kept.put(Notification(CatalogName(service.truth.name), sender="start"))

    async def _look_on(self) -> None:
        await asyncio.sleep(STILL)
        while True:
            await asyncio.sleep(1)
            for service in self.services:
                service.kept.look()

    def check(self, when: str) -> None:
        """Compare everything with the truth."""
        self.say(f"check {when}")
        for index, service in enumerate(self.services):
            for kind, what in service.kept.wrong():
                self.checker.blame(kind, what)
            if self.setting.gateway and service.kept.intents():
                self.checker.blame("an intent for ever", f"{service.kept.intents()}")
            if self.setting.outage == "emptied" and any(state == "held" for _, state in service.kept.tables()):
                self.checker.blame("held for ever", f"{service.kept.tables()}")
            lost = {event for number, event in self.acknowledged if number == index} - service.kept.events()
            if lost and not self.setting.inbox_lost:
                self.checker.blame("acknowledged and lost", f"{sorted(lost)}")
        refused = set().union(*(service.kept.refused() for service in self.services))
        tables = [
            Resting(truth.catalog_id, name, table, refused=name in refused)
            for truth in self.truths
            for name, table in truth.live().items()
            if table.skip_reason is None
        ]
        at_rest(
            self.checker,
            when,
            tables,
            knowable=not self.setting.inbox_lost,
            one_catalog=len(self.truths) == 1,
            deletes=self.setting.conditional_delete,
        )

    def _service(self, truth: CatalogTruth) -> Service:
        terms = InboxConfig(
            lease=TERMS.lease,
            retry_cap=TERMS.retry.cap,
            max_crashes=self.setting.crashes,
            poison_pause=POISON_PAUSE,
            max_drops={} if self.setting.max_drops is None else {truth.name: self.setting.max_drops},
            event_only_catalogs=frozenset({truth.name} if self.setting.event_only else ()),
        )
        return Service(
            truth,
            self.files,
            self._policy(truth, self.setting.policies[0]),
            self.faults,
            loop=self.loop,
            rng=self.rng,
            terms=TERMS,
            kept=lambda service: self._kept(service, terms),
            processes=self.setting.replicas or 2,
            observer=Observer(self.count, self.say, self._looked, self.checker.blame),
            gateway=lambda node: self._gateway(node, truth),
        )

    def _gateway(self, node: Node, truth: CatalogTruth) -> Gateway | None:
        if not self.setting.gateway:
            return None
        return Gateway(node, self.servers[self.truths.index(truth)], OnInboxFailure(self.setting.gateway))

    def _kept(self, service: Service, config: InboxConfig) -> SharedInbox:
        if not self.setting.replicas:
            return SharedSqliteInbox(service, config, self.rng if self.setting.power_cuts else None)
        is_pooled = self.rng.random() < POOLED
        database = Database(self.loop, self.rng, self.faults, service.observer.count, is_pooled=is_pooled)
        return SharedReplicaInbox(service, config, database)

    def _policy(self, truth: CatalogTruth, files: Mapping[str, Any]) -> Policy:
        return policy_of(truth, event_only=bool(self.setting.event_only), files=files)

    def resettle(self, number: int) -> None:
        """Start every service anew with other settings."""
        self.say(f"settings {number}")
        for service in self.services:
            service.resettle(self._policy(service.truth, self.setting.policies[number]))

    def _is_live(self, catalog_id: str, identifier: tuple[str, ...], uuid: str | None) -> bool:
        """Whether a table may not lose its file; one that was ever switched off may."""
        return uuid not in self.switched and any(
            truth.catalog_id == catalog_id and (*name.namespace, name.name) == identifier and table.uuid == uuid
            for truth in self.truths
            for name, table in truth.live().items()
        )

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def _looked(self, subject: JobKey) -> None:
        self.knowledge.settled(subject)
        looks = self._looks[subject]
        looks.append(self.time)
        if len(looks) == LOOKS and looks[-1] - looks[0] < HOT:
            self.checker.blame("a hot loop", f"{subject}: {LOOKS} looks in {looks[-1] - looks[0]:.1f} s")
            looks.clear()

    def _watch(self, key: str, old: bytes | None, new: bytes | None, writer: str) -> None:
        self.say(f"  {writer[:4]} {key} = {brief(new)}")
        if self.setting.event_only and new is not None and key.endswith(".ver"):
            pointer = json.loads(new)["metadata_file_path"]
            if pointer not in self.post.told:
                self.checker.blame("never told", f"{key} {pointer}")
        self.checker.changed(key, old, new, writer)
        self.losses.changed(key, new)


def life_of(world: World, index: int) -> Life:
    """The operations of a catalog's users."""
    setting, catalog = world.setting, world.truths[index].name
    names = [TableIdentifier(catalog, ("n",), letter) for letter in "abcdefghij"[: setting.names]]
    if setting.shared:
        names = [TableIdentifier(catalog, ("a_b",), "c"), TableIdentifier(catalog, ("a",), "b_c"), *names[:1]]
    if setting.gateway:
        # What has to be encoded in a path.
        names[-1] = TableIdentifier(catalog, ("n", "m"), "x y")
    places = [f"s3://lake/{number}" for number in range(setting.places)]
    return _kind(setting)(
        world, index, names, places, dict(setting.operations), setting.shared, setting.lost, setting.pace
    )


def _kind(setting: Setting) -> type[Life]:
    if setting.gateway:
        return Passing
    return EventOnlyLife if setting.event_only else Life
