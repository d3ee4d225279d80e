"""The admin API counts dead letters by cause, and finds, replays and discards them by it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from sfn.admin import causes
from sfn.domain.events import UndecodableRequest
from sfn.domain.jobs import DeadLettered, DeadLetterReason
from sfn.inbox.model import DeadLetterFilter
from tests.promises.inboxes import table
from tests.support.listener import Office, got, operating, posted

CAUSES = "/admin/v1/dead-letter-causes"
LETTERS = "/admin/v1/dead-letters"
DENIED, FULL = "expected permission to write, found 403", "expected room for a file, found ENOSPC"


@pytest.fixture(name="office")
async def fixture_office() -> Office:
    """Five letters of two causes, in turn, and an undecodable request."""
    office = Office()
    for number in range(5):
        cause = FULL if number % 2 else DENIED
        detail = f"s3://lake/t{number}: {cause}; repair it"
        await office.ground.settled(table(f"t{number}"), DeadLettered(DeadLetterReason.PERMANENT, detail))
        office.clock.turn(60)
    await office.inbox.put([UndecodableRequest("etl", "/v1/events", None, b"{", 1, "#: expected JSON, found {")])
    return office


@pytest.fixture(name="operator")
async def fixture_operator(office: Office) -> AsyncIterator[httpx.AsyncClient]:
    async with operating(office) as client:
        yield client


async def open_ids(office: Office) -> list[int]:
    return [letter.id for letter in await office.inbox.list_after(DeadLetterFilter(), 0, 100)]


async def test_letters_are_counted_by_reason_and_cause(operator: httpx.AsyncClient) -> None:
    answer = await got(operator, CAUSES)
    assert (answer["letters"], answer["has_more"]) == (6, False)
    assert [(one["reason"], one["cause"], one["count"], one["example"], one["about"]) for one in answer["causes"]] == [
        ("permanent", DENIED, 3, 1, "sales.t0"),
        ("permanent", FULL, 2, 2, "sales.t1"),
        ("undecodable", "expected JSON, found {", 1, 6, "etl"),
    ]
    first = answer["causes"][0]
    assert first["opened_at"] < first["newest_at"]
    assert "`sfn dead-letters replay 1`" in first["remedy"]


async def test_counted_letters_are_filtered(operator: httpx.AsyncClient) -> None:
    assert (await got(operator, CAUSES, cause_contains="PERMISSION"))["letters"] == 3
    assert (await got(operator, CAUSES, cause=FULL))["letters"] == 2
    assert (await got(operator, CAUSES, cause=FULL[:-1]))["letters"] == 0
    assert (await got(operator, CAUSES, reason="undecodable"))["letters"] == 1
    assert (await got(operator, CAUSES, status="discarded"))["letters"] == 0


async def test_only_the_newest_letters_are_counted(
    operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causes, "MAX_BATCH", 2)
    monkeypatch.setattr(causes, "MAX_COUNTED", 4)
    answer = await got(operator, CAUSES)
    assert (answer["letters"], answer["has_more"]) == (4, True)
    assert [one["example"] for one in answer["causes"]] == [3, 4, 6]


@pytest.mark.parametrize("verb", ["replay", "discard"])
async def test_counts_are_cached_until_an_order(operator: httpx.AsyncClient, office: Office, verb: str) -> None:
    assert (await got(operator, CAUSES))["letters"] == 6
    await office.inbox.put([UndecodableRequest("etl", "/v1/events", None, b"{", 1, "#: expected JSON, found {")])
    assert (await got(operator, CAUSES))["letters"] == 6
    await posted(operator, f"{LETTERS}:{verb}", {"filter": {"cause": FULL}})
    assert (await got(operator, CAUSES))["letters"] == 5


async def test_a_page_by_cause_says_where_the_next_begins(operator: httpx.AsyncClient) -> None:
    first = await got(operator, LETTERS, cause=DENIED, limit=2)
    assert ([one["id"] for one in first["dead_letters"]], first["next"]) == ([1, 3], 3)
    second = await got(operator, LETTERS, cause=DENIED, limit=2, after=3)
    assert ([one["id"] for one in second["dead_letters"]], second["next"]) == ([5], None)


async def test_letters_are_replayed_by_cause(operator: httpx.AsyncClient, office: Office) -> None:
    first = await posted(operator, f"{LETTERS}:replay", {"filter": {"cause": DENIED}, "limit": 2})
    assert (first["replayed"], first["next"]) == (2, 3)
    assert await open_ids(office) == [2, 4, 5, 6]
    second = await posted(operator, f"{LETTERS}:replay", {"filter": {"cause": DENIED}, "after": 3})
    assert (second["replayed"], second["next"]) == (1, None)
    (entry, _) = (await got(operator, "/admin/v1/audit"))["entries"]
    assert (entry["target"], entry["count"]) == (f"cause {DENIED}", 1)


@pytest.mark.parametrize("verb", ["replay", "discard"])
async def test_a_batch_without_a_letter_of_the_cause_is_no_entry_in_the_audit_log(
    operator: httpx.AsyncClient, office: Office, verb: str
) -> None:
    answer = await posted(operator, f"{LETTERS}:{verb}", {"filter": {"cause_contains": "gravity"}})
    assert answer["next"] is None
    assert len(await open_ids(office)) == 6
    assert (await got(operator, "/admin/v1/audit"))["entries"] == []
