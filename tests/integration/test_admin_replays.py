"""Replays of many requests at once: nobody else waits for all that they say."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from sfn.domain.events import Notification, UndecodableRequest
from tests.promises.inboxes import table
from tests.support.listener import Office, got, operating, posted

REPLAY = "/admin/v1/dead-letters:replay"
EVENTS = [Notification(table(f"t{number}"), "etl") for number in range(750)]
ODD = UndecodableRequest("etl", "/v1/events", "application/json", b"{\xff", 2, "expected JSON")


@pytest.fixture(name="office")
async def fixture_office() -> Office:
    office = Office(understood=EVENTS)
    await office.inbox.put([ODD] * 5)
    return office


@pytest.fixture(name="operator")
async def fixture_operator(office: Office) -> AsyncIterator[httpx.AsyncClient]:
    async with operating(office) as client:
        yield client


async def audited(operator: httpx.AsyncClient) -> list[int]:
    """How many letters each order changed, in their order."""
    return [entry["count"] for entry in (await got(operator, "/admin/v1/audit"))["entries"]][::-1]


async def batches(operator: httpx.AsyncClient) -> list[tuple[int, int | None]]:
    """What each batch of all letters says: how many, and where the next one begins."""
    said: list[tuple[int, int | None]] = []
    while not said or said[-1][1] is not None:
        answer = await posted(operator, REPLAY, {"filter": {}, "after": said[-1][1] if said else 0})
        said.append((answer["replayed"], answer["next"]))
    return said


async def test_a_batch_ends_once_its_requests_say_enough(operator: httpx.AsyncClient) -> None:
    assert await batches(operator) == [(2, 2), (2, 4), (1, None)]
    assert await audited(operator) == [2, 2, 1]


async def test_what_is_not_understood_counts_as_nothing(operator: httpx.AsyncClient, office: Office) -> None:
    office.understood = None
    assert await batches(operator) == [(0, None)]


async def test_named_letters_are_dealt_with_part_by_part(operator: httpx.AsyncClient) -> None:
    assert await posted(operator, REPLAY, {"ids": [1, 2, 3, 4, 5]}) == {
        "replayed": 5,
        "failed": [],
        "skipped": [],
        "next": None,
    }
    assert await audited(operator) == [2, 2, 1]


async def test_a_limit_that_ends_a_batch_says_where_the_next_begins(operator: httpx.AsyncClient) -> None:
    answer = await posted(operator, REPLAY, {"filter": {}, "limit": 1})
    assert (answer["replayed"], answer["next"]) == (1, 1)
