"""Limits: size, duration and memory of request bodies (`BodyMemory`), the rate of a sender, and open files."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, TypeVar

from sfn.errors import Rejected

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


# ── One body

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""ASGI's `receive`."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits for one request body.

    Attributes:
        size: most bytes.
        deadline: most seconds until the last byte.
    """

    size: int
    deadline: float = 30.0


async def read_body(
    receive: Receive,
    declared: int | None,
    limits: BodyLimits,
    reservation: BodyReservation | None = None,
    arrived: bytes | None = None,
) -> bytes | None:
    """Return the whole body; None if the client disconnected.

    Args:
        receive: ASGI's `receive`.
        declared: `Content-Length`. It can only reject a body early: the bytes that arrive are counted.
        limits: limits for the body.
        reservation: memory for the body of an unidentified sender; None for an identified one.
        arrived: the whole body if the server has it, so that `receive` is not needed; else None.

    Raises:
        Rejected: 413 too large; nothing beyond the limit is stored. 408 too slow.
        BodyMemoryExhausted: no memory is left for the body.
    """
    if declared is not None and declared > limits.size:
        raise _too_large(limits.size, f"{declared} declared")
    if arrived is not None:
        if len(arrived) > limits.size:
            raise _too_large(limits.size, "more")
        if reservation is not None:
            reservation.add(len(arrived))
            reservation.complete()
        return arrived
    try:
        return await with_timeout(limits.deadline, _whole(receive, limits.size, reservation), reservation)
    except ClientTimeout:
        expected = f"the whole body within {limits.deadline:g} s"
        raise Rejected("#", status=408, expected=expected, found="a part of it") from None


async def _whole(receive: Receive, size: int, reservation: BodyReservation | None) -> bytes | None:
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
        if reservation is not None:
            reservation.add(len(part))
        parts.append(part)
        if not message.get("more_body", False):
            if reservation is not None:
                reservation.complete()
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(size: int, found: str) -> Rejected:
    return Rejected(
        "#", status=413, expected=f"at most {size} bytes", found=found, remedy="send fewer events in one request"
    )


# ── Requests of one sender

_MINUTE: Final = 60.0
_BURST_DIVISOR: Final = 10
"""The burst is the requests per minute, divided by this number."""


class RateLimit:
    """A token bucket: requests per minute, and a burst of a tenth of them.

    After an idle time, a minute has at most a tenth more requests than the limit. A burst of a whole minute's requests
    would allow twice the limit.

    Args:
        per_minute: the limit, at least 1.

    Attributes:
        per_minute: the limit, as given.
    """

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._interval = _MINUTE / per_minute
        self._burst = max(1.0, per_minute / _BURST_DIVISOR)
        self._left = self._burst
        self._updated_at: float | None = None

    @property
    def burst(self) -> int:
        """The most requests at once, after an idle time."""
        return int(self._burst)

    def seconds_to_wait(self, now: float) -> float | None:
        """Return the seconds until a request is allowed; None if this one is allowed, and count it.

        Args:
            now: seconds of a monotonic clock.
        """
        gained = 0.0 if self._updated_at is None else (now - self._updated_at) / self._interval
        self._left, self._updated_at = min(self._burst, self._left + gained), now
        if self._left < 1:
            return (1 - self._left) * self._interval
        self._left -= 1
        return None


# ── Open files

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
