"""Blocking calls on threads, group commit, and files that are reloaded when they change.

A blocking call cannot be interrupted. If a file system or server hangs, the call never returns, so its thread must be
expendable: see `AbandonableThreads`.
"""

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

T = TypeVar("T")

IsAbandoned: TypeAlias = Callable[[], bool]
"""Returns True if no caller waits for the call any more."""

_POLL_INTERVAL = 0.01


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The answer for a call that took too long.

    Attributes:
        may_still_run: True if the call may still be executed; otherwise it never is.
    """

    may_still_run: bool


class AbandonableThreads:
    """Threads for blocking calls, with a limit on concurrent calls and on the time that each may take.

    An abandoned call keeps its slot until it returns. So a hanging file system holds at most `max_calls` threads, and
    not one more with each attempt. Some calls may be abandoned without their slots where other calls would still be
    answered, for example by a server that forgot one connection.

    Args:
        max_calls: concurrent calls.
        timeout: seconds that a call may take, including the wait for its slot.
        scope: scope of the error if there is no thread; the name of the threads.
        max_abandoned: concurrent calls that may be abandoned without their slots.
        read_only: True if no call changes anything, so that a hanging one may be abandoned when the process ends.
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
        """True if one more call would have to wait for its slot."""
        return self._places.available_tokens <= 0

    async def run(self, name: str, work: Callable[[IsAbandoned], T], *, shielded: bool = False) -> T | TimedOut:
        """Run a call on a thread and return its result.

        Args:
            name: the operation and its object, for messages and `unfinished_calls`.
            work: the call; its argument returns True once the call is abandoned.
            shielded: a cancellation waits for the call, within the time limit.

        Raises:
            Transient: the system has no thread left.
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
        """Free the slot of a call that has not returned."""
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
        name: the operation and its object.
        loop: the loop on which the caller waits.
        answer: the future for which the caller waits.
        is_abandoned: True once the caller has gone.
        has_place: True while the call holds a slot.
    """

    def __init__(
        self, name: str, work: Callable[[IsAbandoned], T], free: Callable[[_ThreadCall[Any], _Thread], None]
    ) -> None:
        self.name, self.is_abandoned, self.has_place = name, False, True
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self.loop.create_future()
        self._work, self._free = work, free

    def execute(self) -> Callable[[], None]:
        """Make the call on the thread, and return the function that delivers its outcome."""
        try:
            return partial(self.answer.set_result, self._work(lambda: self.is_abandoned))
        except BaseException as error:  # noqa: BLE001 - raised again for the caller
            return partial(self.answer.set_exception, error)

    def on_returned(self, thread: _Thread, deliver: Callable[[], None]) -> None:
        """Free the thread and deliver the outcome; runs on the loop."""
        self._free(self, thread)
        if not self.answer.done():
            deliver()


class _Thread(threading.Thread):
    """A thread that makes calls. It is a daemon, because the end of the process must not wait for a hanging call.

    Attributes:
        read_only: True if its calls change nothing.
        current_call: the name of the call that has not returned yet.
    """

    def __init__(self, scope: ErrorScope, *, read_only: bool) -> None:
        super().__init__(name=scope, daemon=True)
        self.read_only = read_only
        self.current_call: str | None = None
        self._calls: SimpleQueue[_ThreadCall[Any] | None] = SimpleQueue()

    def submit(self, call: _ThreadCall[Any] | None) -> None:
        """Make a call; None ends the thread."""
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
                return  # the loop is closed, so no caller waits
            # Drop the references: the call's objects may be released while the thread waits for the next one.
            del call, deliver


