"""Incidents of a simulated world: outages, a lost inbox, lost tables, operators, a second catalog, orphan cleaners."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from sfn.catalogs import NoSuchTable
from sfn.domain.events import Notification
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.model import AdminCommand
from sfn.publish.existing_files import pointer_files
from sfn.sfnfile.naming import MAIN_BRANCH
from tests.simulation.operations import Life
from tests.simulation.replicas import SharedReplicaInbox
from tests.simulation.settings import DAY

if TYPE_CHECKING:
    from tests.simulation.world import World

UNLISTED: Final = 0.7
"""Of the histories in which that may happen: the catalog does not let itself be listed for a while."""
OPERATED: Final = 0.3
"""Of the histories: somebody replays dead letters."""

NOTICED = 600.0
"""Seconds within which each missing table was looked at, by event or sweep, as often as a drop takes."""

_HINT: Final = "version-hint.text"
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Incidents:
    """What happens to one world."""

    world: World

    def plan(self, lives: list[Life]) -> None:
        """Have what the setting asks for happen."""
        rng, setting = self.world.rng, self.world.setting
        start = rng.uniform(20, 150)
        length = rng.choice([20, 60] if setting.replicas else [20, 60, 200, 500])
        self._plan_outage(start, length)
        if setting.store_outage:
            self.world.faults.store_down.append((start, start + length))
        for number in range(2 if setting.read_only else 0):
            began = start + number * rng.uniform(60, 700)
            self.world.faults.read_only.append((began, began + rng.choice([5, 60, 200, 500])))
        for _ in range(rng.choice([1, 2, 3]) if setting.inbox_full else 0):
            began = rng.uniform(5, setting.busy)
            self.world.faults.inbox_full.append((began, began + rng.choice([3, 20, 60])))
        self._plan_for_services(start)
        if setting.catalogs > 1:
            self.world.loop.create_task(self._register(lives))
        for number in range(1, len(setting.policies)):
            self.world.loop.call_later(rng.uniform(20, 300), self.world.resettle, number)
        if setting.cleaned:
            self.world.loop.create_task(self._clean())
        if rng.random() < OPERATED:
            self.world.loop.create_task(self._operate())

    def _plan_outage(self, start: float, length: float) -> None:
        outage, truth = self.world.setting.outage, self.world.truths[0]
        if outage == "blank":
            truth.blank.append((start, start + length))
            self.world.loop.call_later(start + 1, self._tell_of_everything)
        elif outage == "emptied":
            self.world.losses.plan()
        elif outage == "unlisted":
            if self.world.rng.random() < UNLISTED:
                truth.unlisted.append((start * self.world.rng.choice([0, 1]), start + length))
                # Two spellings that nobody has heard of before may then both write, each what another replica says.
                self.world.checker.strict = False
        elif outage:
            truth.down.append((start, start + length))

    def _plan_for_services(self, start: float) -> None:
        rng, loop, setting = self.world.rng, self.world.loop, self.world.setting
        if setting.inbox_lost:
            loop.call_later(start, self._lose_inbox)
        if setting.away:
            loop.call_later(start, self._leave)
        for _ in range(rng.choice([1, 2, 4]) if setting.power_cuts else 0):
            loop.call_later(rng.uniform(5, setting.busy), self._cut_power)
        if not setting.replicas:
            return
        loop.create_task(self._roll())
        for _ in range(rng.choice([0, 0, 1, 2])):
            loop.call_later(rng.uniform(5, setting.busy), self._restart)

    def _lose_inbox(self) -> None:
        self.world.say("the inbox is lost")
        self.world.acknowledged.clear()
        self.world.services[0].lose_inbox()

    def _cut_power(self) -> None:
        for service in self.world.services:
            service.cut_power()

    def _restart(self) -> None:
        """The database of the inbox is started anew, or another server takes its place."""
        rng = self.world.rng
        seconds = rng.choice([0.0, 1.0, 8.0, 25.0]) * rng.random()
        self.world.say(f"the database is away for {seconds:.1f} s")
        self.world.count("restarted")
        for service in self.world.services:
            assert isinstance(service.kept, SharedReplicaInbox)
            service.kept.database.restart(seconds)

    async def _roll(self) -> None:
        """Processes are ended as they should be, one now and then."""
        while not self.world.faults.is_still:
            await asyncio.sleep(self.world.rng.uniform(5, 120))
            service = self.world.rng.choice(self.world.services)
            if service.nodes and not self.world.faults.is_still:
                service.end(self.world.rng.choice(service.nodes))

    def _leave(self) -> None:
        """No service runs for more than a day, and nobody's fault is what cleaners delete then."""
        for service in self.world.services:
            self.world.loop.create_task(service.leave(self.world.rng.uniform(1, 2) * DAY.total_seconds()))

    def clean(self) -> None:
        """Every cleaner comes to every place where a table lives or lived, each set as strictly as it can be.

        It spares what any live table knows: that one that is run for a table takes another's metadata from the same
        folder is so, and the tables' loss, not of their files here.
        """
        world = self.world
        live = [table for truth in world.truths for table in truth.live().values()]
        known = {key for table in live for key in (*table.metadata_log, table.metadata_location)}
        for cleaner in CLEANERS:
            strict = replace(cleaner, age=cleaner.least / timedelta(days=1) * DAY)
            for place in sorted(world.checker.places):
                for key in strict.condemned(place, world.files.ages(), known):
                    world.say(f"  {cleaner.name} deletes {key}")
                    world.count("cleaned")
                    body = world.files.bodies.pop(key)
                    is_watched = world.faults.calm or not world.setting.away
                    if is_watched and key.endswith((".ver", "/version-hint.text")):
                        world.checker.blame("cleaned away", f"{key} by {cleaner.name}: {body.decode()}")

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(self.world.rng.uniform(30, 200))
            self.clean()

    async def _operate(self) -> None:
        """Somebody replays dead letters, whatever else goes on; but who waives the brake in an outage is to blame."""
        for _ in range(8):
            await asyncio.sleep(self.world.rng.uniform(10, 60))
            kept, now = self.world.rng.choice(self.world.services).kept, self.world.loop.now()
            letters = [one for one in kept.letters() if one.reason is not DeadLetterReason.HELD_DROP]
            chosen = [letter.id for letter in letters if self.world.rng.random() < 0.7]
            if await kept.replay(chosen, AdminCommand("somebody", "", now)):
                self.world.count("replayed")
                self.world.say(f"replayed {chosen}")

    def _tell_of_everything(self) -> None:
        rng = self.world.rng
        # Whoever asks now is told that they are nowhere.
        self.world.ranks.ended |= {table.uuid for table in self.world.truths[0].live().values()}
        for name in self.world.truths[0].live():
            if rng.random() < 0.6:
                event_id = f"e{self.world.next_event()}"
                hint = Notification(name, sender="test", event_id=event_id, drop=rng.random() < 0.2)
                self.world.deliver(0, hint, 0)

    async def _register(self, lives: list[Life]) -> None:
        """The second catalog registers tables of the first, under the same name or another."""
        for _ in range(3):
            await asyncio.sleep(self.world.rng.uniform(5, 60))
            tables = self.world.truths[0].live()
            if not tables:
                continue
            name = self.world.rng.choice(list(tables))
            target = name if self.world.rng.random() < 0.6 else self.world.rng.choice(lives[0].names)
            theirs = msgspec.structs.replace(target, catalog=self.world.truths[1].name)
            registered = {table.uuid for table in self.world.truths[1].live().values()}
            if not isinstance(self.world.truths[1].true(theirs), Table) and tables[name].uuid not in registered:
                self.world.set(1, theirs, tables[name])
                lives[1].tell(Notification(theirs))


