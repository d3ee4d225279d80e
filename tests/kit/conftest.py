"""Programs and services that the tests of deployment files need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.chart import Chart
from tests.kit.observed import PATIENCE, Exported, Observed, observed
from tests.kit.prometheus import Prometheus
from tests.support.processes import wait_for
from tests.support.programs import tool


@pytest.fixture(scope="session")
def chart() -> Chart:
    """The chart, and a Helm that renders it."""
    return Chart(tool("helm"))


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own program for checks of its files."""
    return tool("promtool")


@pytest.fixture(scope="session", name="observed")
def fixture_observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    """A service in which everything happens."""
    with observed(tmp_path_factory.mktemp("observed")) as service:
        service.send_requests()
        yield service


@pytest.fixture(scope="session")
def exported(observed: Observed) -> Exported:
    """What this service exports."""
    return Exported.parse(observed.metrics())


@pytest.fixture(scope="session")
def prometheus(observed: Observed) -> Iterator[Prometheus]:
    """A Prometheus that has scraped this service, before and after more requests."""
    with Prometheus(tool("prometheus"), observed.url.removeprefix("http://")) as server:
        wait_for(lambda: server.query('sfn_requests_refused_total{status="401"}'), "a scrape", PATIENCE, 0.1)
        observed.send_requests()
        refused = 'increase(sfn_requests_refused_total{status="401"}[1m]) > 0'
        wait_for(lambda: server.query(refused), "another scrape", PATIENCE, 0.1)
        yield server


@pytest.fixture
def until_filled(observed: Observed, prometheus: Prometheus) -> Callable[[str], None]:
    """A function that waits until a query has values.

    A rate has none if the last requests are older than its window: other tests may have run for minutes since.
    """

    def wait(query: str) -> None:
        if not prometheus.values(query):
            observed.send_requests()
            wait_for(lambda: prometheus.values(query), f"series of {query}", PATIENCE, 0.2)

    return wait
