"""Where the tools are that tests of deployment files run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import IS_CI, SURROUNDINGS

ROOT = Path(__file__).parents[2]
OWN = ROOT / "build" / "docs-venv" / "bin"
"""Where `make docs` installs the generator of the site."""


@pytest.fixture(name="tool", scope="session")
def fixture_tool() -> Callable[[str], Path]:
    """Return a function that finds a tool by `SFN_NAME`, or on the path; a test without its tool is skipped."""

    def tool(name: str) -> Path:
        variable = f"SFN_{name.upper().replace('-', '_')}"
        found = SURROUNDINGS.get(variable) or shutil.which(name, path=f"{SURROUNDINGS.get('PATH', os.defpath)}:{OWN}")
        if found and Path(found).exists():
            return Path(found)
        missing = f"{name}: expected it on the path, or its path in {variable}; found {found}"
        if IS_CI:
            pytest.fail(missing)
        pytest.skip(missing)

    return tool
