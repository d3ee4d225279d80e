"""Directed histories of commits through a gateway, whose intents several replicas share.

Each is killed by a patch in `tests/mutants`, which is what shows that it can fail.
"""

from __future__ import annotations

import asyncio

from sfn.domain.events import Intent, IntentOutcome, Notification
from sfn.inbox.intents import CHECK_DELAYS
from tests.simulation.replicated import Replicated
from tests.simulation.script import Held, named

FIRST = CHECK_DELAYS[0].total_seconds()
GATEWAY = "gateway"
COMMIT = Intent("i", (named("a"),), GATEWAY, "10.0.0.1")


def test_a_commit_is_published_though_its_gateway_died_before_it_heard_the_end() -> None:
    stage = Replicated()

    async def act() -> None:
        stage.create("a")
        await stage.hint("a")
        await asyncio.sleep(20)
        gateway, _ = stage.service.nodes
        await stage.note(gateway, COMMIT)
        stage.service.crash(gateway)
        # The catalog tries it for so long, and no sweep comes by soon afterwards.
        await asyncio.sleep(CHECK_DELAYS[1].total_seconds() - 10)
        last = stage.commit("a")
        await asyncio.sleep(15)
        assert stage.pointer("a") == last.metadata_location

    assert stage.run(act, briefly=True) == []


def test_who_answers_a_commit_and_who_asks_for_it_wait_for_nobody_in_a_circle() -> None:
    stage = Replicated()

    async def act() -> None:
        await asyncio.sleep(5)
        first, _ = stage.service.nodes
        await stage.note(first, COMMIT)
        asking = stage.hold("after sql due intents")
        await asking.reached.wait()
        stage.create("a")
        answer = stage.note(
            stage.other(asking.node), IntentOutcome("i", is_known=True), Notification(named("a"), GATEWAY)
        )
        await asyncio.sleep(1)
        asking.go.set()
        assert (await answer).accepted == 1

    assert stage.run(act, briefly=True) == []


def test_what_is_not_asked_for_because_another_one_has_its_row_is_asked_for_soon() -> None:
    stage = Replicated()

    async def act() -> None:
        stage.create("a")
        await stage.hint("a")
        await asyncio.sleep(20)
        first, _ = stage.service.nodes
        await stage.note(first, COMMIT)
        await asyncio.sleep(FIRST - 1)
        settling = Held("after sql get", first)
        stage.direct(settling)
        settle = stage.settle(first, stage.claim("a"))
        await asyncio.sleep(3)
        assert stage.told_by(GATEWAY) == []
        settling.go.set()
        assert not await settle
        await asyncio.sleep(3)
        assert stage.told_by(GATEWAY) == [named("a")]

    assert stage.run(act, briefly=True) == []
