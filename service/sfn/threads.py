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

from sfn.errors import Scope, Transient

T = TypeVar("T")

GivenUp: TypeAlias = Callable[[], bool]
"""Whether nobody waits for a call any more."""

_LOOK_AGAIN = 0.01


@dataclass(frozen=True, slots=True)
class Late:
    """No answer came in time.

    Attributes:
        begun: the call may still be carried out; otherwise it never is.
    """

    begun: bool


class Threads:
    """Runs blocking calls, so many at a time, and waits for each so long at most.

    A call that is given up keeps its place until it returns: of a file system that hangs so many threads hang, and not
    one more with each attempt. Where other calls would be answered all the same, as by a server that forgot one
    connection, some may be left behind without their places.

    Args:
        most: calls at a time.
        limit: seconds that a call may take, together with the wait for its place.
        scope: whose trouble it is that there is no thread; what is called.
        spare: calls at a time that are given up and do not keep their places.
        only_looks: no call changes anything, so that one that hangs may be left behind when the process ends.
    """

    def __init__(
        self, most: int, limit: float, scope: Scope = Scope.STORE, spare: int = 0, *, only_looks: bool = False
    ) -> None:
        self._places = anyio.CapacityLimiter(most)
        self._limit, self._scope, self._spare = limit, scope, spare
        self._only_looks = only_looks
        self._idle: list[_Thread] = []
        weakref.finalize(self, _dismiss, self._idle)

    @property
    def busy(self) -> bool:
        """Whether one more call would have to wait for its place."""
        return self._places.available_tokens <= 0

    async def run(self, name: str, work: Callable[[GivenUp], T], *, shielded: bool = False) -> T | Late:
        """The result of a call.

        Args:
            name: what it does to what, for `unfinished`.
            work: the call; it is told whether it was given up.
            shielded: a cancellation waits for it, as long as the limit lets it run.

        Raises:
            Transient: where the system has no thread left.
        """
        await checkpoint_if_cancelled()
        call, begun = _Call(name, work, self._free), False
        with anyio.move_on_after(self._limit, shield=shielded):
            await self._places.acquire_on_behalf_of(call)
            self._thread(call).take(call)
            begun = True
            try:
                return await call.answer
            finally:
                call.given_up = True
                self._leave_behind(call)
        return Late(begun)

    def _thread(self, call: _Call[Any]) -> _Thread:
        if self._idle:
            return self._idle.pop()
        thread = _Thread(self._scope, only_looks=self._only_looks)
        try:
            thread.start()
        except RuntimeError as error:
            self._places.release_on_behalf_of(call)
            remedy = "raise the limit of processes"
            raise Transient(
                call.name, scope=self._scope, expected="a free thread", found=str(error), remedy=remedy
            ) from error
        return thread

    def _leave_behind(self, call: _Call[Any]) -> None:
        """Give the place of a call that has not returned to another one."""
        if call.has_place and self._spare:
            self._spare -= 1
            self._release(call)

    def _free(self, call: _Call[Any], thread: _Thread) -> None:
        self._idle.append(thread)
        if call.has_place:
            self._release(call)
        else:
            self._spare += 1

    def _release(self, call: _Call[Any]) -> None:
        call.has_place = False
        self._places.release_on_behalf_of(call)


class _Call(Generic[T]):
    """One call, on its way to a thread and back.

    Attributes:
        name: what it does to what.
        loop: where it is waited for.
        answer: what is waited for.
        given_up: nobody waits any more.
        has_place: it counts among the calls at a time.
    """

    def __init__(self, name: str, work: Callable[[GivenUp], T], free: Callable[[_Call[Any], _Thread], None]) -> None:
        self.name, self.given_up, self.has_place = name, False, True
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self.loop.create_future()
        self._work, self._free = work, free

    def made(self) -> Callable[[], None]:
        """Make it, in a thread: how to tell what came of it."""
        try:
            return partial(self.answer.set_result, self._work(lambda: self.given_up))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the call is waited for
            return partial(self.answer.set_exception, error)

    def returned(self, thread: _Thread, tell: Callable[[], None]) -> None:
        """On the loop: the thread is free, and whoever waits is told."""
        self._free(self, thread)
        if not self.answer.done():
            tell()


class _Thread(threading.Thread):
    """Makes calls. A daemon: a process that ends must not wait for what does not answer.

    Attributes:
        only_looks: its calls change nothing.
        doing: the name of the call that has not returned yet.
    """

    def __init__(self, scope: Scope, *, only_looks: bool) -> None:
        super().__init__(name=scope, daemon=True)
        self.only_looks = only_looks
        self.doing: str | None = None
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()

    def take(self, call: _Call[Any] | None) -> None:
        """Make a call, or none any more."""
        self.doing = None if call is None else call.name
        self._calls.put(call)

    @override
    def run(self) -> None:
        while (call := self._calls.get()) is not None:
            tell = call.made()
            self.doing = None
            try:
                call.loop.call_soon_threadsafe(call.returned, self, tell)
            except RuntimeError:
                return  # the loop is closed: nobody is left to be told
            # What it was for may end while it waits for the next one.
            del call, tell


def unfinished(within: float) -> list[str]:
    """The names of all calls of this process that do not return within so many seconds, and may change something
    later. Blocks.
    """
    give_up_at = time.monotonic() + within
    while True:
        threads = [thread for thread in threading.enumerate() if isinstance(thread, _Thread)]
        calls = sorted(one.doing for one in threads if one.doing is not None and not one.only_looks)
        if not calls or time.monotonic() >= give_up_at:
            return calls
        time.sleep(_LOOK_AGAIN)


def _dismiss(idle: list[_Thread]) -> None:
    for thread in idle:
        thread.take(None)
