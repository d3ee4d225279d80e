"""Programs that check the files of `deploy/`, and what their tests share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.programs import IS_CI, SURROUNDINGS


def tool(name: str) -> Path:
    """Where a program is: named by a variable such as `SFN_COMPOSE_GO`, or on the path.

    Without it the test is skipped, but fails on a build server.
    """
    variable = f"SFN_{name.upper().replace('-', '_')}"
    path = SURROUNDINGS.get(variable) or shutil.which(name)
    if path and Path(path).exists():
        return Path(path)
    missing = f"{name} is not installed; name it by {variable}"
    if IS_CI:
        pytest.fail(missing)
    pytest.skip(missing)
