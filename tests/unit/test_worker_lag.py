"""The lag of the last hour's publishes: quantiles against sorted samples, minutes that pass, and catalogs apart."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from statistics import quantiles

import pytest

from sfn.worker.lag import LagHistory, LagSummary

NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize("scale", [0.004, 0.3, 20.0, 40_000.0])
def test_quantiles_are_at_most_fifteen_percent_too_great(scale: float) -> None:
    chance = random.Random(7)
    history, samples = LagHistory(), [scale * chance.expovariate(1) for _ in range(2_000)]
    for number, seconds in enumerate(samples):
        history.observe("prod", seconds, NOON + timedelta(seconds=number))
    found = history.summary("prod", NOON + timedelta(seconds=len(samples)))
    assert found is not None
    exact = quantiles(samples, n=20)
    assert (found.count, found.worst) == (2_000, max(samples))
    assert exact[9] * 0.97 <= found.p50 <= max(exact[9] * 1.18, 0.001)
    assert exact[18] * 0.97 <= found.p95 <= max(exact[18] * 1.18, 0.001)


def test_no_quantile_is_greater_than_the_worst() -> None:
    history = LagHistory()
    history.observe("prod", 1.01, NOON)
    assert history.summary("prod", NOON) == LagSummary(1, 1.01, 1.01, 1.01)


def test_an_hour_is_remembered() -> None:
    history = LagHistory()
    history.observe("prod", 5.0, NOON)
    history.observe("prod", 1.0, NOON + timedelta(minutes=30))
    both = history.summary("prod", NOON + timedelta(minutes=59))
    assert both is not None
    assert (both.count, both.p95, both.worst) == (2, 5.0, 5.0)
    assert both.p50 == pytest.approx(1.0, rel=0.15)
    later = history.summary("prod", NOON + timedelta(minutes=60))
    assert (later, history.summary("dev", NOON)) == (LagSummary(1, 1.0, 1.0, 1.0), None)
    assert history.summary("prod", NOON + timedelta(hours=2)) is None
    minutes = history.by_minute("prod", NOON + timedelta(minutes=59))
    assert [(at, one.worst) for at, one in enumerate(minutes) if one is not None] == [(0, 5.0), (30, 1.0)]


def test_a_clock_that_was_set_back_loses_nothing() -> None:
    history = LagHistory()
    history.observe("prod", 5.0, NOON)
    history.observe("prod", 1.0, NOON - timedelta(minutes=9))
    found = history.summary("prod", NOON)
    assert found is not None
    assert found.count == 2
