"""The places of a gateway's pool: whatever its requests do, and in whatever order, each place comes back."""

# ruff: noqa: SLF001 - only what nobody outside sees tells whether a place is lost

from __future__ import annotations

import asyncio
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from sfn.errors import Transient
from sfn.gateway import upstream
from sfn.gateway.connection import UpstreamConnection
from sfn.gateway.upstream import UpstreamOptions, UpstreamPool

Step: TypeAlias = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["take", "take long", "take late"]), st.just(0)),
        st.tuples(st.sampled_from(["cancel", "give back"]), st.integers(0, 7)),
        st.just(("turn", 0)),
    ),
    max_size=40,
)
LATER = 60.0


class Unconnected(UpstreamPool):
    """A pool whose connections lead nowhere."""

    @override
    async def _connect(self, until: float) -> upstream._Pooled:
        await asyncio.sleep(0)
        return UpstreamConnection(1.0), None


class Crowd:
    """Requests that take places, give up, and give places back."""

    def __init__(self, most: int) -> None:
        self.pool = Unconnected("prod", UpstreamOptions("http://catalog", 1.0, most), lambda: True)
        self._asking: list[asyncio.Task[None]] = []
        self._leaving: list[asyncio.Event] = []

    async def play(self, steps: list[Step]) -> None:
        """Do all of it, then give everything back. Between two steps there is a turn of the loop where one says so."""
        for what, which in steps:
            if what == "turn":
                await asyncio.sleep(0)
            elif what.startswith("take"):
                self._take(streams=what == "take long", within=0.0 if what == "take late" else LATER)
            elif self._asking and what == "cancel":
                self._asking[which % len(self._asking)].cancel()
            elif self._leaving:
                self._leaving[which % len(self._leaving)].set()
            assert 0 <= self.pool._taken <= self.pool._options.max_connections
        for leave in self._leaving:
            leave.set()
        for _ in range(10 * len(steps) + 10):
            await asyncio.sleep(0)
        assert all(task.done() for task in self._asking), "nobody waits for a place that nobody has"
        assert [task for task in self._asking if not task.cancelled() and task.exception()] == []

    def _take(self, *, streams: bool, within: float) -> None:
        leave = asyncio.Event()
        self._leaving.append(leave)
        self._asking.append(
            asyncio.get_running_loop().create_task(self._request(streams=streams, within=within, leave=leave))
        )

    async def _request(self, *, streams: bool, within: float, leave: asyncio.Event) -> None:
        kind = upstream._RequestKind(streams, is_repeatable=False)
        upstream.CONNECT_TIMEOUT = within  # type: ignore[misc]
        try:
            pooled = await self.pool._acquire(kind)
        except Transient:
            return
        try:
            await leave.wait()
        finally:
            self.pool._release(kind, pooled)


def played(most: int, steps: list[Step]) -> UpstreamPool:
    """The pool after a history."""

    async def play() -> UpstreamPool:
        crowd = Crowd(most)
        await crowd.play(steps)
        return crowd.pool

    before = upstream.CONNECT_TIMEOUT
    try:
        return asyncio.run(play())
    finally:
        upstream.CONNECT_TIMEOUT = before  # type: ignore[misc]


@settings(max_examples=200)
@given(most=st.integers(1, 3), steps=STEPS)
def test_after_any_history_no_place_is_taken_and_nobody_waits(most: int, steps: list[Step]) -> None:
    pool = played(most, steps)
    assert (pool._taken, pool._streams, len(pool._waiting)) == (0, 0, 0)


def test_a_place_is_not_given_to_who_gives_up_in_the_same_turn() -> None:
    first, second = ("take", 0), ("take", 0)
    steps = [first, ("turn", 0), ("turn", 0), second, ("turn", 0), ("turn", 0), ("give back", 0), ("cancel", 1)]
    pool = played(1, [*steps, ("turn", 0), ("turn", 0), ("take", 0)])
    assert (pool._taken, len(pool._waiting)) == (0, 0)
