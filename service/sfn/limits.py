"""Limits of the process: memory for request bodies of unidentified clients (`BodyMemory`), and open files."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from typing import Final, Self, TypeVar

DEFAULT_LIMIT: Final = 32 << 20
"""Bytes for the bodies of all connections together."""
RETRY_AFTER: Final = 1
"""Seconds after which a client may send a body again that found no memory."""
EXHAUSTED_MESSAGE: Final = "no memory is left for bodies of unidentified clients; send the request again later"

_T = TypeVar("_T")


class BodyMemoryExhausted(Exception):
    """No memory for a body; or the body was the oldest incomplete one, and was evicted."""


class ClientTimeout(Exception):
    """A client that did not continue in time."""


class BodyMemory:
    """A limit, in bytes, for all request bodies in memory.

    Beyond the limit the oldest incomplete bodies are evicted, of those that hold any bytes. A client that sends its
    body at full speed soon has no older body behind it. A client that sends a byte now and then, to block others, is
    evicted first. If all evictions together would not be enough, only the body that needs the memory is evicted.

    Args:
        limit: bytes over all connections, at most.
        on_evicted: called for each evicted body.

    Attributes:
        limit: see Args.
        used: bytes in use.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT, on_evicted: Callable[[], None] | None = None) -> None:
        self.limit, self.used = limit, 0
        self._on_evicted = on_evicted
        self._incomplete: dict[BodyReservation, None] = {}

    def reserve(self) -> BodyReservation:
        """Return the reservation of one request, a context manager that releases it in the end."""
        return BodyReservation(self)

    def _began(self, body: BodyReservation) -> None:
        self._incomplete[body] = None

    def _ended(self, body: BodyReservation) -> None:
        self._incomplete.pop(body, None)

    def _add(self, body: BodyReservation, size: int) -> None:
        self.used += size
        if self.used <= self.limit:
            return
        holding = [one for one in self._incomplete if one.size]
        if self.used - sum(one.size for one in holding if one is not body) > self.limit:
            holding = [body]
        for oldest in holding:
            self._ended(oldest)
            oldest._evict()  # noqa: SLF001 - the two are one
            if self._on_evicted is not None:
                self._on_evicted()
            if self.used <= self.limit:
                return


class BodyReservation:
    """The share of one request's body in a `BodyMemory`.

    Attributes:
        size: bytes in use.
        is_evicted: True once the body made room for others, and holds nothing any more.
    """

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.size = 0
        self.is_evicted = False
        self._end: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        self._memory._began(self)  # noqa: SLF001 - the two are one
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def add(self, size: int) -> None:
        """Reserve more bytes.

        Raises:
            BodyMemoryExhausted: there is no memory, or the body was evicted before.
        """
        if not self.is_evicted:
            self.size += size
            self._memory._add(self, size)  # noqa: SLF001 - the two are one
        if self.is_evicted:
            raise BodyMemoryExhausted

    def complete(self) -> None:
        """Mark the body as complete, so that it is not evicted any more."""
        self._memory._ended(self)  # noqa: SLF001 - the two are one

    def release(self) -> None:
        """Release all bytes."""
        self.complete()
        self._memory.used -= self.size
        self.size = 0

    def _evict(self) -> None:
        self.is_evicted = True
        self.release()
        if self._end is not None:
            self._end()


async def with_timeout(seconds: float, step: Awaitable[_T], reservation: BodyReservation | None = None) -> _T:
    """Return the result of a step that waits for a client.

    asyncio.timeout does the same in five times the time, which is a tenth of a whole request.

    Args:
        seconds: time limit.
        step: the step.
        reservation: the memory of the body that the step receives; None if it is not limited.

    Raises:
        ClientTimeout: the step took longer.
        BodyMemoryExhausted: the body was evicted meanwhile.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"  # noqa: S101 - for the type
    is_ended = False

    def end() -> None:
        nonlocal is_ended
        if not is_ended and task is not asyncio.current_task():
            is_ended = True
            task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, end)
    if reservation is not None:
        reservation._end = end  # noqa: SLF001 - the two are one
    try:
        return await step
    except asyncio.CancelledError:
        if not is_ended or task.uncancel() > 0:
            raise
        raise (BodyMemoryExhausted if reservation is not None and reservation.is_evicted else ClientTimeout) from None
    finally:
        timer.cancel()
        if reservation is not None:
            reservation._end = None  # noqa: SLF001 - the two are one


MAX_RAISED_LIMIT: Final = 65_536
"""Highest limit that is set: some programs iterate over all numbers up to the limit."""
LOW_LIMIT: Final = 1024
"""A busy service may run out of files below this limit."""
MIN_CONNECTIONS: Final = 8
"""Connections that a listener accepts in any case."""


def limit() -> int:
    """Return how many files this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_RAISED_LIMIT if soft == resource.RLIM_INFINITY else soft


def hard_limit() -> int:
    """Return the highest limit that the process may set for itself, up to `MAX_RAISED_LIMIT`."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return MAX_RAISED_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MAX_RAISED_LIMIT)


def raise_limit() -> int:
    """Raise the soft limit to the hard one, up to `MAX_RAISED_LIMIT`. Never lower it.

    Returns:
        The new limit.
    """
    wanted = hard_limit()
    if limit() < wanted:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            # Some systems refuse even values below the hard limit.
            return limit()
    return limit()


def connections_per_listener(listeners: int) -> int:
    """Return how many connections each listener accepts; half of all files are left for other work."""
    return max(MIN_CONNECTIONS, limit() // 2 // max(1, listeners))
