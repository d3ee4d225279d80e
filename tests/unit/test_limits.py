"""Limits: the memory of bodies of clients that have not shown who they are, and the number of open files."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn import limits
from sfn.limits import BodyMemory, BodyMemoryExhausted, BodyReservation, ClientTimeout, with_timeout


def test_bodies_are_held_up_to_the_limit_and_released() -> None:
    memory = BodyMemory(10)
    with memory.reserve() as first, memory.reserve() as second:
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
    with memory.reserve() as done, memory.reserve() as slow, memory.reserve() as fast:
        done.add(2)
        done.complete()
        slow.add(5)
        fast.add(8)
        assert (memory.used, len(refused)) == (10, 1)
        with pytest.raises(BodyMemoryExhausted):
            slow.add(1)
        fast.complete()
    assert memory.used == 0


def test_a_body_that_finds_none_but_complete_ones_has_no_room() -> None:
    memory = BodyMemory(10)
    with memory.reserve() as done:
        done.add(8)
        done.complete()
        with memory.reserve() as late, pytest.raises(BodyMemoryExhausted):
            late.add(3)
        assert memory.used == 8


def test_a_body_that_holds_nothing_has_no_room_to_make() -> None:
    memory = BodyMemory(10)
    with memory.reserve() as empty, memory.reserve() as slow, memory.reserve() as fast:
        slow.add(6)
        fast.add(6)
        assert (empty.is_evicted, slow.is_evicted, memory.used) == (False, True, 6)
        empty.add(4)


def test_nobody_is_given_up_in_vain() -> None:
    refused: list[None] = []
    memory = BodyMemory(10, lambda: refused.append(None))
    with memory.reserve() as done, memory.reserve() as slow, memory.reserve() as large, memory.reserve() as small:
        done.add(6)
        done.complete()
        slow.add(2)
        with pytest.raises(BodyMemoryExhausted):
            large.add(5)
        assert (slow.is_evicted, memory.used, len(refused)) == (False, 8, 1)
        small.add(3)
        assert (slow.is_evicted, memory.used, len(refused)) == (True, 9, 2)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=40))
def test_whatever_bodies_come_no_more_is_held_than_the_limit(adds: list[tuple[int, int]]) -> None:
    """And who is given up held something, or asked for more than there was."""
    memory, held = BodyMemory(20), list[BodyReservation]()
    with ExitStack() as stack:
        for which, size in adds:
            while len(held) <= which:
                held.append(stack.enter_context(memory.reserve()))
            with suppress(BodyMemoryExhausted):
                held[which].add(size)
            if size == 0:
                held[which].complete()
            assert memory.used == sum(one.size for one in held) <= 20
    assert memory.used == 0


async def test_a_body_that_makes_room_is_not_waited_for_any_more() -> None:
    memory, ended = BodyMemory(10), list[str]()

    async def trickle() -> None:
        try:
            with memory.reserve() as slow:
                slow.add(5)
                await with_timeout(60, anyio.sleep_forever(), slow)
        except BodyMemoryExhausted:
            ended.append("no room")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trickle)
        await anyio.lowlevel.checkpoint()
        with memory.reserve() as fast:
            fast.add(10)
            assert memory.used == 10
    assert ended == ["no room"]


async def test_who_does_not_go_on_in_time_is_late() -> None:
    with BodyMemory().reserve() as held, pytest.raises(ClientTimeout):
        await with_timeout(0.01, anyio.sleep_forever(), held)
    with pytest.raises(ClientTimeout):
        await with_timeout(0.01, anyio.sleep_forever())


async def test_what_ends_in_time_is_given() -> None:
    async def step() -> int:
        await anyio.lowlevel.checkpoint()
        return 7

    assert await with_timeout(60, step()) == 7


async def test_a_cancellation_from_elsewhere_is_one() -> None:
    with anyio.move_on_after(0.01) as scope, BodyMemory().reserve() as held:
        await with_timeout(60, anyio.sleep_forever(), held)
    assert scope.cancelled_caught


@pytest.fixture
def restored() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("soft", [256, 512])
def test_the_soft_limit_is_raised_to_the_hard_one(soft: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert limits.raise_limit() == limits.hard_limit() == limits.limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard


@pytest.mark.usefixtures("restored")
def test_a_limit_that_is_higher_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_RAISED_LIMIT", 64)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert limits.raise_limit() == before[0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(("soft", "listeners", "each"), [(1024, 1, 512), (1024, 4, 128), (1024, 0, 512), (256, 99, 8)])
def test_listeners_share_half_of_all_files(soft: int, listeners: int, each: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    assert limits.connections_per_listener(listeners) == each
