"""What catalogs send in formats of their own, over the wire."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.formats.event import Sender
from sfn.http.secrets import PartyTokens
from sfn.http.senders import Keyring, Senders
from tests.dialects.asking import SENDER, WAREHOUSE, document, golden
from tests.dialects.samples import lakekeeper
from tests.integration.listening import TOKEN, Open, Service, answer, assert_problem, listening, request
from tests.promises.inboxes import HandClock
from tests.unit.scraping import Standing, read

STRUCTURED = "Content-Type: application/cloudevents+json"
TAKEN = {"accepted": 1, "duplicates": 0, "ignored": 0}
TABLE = TableIdentifier("lake", ("a", "b"), "orders")


def of(sender: Sender) -> Service:
    """A service that nobody else sends to."""
    party = f"senders.{sender.name}"
    return Service(senders=Senders(Keyring({party: PartyTokens({"main": TOKEN})}), {party: sender}))


@pytest.fixture
def service() -> Service:
    return of(SENDER)


@pytest.fixture
async def connect(service: Service) -> AsyncIterator[Open]:
    async with listening(service.application()) as connect:
        yield connect


async def test_a_cloudevent_is_taken_and_a_repeat_is_a_duplicate(service: Service, connect: Open) -> None:
    body = golden("lakekeeper-updateTable")
    assert (await answer(connect, request(STRUCTURED, body=body))).json == TAKEN
    assert (await answer(connect, request(body=body))).json == {"accepted": 0, "duplicates": 1, "ignored": 0}
    assert [hint.subject for hint in service.inbox.taken] == [TABLE]


@pytest.mark.parametrize("prefix", ["ce-", "ce_"])
async def test_a_binary_one_has_its_attributes_in_headers(service: Service, connect: Open, prefix: str) -> None:
    event = document("lakekeeper-updateTable")
    data = json.dumps(event.pop("data")).encode()
    fields = [f"{prefix}{name}: {str(value).replace(chr(31), '%1F')}" for name, value in event.items()]
    assert (await answer(connect, request(*fields, body=data))).json == TAKEN
    assert [hint.subject for hint in service.inbox.taken] == [TABLE]


async def test_a_webhook_that_names_no_table_is_a_sweep(connect: Open, service: Service) -> None:
    reply = await answer(connect, request("X-Polaris-Event: AFTER_UPDATE_TABLE", body=golden("polaris-webhook-pr5084")))
    assert reply.json == {"accepted": 4, "duplicates": 0, "ignored": 0}
    assert {hint.subject for hint in service.inbox.taken} == {CatalogName(ours) for ours in SENDER.catalogs.values()}


async def test_what_is_of_no_concern_is_ignored(connect: Open) -> None:
    reply = await answer(connect, request(body=json.dumps(lakekeeper("createView")).encode()))
    assert (reply.status, reply.json) == (202, {"accepted": 0, "duplicates": 0, "ignored": 1})


async def test_events_of_an_unmapped_catalog_are_ignored_counted_and_told_of_once_a_second(
    service: Service, connect: Open
) -> None:
    events = [lakekeeper("dropTable", warehouse_id=name) for name in ("w1", "w2", WAREHOUSE)]
    with capture_logs() as records:
        for _ in range(3):
            reply = await answer(connect, request(body=json.dumps(events).encode()))
            assert reply.json["ignored"] == 2
    told = [record for record in records if record["event"] == "event of an unmapped catalog"]
    assert (told[0]["sender"], told[0]["found"], told[0]["left_out"]) == ("catalogs", ("w1", "w2"), 0)
    assert told[0]["remedy"] == 'senders.catalogs.catalogs = { "w1" = "…" }, if it is one of ours'
    assert len(told) == 1
    page = await read(Standing().scrape(service.metrics, HandClock()))
    counted = page.of("sfn_events_received_total", "dialect", "result")
    assert counted[("lakekeeper", "unmapped")] == 6
    assert ("lakekeeper", "ignored") not in counted


async def test_a_pinned_sender_sends_nothing_else() -> None:
    service = of(replace(SENDER, event_format="lakekeeper"))
    async with listening(service.application()) as connect:
        assert (await answer(connect, request(body=golden("lakekeeper-dropTable")))).json == TAKEN
        assert_problem(await answer(connect, request(body=golden("glue-update-table"))), 415)
        path = "/v1/theirs/namespaces/ns1/tables/orders/notifications"
        reply = await answer(connect, request(path=path, body=golden("polaris-notification-update")))
        assert (reply.status, reply.json["error"]["type"]) == (415, "NotSupportedException")
    assert [kept.path for kept in service.inbox.kept] == ["/v1/events", path]
