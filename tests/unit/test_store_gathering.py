"""Reading for all who ask at once: few readings, each answer to whom it belongs, and nobody left waiting."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from sfn.store.gathering import Gatherer


class Reads:
    """Answers each key with itself, in capitals; each reading waits for leave.

    Attributes:
        readings: the keys of each.
        leave: set for a reading to be done.
    """

    def __init__(self) -> None:
        self.readings: list[list[str]] = []
        self.leave = anyio.Event()

    async def all(self, keys: Sequence[str]) -> Sequence[str | Exception]:
        self.readings.append(list(keys))
        await self.leave.wait()
        if "all fail" in keys:
            raise ConnectionError
        return [KeyError(key) if key.startswith("bad") else key.upper() for key in keys]


async def asked(gatherer: Gatherer[str], answers: dict[str, object], *keys: str) -> None:
    try:
        answers[keys[0]] = await gatherer.read(keys)
    except (KeyError, ConnectionError) as error:
        answers[keys[0]] = type(error)


async def test_what_is_asked_during_a_reading_is_read_by_the_next_one() -> None:
    reads, answers = Reads(), dict[str, object]()
    gatherer = Gatherer[str](reads.all)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked, gatherer, answers, "a", "b")
        await anyio.wait_all_tasks_blocked()
        for key in ("c", "d", "e"):
            tasks.start_soon(asked, gatherer, answers, key)
        await anyio.wait_all_tasks_blocked()
        reads.leave.set()
    assert reads.readings == [["a", "b"], ["c", "d", "e"]]
    assert answers == {"a": ["A", "B"], "c": ["C"], "d": ["D"], "e": ["E"]}


async def test_one_that_fails_is_its_own_trouble() -> None:
    reads, answers = Reads(), dict[str, object]()
    reads.leave.set()
    gatherer = Gatherer[str](reads.all)
    async with anyio.create_task_group() as tasks:
        for key in ("a", "bad", "c"):
            tasks.start_soon(asked, gatherer, answers, key)
    assert answers == {"a": ["A"], "bad": KeyError, "c": ["C"]}


async def test_a_reading_that_fails_is_the_trouble_of_all_who_asked_and_of_nobody_later() -> None:
    reads, answers = Reads(), dict[str, object]()
    gatherer = Gatherer[str](reads.all)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked, gatherer, answers, "a")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(asked, gatherer, answers, "all fail")
        tasks.start_soon(asked, gatherer, answers, "b")
        await anyio.wait_all_tasks_blocked()
        reads.leave.set()
    assert answers == {"a": ["A"], "all fail": ConnectionError, "b": ConnectionError}
    assert await gatherer.read(["c"]) == ["C"]


@pytest.mark.parametrize("others", [1, 3])
async def test_who_reads_for_all_and_is_cancelled_leaves_it_to_the_next(others: int) -> None:
    reads, answers = Reads(), dict[str, object]()
    gatherer = Gatherer[str](reads.all)
    async with anyio.create_task_group() as tasks:
        first = anyio.CancelScope()

        async def reader() -> None:
            with first:
                await asked(gatherer, answers, "first")

        tasks.start_soon(reader)
        await anyio.wait_all_tasks_blocked()
        for number in range(others):
            tasks.start_soon(asked, gatherer, answers, f"k{number}")
        await anyio.wait_all_tasks_blocked()
        first.cancel()
        await anyio.wait_all_tasks_blocked()
        reads.leave.set()
    assert answers == {f"k{number}": [f"K{number}"] for number in range(others)}
