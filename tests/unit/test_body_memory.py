"""Bodies of clients that have not shown who they are: their memory is bounded, and the slowest makes room."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from sfn.body_memory import BodyMemory, Late, NoRoom, within


def test_bodies_are_held_up_to_the_limit_and_released() -> None:
    memory = BodyMemory(10)
    with memory.body() as first, memory.body() as second:
        first.add(4)
        second.add(6)
        assert memory.used == 10
        first.release()
        assert memory.used == 6
        second.add(4)
    assert memory.used == 0


def test_the_oldest_incomplete_body_makes_room() -> None:
    refused: list[None] = []
    memory = BodyMemory(10, lambda: refused.append(None))
    with memory.body() as done, memory.body() as slow, memory.body() as fast:
        done.add(2)
        done.complete()
        slow.add(5)
        fast.add(8)
        assert (memory.used, len(refused)) == (10, 1)
        with pytest.raises(NoRoom):
            slow.add(1)
        fast.complete()
    assert memory.used == 0


def test_a_body_that_finds_none_but_complete_ones_has_no_room() -> None:
    memory = BodyMemory(10)
    with memory.body() as done:
        done.add(8)
        done.complete()
        with memory.body() as late, pytest.raises(NoRoom):
            late.add(3)
        assert memory.used == 8


async def test_a_body_that_makes_room_is_not_waited_for_any_more() -> None:
    memory, ended = BodyMemory(10), list[str]()

    async def trickle() -> None:
        try:
            with memory.body() as slow:
                slow.add(5)
                await within(60, anyio.sleep_forever(), slow)
        except NoRoom:
            ended.append("no room")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trickle)
        await anyio.lowlevel.checkpoint()
        with memory.body() as fast:
            fast.add(10)
            assert memory.used == 10
    assert ended == ["no room"]


async def test_who_does_not_go_on_in_time_is_late() -> None:
    with BodyMemory().body() as held, pytest.raises(Late):
        await within(0.01, anyio.sleep_forever(), held)
    with pytest.raises(Late):
        await within(0.01, anyio.sleep_forever())


async def test_what_ends_in_time_is_given() -> None:
    async def step() -> int:
        await anyio.lowlevel.checkpoint()
        return 7

    assert await within(60, step()) == 7


async def test_a_cancellation_from_elsewhere_is_one() -> None:
    with anyio.move_on_after(0.01) as scope, BodyMemory().body() as held:
        await within(60, anyio.sleep_forever(), held)
    assert scope.cancelled_caught
