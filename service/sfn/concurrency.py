"""Blocking calls in threads: none can be interrupted, and of a file system or a server that hangs none returns."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, Final, Generic, NoReturn, TypeAlias, TypeVar

import anyio
import structlog
from anyio.lowlevel import checkpoint_if_cancelled
from typing_extensions import override

from sfn.errors import ErrorScope, FatalError, Permanent, SfnError, Transient

# ── threads: Blocking calls in threads

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


# ── gathering: Group commit without a task of its own

Q = TypeVar("Q")
R = TypeVar("R")


class _BatchCall(Generic[Q, R]):
    """One who waits."""

    __slots__ = ("_answer", "_error", "is_answered", "question", "woken")

    def __init__(self, question: Q) -> None:
        self.question = question
        self.woken = anyio.Event()
        self.is_answered = False
        self._answer: list[R] = []
        self._error: Exception | None = None

    def succeed(self, answer: R) -> None:
        self._answer, self.is_answered = [answer], True

    def fail(self, error: Exception) -> None:
        # One error that is raised in several tasks would gather all their tracebacks.
        self._error, self.is_answered = copy(error), True

    def result(self) -> R:
        if self._error is not None:
            raise self._error
        return self._answer[0]


class Batcher(Generic[Q, R]):
    """Answers calls of one kind, many at once, one transaction after the other.

    Args:
        run: answers all of these questions in one transaction, or none.
        on_answered: if any, told of answers once those who asked have them; waited for by one of them alone.
        weight: of a question.
        max_weight: weight of the questions of one transaction, unless it is one question.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Q]], Awaitable[Sequence[R]]],
        on_answered: Callable[[Sequence[R]], Awaitable[None]] | None = None,
        *,
        weight: Callable[[Q], int],
        max_weight: int,
    ) -> None:
        self._run, self._on_answered, self._weight, self._max_weight = run, on_answered, weight, max_weight
        self._waiting: deque[_BatchCall[Q, R]] = deque()
        self._has_leader = False

    async def __call__(self, question: Q) -> R:
        """The answer. Who is cancelled before its transaction began has asked nothing."""
        call = _BatchCall[Q, R](question)
        self._waiting.append(call)
        if self._has_leader:
            await self._wait_for_turn(call)
        if not call.is_answered:
            self._has_leader = True
            with anyio.CancelScope(shield=True):
                await self._lead()
        return call.result()

    async def _wait_for_turn(self, call: _BatchCall[Q, R]) -> None:
        """Wait until it is answered, or is the first of those that wait while nobody leads."""
        try:
            await call.woken.wait()
        except BaseException:
            if call in self._waiting:
                self._waiting.remove(call)
                if call.woken.is_set():
                    self._pass_on()
            raise

    async def _lead(self) -> None:
        """One transaction for those who wait."""
        calls = self._take_batch()
        answers: list[R] = []
        try:
            answers += await self._run_batch(calls)
        finally:
            for call in calls:
                call.woken.set()
            self._pass_on()
        if answers and self._on_answered is not None:
            await self._on_answered(answers)

    def _take_batch(self) -> list[_BatchCall[Q, R]]:
        calls = [self._waiting.popleft()]
        weight = self._weight(calls[0].question)
        while self._waiting and weight + self._weight(self._waiting[0].question) <= self._max_weight:
            calls.append(self._waiting.popleft())
            weight += self._weight(calls[-1].question)
        return calls

    def _pass_on(self) -> None:
        self._has_leader = bool(self._waiting)
        if self._waiting:
            self._waiting[0].woken.set()

    async def _run_batch(self, calls: Sequence[_BatchCall[Q, R]]) -> Sequence[R]:
        """Answer calls; one that can't be answered has failed alone."""
        try:
            answers = await self._run([call.question for call in calls])
        except Exception as error:  # noqa: BLE001 - whatever it is, each caller is to hear of it
            if len(calls) > 1 and (isinstance(error, Permanent) or not isinstance(error, SfnError)):
                return [answer for call in calls for answer in await self._run_batch([call])]
            for call in calls:
                call.fail(error)
            return []
        for call, answer in zip(calls, answers, strict=True):
            call.succeed(answer)
        return answers


# ── watched: Files that somebody else renews while the process runs

CHECK_INTERVAL: Final = 1.0
"""Seconds from one look at a file to the next."""

FileIdentity: TypeAlias = tuple[int, ...]

_log = structlog.stdlib.get_logger(__name__)


class WatchedFiles(Generic[T]):
    """What was made of some files, made anew when one of them changed, by whoever looks: `watch` for ever.

    Files that can't be read or make no sense leave what was made of the old ones in force. That is logged as an error,
    once for each thing that is wrong, and the new ones are tried at each look until they do.

    Args:
        what: what is made of them, in the plural, for the log.
        files: all that `make` reads.
        make: reads them; raises SfnError for what makes no sense.

    Raises:
        SfnError: they make no sense now, when nothing old is in force.
    """

    interval: ClassVar[float] = CHECK_INTERVAL
    """Seconds from one look to the next."""
    timeout: ClassVar[float] = 10.0
    """Seconds after which a file system that does not answer is told of."""

    def __init__(self, what: str, files: Sequence[Path], make: Callable[[], T]) -> None:
        self._what, self._files, self._make = what, tuple(files), make
        self._logged_error = ""
        self._seen = self._identities()
        self._made = make()

    @property
    def current(self) -> T:
        """What was made last; nothing is looked at."""
        return self._made

    async def watch(self) -> NoReturn:
        """Look at the files again and again, in a thread: a mount that hangs holds up nobody who asks for them."""
        threads = AbandonableThreads(1, self.timeout, read_only=True)
        name = f"read {' and '.join(self._names())}"
        while True:
            await anyio.sleep(self.interval)
            try:
                result = await threads.run(name, lambda _: self.reload_if_changed())
            except Transient as error:
                self.log_reload_failure(str(error))
            else:
                if isinstance(result, TimedOut):
                    self.log_reload_failure(describe_timeout(self.timeout))

    def reload_if_changed(self, *, force: bool = False) -> None:
        """Make it anew if a file changed. Blocks for as long as the file system does.

        Args:
            force: in any case: the clock of some file systems is coarse, and a file of the same size may be another.
        """
        try:
            # Before reading: what changes in between is seen as a change next time.
            seen = self._identities()
            if force or seen != self._seen:
                self._made = self._make()
        except SfnError as error:
            self.log_reload_failure(str(error))
            return
        self._logged_error = ""
        if seen != self._seen:
            self._seen = seen
            _log.info(f"{self._what} read", files=self._names())

    def log_reload_failure(self, error: str) -> None:
        """Log why the old ones stay in force, once as long as it is the same."""
        if error != self._logged_error:
            self._logged_error = error
            _log.error(f"{self._what} kept", files=self._names(), error=error)

    def _identities(self) -> tuple[FileIdentity, ...]:
        return tuple(_identity(file) for file in self._files)

    def _names(self) -> list[str]:
        return [str(file) for file in self._files]


def _identity(file: Path) -> FileIdentity:
    try:
        status = file.stat()
    except OSError as error:
        raise unreadable_file_error(file, error) from error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def describe_timeout(seconds: float) -> str:
    """What was found of a file system that does not answer."""
    return f"no answer of the file system within {seconds:g} s"


def unreadable_file_error(file: Path, error: OSError) -> FatalError:
    """A file that can't be read."""
    return FatalError(str(file), expected="a file that can be read", found=error.strerror or type(error).__name__)
