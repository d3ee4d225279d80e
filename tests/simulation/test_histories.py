"""Random histories: a few of every kind. `make simulate` runs thousands."""

from __future__ import annotations

from functools import partial
from multiprocessing.pool import Pool

import pytest

from tests.simulation.histories import KINDS, history_in_brief

FIRST = 100_000
EACH = 6


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_stale_or_falsified(kind: str, workers: Pool) -> None:
    """Whatever happens, whenever a process dies: readers are never lied to, and all is right at rest."""
    seeds = range(FIRST, FIRST + EACH)
    reports = workers.map(partial(history_in_brief, kind=kind), seeds, chunksize=1)
    bad = {report.seed: report.bad[:3] for report in reports if report.bad}
    assert not bad, f"replay one with: python -m tests.simulation --kind {kind} --show SEED"
    assert sum(report.counts["killed"] for report in reports) > EACH
