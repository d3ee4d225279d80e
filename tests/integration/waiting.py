"""Waiting for what another process does."""

from __future__ import annotations

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
