"""Programs and folders that the tests of deployment files need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.chart import Chart
from tests.support.programs import IS_CI, SURROUNDINGS, installed


def tool(name: str) -> Path:
    """Return a program, named by the variable `SFN_NAME`, or in `PATH`.

    Without the program the test is skipped; with CI=true it fails.
    """
    variable = f"SFN_{name.upper().replace('-', '_')}"
    path = SURROUNDINGS.get(variable) or installed(name)
    if path and Path(path).exists():
        return Path(path)
    missing = f"no {name}: set {variable}, or put the program into PATH"
    if IS_CI:
        pytest.fail(missing)
    pytest.skip(missing)


def folder(variable: str) -> Path:
    """Return the folder that a variable names.

    Without the folder the test is skipped; with CI=true it fails.
    """
    path = SURROUNDINGS.get(variable)
    if path and Path(path).is_dir():
        return Path(path)
    missing = f"{variable}: expected a folder, found {path}"
    if IS_CI:
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def chart() -> Chart:
    """The chart, and a Helm that renders it."""
    return Chart(tool("helm"))
