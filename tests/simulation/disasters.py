"""What befalls a simulated world beside its tables' own lives: outages, a lost inbox, operators, a second catalog."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from sfn.domain.events import Notification
from sfn.domain.identifiers import Table
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.model import AdminCommand
from tests.simulation.cleaners import CLEANERS
from tests.simulation.database.kept import SharedKept
from tests.simulation.life import Life
from tests.simulation.times import DAY

if TYPE_CHECKING:
    from tests.simulation.world import World

UNLISTED: Final = 0.7
"""Of the histories in which that may happen: the catalog does not let itself be listed for a while."""
OPERATED: Final = 0.3
"""Of the histories: somebody replays dead letters."""


@dataclass(frozen=True, slots=True)
class Disasters:
    """What happens to one world."""

    world: World

    def plan(self, lives: list[Life]) -> None:
        """Have what the setting asks for happen."""
        rng, setting = self.world.rng, self.world.setting
        start = rng.uniform(20, 150)
        length = rng.choice([20, 60] if setting.replicas else [20, 60, 200, 500])
        self._plan_outage(start, length)
        if setting.store_outage:
            self.world.weather.store_down.append((start, start + length))
        for number in range(2 if setting.read_only else 0):
            began = start + number * rng.uniform(60, 700)
            self.world.weather.read_only.append((began, began + rng.choice([5, 60, 200, 500])))
        for _ in range(rng.choice([1, 2, 3]) if setting.inbox_full else 0):
            began = rng.uniform(5, setting.busy)
            self.world.weather.inbox_full.append((began, began + rng.choice([3, 20, 60])))
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
        if not setting.replicas:
            return
        loop.create_task(self._roll())
        for _ in range(rng.choice([0, 0, 1, 2])):
            loop.call_later(rng.uniform(5, setting.busy), self._restart)

    def _lose_inbox(self) -> None:
        self.world.say("the inbox is lost")
        self.world.acknowledged.clear()
        self.world.services[0].lose_inbox()

    def _restart(self) -> None:
        """The database of the inbox is started anew, or another server takes its place."""
        rng = self.world.rng
        seconds = rng.choice([0.0, 1.0, 8.0, 25.0]) * rng.random()
        self.world.say(f"the database is away for {seconds:.1f} s")
        self.world.count("restarted")
        for service in self.world.services:
            assert isinstance(service.kept, SharedKept)
            service.kept.server.restart(seconds)

    async def _roll(self) -> None:
        """Processes are ended as they should be, one now and then."""
        while not self.world.weather.is_still:
            await asyncio.sleep(self.world.rng.uniform(5, 120))
            service = self.world.rng.choice(self.world.services)
            if service.nodes and not self.world.weather.is_still:
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
                    is_watched = world.weather.calm or not world.setting.away
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
            theirs = replace(target, catalog=self.world.truths[1].name)
            registered = {table.uuid for table in self.world.truths[1].live().values()}
            if not isinstance(self.world.truths[1].true(theirs), Table) and tables[name].uuid not in registered:
                self.world.set(1, theirs, tables[name])
                lives[1].tell(Notification(theirs))
