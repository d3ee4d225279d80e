"""Notifications and events of Apache Polaris."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.errors import Rejected
from sfn.formats.decode import MAX_STORED_EVENT, DecodedRequest, decode, notifications_for_unread
from sfn.formats.event import MAX_LEVELS, MAX_LOCATION, MAX_NAME, EventRequest, Sender
from sfn.formats.polaris import EVENT_TYPES, NOTIFICATION_TYPES, parse_notification_path
from tests.dialects.requests import ONE, STRUCTURED, anything, decoded, document, golden, hints, levels, outcome
from tests.dialects.requests import names as event_names
from tests.dialects.requests import refused as refused_event
from tests.dialects.samples import polaris, polaris_webhook

SNOWFLAKE = Sender("snowflake", {"theirs": "prod", "a/b c": "dev"})
PATH = "/v1/theirs/namespaces/ns1/tables/orders/notifications"
ORDERS = TableIdentifier("prod", ("ns1",), "orders")
LOCATION = "s3://wh/ns1/orders/metadata/00003-5b1c.metadata.json"
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def notification(kind: object = "UPDATE", **more: object) -> dict[str, Any]:
    """As Polaris' API describes it; an underscore in a name is a hyphen there."""
    payload = {"table-name": "orders", "timestamp": 1788000000123, "table-uuid": UUID, "metadata-location": LOCATION}
    return {
        "notification-type": kind,
        "payload": payload | {key.replace("_", "-"): value for key, value in more.items()},
    }


def told(content: object = None, path: str = PATH, sender: Sender = SNOWFLAKE) -> DecodedRequest:
    body = content if isinstance(content, bytes) else json.dumps(content or notification()).encode()
    return decode(EventRequest(path, [], body, sender))


def hint(content: object = None, path: str = PATH) -> Notification:
    (only,) = told(content, path).notifications
    return only


def refusal_of(content: object = None, path: str = PATH, sender: Sender = SNOWFLAKE) -> Rejected | None:
    """Anything else that is raised fails the test."""
    try:
        told(content, path, sender)
    except Rejected as refusal:
        return refusal
    return None


def refused(content: object = None, path: str = PATH, sender: Sender = SNOWFLAKE) -> tuple[int, str]:
    refusal = refusal_of(content, path, sender)
    assert refusal is not None
    return refusal.status, refusal.where


def at(namespace: str, table: str, prefix: str = "theirs") -> str:
    return f"/v1/{prefix}/namespaces/{namespace}/tables/{table}/notifications"


@pytest.mark.parametrize(("kind", "birth"), [("CREATE", TableOrigin.CREATE), ("UPDATE", None)])
def test_what_changes_the_pointer_carries_a_floor(kind: str, birth: TableOrigin | None) -> None:
    body = json.dumps(notification(kind)).encode()
    event_id = hint(body).event_id
    assert event_id is not None
    assert len(event_id) == sha256().digest_size * 2
    hints = (Notification(ORDERS, "snowflake", event_id, LOCATION, uuid=UUID, origin=birth, body=body),)
    assert told(body) == DecodedRequest(hints, ignored=0, event_format="polaris")


def test_a_drop_has_no_floor() -> None:
    body = json.dumps(notification("DROP")).encode()
    assert hint(body) == Notification(ORDERS, "snowflake", hint(body).event_id, drop=True, uuid=UUID, body=body)


@pytest.mark.parametrize("kind", ["VALIDATE", "UNKNOWN"])
def test_what_changes_nothing_is_checked_all_the_same(kind: str) -> None:
    assert told(notification(kind)) == DecodedRequest((), ignored=1, event_format="polaris")
    assert told(notification(kind, metadata_location="s3://wh/ns1/orders/")) == told(notification(kind))
    assert refused(notification(kind, timestamp="now")) == (400, "#/payload/timestamp")
    assert refused(notification(kind), path=at("ns1", "orders", prefix="unknown")) == (404, "path/prefix")


