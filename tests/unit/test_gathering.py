"""Group commit: who shares a transaction, who runs it, and what becomes of those who don't wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import anyio
import pytest

from sfn.concurrency import Batcher
from sfn.errors import ErrorScope, Permanent, Transient


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
