"""When a row in trouble is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sfn.worker.retry import MAX_RETRY_AFTER, RetryPolicy, bounded_retry_after

NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wish", "seconds"),
    [
        (None, 0),
        (0.0, 0),
        (-5.0, 0),
        (float("nan"), 0),
        (0.25, 0.25),
        (300.0, 300),
        (301.0, 300),
        (1e9, 300),
        (1e300, 300),
        (float("inf"), 300),
    ],
)
def test_a_wish_is_heeded_for_five_minutes_at_the_longest(wish: float | None, seconds: float) -> None:
    assert bounded_retry_after(wish) == timedelta(seconds=seconds)
    assert timedelta(seconds=300) == MAX_RETRY_AFTER


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 2), (2, 4), (3, 8), (4, 13), (5, 13), (100, 13), (10**6, 13), (10**400, 13)]
)
def test_each_pause_is_twice_as_long_until_the_longest(attempt: int, seconds: float) -> None:
    policy = RetryPolicy(base=timedelta(seconds=2), cap=timedelta(seconds=13))
    assert policy.pause(attempt, jitter=0) == timedelta(seconds=seconds) / 2
    assert policy.pause(attempt, jitter=0.5) == timedelta(seconds=seconds) * 0.75


@pytest.mark.parametrize("attempt", [1, 30, 10**6])
@pytest.mark.parametrize(
    "base", [timedelta(microseconds=1), timedelta(days=1), timedelta(days=900_000_000), timedelta.max]
)
def test_no_base_is_too_long_or_too_short(base: timedelta, attempt: int) -> None:
    assert RetryPolicy(base=base).pause(attempt, jitter=0.99) <= timedelta(minutes=5)


def test_the_longest_pause_may_be_as_long_as_can_be() -> None:
    policy = RetryPolicy(base=timedelta(days=1), cap=timedelta.max)
    assert policy.pause(10**6, jitter=0) == timedelta.max / 2


def test_by_default_it_is_the_age_that_ends_the_attempts() -> None:
    policy, since, attempt = RetryPolicy(), NOW, 1
    now = since
    while (following := policy.next_attempt(attempt, since, now, jitter=0.5)) is not None:
        now, attempt = following, attempt + 1
    assert now - since >= policy.budget
    assert attempt < policy.max_attempts


def test_without_a_budget_left_there_is_no_next_attempt() -> None:
    policy = RetryPolicy(budget=timedelta(hours=1), max_attempts=3)
    assert policy.next_attempt(2, NOW, NOW, jitter=0) == NOW + timedelta(seconds=1)
    assert policy.next_attempt(3, NOW, NOW, jitter=0) is None
    assert policy.next_attempt(1, NOW - timedelta(hours=1), NOW, jitter=0) is None
