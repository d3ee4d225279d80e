"""Apache Polaris' events and its webhook, through `decode` as a request meets them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.formats import DecodedRequest
from sfn.formats.event import MAX_LEVELS, Sender
from sfn.formats.polaris import EVENT_TYPES
from tests.dialects.asking import ONE, STRUCTURED, decoded, document, golden, hints, outcome, refused
from tests.dialects.drawing import levels, names
from tests.dialects.samples_polaris import event, webhook

ORDERS = TableIdentifier("prod", ("ns1",), "orders")
ID = "0d9a6d0e-3a0f-4c73-9a39-0d2c6d1f4a11"
RENAME = document("polaris-kafka-after-rename-table")
MARKED = ((b"content-type", b"application/json"), (b"x-polaris-event", b"AFTER_UPDATE_TABLE"))


def test_a_commit_is_one_hint() -> None:
    body = golden("polaris-kafka-after-update-table")
    assert decoded(body, ONE) == DecodedRequest((Notification(ORDERS, "one", ID, body=body),), 0, "polaris-events")


def test_so_it_is_in_a_cloudevent() -> None:
    body = golden("polaris-cloudevent-after-update-table")
    for headers in ((), STRUCTURED, MARKED):
        said = decoded(body, ONE, headers)
        assert said == DecodedRequest((Notification(ORDERS, "one", ID, body=body),), 0, "polaris-events")
    wrong = document("polaris-cloudevent-after-update-table")
    wrong["data"]["table_name"] = 7
    assert refused(wrong, ONE) == (422, "#/data/table_name")


def test_a_rename_is_two_hints() -> None:
    body = golden("polaris-kafka-after-rename-table")
    target = TableIdentifier("prod", ("ns1",), "orders_v2")
    old = Notification(ORDERS, "one", "3c2d", renamed_to=target, body=body)
    new = Notification(target, "one", "3c2d\x1fdestination", renamed_from=ORDERS, body=body)
    assert hints(body, ONE) == (old, new)


@pytest.mark.parametrize("told", sorted(set(EVENT_TYPES) - {"AFTER_RENAME_TABLE"}))
def test_each_type_that_changes_a_table_is_a_hint(told: str) -> None:
    body = json.dumps(event(told)).encode()
    births = {"AFTER_CREATE_TABLE": TableOrigin.CREATE, "AFTER_REGISTER_TABLE": TableOrigin.REGISTER}
    drop = told == "AFTER_DROP_TABLE"
    assert hints(body) == (Notification(ORDERS, "catalogs", ID, drop=drop, origin=births.get(told), body=body),)


def test_an_event_need_not_have_an_id() -> None:
    assert hints(event("AFTER_UPDATE_TABLE", event_id=None))[0].event_id is None
    assert [hint.event_id for hint in hints(RENAME | {"event_id": None}, ONE)] == [None, None]


def test_a_catalog_that_is_not_mapped_is_told_of() -> None:
    said = decoded(event("AFTER_UPDATE_TABLE", catalog_name="other"))
    assert said == DecodedRequest((), 0, "polaris-events", 1, ("other",))
    # Its name there, and not ours.
    assert decoded(event("AFTER_UPDATE_TABLE", catalog_name="prod")).unmapped_catalogs == ("prod",)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (event("AFTER_UPDATE_TABLE", catalog_name=None), "catalog_name"),
        (event("AFTER_UPDATE_TABLE", table_name=None), "table_name"),
        (event("AFTER_UPDATE_TABLE", table_name="a\nb"), "table_name"),
        (event("AFTER_UPDATE_TABLE", namespace="ns1"), "namespace"),
        (event("AFTER_UPDATE_TABLE", namespace=["a", ""]), "namespace/1"),
        (event("AFTER_UPDATE_TABLE", namespace=["a"] * (MAX_LEVELS + 1)), "namespace"),
        (event("AFTER_UPDATE_TABLE", event_id=""), "event_id"),
        (RENAME | {"catalog_name": "theirs", "source": None}, "source"),
        (RENAME | {"catalog_name": "theirs", "source": []}, "source"),
        (RENAME | {"catalog_name": "theirs", "destination": ["a", 1]}, "destination/1"),
        (RENAME | {"catalog_name": "theirs", "destination": ["a"] * (MAX_LEVELS + 2)}, "destination"),
        (RENAME | {"catalog_name": "theirs", "destination": ["ns1", "orders"]}, "destination"),
    ],
)
def test_a_wrong_field_is_422_and_named(content: object, where: str) -> None:
    assert refused(content) == (422, f"#/{where}")


def test_a_webhook_is_a_sweep_of_each_of_the_senders_catalogs() -> None:
    body = golden("polaris-webhook-pr5084")
    sender = Sender("hook", {"a": "prod", "b": "dev", "c": "prod"})
    sweeps = tuple(
        Notification(CatalogName(ours), "hook", f"org.apache.polaris {ID}\x1f{ours}", body=body)
        for ours in ("prod", "dev")
    )
    for headers in ((), STRUCTURED, MARKED):
        assert decoded(body, sender, headers) == DecodedRequest(sweeps, 0, "polaris-webhook")


@pytest.mark.parametrize("told", ["AFTER_UPDATE_TABLE", "org.apache.polaris.after_update_table"])
def test_a_webhooks_type_may_have_a_prefix(told: str) -> None:
    assert outcome(webhook(told), ONE) == ("polaris-webhook", 1, 0, 0)
    assert outcome(webhook(told.replace("update", "load").replace("UPDATE", "LOAD")), ONE) == (
        "polaris-webhook",
        0,
        1,
        0,
    )


def test_by_its_header_a_webhook_is_known_whatever_its_source() -> None:
    content = webhook("AFTER_DROP_TABLE", source="https://polaris.example.org")
    assert outcome(content, ONE, MARKED) == ("polaris-webhook", 1, 0, 0)
    assert outcome(content, ONE) == ("cloudevents", 0, 1, 0)
    assert refused({"type": "AFTER_DROP_TABLE"}, ONE, MARKED) == (422, "#/specversion")


def test_an_event_that_names_its_table_is_more_than_a_webhook() -> None:
    assert outcome(golden("polaris-kafka-after-update-table"), ONE, MARKED) == ("polaris-events", 1, 0, 0)


@given(levels, names, names, st.sampled_from(sorted(set(EVENT_TYPES) - {"AFTER_RENAME_TABLE"})))
def test_whatever_is_of_the_shape_becomes_its_hint(namespace: list[str], name: str, event_id: str, told: str) -> None:
    (hint,) = hints(event(told, namespace=namespace, table_name=name, event_id=event_id))
    assert (hint.subject, hint.event_id) == (TableIdentifier("prod", tuple(namespace), name), event_id)
    assert hint.drop == (told == "AFTER_DROP_TABLE")


@given(levels, names, levels, names)
def test_whatever_is_a_rename_becomes_its_two_hints(old: list[str], name: str, new: list[str], other: str) -> None:
    content: dict[str, Any] = RENAME | {"source": [*old, name], "destination": [*new, f"to {other}"]}
    if [*old, name] != content["destination"]:
        source, destination = hints(content, ONE)
        assert source.subject == destination.renamed_from == TableIdentifier("prod", tuple(old), name)
        assert destination.subject == source.renamed_to == TableIdentifier("prod", tuple(new), f"to {other}")
