"""What holds for every test."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings
from typing_extensions import override
from xdist.scheduler import LoadFileScheduling

pytest_plugins = ["tests.servers.fixtures"]

# Files of few tests that take long: one processor would be alone with them if they came last.
LONG = {"acceptance", "bench", "faults", "fuzz", "mutants", "scenarios", "simulation", "test_rck.py", "test_replay.py"}

SPARK = "tests/spark/"

# No example is too slow on a machine that does other things too.
settings.register_profile("ours", settings.default, deadline=None)
settings.register_profile("quick", settings.default, deadline=None, max_examples=15)  # for make check
settings.load_profile("ours")


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The loop of the product; Selenium brings another one, on which AnyIO would run each test as well."""
    loop: str = request.param
    return loop


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


class ByFile(LoadFileScheduling):  # type: ignore[misc] # it has no types
    """A process gets file after file, and one of them all of Spark's: each would start a Java, slow at first."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SPARK if file.startswith(SPARK) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, and leave the order random otherwise."""
    items.sort(key=lambda item: (not item.nodeid.startswith(SPARK), LONG.isdisjoint(item.path.parts)))