def test_the_path_alone_says_which_table() -> None:
    assert hint(notification(table_name="customers")).subject == ORDERS


def test_of_a_long_notification_the_beginning_is_kept() -> None:
    body = json.dumps(notification(metadata={"more": "x" * 100_000})).encode()
    assert hint(body).body == body[:MAX_STORED_EVENT]


@pytest.mark.parametrize(
    ("path", "table"),
    [
        (at("a%1Fb", "t"), TableIdentifier("prod", ("a", "b"), "t")),
        (at("a%1fb", "t"), TableIdentifier("prod", ("a", "b"), "t")),
        (at("a.b", "t.u"), TableIdentifier("prod", ("a.b",), "t.u")),
        (at("a%2Fb", "t%2Fu"), TableIdentifier("prod", ("a/b",), "t/u")),
        (at("tables%2Fx%2Fnotifications", "t"), TableIdentifier("prod", ("tables/x/notifications",), "t")),
        (at("a+b", "t%20u"), TableIdentifier("prod", ("a+b",), "t u")),
        (at("%C3%A4", "%F0%9F%A7%8A"), TableIdentifier("prod", ("ä",), "🧊")),
        (at("a%252Fb", "%25"), TableIdentifier("prod", ("a%2Fb",), "%")),
        (at("%2E%2E", "."), TableIdentifier("prod", ("..",), ".")),
        (at("a=b", "t;v=1"), TableIdentifier("prod", ("a=b",), "t;v=1")),
        (at("namespaces", "tables"), TableIdentifier("prod", ("namespaces",), "tables")),
        (at("ns1", "t", prefix="a%2Fb%20c"), TableIdentifier("dev", ("ns1",), "t")),
    ],
)
def test_each_segment_of_the_path_is_decoded_on_its_own(path: str, table: TableIdentifier) -> None:
    assert hint(path=path).subject == table


@pytest.mark.parametrize(
    "path",
    [
        "/v1/events",
        "/v1/namespaces/ns1/tables/t/notifications",
        "/v1/a/b/namespaces/ns1/tables/t/notifications",
        "/v1/theirs/namespaces/a/b/tables/t/notifications",
        "/v1/theirs/namespaces/ns1/tables/t/u/notifications",
        "/v1/theirs/namespaces/ns1/tables/t%2Fnotifications",
        "/v1/theirs/namespaces/ns1/tables/t/notifications/",
        "/v1/theirs/namespaces/ns1/tables/t/notifications\n",
        "/v1/theirs/namespaces/ns1/views/t/notifications",
        "/V1/theirs/namespaces/ns1/tables/t/notifications",
        "/catalog/v1/theirs/namespaces/ns1/tables/t/notifications",
    ],
)
def test_any_other_path_is_none_of_a_notification(path: str) -> None:
    assert parse_notification_path(path) is None


@pytest.mark.parametrize(
    ("path", "status", "where"),
    [
        (at("", "t"), 400, "namespace"),
        (at("a%1F", "t"), 400, "namespace"),
        (at("%1Fa", "t"), 400, "namespace"),
        (at("a%1F%1Fb", "t"), 400, "namespace"),
        (at("a%00", "t"), 400, "namespace"),
        (at("%FF", "t"), 400, "namespace"),
        (at("%ED%A0%80", "t"), 400, "namespace"),
        (at("a%2", "t"), 400, "namespace"),
        (at("%1F".join(["a"] * (MAX_LEVELS + 1)), "t"), 400, "namespace"),
        (at("a" * (MAX_NAME + 1), "t"), 400, "namespace"),
        (at("a", ""), 400, "table"),
        (at("a", "%zz"), 400, "table"),
        (at("a", "t%1Fu"), 400, "table"),
        (at("a", "t%0A"), 400, "table"),
        (at("a", "%E2%80%A8"), 400, "table"),
        (at("a", "%C0%AF"), 400, "table"),
        (at("a", "t", prefix="%FF"), 400, "prefix"),
        (at("a", "t", prefix=""), 404, "prefix"),
        (at("a", "t", prefix="prod"), 404, "prefix"),
        (at("", "", prefix="THEIRS"), 404, "prefix"),
    ],
)
def test_a_path_that_names_no_table_is_refused_and_the_part_named(path: str, status: int, where: str) -> None:
    assert refused(path=path) == (status, f"path/{where}")
    assert notifications_for_unread(path, SNOWFLAKE) == ()


