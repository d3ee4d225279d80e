"""Our own event format, through the table of dialects as a request meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.formats.event import MAX_LEVELS, MAX_LOCATION, MAX_NAME, Sender
from sfn.formats.native import OPERATIONS
from tests.dialects.requests import anything, names
from tests.unit.telling import ORDERS, orders, refusal_of, refused, said

SEVERAL = Sender("etl", {"their-prod": "prod", "their-dev": "dev"})


def test_an_identifier_alone_is_a_commit_of_unknown_content() -> None:
    body = b'{"namespace": ["sales"], "name": "orders"}'
    assert said(body) == (Notification(ORDERS, "etl", body=body),)
    assert said(body)[0].is_unspecific


def test_of_a_long_event_the_beginning_is_kept() -> None:
    body = b'{"namespace": ["sales"], "name": "orders", "more": "' + b"x" * 100_000 + b'"}'
    (hint,) = said(body)
    assert hint.body == body[:4_096]


def test_a_dotted_namespace_is_its_levels() -> None:
    (hint,) = said({"namespace": "a.b", "name": "t"})
    assert hint.subject == TableIdentifier("prod", ("a", "b"), "t")


def test_a_namespace_may_have_no_level() -> None:
    (hint,) = said({"namespace": [], "name": "t"})
    assert hint.subject == TableIdentifier("prod", (), "t")


def test_a_dot_in_an_array_is_part_of_the_level() -> None:
    (hint,) = said({"namespace": ["a.b"], "name": "t.u"})
    assert hint.subject == TableIdentifier("prod", ("a.b",), "t.u")


@pytest.mark.parametrize("operation", ["commit", "create", "register", None])
def test_what_changes_the_pointer_carries_a_floor(operation: str | None) -> None:
    (hint,) = said(orders(operation=operation, metadata_location="s3://b/t/1.json", event_id="e1", table_uuid="u1"))
    assert (hint.min_metadata_location, hint.event_id, hint.drop, hint.renamed_to) == (
        "s3://b/t/1.json",
        "e1",
        False,
        None,
    )
    births = {"create": TableOrigin.CREATE, "register": TableOrigin.REGISTER}
    assert (hint.uuid, hint.origin) == ("u1", births.get(operation or "commit"))


@pytest.mark.parametrize("purge", [True, False, None])
def test_a_drop_has_no_floor(purge: bool | None) -> None:
    (hint,) = said(orders(operation="drop", purge=purge, metadata_location="s3://b/t/1.json", event_id="e1"))
    assert (hint.subject, hint.drop, hint.purge, hint.min_metadata_location, hint.event_id) == (
        ORDERS,
        True,
        purge is True,
        None,
        "e1",
    )


def test_a_rename_is_two_hints() -> None:
    destination = {"namespace": "archive.old", "name": "orders"}
    place = "s3://b/t/1.json"
    event = orders(operation="rename", destination=destination, event_id="e1", metadata_location=place, table_uuid="u1")
    old, new = said(event)
    target = TableIdentifier("prod", ("archive", "old"), "orders")
    assert (old.subject, old.renamed_to, old.event_id, old.min_metadata_location) == (ORDERS, target, "e1", None)
    assert (new.subject, new.renamed_to, new.renamed_from, new.min_metadata_location) == (target, None, ORDERS, place)
    assert (old.uuid, new.uuid, old.origin, new.origin) == ("u1", "u1", None, None)


def test_the_hints_of_a_rename_are_no_duplicates_of_each_other_nor_of_other_events() -> None:
    destination = {"namespace": "a", "name": "b"}
    old, new = said(orders(operation="rename", destination=destination, event_id="e1"))
    again = said(orders(operation="rename", destination=destination, event_id="e1"))
    assert old.event_id != new.event_id
    assert (again[0].event_id, again[1].event_id) == (old.event_id, new.event_id)
    assert refused(orders(event_id=new.event_id)) == (422, "#/event_id")
    assert said(orders(operation="rename", destination=destination))[1].event_id is None


def test_the_only_catalog_of_a_sender_need_not_be_named() -> None:
    assert said(orders(catalog="prod"))[0].subject == ORDERS
    assert refused(orders(catalog="dev")) == (422, "#/catalog")


def test_one_of_several_catalogs_is_named_as_the_sender_calls_it() -> None:
    (hint,) = said(orders(catalog="their-dev"), SEVERAL)
    assert hint.subject == TableIdentifier("dev", ("sales",), "orders")
    assert refused(orders(), SEVERAL) == (422, "#/catalog")
    assert refused(orders(catalog="dev"), SEVERAL) == (422, "#/catalog")
    assert refused(orders(), Sender("nobody", {})) == (422, "#/catalog")


def test_unknown_keys_and_repeated_ones_are_fine() -> None:
    assert said(b'{"name":"x","namespace":["sales"],"more":[{}],"name":"orders"}')[0].subject == ORDERS


LONG = "x" * (MAX_NAME + 1)


@pytest.mark.parametrize(
    ("event", "where"),
    [
        (orders(name=""), "name"),
        (orders(name=None), "name"),
        (orders(name=1), "name"),
        (orders(name="a\0b"), "name"),
        (orders(name="a\nb"), "name"),
        (orders(name="a\x1fb"), "name"),
        (orders(name="a\x7f"), "name"),
        (orders(name="a\x85"), "name"),
        (orders(name=LONG), "name"),
        (orders(namespace=None), "namespace"),
        (orders(namespace={}), "namespace"),
        (orders(namespace=""), "namespace"),
        (orders(namespace="a..b"), "namespace"),
        (orders(namespace=LONG), "namespace"),
        (orders(namespace=["a", ""]), "namespace/1"),
        (orders(namespace=["a", ["b"]]), "namespace/1"),
        (orders(namespace=["a"] * (MAX_LEVELS + 1)), "namespace"),
        (orders(namespace=".".join(["a"] * (MAX_LEVELS + 1))), "namespace"),
        (orders(operation="truncate"), "operation"),
        (orders(operation=""), "operation"),
        (orders(operation=["drop"]), "operation"),
        (orders(operation="rename"), "destination"),
        (orders(operation="rename", destination="a.b"), "destination"),
        (orders(operation="rename", destination={"name": "b"}), "destination/namespace"),
        (orders(operation="rename", destination={"namespace": ["a"], "name": 1}), "destination/name"),
        (orders(operation="rename", destination={"namespace": ["a", 2], "name": "b"}), "destination/namespace/1"),
        (orders(operation="rename", destination={"namespace": "sales", "name": "orders"}), "destination"),
        (orders(destination={"namespace": "a", "name": "b"}), "destination"),
        (orders(operation="drop", purge="true"), "purge"),
        (orders(operation="drop", purge=1), "purge"),
        (orders(operation="drop", purge=0), "purge"),
        (orders(purge=True), "purge"),
        (orders(event_id=7), "event_id"),
        (orders(event_id=""), "event_id"),
        (orders(event_id=LONG), "event_id"),
        (orders(table_uuid=7), "table_uuid"),
        (orders(ref=[]), "ref"),
        (orders(metadata_location=False), "metadata_location"),
        (orders(metadata_location="s3://b/\r"), "metadata_location"),
        (orders(metadata_location="x" * (MAX_LOCATION + 1)), "metadata_location"),
        (orders(occurred_at=1_788_000_000), "occurred_at"),
        (orders(occurred_at="2026-08-21T10:00:00"), "occurred_at"),
        (orders(occurred_at="2026-08-21T10:00:00Z\n"), "occurred_at"),
        (orders(catalog=1), "catalog"),
    ],
)
def test_a_wrong_field_is_422_and_named(event: dict[str, object], where: str) -> None:
    assert refused(event) == (422, f"#/{where}")


def test_what_is_wrong_is_not_repeated_at_length() -> None:
    refusal = refusal_of(orders(operation="x" * 500))
    assert len(str(refusal)) < 200
    assert str(refusal_of(orders(operation="\u202e"))).isascii()
    assert "truncated" in str(refusal_of(orders(operation="truncated")))


@pytest.mark.parametrize("moment", ["2026-08-21T10:00:00Z", "2026-08-21t10:00:00.123456789+02:00"])
def test_times_are_those_of_rfc_3339(moment: str) -> None:
    assert said(orders(occurred_at=moment))


def test_the_error_says_which_form_a_time_has() -> None:
    assert "a date and time of RFC 3339" in str(refusal_of(orders(occurred_at="yesterday")))


undotted = names.map(lambda name: name.replace(".", "-"))
namespaces = st.lists(names, max_size=4) | st.lists(undotted, min_size=1, max_size=4).map(".".join)
fields = [
    *("namespace", "name", "operation", "destination", "purge", "catalog", "event_id", "table_uuid"),
    *("metadata_location", "ref", "occurred_at"),
]


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    event: dict[str, Any] = {"namespace": draw(namespaces), "name": draw(names)}
    optional: dict[str, st.SearchStrategy[object]] = {
        "operation": st.sampled_from(OPERATIONS),
        "event_id": names,
        "metadata_location": names,
        "table_uuid": names,
        "ref": names,
        "catalog": st.just("prod"),
    }
    event |= draw(st.fixed_dictionaries({}, optional=optional))
    if event.get("operation") == "rename":
        event["destination"] = {"namespace": draw(namespaces), "name": "to " + event["name"]}
    if event.get("operation") == "drop":
        event["purge"] = draw(st.booleans())
    return event


def levels(namespace: str | list[str]) -> tuple[str, ...]:
    return tuple(namespace.split(".") if isinstance(namespace, str) else namespace)


@given(st.lists(events(), min_size=1, max_size=4))
def test_whatever_is_of_the_shape_becomes_its_hints(sent: list[dict[str, Any]]) -> None:
    hints = list(said(sent))
    for event in sent:
        operation = event.get("operation", "commit")
        hint = hints.pop(0)
        assert hint.subject == TableIdentifier("prod", levels(event["namespace"]), event["name"])
        assert (hint.sender, hint.event_id) == ("etl", event.get("event_id"))
        assert json.loads(hint.body) == event
        assert (hint.drop, hint.purge) == (operation == "drop", event.get("purge", False))
        if operation in {"commit", "create", "register"}:
            assert hint.min_metadata_location == event.get("metadata_location")
        else:
            assert hint.min_metadata_location is None
        assert (hint.renamed_to is not None) == (operation == "rename")
        if operation == "rename":
            destination = event["destination"]
            assert hint.renamed_to == TableIdentifier("prod", levels(destination["namespace"]), destination["name"])
            assert hints.pop(0).subject == hint.renamed_to
    assert hints == []


odd = st.text('ab.é\\"\x01\x7f\x85', max_size=3) | anything
plain = st.fixed_dictionaries(
    {"namespace": st.lists(odd, max_size=2) | odd, "name": odd},
    optional={"event_id": odd, "metadata_location": odd, "ref": odd},
)


@given(plain, st.booleans())
@example({"namespace": ["a\x7f"], "name": "t"}, False)
@example({"namespace": [], "name": "\x85"}, False)
def test_an_event_alone_is_what_it_is_in_an_array(event: dict[str, Any], ascii_alone: bool) -> None:
    """Most events that come alone, or with events like them, are read another way."""
    body = json.dumps(event, ensure_ascii=ascii_alone)
    alone, *arrays = (text.encode() for text in (body, f"[{body}]", f'[{body}, {{"namespace": "a", "name": "b"}}]'))
    for array in arrays:
        expected, found = refusal_of(alone), refusal_of(array)
        if expected is None or found is None:
            assert said(alone) == said(array)[: len(said(alone))]
        else:
            assert (expected.status, expected.where.replace("#", "#/0")) == (found.status, found.where)


@given(events(), st.sampled_from(fields), anything)
def test_one_field_of_any_other_kind_is_taken_or_named(event: dict[str, Any], field: str, value: object) -> None:
    refusal = refusal_of(event | {field: value})
    if refusal is not None:
        assert refusal.status == 422
        # A changed operation makes what belongs to another one wrong, and of what is too deep nothing is looked at.
        too_deep = refusal.expected.endswith("levels of nesting")
        assert field == "operation" or too_deep or refusal.where.startswith(f"#/{field}")


def test_process_that_decoded_an_event_ends_without_an_error() -> None:
    """Some types corrupt the memory of msgspec when they are freed."""
    body = rb'[{"namespace": "a", "name": "b"}, {"namespace": ["a"], "name": "b", "ref": "c", "occurred_at": null}]'
    program = f"""
from sfn.http import ingest, openapi
ingest.decode(ingest.EventRequest("/v1/events", [], {body!r}, ingest.Sender("etl", {{"prod": "prod"}})))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
