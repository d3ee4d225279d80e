"""What a table's story says: why it has no live file, and which dead letters it had."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

import httpx
import pytest

from sfn.admin.schemas import UnpublishedReason
from sfn.domain.events import Intent, IntentOutcome, Notification
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    PublishCache,
    PublishResult,
    Rescheduled,
    TableState,
)
from sfn.inbox.model import DeadLetterFilter
from sfn.publish.policy import TableFilter
from tests.promises.inboxes import AT, pointer, table
from tests.support.listener import Office, got, operating

ORDERS, SECRET = table("orders"), table("secret")
GONE = TableState(has_settled=True)
THERE = PublishCache(Table("u1", AT, pointer(1)))
LEFT_ALONE = PublishCache(Table("u1", AT, pointer(1), skip_reason="switched off"))


@pytest.fixture(name="office")
def fixture_office() -> Office:
    return Office(interest=TableFilter(exclude=("sales.secret",)))


@pytest.fixture(name="operator")
async def fixture_operator(office: Office) -> AsyncIterator[httpx.AsyncClient]:
    async with operating(office) as client:
        yield client


def spelled(at: datetime) -> str:
    """A moment in JSON."""
    return at.isoformat().replace("+00:00", "Z")


async def why(operator: httpx.AsyncClient, name: TableIdentifier = ORDERS) -> str | None:
    found: str | None = (await got(operator, f"/admin/v1/tables/prod/sales/{name.name}"))["unpublished"]
    return found


async def looked_at_again(office: Office, name: TableIdentifier = ORDERS) -> LeasedJob:
    await office.ground.published(name)
    await office.inbox.put([Notification(name, drop=True)])
    return await office.ground.claim()


async def test_a_table_with_a_file_is_published(operator: httpx.AsyncClient, office: Office) -> None:
    await office.ground.hint(ORDERS)
    assert await why(operator) is None
    await office.ground.settle(await office.ground.claim(), office.ground.done())
    assert await why(operator) is None
    assert (await got(operator, "/admin/v1/status"))["catalogs"][0]["live_tables"] == 1


async def test_a_table_that_was_renamed(operator: httpx.AsyncClient, office: Office) -> None:
    story = TableState(has_settled=True, renamed_to=table("sold"))
    await office.ground.settle(
        await looked_at_again(office), Done(office.ground.after(60), PublishResult(story, THERE))
    )
    assert (await got(operator, "/admin/v1/tables/prod/sales/orders"))["renamed_to"] == "sales.sold"


async def test_a_version_hint_that_is_not_ours(operator: httpx.AsyncClient, office: Office) -> None:
    await office.ground.settled(
        ORDERS, Done(office.ground.after(60), PublishResult(TableState(foreign_version_hint="7")))
    )
    assert (await got(operator, "/admin/v1/tables/prod/sales/orders"))["foreign_version_hint"] == "7"


async def test_a_table_with_commits_that_nobody_knows_the_outcome_of(
    operator: httpx.AsyncClient, office: Office
) -> None:
    ground = office.ground
    await ground.settled(ORDERS, ground.done())
    opened = ground.now
    await ground.inbox.put([Intent("a", (ORDERS,)), Intent("b", (ORDERS, table("sold")))])
    story = await got(operator, "/admin/v1/tables/prod/sales/orders")
    assert (story["open_intents"], story["next_check_at"]) == (2, spelled(ground.after(30)))
    (catalog, *others) = (await got(operator, "/admin/v1/status"))["catalogs"]
    assert (catalog["open_intents"], catalog["oldest_intent_at"]) == (2, spelled(opened))
    assert {(one["open_intents"], one["oldest_intent_at"]) for one in others} == {(0, None)}
    await ground.inbox.put([IntentOutcome("a", is_known=True), IntentOutcome("b", is_known=True)])
    story = await got(operator, "/admin/v1/tables/prod/sales/orders")
    assert (story["open_intents"], story["next_check_at"]) == (0, None)


async def test_a_table_that_was_dropped(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    await ground.settle(await looked_at_again(office), Done(ground.after(60), PublishResult(GONE, THERE)))
    assert await why(operator) == UnpublishedReason.DROPPED
    assert (await got(operator, "/admin/v1/status"))["catalogs"][0]["live_tables"] == 0


async def test_a_table_that_was_never_there(operator: httpx.AsyncClient, office: Office) -> None:
    await office.ground.settled(
        ORDERS, Rescheduled(office.ground.after(60), "neither", result=PublishResult(TableState(misses=1)))
    )
    assert await why(operator) == UnpublishedReason.MISSING


async def test_a_table_that_wants_no_files(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    await ground.settle(await looked_at_again(office), Done(ground.after(60), PublishResult(GONE, LEFT_ALONE)))
    assert await why(operator) == UnpublishedReason.LEFT_ALONE


async def test_a_table_that_never_wanted_files(operator: httpx.AsyncClient, office: Office) -> None:
    nothing = PublishResult(TableState(misses=1), LEFT_ALONE)
    await office.ground.settled(ORDERS, Rescheduled(office.ground.after(60), "neither", result=nothing))
    assert await why(operator) == UnpublishedReason.LEFT_ALONE


async def test_a_table_that_the_settings_leave_out(operator: httpx.AsyncClient, office: Office) -> None:
    unknown = await operator.get("/admin/v1/tables/prod/sales/secret")
    assert (unknown.status_code, "include or exclude leaves it out" in unknown.json()["detail"]) == (404, True)
    ground = office.ground
    await ground.settle(await looked_at_again(office, SECRET), Done(ground.after(60), PublishResult(GONE, THERE)))
    assert await why(operator, SECRET) == UnpublishedReason.EXCLUDED


async def test_the_open_letter_is_shown_however_many_there_were_before(
    operator: httpx.AsyncClient, office: Office
) -> None:
    for _ in range(1_002):
        await office.inbox.discard(
            [one.id for one in await office.inbox.list_after(DeadLetterFilter(), 0, 9)], office.ground.order()
        )
        await office.ground.hint(ORDERS)
        office.clock.turn(300)
        await office.ground.settle(await office.ground.claim(), DeadLettered(DeadLetterReason.PERMANENT, "why"))
    shown = (await got(operator, "/admin/v1/tables/prod/sales/orders"))["dead_letters"]
    assert [letter["id"] for letter in shown] == list(range(1_002, 982, -1))
    assert shown[0]["status"] == "open"


async def test_a_table_of_a_catalog_that_retired(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    await ground.settle(await looked_at_again(office), Done(ground.after(60), PublishResult(GONE, THERE)))
    office.process.retired_catalogs.names = frozenset({"prod"})
    assert await why(operator) == UnpublishedReason.RETIRED
