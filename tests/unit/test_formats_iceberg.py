"""Events and reports of Iceberg's REST specification, through `decode` as a request meets them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.formats.decode import MAX_EVENTS, DecodedRequest
from tests.dialects.requests import (
    ONE,
    SENDER,
    UUID,
    decoded,
    document,
    golden,
    hints,
    identifiers,
    names,
    outcome,
    refused,
)
from tests.dialects.samples import ORDERS, RENAMED, iceberg

TABLE = TableIdentifier("prod", ("a", "b"), "orders")
PAGE = document("iceberg-page")


def test_a_page_is_its_events_each_with_its_own_bytes() -> None:
    raw = golden("iceberg-page")
    start = raw.index(b'{"event-id":"e1"')
    body = raw[start : raw.index(b',{"event-id":"e2"')]
    hint = Notification(TableIdentifier("prod", ("a",), "orders"), "one", "e1", uuid=UUID, body=body)
    assert decoded(raw, ONE) == DecodedRequest((hint,), 1, "iceberg")


def test_a_page_may_be_empty_and_the_last() -> None:
    assert decoded({"continuation-token": None, "events": []}, ONE) == DecodedRequest((), 0, None)


def test_an_array_of_pages_is_taken_and_bounded() -> None:
    page = PAGE | {"events": [iceberg("update-table")] * (MAX_EVENTS // 2)}
    assert len(hints([page, page], ONE)) == MAX_EVENTS
    assert refused([page, page, iceberg("update-table")], ONE) == (422, "#")


@pytest.mark.parametrize(
    ("told", "birth"),
    [
        ("create-table", TableOrigin.CREATE),
        ("register-table", TableOrigin.REGISTER),
        ("update-table", None),
        ("drop-table", None),
    ],
)
def test_each_type_that_changes_a_table_is_a_hint(told: str, birth: TableOrigin | None) -> None:
    body = json.dumps(iceberg(told)).encode()
    assert hints(body, ONE) == (
        Notification(TABLE, "one", "e1", drop=told == "drop-table", uuid=UUID, origin=birth, body=body),
    )


@pytest.mark.parametrize("purge", [True, False, None])
def test_a_drop_may_say_that_the_files_go_too(purge: bool | None) -> None:
    assert hints(iceberg("drop-table", purge=purge), ONE)[0].purge is (purge is True)
    assert not hints(iceberg("update-table", purge=purge), ONE)[0].purge


def test_a_rename_is_two_hints() -> None:
    body = json.dumps(iceberg("rename-table", **RENAMED)).encode()
    target = TableIdentifier("prod", ("a",), "archive")
    old = Notification(TABLE, "one", "e1", renamed_to=target, uuid=UUID, body=body)
    assert hints(body, ONE) == (
        old,
        Notification(target, "one", "e1\x1fdestination", uuid=UUID, renamed_from=TABLE, body=body),
    )


def test_a_sender_of_several_catalogs_can_send_none() -> None:
    assert refused(iceberg("update-table"), SENDER) == (422, "#")
    assert outcome(iceberg("drop-view"), SENDER) == ("iceberg", 0, 1, 0)


@pytest.mark.parametrize("told", ["commit-report", "scan-report"])
def test_a_report_is_of_no_concern(told: str) -> None:
    report = document("iceberg-commit-report") | {"report-type": told}
    assert decoded(report) == DecodedRequest((), 1, "reports")
    assert outcome(report | {"table-name": 7, "metrics": None}) == ("reports", 0, 1, 0)


@pytest.mark.parametrize(
    ("event", "where"),
    [
        (iceberg("update-table") | {"event-id": None}, "event-id"),
        (iceberg("update-table", table_uuid=7), "operation/table-uuid"),
        (iceberg("update-table", identifier=None), "operation/identifier"),
        (iceberg("update-table", identifier={"namespace": "a", "name": "t"}), "operation/identifier/namespace"),
        (iceberg("update-table", identifier={"namespace": ["a"], "name": ""}), "operation/identifier/name"),
        (iceberg("update-table", operation_type=7), "operation/operation-type"),
        (iceberg("drop-table", purge="true"), "operation/purge"),
        (iceberg("rename-table", source=ORDERS), "operation/destination"),
        (iceberg("rename-table", source=ORDERS, destination=ORDERS), "operation/destination"),
        (PAGE | {"events": {}}, "events"),
        (PAGE | {"events": [iceberg("update-table", table_uuid="")]}, "events/0/operation/table-uuid"),
    ],
)
def test_a_wrong_field_is_422_and_named(event: object, where: str) -> None:
    assert refused(event, ONE) == (422, f"#/{where}")


def test_a_page_of_something_else_is_415() -> None:
    assert refused(PAGE | {"events": [7]}, ONE) == (415, "#/events/0")
    assert refused(PAGE | {"events": [PAGE]}, ONE) == (415, "#/events/0")


@given(identifiers, names, st.sampled_from(["create-table", "update-table", "drop-table"]))
def test_whatever_is_of_the_shape_becomes_its_hint(identifier: dict[str, Any], uuid: str, told: str) -> None:
    (hint,) = hints(iceberg(told, identifier=identifier, table_uuid=uuid), ONE)
    assert hint.subject == TableIdentifier("prod", tuple(identifier["namespace"]), identifier["name"])
    assert (hint.uuid, hint.drop) == (uuid, told == "drop-table")
