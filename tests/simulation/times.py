"""The times of the simulation: short enough to pass many of them in one history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from sfn.publish.policy import Policy
from sfn.worker.retry import RetryPolicy
from sfn.worker.worker import WorkerOptions
from tests.simulation.truth import CatalogTruth

DAY = timedelta(seconds=3000)
"""As long in comparison with `refresh_after` as a day is with eight hours."""


def policy_of(truth: CatalogTruth, *, told: bool, files: Mapping[str, Any]) -> Policy:
    """How a simulated catalog's tables are published.

    Args:
        files: what they are called and where they lie, and whatever else is to be otherwise.
    """
    usual = Policy(
        catalog_id=truth.catalog_id,
        replica_lag=timedelta(seconds=6),
        absence_delay=timedelta(seconds=30),
        expire_after=timedelta(seconds=3000),
        refresh_after=timedelta(seconds=1000),
        min_publish_interval=timedelta(seconds=1),
        sweep_every=timedelta(seconds=120),
        is_swept=not told,
        event_only=told,
        keep_commits_for=timedelta(0),
    )
    return replace(usual, **files)


UNSWEPT: Final[dict[str, Any]] = {
    "is_swept": False,
    "sweep_every": timedelta(days=36_500),
    "refresh_after": timedelta(hours=8),
    "expire_after": timedelta(days=7),
}
"""Nothing is looked at of the service's own accord: what is published was asked for because of a request."""

TERMS = WorkerOptions(
    concurrency=6,
    lease=timedelta(seconds=20),
    drain=timedelta(seconds=10),
    retry=RetryPolicy(base=timedelta(seconds=2), cap=timedelta(seconds=20), max_attempts=10_000),
)
