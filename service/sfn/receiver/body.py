"""Reads a request's body without trusting what was said about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sfn.errors import Rejected

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a body may cost.

    Attributes:
        size: most bytes.
        deadline: most seconds from the first look to the last byte.
    """

    size: int
    deadline: float = 30.0


async def read(receive: Receive, declared: int | None, limits: Limits) -> bytes | None:
    """The whole body, or None when the client went away.

    Args:
        receive: ASGI's.
        declared: `Content-Length`: enough to refuse a body at once, never to believe in one.
        limits: what it may cost.

    Raises:
        Rejected: 413 too large; nothing beyond the limit is kept. 408 too slow.
    """
    if declared is not None and declared > limits.size:
        raise _too_large(limits.size, f"{declared} declared")
    # asyncio.timeout does the same in five times the time: a tenth of all that a request takes.
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"  # noqa: S101 - for the type
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(limits.deadline, expire)
    try:
        return await _whole(receive, limits.size)
    except asyncio.CancelledError:
        if not expired or task.uncancel() > 0:
            raise
        expected = f"the whole body within {limits.deadline:g} s"
        raise Rejected("#", status=408, expected=expected, found="a part of it") from None
    finally:
        timer.cancel()


async def _whole(receive: Receive, size: int) -> bytes | None:
    parts: list[bytes] = []
    count = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part: bytes = message.get("body", b"")
        count += len(part)
        if count > size:
            raise _too_large(size, "more")
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(size: int, found: str) -> Rejected:
    return Rejected(
        "#", status=413, expected=f"at most {size} bytes", found=found, remedy="send fewer events in one request"
    )