def test_a_refusal_tells_of_nobody_elses_catalogs() -> None:
    said = str(refusal_of(path=at("a", "t", prefix="nobodys")))
    assert said == "path/prefix: expected one of theirs, a/b c, found 'nobodys'"
    assert str(refusal_of(path=at("a", "t", prefix="dev"))) == said.replace("nobodys", "dev")
    assert refused(sender=Sender("nobody", {})) == (404, "path/prefix")


LONG = "x" * (MAX_NAME + 1)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"", "#"),
        (b"nonsense", "#"),
        (b"[" * 100_000, "#"),
        (b"[]", "#"),
        (b'"UPDATE"', "#"),
        ([notification()], "#"),
        ({"payload": notification()["payload"]}, "#/notification-type"),
        (notification("RENAME"), "#/notification-type"),
        (notification("update"), "#/notification-type"),
        (notification(7), "#/notification-type"),
        ({"notification-type": "UPDATE"}, "#/payload"),
        ({"notification-type": "UPDATE", "payload": [1]}, "#/payload"),
        (notification(table_name=None), "#/payload/table-name"),
        (notification(table_name=""), "#/payload/table-name"),
        (notification(table_uuid=None), "#/payload/table-uuid"),
        (notification(table_uuid=LONG), "#/payload/table-uuid"),
        (notification(metadata_location=None), "#/payload/metadata-location"),
        (notification(metadata_location=["s3://b"]), "#/payload/metadata-location"),
        (notification(metadata_location="s3://b/\n"), "#/payload/metadata-location"),
        (notification(metadata_location="x" * (MAX_LOCATION + 1)), "#/payload/metadata-location"),
        (notification(timestamp=None), "#/payload/timestamp"),
        (notification(timestamp=True), "#/payload/timestamp"),
        (notification(timestamp="1788000000123"), "#/payload/timestamp"),
        (notification(timestamp=1.5), "#/payload/timestamp"),
        (notification(timestamp=1e300), "#/payload/timestamp"),
        (notification(timestamp=2**63), "#/payload/timestamp"),
    ],
)
def test_a_wrong_field_is_400_and_named(content: object, where: str) -> None:
    assert refused(content if isinstance(content, bytes) else json.dumps(content).encode()) == (400, where)


@pytest.mark.parametrize("timestamp", [0, -(2**63), 2**63 - 1, 1788000000123.0])
def test_a_time_is_any_whole_number_of_64_bits(timestamp: float) -> None:
    assert hint(notification(timestamp=timestamp)).subject == ORDERS


def test_a_repeat_has_the_same_id_however_it_is_spelt() -> None:
    same = [
        hint().event_id,
        hint(notification(table_name="other", metadata={})).event_id,
        hint(notification(timestamp=1788000000123.0)).event_id,
        hint(json.dumps(notification(), indent=2).encode()).event_id,
        hint(path=at("n%731", "orders")).event_id,
    ]
    assert len(set(same)) == 1


def test_whatever_makes_another_notification_makes_another_id() -> None:
    hints = [
        hint(),
        hint(notification("CREATE")),
        hint(notification("DROP")),
        hint(notification(timestamp=1788000000124)),
        hint(notification(table_uuid=UUID[:-1] + "2")),
        hint(notification(metadata_location=LOCATION + "x")),
        hint(notification(table_uuid=UUID + "s3", metadata_location=LOCATION.removeprefix("s3"))),
        hint(path=at("ns1", "orders2")),
        hint(path=at("ns1%1Forders", "orders")),
        hint(path=at("ns1", "orders", prefix="a%2Fb%20c")),
    ]
    assert len({one.event_id for one in hints}) == len(hints)


names = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=12)
tables = st.tuples(st.lists(names, min_size=1, max_size=4), names)


@given(tables, tables)
@example((["a", "b"], "c"), (["ab"], "c"))
@example((["a"], "bc"), (["ab"], "c"))
@example((["a/b"], "c"), (["a"], "b/c"))
def test_any_name_comes_through_the_path_and_no_two_tables_share_an_id(
    one: tuple[list[str], str], other: tuple[list[str], str]
) -> None:
    one_hint, other_hint = (
        hint(path=at(quote("\x1f".join(levels), safe=""), quote(name, safe=""))) for levels, name in (one, other)
    )
    assert one_hint.subject == TableIdentifier("prod", tuple(one[0]), one[1])
    assert (one_hint.event_id == other_hint.event_id) == (one == other)


@pytest.mark.slow
@given(
    anything | st.fixed_dictionaries({"notification-type": st.sampled_from(NOTIFICATION_TYPES), "payload": anything})
)
def test_any_json_is_taken_or_refused_with_400(content: object) -> None:
    refusal = refusal_of(json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    assert refusal is None or refusal.status == 400


@pytest.mark.slow
@given(
    st.sampled_from(["table-name", "timestamp", "table-uuid", "metadata-location", "metadata"]), anything, st.booleans()
)
def test_one_field_of_any_other_kind_is_taken_or_named(field: str, value: object, left_out: bool) -> None:
    content = notification()
    content["payload"][field] = value
    if left_out:
        del content["payload"][field]
    refusal = refusal_of(content)
    if refusal is None:
        assert field == "metadata" or not left_out
    else:
        assert (refusal.status, refusal.where) == (400, f"#/payload/{field}")


@given(st.binary(max_size=40).map(lambda raw: quote(raw, safe="%")), st.text(max_size=20).map(quote))
def test_any_path_is_a_table_or_refused(segment: str, other: str) -> None:
    for path in (at(segment, other), at(other, segment), at("ns1", "t", prefix=segment)):
        if parse_notification_path(path) is not None:
            refusal = refusal_of(path=path)
            assert refusal is None or refusal.status in {400, 404}


def test_a_body_that_was_not_read_is_made_up_for() -> None:
    assert notifications_for_unread(PATH, SNOWFLAKE) == (Notification(ORDERS, "snowflake"),)
    several = Sender("etl", {"theirs": "prod", "other": "dev", "again": "prod"})
    assert notifications_for_unread("/v1/events", several) == (
        Notification(CatalogName("prod"), "etl"),
        Notification(CatalogName("dev"), "etl"),
    )


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
    assert refused_event(wrong, ONE) == (422, "#/data/table_name")


def test_a_rename_is_two_hints() -> None:
    body = golden("polaris-kafka-after-rename-table")
    target = TableIdentifier("prod", ("ns1",), "orders_v2")
    old = Notification(ORDERS, "one", "3c2d", renamed_to=target, body=body)
    new = Notification(target, "one", "3c2d\x1fdestination", renamed_from=ORDERS, body=body)
    assert hints(body, ONE) == (old, new)


@pytest.mark.parametrize("told", sorted(set(EVENT_TYPES) - {"AFTER_RENAME_TABLE"}))
def test_each_type_that_changes_a_table_is_a_hint(told: str) -> None:
    body = json.dumps(polaris(told)).encode()
    births = {"AFTER_CREATE_TABLE": TableOrigin.CREATE, "AFTER_REGISTER_TABLE": TableOrigin.REGISTER}
    drop = told == "AFTER_DROP_TABLE"
    assert hints(body) == (Notification(ORDERS, "catalogs", ID, drop=drop, origin=births.get(told), body=body),)


def test_an_event_need_not_have_an_id() -> None:
    assert hints(polaris("AFTER_UPDATE_TABLE", event_id=None))[0].event_id is None
    assert [hint.event_id for hint in hints(RENAME | {"event_id": None}, ONE)] == [None, None]


def test_a_catalog_that_is_not_mapped_is_told_of() -> None:
    said = decoded(polaris("AFTER_UPDATE_TABLE", catalog_name="other"))
    assert said == DecodedRequest((), 0, "polaris-events", 1, ("other",))
    # Its name there, and not ours.
    assert decoded(polaris("AFTER_UPDATE_TABLE", catalog_name="prod")).unmapped_catalogs == ("prod",)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (polaris("AFTER_UPDATE_TABLE", catalog_name=None), "catalog_name"),
        (polaris("AFTER_UPDATE_TABLE", table_name=None), "table_name"),
        (polaris("AFTER_UPDATE_TABLE", table_name="a\nb"), "table_name"),
        (polaris("AFTER_UPDATE_TABLE", namespace="ns1"), "namespace"),
        (polaris("AFTER_UPDATE_TABLE", namespace=["a", ""]), "namespace/1"),
        (polaris("AFTER_UPDATE_TABLE", namespace=["a"] * (MAX_LEVELS + 1)), "namespace"),
        (polaris("AFTER_UPDATE_TABLE", event_id=""), "event_id"),
        (RENAME | {"catalog_name": "theirs", "source": None}, "source"),
        (RENAME | {"catalog_name": "theirs", "source": []}, "source"),
        (RENAME | {"catalog_name": "theirs", "destination": ["a", 1]}, "destination/1"),
        (RENAME | {"catalog_name": "theirs", "destination": ["a"] * (MAX_LEVELS + 2)}, "destination"),
        (RENAME | {"catalog_name": "theirs", "destination": ["ns1", "orders"]}, "destination"),
    ],
)
def test_a_wrong_field_is_422_and_named(content: object, where: str) -> None:
    assert refused_event(content) == (422, f"#/{where}")


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
    assert outcome(polaris_webhook(told), ONE) == ("polaris-webhook", 1, 0, 0)
    assert outcome(polaris_webhook(told.replace("update", "load").replace("UPDATE", "LOAD")), ONE) == (
        "polaris-webhook",
        0,
        1,
        0,
    )


