"""What a source does with messages, whatever its server is: here one in memory."""

from __future__ import annotations

from functools import partial

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from sfn.app.service import leaf_errors
from sfn.errors import ErrorScope, FatalError, Transient
from sfn.pull import FinalBatch, source
from tests.integration.pulling import event, subjects
from tests.integration.waiting import until
from tests.unit.pulled import GONE, SHORT, BusyAtFirst, Ground, Message, Server, Stuck

BROKEN = FatalError("inbox", expected="a sound inbox", found="another")


async def test_a_broken_inbox_ends_the_source_and_nothing_more_is_acknowledged() -> None:
    messages = [Message(event(1)), Message(event(2))]
    ground = Ground(Server([[messages]]))
    ground.inbox.failure = BROKEN
    with pytest.raises(ExceptionGroup) as caught, anyio.fail_after(20):
        await ground.run()
    assert BROKEN in list(leaf_errors(caught.value))
    assert [message.told for message in messages] == [[], []]


async def test_what_an_error_of_our_own_made_nothing_of_comes_again_much_later() -> None:
    message, next_one = Message(event(1)), Message(event(2))
    ground = Ground(Server([[[message], [next_one]]]))
    ground.inbox.failure = ZeroDivisionError("ours")
    with capture_logs() as logs:
        async with ground.running():
            await until(lambda: message.told)
            ground.inbox.failure = None
    assert message.told == ["again after 60"]
    (told,) = [record for record in logs if record["event"] == "pulled message failed"][:1]
    assert told["exc_info"]


async def test_what_an_error_of_our_own_made_nothing_of_has_the_catalogs_looked_at_where_nobody_keeps_it() -> None:
    message = Message(event(1), keeps=False)
    ground = Ground(Server([[[message]]], is_durable=False, stays=True))
    ground.inbox.failure = ZeroDivisionError("ours")
    with capture_logs() as logs:
        async with ground.running():
            await until(lambda: logs)
            ground.inbox.failure = None
            await until(lambda: ground.inbox.taken)
    assert set(subjects(ground.inbox)) == {"prod"}


async def test_nothing_more_is_fetched_for_as_long_as_the_inbox_asks_to_be_left_alone() -> None:
    first, second = Message(event(1)), Message(event(2))
    ground = Ground(Server([[[first], [second]]]))
    ground.inbox.failure = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=0.5)
    async with ground.running():
        await until(lambda: first.told)
        ground.inbox.failure = None
        await until(lambda: second.told)
    assert second.told_at - first.told_at >= 0.4
    assert (first.told, second.told) == (["again after 0.5"], ["taken"])


async def test_a_server_that_can_not_be_told_loses_nothing() -> None:
    acknowledged, returned = Message(event(1), error=GONE), Message(event(2), error=GONE)
    ground = Ground(Server([[[acknowledged], [Message(event(3))]]]))
    async with ground.running():
        await until(lambda: len(ground.inbox.taken) == 2)
    busy = Ground(Server([[[returned], [Message(event(3))]]]), BusyAtFirst())
    async with busy.running():
        await until(lambda: busy.inbox.taken)
    assert subjects(busy.inbox) == ["t3"]


async def test_a_server_that_is_away_is_asked_after_longer_and_longer_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "FIRST_PAUSE", SHORT)
    server = Server([[]], away=3, stays=True)
    ground = Ground(server)
    with capture_logs() as logs:
        async with ground.running():
            await until(lambda: len(logs) == 3)
    assert server.was_asked_less_and_less_often
    assert [record["event"] for record in logs] == [
        "pull source away",
        "pull source connected",
        "pull source works again",
    ]


@pytest.mark.parametrize("refused", [[], [[Message(event(1))]]])
async def test_a_server_that_lets_us_in_and_refuses_what_follows_is_away_still(
    refused: list[list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "FIRST_PAUSE", SHORT)
    server = Server([list(refused) for _ in range(3)])
    ground = Ground(server)
    with capture_logs() as logs:
        async with ground.running():
            await until(lambda: len(server.opened_at) == 4)
    assert server.was_asked_less_and_less_often
    assert [record["event"] for record in logs] == ["pull source connected", "pull source away"]


async def test_a_stop_ends_a_pause_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "FIRST_PAUSE", 60.0)
    ground = Ground(Server(away=1_000))
    with capture_logs() as logs:
        async with ground.running():
            await until(lambda: logs)
    # It had not to be given up, as it would be after a second.
    assert [record["event"] for record in logs] == ["pull source away"]


@pytest.mark.parametrize(("keeps", "looked_at"), [(False, ["prod"]), (True, [])])
async def test_what_was_published_while_nobody_ran_is_looked_for_where_nobody_keeps_it(
    keeps: bool, looked_at: list[str]
) -> None:
    for away in (0, 1):
        ground = Ground(Server(away=away, is_durable=keeps))
        with capture_logs():
            async with ground.running():
                await until(partial(ground.has_asked, away + 1))
                await anyio.sleep(0.05)
        assert subjects(ground.inbox) == looked_at


@pytest.mark.parametrize(("is_all", "looked_at"), [(True, ["prod"]), (False, ["prod", "prod"])])
async def test_a_stop_takes_what_was_delivered_and_looks_for_what_was_not(is_all: bool, looked_at: list[str]) -> None:
    left = Message(event(1), keeps=False)
    ground = Ground(Server([[]], is_durable=False, stays=True, last=FinalBatch([left], is_all)))
    async with ground.running():
        await until(lambda: ground.inbox.taken)
    assert (left.told, sorted(subjects(ground.inbox))) == (["taken"], sorted([*looked_at, "t1"]))


@pytest.mark.parametrize(("keeps", "looked_at"), [(False, ["prod", "prod"]), (True, [])])
async def test_what_a_stop_gives_up_is_looked_for_where_nobody_keeps_it(keeps: bool, looked_at: list[str]) -> None:
    ground = Ground(Server([[[Message(event(1), keeps=keeps)]]], is_durable=keeps), inbox := Stuck())
    with capture_logs() as logs:
        async with ground.running():
            await inbox.stuck.wait()
    assert [record["event"] for record in logs] == ["pull source connected", "pulled messages given up"]
    assert subjects(ground.inbox) == looked_at
