"""What holds for every test."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

pytest_plugins = ["tests.servers.fixtures"]

# Files of few tests that take long: one processor would be alone with them if they came last.
LONG = {"acceptance", "bench", "faults", "fuzz", "mutants", "rck", "replay", "scenarios", "simulation", "spark"}

# No example is too slow on a machine that does other things too.
settings.register_profile("ours", settings.default, deadline=None)
settings.load_profile("ours")


def pytest_configure() -> None:
    """Forget what a build server wishes for colours: a test reads what a command prints into a pipe."""
    for name in ("GITHUB_ACTIONS", "FORCE_COLOR", "PY_COLORS"):
        os.environ.pop(name, None)  # noqa: TID251 - the tests' own surroundings


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later garbage collection.

    Looking through it stops the whole process for a fifth of a second, which tests would take for a stall of the code.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, and leave the order random otherwise."""
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
