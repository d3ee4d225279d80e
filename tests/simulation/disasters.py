"""What befalls a simulated world beside its tables' own lives: outages, a lost inbox, operators, a second catalog."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from sfn.inbox.letters import Order, Wanted
from sfn.words import Hint, Reason, Table
from tests.simulation.cleaners import CLEANERS
from tests.simulation.life import Life
from tests.simulation.times import DAY

if TYPE_CHECKING:
    from tests.simulation.world import World

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
        length = rng.choice([20, 60, 200, 500])
        if setting.outage == "blank":
            self.world.truths[0].blank.append((start, start + length))
            self.world.loop.call_later(start + 1, self._tell_of_everything)
        elif setting.outage:
            self.world.truths[0].down.append((start, start + length))
        if setting.store_outage:
            self.world.weather.store_down.append((start, start + length))
        if setting.inbox_lost:
            self.world.loop.call_later(start, self._lose_inbox)
        if setting.catalogs > 1:
            self.world.loop.create_task(self._register(lives))
        for number in range(1, len(setting.policies)):
            self.world.loop.call_later(rng.uniform(20, 300), self.world.resettle, number)
        if setting.cleaned:
            self.world.loop.create_task(self._clean())
        if setting.away:
            self.world.loop.call_later(start, self._leave)
        if rng.random() < OPERATED:
            self.world.loop.create_task(self._operate())

    def _lose_inbox(self) -> None:
        self.world.say("the inbox is lost")
        self.world.acknowledged.clear()
        self.world.services[0].lose_inbox()

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
            ledger, now = self.world.rng.choice(self.world.services).ledger, self.world.loop.now()
            letters = [one for one in ledger.desk.find(Wanted(), 0, 9) if one.reason is not Reason.HELD_DROP]
            chosen = [letter.id for letter in letters if self.world.rng.random() < 0.7]
            if ledger.desk.replay(chosen, [], Order("somebody", "", now)):
                self.world.count("replayed")
                self.world.say(f"replayed {chosen}")

    def _tell_of_everything(self) -> None:
        rng = self.world.rng
        # Whoever asks now is told that they are nowhere.
        self.world.ranks.ended |= {table.uuid for table in self.world.truths[0].live().values()}
        for name in self.world.truths[0].live():
            if rng.random() < 0.6:
                event_id = f"e{self.world.next_event()}"
                hint = Hint(name, sender="test", event_id=event_id, drop=rng.random() < 0.2)
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
                lives[1].tell(Hint(theirs))
