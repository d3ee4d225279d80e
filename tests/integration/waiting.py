"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio


async def until(holds: Callable[[], object], within: float = 20.0) -> None:
    """Look again and again until something holds.

    Raises:
        TimeoutError: it did not within so many seconds.
    """
    with anyio.fail_after(within):
        while not holds():  # noqa: ASYNC110 - no event crosses processes
            await anyio.sleep(0.01)


def wait_for(holds: Callable[[], object], what: str, within: float, every: float) -> None:
    """As `until`, in a thread that has nothing else to do.

    Args:
        what: is waited for.
        within: seconds that there are for it.
        every: seconds from one look to the next.

    Raises:
        TimeoutError: it did not come about.
    """
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {what} within {within:g} s")
        time.sleep(every)
