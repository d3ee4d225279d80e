"""What a sweep may not see, and what it need not: neither is taken for gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from sfn.domain.jobs import DeadLettered, DeadLetterReason, PublishResult
from sfn.publish.policy import Policy, TableFilter
from sfn.worker.sweep import MAX_LOGGED
from tests.unit.sweeping import World


@pytest.fixture
def world() -> World:
    return World()


def warnings(records: Sequence[EventDict]) -> list[EventDict]:
    return [record for record in records if record["log_level"] == "warning"]


async def test_what_is_withheld_counts_as_present_and_is_told_of_once(world: World) -> None:
    hidden = [world.create("t", "closed"), world.create("t", "closed", "inner"), world.create("u", "closed")]
    others = [world.create("t", "closed_too"), world.create("t", "open")]
    for table in (*hidden, *others):
        await world.published(table)
    for table in (hidden[0], hidden[1], *others):
        world.catalog.drop(table)
    world.catalog.close_namespace("closed")
    with capture_logs() as records:
        swept = await world.swept()
    assert (swept.started_at, swept.within_limit) == (world.clock.now(), True)
    assert world.told == ["closed_too.t", "open.t"]
    (record,) = warnings(records)
    assert (record["log_level"], record["catalog"], record["namespaces"]) == ("warning", "prod", ["closed"])
    assert "closed" in record["why"]


async def test_a_table_that_was_listed_and_is_not_found_is_gone_whatever_is_withheld(world: World) -> None:
    gone, unseen = world.create("gone", "torn"), world.create("unseen", "torn")
    for table in (gone, unseen):
        await world.published(table)
    world.catalog.drop(unseen)
    world.catalog.torn = ("torn",)
    world.catalog.lost.add(gone)
    await world.swept()
    assert world.told == ["torn.gone"]


async def test_a_catalog_that_is_withheld_as_a_whole_has_lost_nothing(world: World) -> None:
    await world.published(world.create("t"))
    world.catalog.close_namespace()
    with capture_logs() as records:
        await world.swept()
    assert world.told == []
    assert [record["namespaces"] for record in warnings(records)] == [["(all)"]]


async def test_a_sweep_that_sees_everything_warns_of_nothing(world: World) -> None:
    world.create("t")
    with capture_logs() as records:
        await world.swept()
    assert warnings(records) == []


async def test_many_that_are_withheld_are_one_record_of_bounded_length(world: World) -> None:
    for number in range(2 * MAX_LOGGED):
        world.catalog.close_namespace(f"closed{number:04d}")
    with capture_logs() as records:
        await world.swept()
    (record,) = warnings(records)
    assert (record["number"], len(record["namespaces"])) == (2 * MAX_LOGGED, MAX_LOGGED)


@pytest.mark.parametrize(
    ("exclude", "asked"),
    [
        ("closed.**", False),
        ("closed**", False),
        ("**", False),
        ("*.**", False),
        ("closed.*", True),
        ("closed.t**", True),
        ("close.**", True),
        ("closed", True),
    ],
)
async def test_what_is_excluded_altogether_is_not_even_listed(world: World, exclude: str, *, asked: bool) -> None:
    await world.published(world.create("t", "closed", "inner"))
    world.catalog.close_namespace("closed")
    policy = Policy("id", table_filter=TableFilter(exclude=(exclude,)))
    with capture_logs() as records:
        await world.swept(policy)
    assert len(warnings(records)) == asked


async def test_a_published_table_that_is_excluded_is_told_wherever_it_lies(world: World) -> None:
    for table in (world.create("t", "closed"), world.create("t", "closed", "inner"), world.create("t", "open")):
        await world.published(table)
    world.catalog.close_namespace("closed")
    await world.swept(Policy("id", table_filter=TableFilter(exclude=("closed.*", "open.**"))))
    assert world.told == ["closed.t", "open.t"]


async def test_a_sweep_says_which_namespaces_it_could_not_list(world: World) -> None:
    world.create("t", "open")
    world.catalog.close_namespace("closed", "inner")
    world.catalog.torn = ("torn",)
    assert (await world.swept()).unlisted_namespaces == {"closed.inner", "torn"}


@pytest.mark.parametrize(("limit", "calm"), [(2, True), (1, False)])
async def test_what_is_held_in_a_namespace_that_could_not_be_listed_still_counts(
    world: World, limit: int, *, calm: bool
) -> None:
    """Else a namespace that fails would loosen the drop limit that its own lost tables tripped."""
    world.inbox.allow(0)
    tables = [world.create(name, "closed") for name in ("a", "b")]
    for table in tables:
        await world.published(table)
        world.catalog.drop(table)
    assert not (await world.swept()).within_limit
    for claim in await world.ground.claims():
        await world.ground.settle(
            claim,
            DeadLettered(DeadLetterReason.HELD_DROP, "held", PublishResult(replace(claim.table_state, on_hold=True))),
        )
    world.catalog.close_namespace("closed")
    world.inbox.allow(limit)
    assert (await world.swept()).within_limit is calm
