"""Deadlines and rate limits of requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import MutableMapping
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.errors import Rejected
from sfn.formats.event import Sender
from sfn.http.senders import Keyring, Senders
from sfn.limits import BodyLimits, RateLimit, read_body
from tests.support.rest_catalog import pass_by

SOON = 0.02


async def silence() -> MutableMapping[str, Any]:
    await anyio.sleep_forever()
    return {}


async def test_missed_deadline_is_408_and_does_not_cancel_the_task() -> None:
    with pytest.raises(Rejected) as caught:
        await read_body(silence, None, BodyLimits(10, deadline=SOON))
    assert caught.value.status == 408
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await anyio.sleep(SOON)


async def test_body_within_the_deadline_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> MutableMapping[str, Any]:
        await anyio.sleep(SOON / 10)
        return {"type": "http.request", "body": b"x"}

    assert await read_body(whole, 1, BodyLimits(10, deadline=60)) == b"x"
    pass_by(61, monkeypatch)
    await anyio.sleep(SOON)


async def test_cancellation_is_not_turned_into_a_timeout() -> None:
    with anyio.move_on_after(SOON) as scope:
        await read_body(silence, None, BodyLimits(10, deadline=60))
    assert scope.cancelled_caught


async def test_cancellation_takes_precedence_over_the_deadline() -> None:
    async def late() -> MutableMapping[str, Any]:
        # Both are due before the loop comes to run either.
        time.sleep(SOON * 3)  # noqa: ASYNC251
        return await silence()

    with anyio.CancelScope() as scope:
        asyncio.get_running_loop().call_later(SOON, scope.cancel)
        await read_body(late, None, BodyLimits(10, deadline=SOON))
    assert scope.cancelled_caught


ETL, SPARK = Sender("etl", {}), Sender("spark", {})


def passed(rate: RateLimit, *moments: float) -> list[bool]:
    return [rate.seconds_to_wait(moment) is None for moment in moments]


@pytest.mark.parametrize(("limit", "at_once"), [(1, 1), (9, 1), (10, 1), (20, 2), (600, 60), (605, 60)])
def test_burst_is_a_tenth_of_the_limit_and_at_least_one(limit: int, at_once: int) -> None:
    assert passed(RateLimit(limit), *[7.0] * (at_once + 1)) == [True] * at_once + [False]


def test_requests_after_the_burst_are_spread_over_the_minute() -> None:
    assert passed(RateLimit(60), *[0.0] * 7, 0.5, 1.0, 1.5, 2.0) == [True] * 6 + [False, False, True, False, True]


def test_returned_wait_is_sufficient() -> None:
    rate = RateLimit(30)
    assert passed(rate, 0, 0, 0) == [True] * 3
    assert rate.seconds_to_wait(0) == pytest.approx(2)
    assert rate.seconds_to_wait(1.5) == pytest.approx(0.5)
    assert rate.seconds_to_wait(2.001) is None


def test_rejected_request_is_not_counted() -> None:
    rate = RateLimit(6)
    assert passed(rate, *[0.0] * 50, 10.001) == [True] + [False] * 49 + [True]


def test_idle_time_allows_no_more_than_the_burst() -> None:
    rate = RateLimit(20)
    assert passed(rate, 0.0, *[86_400.0] * 4) == [True, True, True, False, False]


@given(st.integers(1, 1_000), st.lists(st.floats(0, 60), max_size=300))
def test_no_minute_exceeds_the_limit_by_more_than_a_tenth(limit: int, moments: list[float]) -> None:
    assert sum(passed(RateLimit(limit), *sorted(moments))) <= limit + max(1, limit / 10)


def test_requests_are_unlimited_without_a_limit() -> None:
    senders = Senders(Keyring({}), {}, ETL)
    assert senders.least_rate is None
    assert {senders.seconds_to_wait(ETL) for _ in range(1_000)} == {None}


def test_each_sender_has_its_own_limit() -> None:
    now = [0.0]
    senders = Senders(Keyring({}), {}, rates={"etl": 10, "spark": 20}, monotonic=lambda: now[0])
    assert [senders.seconds_to_wait(ETL) for _ in range(2)] == [None, 6.0]
    assert [senders.seconds_to_wait(SPARK) for _ in range(3)] == [None, None, 3.0]
    now[0] = 6.1
    assert senders.seconds_to_wait(ETL) is None
    assert senders.least_rate == 10


SENDERS = {name: Sender(name, {name: "prod"}) for name in ("etl", "spark")}


def test_requests_are_unlimited_without_a_limit_of_the_sender() -> None:
    senders = Senders(Keyring({}), {}, SENDERS["etl"])
    assert senders.least_rate is None
    assert {senders.seconds_to_wait(SENDERS["etl"]) for _ in range(1_000)} == {None}


def test_each_sender_has_its_own_limit_in_senders() -> None:
    now = [0.0]
    senders = Senders(Keyring({}), {}, rates={"etl": 10, "spark": 20}, monotonic=lambda: now[0])
    assert [senders.seconds_to_wait(SENDERS["etl"]) for _ in range(2)] == [None, 6.0]
    assert [senders.seconds_to_wait(SENDERS["spark"]) for _ in range(3)] == [None, None, 3.0]
    now[0] = 6.1
    assert senders.seconds_to_wait(SENDERS["etl"]) is None
    assert senders.least_rate == 10
