"""Lakekeeper's CloudEvents, through `decode` as a request meets them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.formats.decode import DecodedRequest
from sfn.formats.event import MAX_LEVELS, Headers
from sfn.formats.lakekeeper import TYPES
from tests.dialects.requests import (
    BATCH,
    STRUCTURED,
    UUID,
    WAREHOUSE,
    decoded,
    document,
    golden,
    hints,
    identifiers,
    levels,
    names,
    outcome,
    refused,
)
from tests.dialects.samples import ORDERS, RENAMED, lakekeeper

SOURCE = "uri:iceberg-catalog-service:lakekeeper-0"
TABLE = TableIdentifier("lake", ("a", "b"), "orders")
UPDATE = document("lakekeeper-updateTable")


def identity(event: dict[str, Any]) -> str:
    return f"{event['source']} {event['id']}"


def in_part(event_id: str, name: str) -> dict[str, object]:
    return UPDATE | {"id": event_id, "num-events": 3, "data": {"identifier": ORDERS | {"name": name}}}


def as_binary(event: dict[str, Any], prefix: str = "ce-") -> tuple[bytes, Headers]:
    """The body and the headers of an event, as HTTP's binary mode has it, or as Kafka's is left."""
    attributes = {key: value for key, value in event.items() if key not in {"data", "datacontenttype"}}
    headers = [(f"{prefix}{key}".encode(), quote(str(value)).encode()) for key, value in attributes.items()]
    return json.dumps(event.get("data")).encode(), [(b"content-type", b"application/json"), *headers]


def test_a_commit_is_one_hint() -> None:
    body = golden("lakekeeper-updateTable")
    hint = Notification(TABLE, "catalogs", identity(UPDATE), uuid=UUID, body=body)
    assert decoded(body, headers=STRUCTURED) == DecodedRequest((hint,), 0, "lakekeeper")
    assert decoded(body) == DecodedRequest((hint,), 0, "lakekeeper")
    assert hint.is_unspecific


def test_a_drop_is_one_that_does_not_say_what_became_of_the_files() -> None:
    body = golden("lakekeeper-dropTable")
    hint = Notification(TABLE, "catalogs", identity(json.loads(body)), drop=True, uuid=UUID, body=body)
    assert hints(body, headers=STRUCTURED) == (hint,)


@pytest.mark.parametrize(
    ("told", "birth"),
    [
        ("createTable", TableOrigin.CREATE),
        ("registerTable", TableOrigin.REGISTER),
        ("undropTabulars", TableOrigin.REGISTER),
    ],
)
def test_a_birth_says_how_the_table_came(told: str, birth: TableOrigin) -> None:
    event = lakekeeper(told, namespace="a\x1fb")
    body = json.dumps(event).encode()
    assert hints(body) == (Notification(TABLE, "catalogs", identity(event), uuid=UUID, origin=birth, body=body),)


def test_a_rename_is_two_hints() -> None:
    event = lakekeeper("renameTable", RENAMED, namespace="a\x1fb")
    body = json.dumps(event).encode()
    target = TableIdentifier("lake", ("a",), "archive")
    old, new = hints(body)
    assert old == Notification(TABLE, "catalogs", identity(event), renamed_to=target, uuid=UUID, body=body)
    arrival = f"{identity(event)}\x1fdestination"
    assert new == Notification(target, "catalogs", arrival, renamed_from=TABLE, uuid=UUID, body=body)


def test_a_rename_that_does_not_say_where_to_is_a_sweep() -> None:
    (hint,) = hints(lakekeeper("renameTable"))
    assert (hint.subject, hint.is_unspecific) == (CatalogName("lake"), True)


@pytest.mark.parametrize("staged", [True, False, None])
def test_a_create_that_is_staged_is_of_no_concern_yet(staged: bool | None) -> None:
    taken = outcome(lakekeeper("createTable", {"name": "orders", "stage-create": staged}))
    assert taken == (("lakekeeper", 0, 1, 0) if staged else ("lakekeeper", 1, 0, 0))


def test_a_transaction_is_a_hint_for_each_of_its_tables() -> None:
    events = [in_part(f"e{index}", f"t{index}") for index in range(3)]
    assert [(hint.subject, hint.event_id) for hint in hints(events, headers=BATCH)] == [
        (TableIdentifier("lake", ("a", "b"), f"t{index}"), f"{SOURCE} e{index}") for index in range(3)
    ]


@pytest.mark.parametrize("told", ["createTable", "registerTable", "dropTable"])
def test_levels_between_dots_are_levels(told: str) -> None:
    assert hints(lakekeeper(told, namespace="a.b.c"))[0].subject == TableIdentifier("lake", ("a", "b", "c"), "orders")


@pytest.mark.parametrize("told", sorted(set(TYPES) - {"renameTable"}))
def test_levels_between_unit_separators_are_levels_for_every_type(told: str) -> None:
    event = lakekeeper(told, namespace="a.b\x1fc")
    assert hints(event)[0].subject == TableIdentifier("lake", ("a.b", "c"), "orders")


@pytest.mark.parametrize("told", ["updateTable", "undropTabulars"])
def test_where_no_dots_separate_they_are_part_of_the_level(told: str) -> None:
    assert hints(lakekeeper(told, namespace="a.b"))[0].subject == TableIdentifier("lake", ("a.b",), "orders")


def test_what_data_says_in_arrays_goes_before_the_attributes() -> None:
    event = UPDATE | {"namespace": "other", "name": "other"}
    assert hints(event)[0].subject == TABLE
    assert hints(event | {"data": {"identifier": None}})[0].subject == TableIdentifier("lake", ("other",), "other")


@pytest.mark.parametrize("prefix", ["ce-", "ce_"])
@pytest.mark.parametrize("event", [UPDATE, document("lakekeeper-dropTable")], ids=["updateTable", "dropTable"])
def test_a_binary_event_says_what_a_structured_one_does(event: dict[str, Any], prefix: str) -> None:
    body, headers = as_binary(event, prefix)
    (binary,), (structured,) = hints(body, headers=headers), hints(event)
    assert binary.body == body
    assert (binary.subject, binary.event_id, binary.uuid) == (structured.subject, structured.event_id, structured.uuid)
    assert (binary.drop, binary.origin) == (structured.drop, structured.origin)


@pytest.mark.parametrize("kind", ["View", "GenericTable"])
@pytest.mark.parametrize("told", TYPES)
def test_what_is_no_table_is_of_no_concern(told: str, kind: str) -> None:
    assert outcome(lakekeeper(told, tabular_type=kind)) == ("lakekeeper", 0, 1, 0)


def test_a_warehouse_that_is_not_mapped_is_told_of() -> None:
    said = decoded([lakekeeper("dropTable", warehouse_id=name) for name in ("w1", "w2", "w1", WAREHOUSE)])
    assert (len(said.notifications), said.ignored, said.unmapped_events, said.unmapped_catalogs) == (
        1,
        0,
        3,
        ("w1", "w2"),
    )


@pytest.mark.parametrize(
    ("event", "where"),
    [
        (lakekeeper("dropTable", warehouse_id=None), "warehouse-id"),
        (lakekeeper("dropTable", warehouse_id=7), "warehouse-id"),
        (lakekeeper("dropTable", name=None), "name"),
        (lakekeeper("dropTable", name="a\x7fb"), "name"),
        (lakekeeper("dropTable", namespace=None), "namespace"),
        (lakekeeper("dropTable", namespace=["a"]), "namespace"),
        (lakekeeper("dropTable", namespace=""), "namespace"),
        (lakekeeper("dropTable", namespace="a..b"), "namespace"),
        (lakekeeper("dropTable", namespace="a\x1f"), "namespace"),
        (lakekeeper("dropTable", namespace=".".join("a" * (MAX_LEVELS + 1))), "namespace"),
        (lakekeeper("dropTable", tabular_type=1), "tabular-type"),
        (lakekeeper("dropTable", tabular_id=""), "tabular-id"),
        (lakekeeper("updateTable", {"identifier": "a.b"}), "data/identifier"),
        (lakekeeper("updateTable", {"identifier": {"namespace": "a", "name": "t"}}), "data/identifier/namespace"),
        (lakekeeper("renameTable", {"source": ORDERS}), "data/destination"),
        (lakekeeper("renameTable", {"source": ORDERS, "destination": ORDERS}), "data/destination"),
    ],
)
def test_a_wrong_field_is_422_and_named(event: object, where: str) -> None:
    assert refused(event) == (422, f"#/{where}")
    assert refused([event], headers=BATCH) == (422, f"#/0/{where}")


def test_in_a_binary_event_headers_and_body_are_told_apart() -> None:
    body, headers = as_binary(lakekeeper("updateTable", {"identifier": {"namespace": ["a"], "name": 1}}))
    assert refused(body, headers=headers) == (422, "#/identifier/name")
    body, headers = as_binary(lakekeeper("dropTable", tabular_id="a\x00"))
    assert refused(body, headers=headers) == (422, "headers/tabular-id")


@given(identifiers, names, names)
def test_whatever_is_of_the_shape_becomes_its_hint(identifier: dict[str, Any], event_id: str, uuid: str) -> None:
    event = lakekeeper("updateTable", {"identifier": identifier, "updates": []}, tabular_id=uuid) | {"id": event_id}
    (hint,) = hints(event)
    assert hint.subject == TableIdentifier("lake", tuple(identifier["namespace"]), identifier["name"])
    assert (hint.event_id, hint.uuid) == (f"{SOURCE} {event_id}", uuid)


@given(levels.filter(len), names, st.sampled_from(["ce-", "ce_"]))
def test_names_of_any_script_pass_through_headers(namespace: list[str], name: str, prefix: str) -> None:
    body, headers = as_binary(lakekeeper("undropTabulars", namespace="\x1f".join(namespace), name=name), prefix)
    assert hints(body, headers=headers)[0].subject == TableIdentifier("lake", tuple(namespace), name)