def test_by_its_header_a_webhook_is_known_whatever_its_source() -> None:
    content = polaris_webhook("AFTER_DROP_TABLE", source="https://polaris.example.org")
    assert outcome(content, ONE, MARKED) == ("polaris-webhook", 1, 0, 0)
    assert outcome(content, ONE) == ("cloudevents", 0, 1, 0)
    assert refused_event({"type": "AFTER_DROP_TABLE"}, ONE, MARKED) == (422, "#/specversion")


def test_an_event_that_names_its_table_is_more_than_a_webhook() -> None:
    assert outcome(golden("polaris-kafka-after-update-table"), ONE, MARKED) == ("polaris-events", 1, 0, 0)


@given(levels, event_names, event_names, st.sampled_from(sorted(set(EVENT_TYPES) - {"AFTER_RENAME_TABLE"})))
def test_whatever_is_of_the_shape_becomes_its_hint(namespace: list[str], name: str, event_id: str, told: str) -> None:
    (hint,) = hints(polaris(told, namespace=namespace, table_name=name, event_id=event_id))
    assert (hint.subject, hint.event_id) == (TableIdentifier("prod", tuple(namespace), name), event_id)
    assert hint.drop == (told == "AFTER_DROP_TABLE")


@given(levels, event_names, levels, event_names)
def test_whatever_is_a_rename_becomes_its_two_hints(old: list[str], name: str, new: list[str], other: str) -> None:
    content: dict[str, Any] = RENAME | {"source": [*old, name], "destination": [*new, f"to {other}"]}
    if [*old, name] != content["destination"]:
        source, destination = hints(content, ONE)
        assert source.subject == destination.renamed_from == TableIdentifier("prod", tuple(old), name)
        assert destination.subject == source.renamed_to == TableIdentifier("prod", tuple(new), f"to {other}")
