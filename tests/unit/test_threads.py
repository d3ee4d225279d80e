"""Calls in threads: how many at a time, also where some never return."""

from __future__ import annotations

import threading
from collections.abc import Generator
from functools import partial

import anyio
import pytest

from sfn.concurrency import AbandonableThreads, IsAbandoned, TimedOut, unfinished_calls
from sfn.errors import ErrorScope

SHORT = 0.1
SOON = 5.0
"""Seconds: what would otherwise never come."""


class Hung:
    """A server that does not answer until it is let go."""

    def __init__(self) -> None:
        self._let_go = threading.Event()
        self.asked = 0

    def ask(self, _: IsAbandoned) -> bool:
        self.asked += 1
        return self._let_go.wait(2 * SOON)

    def let_go(self) -> None:
        self._let_go.set()


@pytest.fixture(name="hung")
def fixture_hung() -> Generator[Hung]:
    """Nothing waits for it after the test."""
    hung = Hung()
    yield hung
    hung.let_go()


async def give_up(threads: AbandonableThreads, hung: Hung, number: int = 1) -> None:
    """Ask so often at the same time, and give that up once all were begun."""
    goal = hung.asked + number
    async with anyio.create_task_group() as tasks:
        for _ in range(number):
            tasks.start_soon(partial(threads.run, "hang", hung.ask))
        with anyio.fail_after(SOON):
            while hung.asked < goal:  # noqa: ASYNC110 - no thread tells a test
                await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()


async def answer(threads: AbandonableThreads, within: float = SOON) -> str | TimedOut | None:
    """What another call gives; None where it is not begun."""
    with anyio.move_on_after(within):
        return await threads.run("ask", lambda _: "an answer")
    return None


async def test_a_call_that_takes_too_long_is_given_up(hung: Hung) -> None:
    threads = AbandonableThreads(1, SHORT)
    assert await threads.run("hang", hung.ask) == TimedOut(may_still_run=True)
    assert await threads.run("ask", hung.ask) == TimedOut(may_still_run=False)
    assert hung.asked == 1


async def test_a_call_that_never_returns_keeps_its_place(hung: Hung) -> None:
    threads = AbandonableThreads(1, SOON)
    await give_up(threads, hung)
    assert await answer(threads, SHORT) is None


async def test_calls_that_never_return_are_left_behind_while_there_are_spare_ones(hung: Hung) -> None:
    threads = AbandonableThreads(1, SOON, ErrorScope.CATALOG, max_abandoned=2)
    for _ in range(2):
        await give_up(threads, hung)
        assert await answer(threads) == "an answer"
    await give_up(threads, hung)
    assert await answer(threads, SHORT) is None


async def test_what_returns_after_all_may_be_left_behind_again(hung: Hung) -> None:
    threads = AbandonableThreads(2, SOON, max_abandoned=2)
    for _ in range(2):
        await give_up(threads, hung, 2)
    assert await answer(threads, SHORT) is None
    hung.let_go()
    assert unfinished_calls(SOON) == []
    # Their threads have told the loop, which heeds it now.
    await anyio.sleep(SHORT)
    again = Hung()
    try:
        await give_up(threads, again, 2)
        assert await answer(threads) == "an answer"
    finally:
        again.let_go()


@pytest.mark.parametrize(("only_looks", "calls"), [(False, ["hang"]), (True, [])])
async def test_only_what_may_still_change_something_is_told_of(hung: Hung, only_looks: bool, calls: list[str]) -> None:
    # What other tests let go.
    assert unfinished_calls(SOON) == []
    await give_up(AbandonableThreads(1, SOON, read_only=only_looks), hung)
    assert unfinished_calls(0) == calls


async def test_no_more_calls_run_at_a_time_than_may() -> None:
    threads = AbandonableThreads(2, SOON, ErrorScope.CATALOG, max_abandoned=5)
    running: list[int] = []
    numbers: list[int] = []
    pause = threading.Event()

    def call(_: IsAbandoned) -> None:
        running.append(1)
        numbers.append(len(running))
        pause.wait(0.02)
        running.pop()

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(partial(threads.run, "ask", call))
    assert max(numbers) == 2