class Losses:
    """What the first catalog of a world loses, and what the service gives up of it.

    All of a history's time before its end is less than an hour: drops within it count together.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._given_up: set[tuple[str, ...]] = set()
        self._is_watched = False

    def plan(self) -> None:
        """Have tables disappear."""
        rng = self._world.rng
        self._is_watched = True
        self._world.loop.call_later(rng.uniform(60, 0.7 * self._world.setting.busy), self._begin)

    def changed(self, key: str, new: bytes | None) -> None:
        """A service wrote a file: blame it where half of the tables, two or more, are given up by now."""
        doc = json.loads(new) if self._is_watched and new is not None and pointer_files([key]) else {}
        if not doc or doc["state"] != "dropped" or doc["ref"] != MAIN_BRANCH:
            return
        self._given_up.add((*doc["namespace"], doc["name"]))
        gone = len(self._given_up)
        if gone >= 2 and 2 * gone >= len(self._given_up | self._live()):
            self._world.checker.blame("half of the tables given up", f"{sorted(self._given_up)}")

    async def end(self) -> None:
        """Wait until all was noticed; then the database is restored, or an operator says that they were dropped."""
        world, truth = self._world, self._world.truths[0]
        await asyncio.sleep(NOTICED)
        self._is_watched = False
        if world.rng.random() < 0.5:
            world.say("the database is restored")
            world.count("restored")
            truth.restore()
            return
        for name in list(truth.lost):
            world.set(0, name, NoSuchTable())
        world.say("released")
        world.count("released")
        for service in world.services:
            await service.kept.release(truth.name, AdminCommand("", "", world.loop.now()))

    def _begin(self) -> None:
        world, truth, rng = self._world, self._world.truths[0], self._world.rng
        tables = list(truth.live())
        rng.shuffle(tables)
        lost = tables[: rng.choice([len(tables), (len(tables) + 1) // 2])]
        gap = rng.choice([0.0, 5.0, 30.0])
        world.say(f"{len(lost)} of {len(tables)} tables are lost, {gap} s apart")
        # Whoever asks now is told that they are nowhere.
        world.ranks.ended |= {table.uuid for name, table in truth.live().items() if name in lost}
        for number, name in enumerate(lost):
            world.loop.call_later(number * gap, self._lose, name)

    def _lose(self, name: TableIdentifier) -> None:
        world, rng = self._world, self._world.rng
        world.truths[0].lost[name] = world.time, math.inf
        world.count("lost")
        if rng.random() < 0.6:
            event_id = f"e{world.next_event()}"
            world.deliver(0, Notification(name, sender="test", event_id=event_id, drop=rng.random() < 0.5), 0)

    def _live(self) -> set[tuple[str, ...]]:
        """The names whose leading file is live."""
        docs = [doc for place in self._world.checker.places for _, doc in self._world.checker.documents(place)]
        return {
            (*doc["namespace"], doc["name"]) for doc in docs if doc["state"] == "current" and doc["ref"] == MAIN_BRANCH
        }


@dataclass(frozen=True, slots=True)
class Cleaner:
    """One rule.

    Attributes:
        name: whose.
        age: what is younger stays; as it is where nobody sets it.
        least: the shortest age that it can be set to with its safeguards on.
        spares: whether a file stays that the table does not know, by its path below the table's location.
    """

    name: str
    age: timedelta
    least: timedelta
    spares: Callable[[str], bool]

    def condemned(self, location: str, ages: Mapping[str, timedelta], known: Collection[str]) -> list[str]:
        """The keys that it deletes.

        Args:
            location: the table's, without a trailing slash.
            ages: of all files, by key.
            known: what the table's metadata names.
        """
        below = f"{location}/"
        strange = [key for key, age in ages.items() if key.startswith(below) and age > self.age and key not in known]
        return [key for key in strange if not self.spares(key.removeprefix(below))]


def _is_hint(path: str) -> bool:
    return path.rpartition("/")[2] == _HINT


def _is_hidden_or_hint(path: str) -> bool:
    return _is_hint(path) or any(part.startswith(("_", ".")) for part in path.split("/"))


def _never(_path: str) -> bool:
    return False


CLEANERS: Final = (
    # https://iceberg.apache.org/docs/latest/spark-procedures/#remove_orphan_files: an age below 24 hours is refused.
    # What begins with `_` or `.` its listing leaves out (PartitionAwareHiddenPathFilter); seen so in a dry run.
    Cleaner("Spark", 3 * _DAY, _DAY, _is_hidden_or_hint),
    # https://trino.io/docs/current/connector/iceberg.html#remove-orphan-files: `remove-orphan-files.min-retention` is 7
    # days, and an administrator's to lower. RemoveOrphanFiles keeps the hint, wherever it lies.
    Cleaner("Trino", 7 * _DAY, _DAY, _is_hint),
    # https://docs.starrocks.io/docs/data_source/catalog/iceberg/: 7 days unless `older_than` is given.
    Cleaner("StarRocks", 7 * _DAY, _DAY, _is_hint),
    # https://docs.lakekeeper.io/docs/nightly/table-maintenance/#remove-orphan-files: whatever no metadata refers to;
    # `default-older-than-ms` is 7 days and at least 24 hours. Of a hint nothing is said.
    Cleaner("Lakekeeper", 7 * _DAY, _DAY, _never),
    # https://docs.aws.amazon.com/glue/latest/dg/orphan-file-deletion.html: whatever is below the table's location and
    # no metadata tracks; `orphanFileRetentionPeriodInDays`, in whole days, is 3. Of a hint nothing is said.
    Cleaner("Glue", 3 * _DAY, _DAY, _never),
    # A script of one's own, as strict as any of them can be set to without switching its safeguards off.
    Cleaner("the strictest", _DAY, _DAY, _never),
)
