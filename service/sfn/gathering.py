"""Group commit without a task of its own: whoever comes while a transaction runs shares the next one.

Of those who wait the first one runs the next transaction for all. Once it has begun it is not given up when that one is
cancelled: the others wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Generic, TypeVar

import anyio

from sfn.errors import Permanent, SfnError

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
