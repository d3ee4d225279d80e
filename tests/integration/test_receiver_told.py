"""Events of a catalog that nobody can ask: what they do not say nobody will ever know."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from sfn.domain.events import TableOrigin
from sfn.domain.identifiers import TableIdentifier
from tests.integration.listening import Open, Service, answer, assert_problem, listening, request

NAMED = {"namespace": ["sales"], "name": "orders", "catalog": "theirs"}
AT = "s3://lake/orders/metadata/00001-x.metadata.json"


@pytest.fixture
def service() -> Service:
    return Service(told=frozenset({"prod"}))


@pytest.fixture
async def connect(service: Service) -> AsyncIterator[Open]:
    async with listening(service.application()) as connect:
        yield connect


@pytest.mark.parametrize(
    "event",
    [
        {"metadata_location": AT},
        {"metadata_location": AT, "operation": "create"},
        {"operation": "drop"},
        {"operation": "rename", "destination": {"namespace": "sales", "name": "returns"}},
    ],
)
async def test_an_event_that_says_enough_is_taken(service: Service, connect: Open, event: dict[str, object]) -> None:
    assert (await answer(connect, request(body=json.dumps(NAMED | event).encode()))).status == 202
    assert service.inbox.taken


@pytest.mark.parametrize("operation", ["commit", "create", "register"])
async def test_an_event_without_its_location_is_422_and_none_of_its_request_is_taken(
    service: Service, connect: Open, operation: str
) -> None:
    events = [NAMED | {"metadata_location": AT}, NAMED | {"operation": operation}]
    reply = await answer(connect, request(body=json.dumps(events).encode()))
    assert_problem(reply, 422)
    assert "metadata_location, as nobody can ask prod for it" in reply.json["detail"]
    assert reply.json["errors"][0]["pointer"] == "#/1"
    assert service.inbox.taken == []


async def test_what_is_told_of_a_table_without_files_is_kept_all_the_same(service: Service, connect: Open) -> None:
    """It may get files by other settings later, and who could then be asked where it is?"""
    event = NAMED | {"namespace": ["scratch"], "metadata_location": AT}
    reply = await answer(connect, request(body=json.dumps([event, event | {"catalog": "other"}]).encode()))
    assert reply.json == {"accepted": 1, "duplicates": 0, "ignored": 1}
    assert [hint.subject.catalog for hint in service.inbox.taken] == ["prod"]


async def test_of_a_catalog_that_can_be_asked_a_name_is_enough(connect: Open) -> None:
    event = NAMED | {"catalog": "other"}
    assert (await answer(connect, request(body=json.dumps(event).encode()))).status == 202


async def test_what_is_told_of_a_table_arrives(service: Service, connect: Open) -> None:
    event = NAMED | {"metadata_location": AT, "operation": "register", "table_uuid": "u1"}
    await answer(connect, request(body=json.dumps(event).encode()))
    (hint,) = service.inbox.taken
    assert (hint.subject, hint.min_metadata_location, hint.uuid, hint.origin) == (
        TableIdentifier("prod", ("sales",), "orders"),
        AT,
        "u1",
        TableOrigin.REGISTER,
    )
