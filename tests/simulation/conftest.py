"""Processes that run histories: on every core, and unmeasured."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.pool import Pool

import pytest


@pytest.fixture(name="workers", scope="package")
def fixture_workers() -> Iterator[Pool]:
    with pytest.MonkeyPatch.context() as patch:
        # What they run is covered by directed histories too, and measured they take three times as long.
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        workers = multiprocessing.get_context("spawn").Pool()
    with workers:
        yield workers
