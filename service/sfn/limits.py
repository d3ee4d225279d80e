"""A limit for the memory of request bodies from unidentified clients, over all connections."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from typing import Final, Self, TypeVar

# ── body_memory: A limit for the memory of request bodies from unidentified clients

DEFAULT_LIMIT: Final = 32 << 20
"""Bytes."""
RETRY_AFTER: Final = 1
"""Seconds after which a client whose body found no room may send it again."""
EXHAUSTED_MESSAGE: Final = "no memory is left for bodies of unidentified clients; send the request again later"

_T = TypeVar("_T")


class BodyMemoryExhausted(Exception):
    """There is no memory for a body; or the body took longest of all that were incomplete, and made room for others."""


class ClientTimeout(Exception):
    """The client did not go on in time."""


class BodyMemory:
    """A limit, in bytes, for all bodies that are held.

    Over it the oldest body that is still incomplete is given up, of those that hold anything. A client that sends its
    body as fast as it can has no older one behind it; one that sends a byte now and then, to have others find no room,
    is the first to go. Where all of those together would not make room enough, the body that needs it goes alone.

    Args:
        limit: most bytes, over all connections.
        on_evicted: called for each body that is given up.

    Attributes:
        limit: as it was given.
        used: bytes that are held now.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT, on_evicted: Callable[[], None] | None = None) -> None:
        self.limit, self.used = limit, 0
        self._on_evicted = on_evicted
        self._incomplete: dict[BodyReservation, None] = {}

    def reserve(self) -> BodyReservation:
        """The share of one request, which is released in the end: to be used with `with`."""
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
    """What one request's body takes of a `BodyMemory`.

    Attributes:
        size: bytes that are held.
        is_evicted: it made room for others, and holds nothing any more.
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
        """Count more bytes as held.

        Raises:
            NoRoom: they may not be, or those before may not be any more.
        """
        if not self.is_evicted:
            self.size += size
            self._memory._add(self, size)  # noqa: SLF001 - the two are one
        if self.is_evicted:
            raise BodyMemoryExhausted

    def complete(self) -> None:
        """All of the body is here: it makes room for no other one."""
        self._memory._ended(self)  # noqa: SLF001 - the two are one

    def release(self) -> None:
        """Nothing is held any more."""
        self.complete()
        self._memory.used -= self.size
        self.size = 0

    def _evict(self) -> None:
        self.is_evicted = True
        self.release()
        if self._end is not None:
            self._end()


async def with_timeout(seconds: float, step: Awaitable[_T], reservation: BodyReservation | None = None) -> _T:
    """What comes of a step that waits for a client.

    asyncio.timeout does the same in five times the time: a tenth of all that a request takes.

    Args:
        seconds: most of them.
        step: what is waited for.
        reservation: the memory of the body that comes by it; None where that is not bounded.

    Raises:
        Late: it took longer.
        NoRoom: the body was given up meanwhile.
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


# ── descriptors: This process's limit of open files

MAX_RAISED_LIMIT: Final = 65_536
"""The limit is not raised beyond it: some programs go over every number up to the limit."""
LOW_LIMIT: Final = 1024
"""Below this limit a busy service may run short."""
MIN_CONNECTIONS: Final = 8
"""Connections that a listener takes in any case."""


def limit() -> int:
    """How many files this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_RAISED_LIMIT if soft == resource.RLIM_INFINITY else soft


def hard_limit() -> int:
    """What the process may raise its limit to by itself, up to `MAX_RAISED_LIMIT`."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return MAX_RAISED_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MAX_RAISED_LIMIT)


def raise_limit() -> int:
    """Raise the soft limit to the hard one, up to `MAX_RAISED_LIMIT`. Never lower it.

    Returns:
        The limit from now on.
    """
    wanted = hard_limit()
    if limit() < wanted:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            # Some systems have a lower bound of their own.
            return limit()
    return limit()


def connections_per_listener(listeners: int) -> int:
    """Return how many connections each listener accepts; half of all files stay for work."""
    return max(MIN_CONNECTIONS, limit() // 2 // max(1, listeners))
