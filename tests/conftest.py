"""What holds for every test."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later garbage collection.

    Looking through it stops the whole process for a fifth of a second, which tests would take for a stall of the code.
    """
    gc.collect()
    gc.freeze()
