"""What runs a real catalog, for tests that need one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sfn.demo.environment import ServerRuntime, find_runtime
from sfn.errors import SfnError

TOLD = {name: Path(os.environ[name]) for name in ("SFN_JAVA", "SFN_JARS", "XDG_CACHE_HOME") if os.environ.get(name)}  # noqa: TID251 - the test run's own surroundings
IS_CI = os.environ.get("CI") == "true"  # noqa: TID251 - as above


def runtime() -> ServerRuntime:
    """What `make jars` fetched; without it the test is skipped, but fails on a build server."""
    try:
        return find_runtime(java=TOLD.get("SFN_JAVA"), jars=TOLD.get("SFN_JARS"), cache=TOLD.get("XDG_CACHE_HOME"))
    except SfnError as error:
        if IS_CI:
            raise
        pytest.skip(f"no real REST catalog: {error}")
