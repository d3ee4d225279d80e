"""AWS Glue's events, through `decode` as a request meets them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.formats.decode import MAX_NOTIFICATIONS, DecodedRequest
from sfn.formats.glue import MAX_TABLES
from tests.dialects.requests import decoded, document, golden, hints, names, outcome, refused
from tests.dialects.samples import OF_DATABASE, OF_TABLE, glue

ORDERS = TableIdentifier("aws", ("sales",), "orders")
RETURNS = TableIdentifier("aws", ("sales",), "returns")
UPDATE = document("glue-update-table")


def test_a_commit_is_one_hint() -> None:
    body = golden("glue-update-table")
    hint = Notification(ORDERS, "catalogs", "cd9c9a52-7d0c-5f3e-9ad1-6a1a3f6f7a11", body=body)
    assert decoded(body) == DecodedRequest((hint,), 0, "glue")


def test_tables_that_are_deleted_at_once_are_a_hint_each() -> None:
    body = golden("glue-batch-delete-table")
    event_id = "4f2b0e6b-3c11-4a0a-8d0e-2a54f7a1c902"
    first = Notification(ORDERS, "catalogs", event_id, drop=True, body=body)
    assert hints(body) == (first, Notification(RETURNS, "catalogs", f"{event_id}\x1freturns", drop=True, body=body))


@pytest.mark.parametrize(("change", "birth"), [("CreateTable", TableOrigin.CREATE), ("DeleteTable", None)])
def test_a_table_comes_and_goes_by_its_database(change: str, birth: TableOrigin | None) -> None:
    body = json.dumps(glue(OF_DATABASE, change, changedTables=["orders"])).encode()
    event_id = UPDATE["id"]
    assert hints(body) == (Notification(ORDERS, "catalogs", event_id, drop=birth is None, origin=birth, body=body),)


def test_a_table_that_is_named_twice_is_one() -> None:
    assert len(hints(glue(OF_DATABASE, "BatchDeleteTable", changedTables=["orders", "returns", "orders"]))) == 2


def test_an_array_of_events_is_taken() -> None:
    assert [hint.subject for hint in hints([UPDATE, UPDATE])] == [ORDERS, ORDERS]


def test_a_change_counts_only_where_it_belongs() -> None:
    assert outcome(glue(OF_DATABASE, "UpdateTable", changedTables=["orders"])) == ("glue", 0, 1, 0)
    assert outcome(glue(OF_TABLE, "DeleteTable", tableName="orders")) == ("glue", 0, 1, 0)
    assert outcome(UPDATE | {"detail-type": "AWS API Call via CloudTrail", "detail": None}) == ("glue", 0, 1, 0)


def test_account_and_region_say_which_catalog_is_meant() -> None:
    said = decoded([UPDATE | {"region": "us-east-1"}, UPDATE | {"account": "210987654321"}])
    assert (said.notifications, said.ignored, said.unmapped_events) == ((), 0, 2)
    assert said.unmapped_catalogs == ("123456789012/us-east-1", "210987654321/eu-central-1")


def test_hints_are_bounded() -> None:
    tables = [f"t{index}" for index in range(MAX_TABLES)]
    deletes = glue(OF_DATABASE, "BatchDeleteTable", changedTables=tables)
    full = MAX_NOTIFICATIONS // MAX_TABLES
    assert len(hints([deletes] * full)) == MAX_NOTIFICATIONS
    assert refused([deletes] * full + [UPDATE]) == (422, "#")


@pytest.mark.parametrize(
    ("event", "where"),
    [
        (UPDATE | {"account": None}, "account"),
        (UPDATE | {"region": 7}, "region"),
        (UPDATE | {"id": ""}, "id"),
        (UPDATE | {"detail-type": 7}, "detail-type"),
        (UPDATE | {"detail": "x"}, "detail"),
        (glue(OF_TABLE, "UpdateTable"), "detail/tableName"),
        (glue(OF_TABLE, "UpdateTable", tableName="a\tb"), "detail/tableName"),
        (glue(OF_TABLE, "UpdateTable", tableName="t", databaseName=None), "detail/databaseName"),
        (glue(OF_TABLE, "UpdateTable", typeOfChange=None), "detail/typeOfChange"),
        (glue(OF_DATABASE, "DeleteTable"), "detail/changedTables"),
        (glue(OF_DATABASE, "DeleteTable", changedTables=[]), "detail/changedTables"),
        (glue(OF_DATABASE, "DeleteTable", changedTables=["a", 1]), "detail/changedTables/1"),
        (glue(OF_DATABASE, "DeleteTable", changedTables=["a"] * (MAX_TABLES + 1)), "detail/changedTables"),
    ],
)
def test_a_wrong_field_is_422_and_named(event: object, where: str) -> None:
    assert refused(event) == (422, f"#/{where}")


@given(names, st.lists(names, min_size=1, max_size=4, unique=True), names)
def test_whatever_is_of_the_shape_becomes_its_hints(database: str, tables: list[str], event_id: str) -> None:
    event = glue(OF_DATABASE, "BatchDeleteTable", databaseName=database, changedTables=tables) | {"id": event_id}
    said = hints(event)
    assert [hint.subject for hint in said] == [TableIdentifier("aws", (database,), table) for table in tables]
    assert len({hint.event_id for hint in said}) == len(tables)
    assert all(hint.drop for hint in said)
