"""The deadline of a body, which is no cancellation, and a cancellation, which is no deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import MutableMapping
from typing import Any

import anyio
import pytest

from sfn.errors import Rejected
from sfn.http.body import BodyLimits, read_body

SOON = 0.02


async def silence() -> MutableMapping[str, Any]:
    await anyio.sleep_forever()
    return {}


async def test_a_deadline_is_408_and_leaves_the_task_as_it_was() -> None:
    with pytest.raises(Rejected) as caught:
        await read_body(silence, None, BodyLimits(10, deadline=SOON))
    assert caught.value.status == 408
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await anyio.sleep(SOON)


async def test_a_body_in_time_is_not_cut_off_afterwards() -> None:
    async def whole() -> MutableMapping[str, Any]:
        await anyio.sleep(SOON / 10)
        return {"type": "http.request", "body": b"x"}

    assert await read_body(whole, 1, BodyLimits(10, deadline=SOON * 5)) == b"x"
    await anyio.sleep(SOON * 8)


async def test_a_cancellation_stays_one() -> None:
    with anyio.move_on_after(SOON) as scope:
        await read_body(silence, None, BodyLimits(10, deadline=60))
    assert scope.cancelled_caught


async def test_a_cancellation_wins_over_the_deadline() -> None:
    async def late() -> MutableMapping[str, Any]:
        # Both are due before the loop comes to run either.
        time.sleep(SOON * 3)  # noqa: ASYNC251
        return await silence()

    with anyio.CancelScope() as scope:
        asyncio.get_running_loop().call_later(SOON, scope.cancel)
        await read_body(late, None, BodyLimits(10, deadline=SOON))
    assert scope.cancelled_caught
