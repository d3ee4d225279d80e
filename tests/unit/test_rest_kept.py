"""What ends, and is had anew before it does."""

from __future__ import annotations

import anyio
import pytest

from sfn.catalogs import CatalogFailure, CatalogRequestFailed
from sfn.catalogs.rest.auth import RETRY_AFTER_FAILURE, Expiring, ExpiringCache
from tests.unit.rest_server import pass_by

MANY = 8


class Source:
    """Gives 1, 2, … each good for so long, or refuses."""

    def __init__(self, lasts: float | None = 100.0) -> None:
        self.asked, self.lasts, self.late, self.refuses = 0, lasts, 0.01, False

    async def ask(self) -> Expiring[int]:
        self.asked += 1
        number = self.asked
        await anyio.sleep(self.late)
        if self.refuses:
            raise CatalogRequestFailed(CatalogFailure("there", "one", f"none the {number}. time"))
        return Expiring(number, self.lasts)


@pytest.mark.parametrize(("lasts", "early"), [(1000.0, 60.0), (100.0, 20.0), (10.0, 2.0)])
async def test_it_is_had_anew_a_little_before_its_end(
    lasts: float, early: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(lasts)
    kept = ExpiringCache(source.ask)
    assert await kept.current() == await kept.current() == 1
    pass_by(lasts - early - 0.5, monkeypatch)
    assert await kept.current() == 1
    pass_by(lasts - early + 0.5, monkeypatch)
    assert await kept.current() == 2


@pytest.mark.parametrize(("every", "found"), [(None, 1), (50.0, 2)])
async def test_what_does_not_say_its_end_is_had_anew_as_often_as_is_wanted(
    every: float | None, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(None)
    kept = ExpiringCache(source.ask, every)
    assert await kept.current() == 1
    pass_by(10**6, monkeypatch)
    assert kept.valid_value == 1
    assert await kept.current() == found


async def test_a_good_one_is_given_while_no_new_one_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source()
    kept = ExpiringCache(source.ask)
    await kept.current()
    source.refuses = True
    pass_by(90, monkeypatch)
    assert [await kept.current() for _ in range(3)] == [1] * 3
    assert source.asked == 2, "it is not tried each time"
    pass_by(90 + RETRY_AFTER_FAILURE + 1, monkeypatch)
    assert await kept.current() == 1
    assert source.asked == 3
    pass_by(101, monkeypatch)
    assert kept.valid_value is None
    with pytest.raises(CatalogRequestFailed):
        await kept.current()


async def test_a_good_one_is_not_given_to_who_wants_another() -> None:
    source = Source()
    kept = ExpiringCache(source.ask)
    await kept.current()
    source.refuses = True
    with pytest.raises(CatalogRequestFailed):
        await kept.refresh()
    assert kept.valid_value == 1


@pytest.mark.parametrize("refuses", [False, True])
async def test_whoever_waits_shares_the_outcome(*, refuses: bool) -> None:
    source, ends = Source(), list[object]()
    source.refuses = refuses
    kept = ExpiringCache(source.ask)

    async def ask() -> None:
        try:
            ends.append(await kept.current())
        except CatalogRequestFailed as refused:
            ends.append(refused)

    async with anyio.create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(ask)
    assert source.asked == 1
    if refuses:
        assert {one.failure.found for one in ends if isinstance(one, CatalogRequestFailed)} == {"none the 1. time"}
        assert len(set(map(id, ends))) == MANY, "each has an error of its own"
    else:
        assert ends == [1] * MANY


async def test_who_gives_up_leaves_the_question_to_the_next() -> None:
    source, ends = Source(), list[int]()
    source.late = 0.3
    kept = ExpiringCache(source.ask)
    impatient = anyio.CancelScope()

    async def ask(scope: anyio.CancelScope) -> None:
        with scope:
            ends.append(await kept.current())

    async with anyio.create_task_group() as group:
        for scope in (impatient, anyio.CancelScope()):
            group.start_soon(ask, scope)
        await anyio.wait_all_tasks_blocked()
        impatient.cancel()
    assert (ends, source.asked) == ([2], 2)


def test_no_value_shows() -> None:
    assert "s3cret" not in repr(Expiring("s3cret", 1.0))
