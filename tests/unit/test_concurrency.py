"""Group commit, threads and watched files."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.concurrency import AbandonableThreads, Batcher, IsAbandoned, TimedOut, WatchedFiles, unfinished_calls
from sfn.errors import ErrorScope, Permanent, Transient
from sfn.http.secrets import PartyTokens, WatchedTokenFile
from sfn.http.senders import Keyring
from tests.support.processes import until
from tests.support.table_directory import replaced


@dataclass
class Desk:
    """Answers questions by their doubles, so many at once as there are when it is free.

    Attributes:
        asked: what was asked together.
        told: answers that were told of afterwards.
        opened: until then nobody is answered.
    """

    asked: list[list[int]] = field(default_factory=list)
    told: list[list[int]] = field(default_factory=list)
    opened: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, questions: Sequence[int]) -> list[int]:
        self.asked.append(list(questions))
        await self.opened.wait()
        if any(question < 0 for question in questions):
            raise Permanent("desk", scope=ErrorScope.INBOX, expected="a number that is not negative", found="one")
        if 13 in questions:
            raise Transient("desk", scope=ErrorScope.INBOX, expected="luck", found="none", retry_after=1.0)
        if 7 in questions:
            raise ZeroDivisionError
        return [2 * question for question in questions]

    async def after(self, answers: Sequence[int]) -> None:
        self.told.append(list(answers))


@pytest.fixture(name="desk")
def fixture_desk() -> Desk:
    return Desk()


def gathering(desk: Desk, most: int = 100) -> Batcher[int, int]:
    return Batcher(desk.run, desk.after, weight=lambda question: max(1, question), max_weight=most)


async def answered(desk: Desk, ask: Batcher[int, int], *questions: int) -> dict[int, int | Exception]:
    """What becomes of questions that are asked at once."""
    answers: dict[int, int | Exception] = {}

    async def one(question: int) -> None:
        try:
            answers[question] = await ask(question)
        except (Permanent, Transient, ZeroDivisionError) as error:
            answers[question] = error

    async with anyio.create_task_group() as tasks:
        for question in questions:
            tasks.start_soon(one, question)
        await anyio.wait_all_tasks_blocked()
        desk.opened.set()
    return answers


async def test_who_comes_while_one_runs_shares_the_next(desk: Desk) -> None:
    assert await answered(desk, gathering(desk), 1, 2, 3, 4) == {1: 2, 2: 4, 3: 6, 4: 8}
    assert desk.asked == [[1], [2, 3, 4]]
    assert desk.told == [[2], [4, 6, 8]]


async def test_one_takes_no_more_than_its_weight_unless_it_is_one_question(desk: Desk) -> None:
    await answered(desk, gathering(desk, most=10), 1, 50, 4, 5, 6)
    assert desk.asked == [[1], [50], [4, 5], [6]]


async def test_trouble_of_a_transaction_is_everybodys_an_error_for_each(desk: Desk) -> None:
    answers = await answered(desk, gathering(desk), 1, 13, 2)
    assert desk.asked == [[1], [13, 2]]
    errors = [answers[13], answers[2]]
    assert [(type(error), getattr(error, "retry_after", None)) for error in errors] == [(Transient, 1.0)] * 2
    assert errors[0] is not errors[1]


@pytest.mark.parametrize(("odd", "kind"), [(-1, Permanent), (7, ZeroDivisionError)])
async def test_one_that_cannot_be_answered_fails_alone(desk: Desk, odd: int, kind: type[Exception]) -> None:
    answers = await answered(desk, gathering(desk), 1, 2, odd, 3)
    assert isinstance(answers.pop(odd), kind)
    assert answers == {1: 2, 2: 4, 3: 6}
    assert desk.asked == [[1], [2, odd, 3], [2], [odd], [3]]


@pytest.mark.parametrize("leaves", [1, 2, 3])
async def test_who_leaves_takes_nobody_along(desk: Desk, leaves: int) -> None:
    ask, answers, gone = gathering(desk), dict[int, int](), anyio.CancelScope()

    async def one(question: int) -> None:
        if question == leaves:
            with gone:
                answers[question] = await ask(question)
        else:
            answers[question] = await ask(question)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for question in (1, 2, 3, 4):
                tasks.start_soon(one, question)
            await anyio.wait_all_tasks_blocked()
            gone.cancel()
            await anyio.wait_all_tasks_blocked()
            desk.opened.set()
    assert {question for question in answers if question != leaves} == {1, 2, 3, 4} - {leaves}
    # The one who runs it runs it to its end; who only waited has asked nothing.
    assert sorted(chain(*desk.asked)) == [question for question in (1, 2, 3, 4) if question != leaves or leaves == 1]


async def test_the_next_who_leaves_as_its_turn_comes_leaves_it_to_another(desk: Desk) -> None:
    ask, answers, gone = gathering(desk, most=1), list[int](), anyio.CancelScope()

    async def one(question: int) -> None:
        answers.append(await ask(question))

    async def leaves() -> None:
        with gone:
            await one(5)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, 1)
            tasks.start_soon(leaves)
            tasks.start_soon(one, 3)
            await anyio.wait_all_tasks_blocked()
            desk.opened.set()
            gone.cancel()
    assert sorted(answers) in ([2, 6], [2, 6, 10])
    assert await ask(4) == 8


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


@pytest.fixture(name="file")
def fixture_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(WatchedFiles, "interval", 0.01)
    monkeypatch.setattr(WatchedFiles, "timeout", 0.2)
    (tmp_path / "tokens").write_text("first\n")
    return tmp_path / "tokens"


@asynccontextmanager
async def watched(file: Path) -> AsyncGenerator[Keyring]:
    """A keyring whose one file somebody watches."""
    tokens = WatchedTokenFile(file)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tokens.watch)
        yield Keyring({"etl": PartyTokens({}, tokens)})
        tasks.cancel_scope.cancel()


async def test_a_change_is_found_though_nobody_asks(file: Path) -> None:
    async with watched(file) as keyring:
        replaced(file, b"second!\n")
        await until(lambda: keyring.owner_of(b"Bearer second!") is not None)
        assert keyring.owner_of(b"Bearer first") is None


async def test_a_file_system_that_hangs_holds_up_nobody_and_is_told_of(file: Path) -> None:
    pipe, beside = file.with_name("pipe"), file.with_name("beside")
    os.mkfifo(pipe)
    async with watched(file) as keyring:
        with capture_logs() as logs:
            # Nobody writes to the pipe: opening it to read does not return.
            beside.hardlink_to(pipe)
            beside.replace(file)
            await until(lambda: logs)
            assert keyring.owner_of(b"Bearer first") == ("etl", f"{file}:1")
            replaced(file, b"second!\n")
            os.close(os.open(pipe, os.O_RDWR))
            await until(lambda: keyring.owner_of(b"Bearer second!") is not None)
    assert (logs[0]["event"], logs[0]["log_level"]) == ("tokens not reloaded", "error")
    assert "no answer of the file system within 0.2 s" in logs[0]["error"]