def unfinished_calls(timeout: float) -> list[str]:
    """Wait up to `timeout` seconds, and return the names of all calls that still run and may change something. Blocks.

    The calls of all `AbandonableThreads` of the process count, except those that are read-only.
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


Q = TypeVar("Q")
R = TypeVar("R")


class _BatchCall(Generic[Q, R]):
    """A waiting call."""

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
        # A copy, because one error raised in several tasks would collect all their tracebacks.
        self._error, self.is_answered = copy(error), True

    def result(self) -> R:
        if self._error is not None:
            raise self._error
        return self._answer[0]


class Batcher(Generic[Q, R]):
    """Combines concurrent calls into transactions, one after the other, without a task of its own.

    Args:
        run: answers all questions of a batch in one transaction, or none.
        on_answered: called with the answers once their callers have them; only one of the callers waits for it.
        weight: returns the weight of a question.
        max_weight: weight of one batch, at most; a single question may exceed it.
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
        """Return the answer. A call that is cancelled before its transaction begins has no effect."""
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
        """Wait until the call is answered, or is the first in the queue and no call leads."""
        try:
            await call.woken.wait()
        except BaseException:
            if call in self._waiting:
                self._waiting.remove(call)
                if call.woken.is_set():
                    self._pass_on()
            raise

    async def _lead(self) -> None:
        """Run one transaction for the waiting calls."""
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
        """Answer calls. If a batch fails because of one call, repeat each call alone."""
        try:
            answers = await self._run([call.question for call in calls])
        except Exception as error:  # noqa: BLE001 - each caller gets the error, whatever it is
            if len(calls) > 1 and (isinstance(error, Permanent) or not isinstance(error, SfnError)):
                return [answer for call in calls for answer in await self._run_batch([call])]
            for call in calls:
                call.fail(error)
            return []
        for call, answer in zip(calls, answers, strict=True):
            call.succeed(answer)
        return answers


CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks of a file."""

FileIdentity: TypeAlias = tuple[int, ...]

_log = structlog.stdlib.get_logger(__name__)


async def run_all(calls: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Run calls at the same time, each to its end.

    Raises:
        Exception: the error of the first one, in their order, that failed.
    """
    errors: dict[int, Exception] = {}

    async def run(number: int) -> None:
        try:
            await calls[number]()
        except Exception as error:  # noqa: BLE001 - raised below, without a group around it
            errors[number] = error

    if len(calls) <= 1:
        for call in calls:
            await call()
        return
    async with anyio.create_task_group() as tasks:
        for number in range(1, len(calls)):
            tasks.start_soon(run, number)
        # The caller's own task makes the first call: a task more takes longer than most calls.
        await run(0)
    if errors:
        raise errors[min(errors)]


class WatchedFiles(Generic[T]):
    """A value made from files, which is made again when one of the files changes. `watch` runs for ever.

    If the files are unreadable or invalid, the old value stays in force. The failure is logged as an error, once per
    cause, and the new files are tried at each check until they are valid.

    Args:
        what: what the files hold, in the plural, for the log.
        files: all files that `make` reads.
        make: reads the files; raises SfnError if they are invalid.

    Raises:
        SfnError: the files are invalid at the start, when there is no old value.
    """

    interval: ClassVar[float] = CHECK_INTERVAL
    """Seconds between two checks."""
    timeout: ClassVar[float] = 10.0
    """Seconds after which a file system without an answer is logged."""

    def __init__(self, what: str, files: Sequence[Path], make: Callable[[], T]) -> None:
        self._what, self._files, self._make = what, tuple(files), make
        self._logged_error = ""
        self._seen = self._identities()
        self._made = make()

    @property
    def current(self) -> T:
        """The latest value; the files are not checked."""
        return self._made

    async def watch(self) -> NoReturn:
        """Check the files again and again on a thread, so that a hanging mount delays no user of the value."""
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
        """Make the value again if a file changed. Blocks for as long as the file system does.

        Args:
            force: reload in any case: some file systems have coarse timestamps, and a new file may have the old size.
        """
        try:
            # Read before the content: a change in between is then seen at the next check.
            seen = self._identities()
            if force or seen != self._seen:
                self._made = self._make()
        except SfnError as error:
            self.log_reload_failure(str(error))
            return
        self._logged_error = ""
        if seen != self._seen:
            self._seen = seen
            _log.info(f"{self._what} reloaded", files=self._names())

    def log_reload_failure(self, error: str) -> None:
        """Log why the old value stays in force, once per cause."""
        if error != self._logged_error:
            self._logged_error = error
            _log.error(f"{self._what} not reloaded", files=self._names(), error=error)

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
    """Describe a file system that does not answer."""
    return f"no answer of the file system within {seconds:g} s"


def unreadable_file_error(file: Path, error: OSError, remedy: str = "put the file there") -> FatalError:
    """Return the error of a file that cannot be read."""
    found = error.strerror or type(error).__name__
    remedy = f"{remedy}, readable for the service's user; or correct the path"
    return FatalError(str(file), expected="a readable file", found=found, remedy=remedy)
