"""What the tests of deployment files share."""

from __future__ import annotations

import pytest

from tests.kit.chart import Chart
from tests.support.programs import tool


@pytest.fixture(scope="session")
def chart() -> Chart:
    """The chart, and a Helm that renders it."""
    return Chart(tool("helm"))
