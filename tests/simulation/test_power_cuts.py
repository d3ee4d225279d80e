"""Directed histories of a machine that loses its power: only what was synced of the inbox is left."""

from __future__ import annotations

import asyncio

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName
from sfn.inbox.inbox import Inbox
from sfn.inbox.model import AdminCommand
from tests.simulation.inbox import SharedSqliteInbox
from tests.simulation.script import PLACE, Stage, history, named
from tests.simulation.settings import Setting

FILE = f"{PLACE}/metadata/_sfn/n_a_main.ver"


class Powered(Stage):
    """A quiet world in which a power cut undoes all that is not synced."""

    def __init__(self, max_drops: int = 10) -> None:
        super().__init__(setting=Setting(power_cuts=True, max_drops=max_drops))

    @property
    def operator(self) -> Inbox:
        return self.service.kept.operator

    def cut_power(self) -> None:
        """Undo what is not synced; other processes come soon."""
        assert isinstance(self.service.kept, SharedSqliteInbox)
        self.service.script = None
        self.service.kept.keeps_some = False
        self.service.cut_power()

    def order(self) -> AdminCommand:
        return AdminCommand("ann", "", self.world.loop.now())


@history(Powered, briefly=True)
async def test_what_was_acknowledged_survives_a_power_cut(stage: Powered) -> None:
    table = stage.create("a")
    stage.block("before claim")
    event = Notification(named("a"), sender="test", event_id="acknowledged")
    assert (await stage.service.nodes[0].inbox.put([event])).accepted == 1
    stage.cut_power()
    assert stage.service.kept.events() == {"acknowledged"}
    await asyncio.sleep(10)
    assert stage.world.checker.document(FILE)["metadata_file_path"] == table.metadata_location


@history(Powered, briefly=True)
async def test_who_dies_without_a_power_cut_loses_nothing_that_was_committed(stage: Powered) -> None:
    """A publish that is settled and not synced is not repeated."""
    await stage.publish("a")
    for node in list(stage.service.nodes):
        stage.service.crash(node)
    row = stage.row("a")
    assert row is not None
    assert (row.outcomes, row.attempt) == (1, 0)


@history(Powered, briefly=True)
async def test_what_a_power_cut_undid_is_done_again(stage: Powered) -> None:
    stage.create("a")
    held = stage.hold(f"before read {FILE}")
    await stage.hint("a")
    await held.reached.wait()
    row = stage.row("a")
    assert row is not None
    stage.cut_power()
    after = stage.row("a")
    assert after is not None
    assert (row.attempt, after.attempt) == (1, 0)
    await asyncio.sleep(10)
    assert stage.states(["a"]) == {"current": 1}


@history(Powered)
async def test_a_location_is_known_after_a_power_cut(stage: Powered) -> None:
    """Rule 6: a power cut after the first write and a drop leave no file that says `current` for ever."""
    stage.create("a")
    held = stage.hold(f"after write {FILE}")
    await stage.hint("a")
    await held.reached.wait()
    stage.cut_power()
    stage.drop("a")


@history(lambda: Powered(max_drops=1), briefly=True)
async def test_a_brake_counts_what_it_let_pass_before_a_power_cut(stage: Powered) -> None:
    """Rule 8: what was dropped stays counted."""
    names = ["a", "b", "c"]
    await stage.publish(*names)
    stage.drop("a")
    held = stage.hold(f"after write {FILE}")
    await stage.hint("a", drop=True)
    await held.reached.wait()
    stage.cut_power()
    for name in names[1:]:
        stage.drop(name)
        await stage.hint(name, drop=True)
    await asyncio.sleep(100)
    assert stage.states(names) == {"current": 2, "dropped": 1}
    await stage.service.kept.release("cat0", stage.order())


@history(Powered, briefly=True)
async def test_an_order_survives_a_power_cut(stage: Powered) -> None:
    stage.block("before claim")
    await stage.operator.reconcile([Notification(CatalogName("cat0"))], stage.order())
    stage.cut_power()
    assert [entry.action for entry in await stage.operator.audit_log(None, 9)] == ["reconcile"]
