"""What is known of a catalog's answers: the last one, a failure since, and requests without an answer."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import anyio
import pytest

from sfn.catalogs.activity import (
    FORGOTTEN_AFTER,
    PING_INTERVAL,
    SLOW_ANSWER,
    CatalogActivity,
    CatalogAnswers,
    keep_pinging,
)
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.clock import SystemClock
from sfn.errors import ErrorScope, Transient
from tests.support.clock import HandClock
from tests.support.processes import until
from tests.support.rest_catalog import Open, Server, reply, running


class Ended(Exception):
    """An adapter's failure."""


def ask(activity: CatalogActivity, clock: HandClock, seconds: float, failure: str | None = None) -> None:
    """One request that takes so long."""
    with suppress(Ended), activity.request() as request:
        clock.turn(seconds)
        request.failure = failure
        if failure is not None:
            raise Ended


def test_nothing_is_known_before_the_first_request() -> None:
    activity = CatalogActivity(HandClock())
    assert activity.answers == CatalogAnswers()
    assert activity.is_idle


def test_a_failure_lasts_from_its_first_request_to_the_next_answer() -> None:
    clock = HandClock()
    activity = CatalogActivity(clock)
    ask(activity, clock, 1)
    answered = clock.now()
    clock.turn(5)
    failing = clock.now()
    for why in ("no route", "silence"):
        ask(activity, clock, 3, why)
        clock.turn(1)
    assert activity.answers == CatalogAnswers(answered, failing, "silence")
    assert activity.answers.unanswered_since(clock.now()) == failing
    ask(activity, clock, 1)
    assert activity.answers == CatalogAnswers(clock.now())


def test_a_request_that_hangs_beside_others_that_are_answered_is_its_own_trouble() -> None:
    clock = HandClock()
    activity = CatalogActivity(clock)
    with suppress(Ended), activity.request() as slow:
        clock.turn(5)
        ask(activity, clock, 1)
        clock.turn(60)
        assert activity.answers.unanswered_since(clock.now()) is None
        slow.failure = "none within 60 s"
        raise Ended
    assert activity.answers.failing_since is None


def test_an_answer_to_another_kind_of_request_ends_no_outage_of_one_kind() -> None:
    clock = HandClock()
    activity = CatalogActivity(clock)
    began = clock.now()
    with suppress(Ended), activity.request("table", "GET /tables/orders") as request:
        clock.turn(30)
        with activity.request("other"):
            clock.turn(1)
        assert activity.answers.unanswered_since(clock.now()) == began
        assert activity.answers.cause(clock.now()) == "no answer yet to GET /tables/orders"
        request.failure = "none within 60 s"
        raise Ended
    with activity.request("other"):
        clock.turn(1)
    answers = activity.answers
    assert (answers.unanswered_since(clock.now()), answers.cause(clock.now())) == (began, "none within 60 s")
    assert answers.answered_at == clock.now()
    with activity.request("table"):
        clock.turn(1)
    assert activity.answers.unanswered_since(clock.now()) is None


def test_a_failure_of_a_kind_that_is_not_asked_again_is_forgotten() -> None:
    clock = HandClock()
    activity = CatalogActivity(clock)
    with suppress(Ended), activity.request("table") as request:
        request.failure = "none"
        raise Ended
    clock.turn(FORGOTTEN_AFTER.total_seconds())
    assert activity.answers.failing_since is not None
    with activity.request("other"):
        clock.turn(1)
    assert activity.answers.failing_since is None


def test_a_hanging_catalog_is_seen_before_any_timeout() -> None:
    clock = HandClock()
    activity = CatalogActivity(clock)
    ask(activity, clock, 1)
    asked = clock.turn(1)
    with activity.request():
        clock.turn(SLOW_ANSWER.total_seconds() - 0.1)
        assert activity.answers.unanswered_since(clock.now()) is None
        clock.turn(0.1)
        assert activity.answers.unanswered_since(clock.now()) == asked
        assert not activity.is_idle
    assert activity.answers.unanswered_since(clock.now()) is None


def test_a_request_that_says_nothing_of_the_catalog_is_not_counted() -> None:
    clock = HandClock()
    activity = CatalogActivity(clock)
    with activity.request() as request:
        request.is_neutral = True
    with suppress(Ended), activity.request():
        raise Ended
    assert activity.answers == CatalogAnswers()


def test_a_catalog_is_idle_when_it_answered_nothing_for_long() -> None:
    clock = HandClock()
    activity = CatalogActivity(clock)
    ask(activity, clock, 1)
    clock.turn(PING_INTERVAL.total_seconds() - 1)
    assert not activity.is_idle
    clock.turn(1)
    assert activity.is_idle


async def test_an_idle_catalog_is_pinged_and_a_failing_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.catalogs.activity.PING_INTERVAL", timedelta(seconds=0.02))

    class Silent:
        def __init__(self) -> None:
            self.activity, self.pings = CatalogActivity(SystemClock()), 0

        async def ping(self) -> None:
            self.pings += 1
            raise Transient("catalog", scope=ErrorScope.CATALOG, expected="an answer", found="none")

    silent = Silent()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_pinging, silent)
        await until(lambda: silent.pings == 3)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (200, ""),
        (404, ""),
        (503, "/v1/config: it answers with status 503"),
        (401, "/config: it answers with status 401"),
    ],
)
async def test_a_rest_catalog_records_what_it_was_answered(
    server: Server, opened: Open, status: int, error: str
) -> None:
    catalog = opened(server)
    await catalog.ping()
    before = catalog.activity.answers
    assert before.answered_at is not None
    server.config = reply({}, status)
    with suppress(Transient, Exception):
        await catalog.ping()
    after = catalog.activity.answers
    assert (after.error.endswith(error), bool(after.error), after.failing_since is None) == (
        True,
        bool(error),
        not error,
    )


async def test_a_rest_catalog_that_is_gone_is_seen(opened: Open) -> None:
    async with running() as other:
        catalog: RestCatalog = opened(other)
        await catalog.ping()
    with suppress(Transient):
        await catalog.ping()
    assert "ECONNREFUSED" in catalog.activity.answers.error
