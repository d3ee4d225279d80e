"""What holds for every test."""

from __future__ import annotations

import gc
import os


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
