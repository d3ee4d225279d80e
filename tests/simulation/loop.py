"""An asyncio loop with a clock of its own: when nothing is ready, time jumps to the next timer.

No selector, no thread, no socket: one seed is one history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeVarTuple, Unpack, cast

from typing_extensions import override

Ts = TypeVarTuple("Ts")

_MOST_TURNS = 400_000
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Process(Protocol):
    """What can be stopped and killed as a whole: its timers wait for it."""

    @property
    def alive(self) -> bool: ...

    @property
    def stopped_until(self) -> float: ...


PROCESS: Final = ContextVar[Process]("PROCESS")
"""Whose timers are set, where that is not the world."""


class _Timer:
    """A timer of a process: it goes off once that one is awake."""

    def __init__(self, loop: SimulatedLoop, process: Process, callback: Callable[..., object]) -> None:
        self._loop, self._process, self._callback = loop, process, callback
        self.handle: asyncio.TimerHandle | None = None

    def __call__(self, *args: Any) -> None:
        if not self._process.alive or (self.handle is not None and self.handle.cancelled()):
            return
        if self._loop.time() < self._process.stopped_until:
            self._loop.call_outside(self._process.stopped_until - self._loop.time(), self, *args)
        else:
            self._callback(*args)


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order of their times, without ever waiting."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._turns = 0
        self._selector = self
        self._clock_resolution = 1e-9
        self._kept: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._keep)

    def _keep(self, _loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        """Hold on to every task: one that was killed must not be collected, which would run its clean-up."""
        task = asyncio.Task(work, loop=self, **options)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._kept.append(task)
        return task

    @override
    def time(self) -> float:
        return self._now

    @override
    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = PROCESS.get(None) if context is None else context.get(PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        timer = _Timer(self, process, callback)
        timer.handle = super().call_at(when, cast("Callable[[Unpack[Ts]], object]", timer), *args, context=context)
        return timer.handle

    def call_outside(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """As `call_later`, whatever becomes of the process that asks for it."""
        return self.call_later(delay, callback, *args, context=Context())

    def failed(self) -> list[BaseException]:
        """What tasks ended with that nobody awaited."""
        unheard = [task for task in self._kept if task.done() and task._log_traceback]
        return [error for task in unheard if (error := task.exception()) is not None]

    def now(self) -> datetime:
        """The simulated wall clock."""
        return EPOCH + timedelta(seconds=self._now)

    def select(self, timeout: float | None) -> list[Any]:
        """What a selector would do: here only time passes."""
        if timeout is None:
            message = "deadlock: every task waits and no timer is set"
            raise RuntimeError(message)
        self._turns += 1
        if self._turns > _MOST_TURNS:
            message = f"{_MOST_TURNS} turns of the loop by {self._now:.0f} s: something spins"
            raise RuntimeError(message)
        self._now += timeout
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
