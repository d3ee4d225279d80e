"""The programs that check deployment files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import IS_CI, SURROUNDINGS, installed


def tool(name: str) -> Path:
    """Return a program: from the variable `SFN_NAME`, else from `PATH`. Without it skip the test; with CI=true fail."""
    variable = f"SFN_{name.upper().replace('-', '_')}"
    path = SURROUNDINGS.get(variable) or installed(name)
    if path and Path(path).exists():
        return Path(path)
    missing = f"no {name}: set {variable}, or put the program into PATH"
    if IS_CI:
        pytest.fail(missing)
    pytest.skip(missing)
