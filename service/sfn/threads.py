"""Blocking calls in threads: none can be interrupted, and of a file system or a server that hangs none returns."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

import anyio
from anyio.lowlevel import checkpoint_if_cancelled
from typing_extensions import override

from sfn.errors import ErrorScope, Transient

T = TypeVar("T")

IsAbandoned: TypeAlias = Callable[[], bool]
"""Whether nobody waits for a call any more."""

_POLL_INTERVAL = 0.01


@dataclass(frozen=True, slots=True)
class TimedOut:
    """No answer came in time.

    Attributes:
        may_still_run: the call may still be carried out; otherwise it never is.
    """

    may_still_run: bool


class AbandonableThreads:
    """Runs blocking calls, so many at a time, and waits for each so long at most.

    A call that is given up keeps its place until it returns: of a file system that hangs so many threads hang, and not
    one more with each attempt. Where other calls would be answered all the same, as by a server that forgot one
    connection, some may be left behind without their places.

    Args:
        max_calls: calls at a time.
        timeout: seconds that a call may take, together with the wait for its place.
        scope: whose trouble it is that there is no thread; what is called.
        max_abandoned: calls at a time that are given up and do not keep their places.
        read_only: no call changes anything, so that one that hangs may be left behind when the process ends.
    """

    def __init__(
        self,
        max_calls: int,
        timeout: float,
        scope: ErrorScope = ErrorScope.STORE,
        max_abandoned: int = 0,
        *,
        read_only: bool = False,
    ) -> None:
        self._places = anyio.CapacityLimiter(max_calls)
        self._timeout, self._scope, self._max_abandoned = timeout, scope, max_abandoned
        self._read_only = read_only
        self._idle: list[_Thread] = []
        weakref.finalize(self, _stop_threads, self._idle)

    @property
    def is_busy(self) -> bool:
        """Whether one more call would have to wait for its place."""
        return self._places.available_tokens <= 0

    async def run(self, name: str, work: Callable[[IsAbandoned], T], *, shielded: bool = False) -> T | TimedOut:
        """The result of a call.

        Args:
            name: what it does to what, for `unfinished`.
            work: the call; it is told whether it was given up.
            shielded: a cancellation waits for it, as long as the limit lets it run.

        Raises:
            Transient: where the system has no thread left.
        """
        await checkpoint_if_cancelled()
        call, begun = _ThreadCall(name, work, self._free), False
        with anyio.move_on_after(self._timeout, shield=shielded):
            await self._places.acquire_on_behalf_of(call)
            self._thread(call).submit(call)
            begun = True
            try:
                return await call.answer
            finally:
                call.is_abandoned = True
                self._abandon(call)
        return TimedOut(begun)

    def _thread(self, call: _ThreadCall[Any]) -> _Thread:
        if self._idle:
            return self._idle.pop()
        thread = _Thread(self._scope, read_only=self._read_only)
        try:
            thread.start()
        except RuntimeError as error:
            self._places.release_on_behalf_of(call)
            remedy = "raise the limit of processes"
            raise Transient(
                call.name, scope=self._scope, expected="a free thread", found=str(error), remedy=remedy
            ) from error
        return thread

    def _abandon(self, call: _ThreadCall[Any]) -> None:
        """Give the place of a call that has not returned to another one."""
        if call.has_place and self._max_abandoned:
            self._max_abandoned -= 1
            self._release(call)

    def _free(self, call: _ThreadCall[Any], thread: _Thread) -> None:
        self._idle.append(thread)
        if call.has_place:
            self._release(call)
        else:
            self._max_abandoned += 1

    def _release(self, call: _ThreadCall[Any]) -> None:
        call.has_place = False
        self._places.release_on_behalf_of(call)


class _ThreadCall(Generic[T]):
    """One call, on its way to a thread and back.

    Attributes:
        name: what it does to what.
        loop: where it is waited for.
        answer: what is waited for.
        is_abandoned: nobody waits any more.
        has_place: it counts among the calls at a time.
    """

    def __init__(
        self, name: str, work: Callable[[IsAbandoned], T], free: Callable[[_ThreadCall[Any], _Thread], None]
    ) -> None:
        self.name, self.is_abandoned, self.has_place = name, False, True
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self.loop.create_future()
        self._work, self._free = work, free

    def execute(self) -> Callable[[], None]:
        """Make it, in a thread: how to tell what came of it."""
        try:
            return partial(self.answer.set_result, self._work(lambda: self.is_abandoned))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the call is waited for
            return partial(self.answer.set_exception, error)

    def on_returned(self, thread: _Thread, deliver: Callable[[], None]) -> None:
        """On the loop: the thread is free, and whoever waits is told."""
        self._free(self, thread)
        if not self.answer.done():
            deliver()


class _Thread(threading.Thread):
    """Makes calls. A daemon: a process that ends must not wait for what does not answer.

    Attributes:
        read_only: its calls change nothing.
        current_call: the name of the call that has not returned yet.
    """

    def __init__(self, scope: ErrorScope, *, read_only: bool) -> None:
        super().__init__(name=scope, daemon=True)
        self.read_only = read_only
        self.current_call: str | None = None
        self._calls: SimpleQueue[_ThreadCall[Any] | None] = SimpleQueue()

    def submit(self, call: _ThreadCall[Any] | None) -> None:
        """Make a call, or none any more."""
        self.current_call = None if call is None else call.name
        self._calls.put(call)

    @override
    def run(self) -> None:
        while (call := self._calls.get()) is not None:
            deliver = call.execute()
            self.current_call = None
            try:
                call.loop.call_soon_threadsafe(call.on_returned, self, deliver)
            except RuntimeError:
                return  # the loop is closed: nobody is left to be told
            # What it was for may end while it waits for the next one.
            del call, deliver


def unfinished_calls(timeout: float) -> list[str]:
    """The names of all calls of this process that do not return within so many seconds, and may change something
    later. Blocks.
    """
    give_up_at = time.monotonic() + timeout
    while True:
        threads = [thread for thread in threading.enumerate() if isinstance(thread, _Thread)]
        calls = sorted(one.current_call for one in threads if one.current_call is not None and not one.read_only)
        if not calls or time.monotonic() >= give_up_at:
            return calls
        time.sleep(_POLL_INTERVAL)


def _stop_threads(idle: list[_Thread]) -> None:
    for thread in idle:
        thread.submit(None)
