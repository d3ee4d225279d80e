"""CloudEvents and their envelopes, through `decode` as a request meets them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import Rejected
from sfn.formats.decode import DecodedRequest
from sfn.formats.event import MAX_NAME, Headers, convert_object
from tests.dialects.requests import (
    BATCH,
    ONE,
    SENDER,
    STRUCTURED,
    anything,
    decoded,
    hints,
    identifiers,
    names,
    outcome,
    refusal_of,
    refused,
)
from tests.dialects.samples import ORDERS, cloudevent

TABLE = TableIdentifier("prod", ("a", "b"), "orders")
RAW = json.dumps(ORDERS).encode()
JSON = (b"content-type", b"application/json")
REQUIRED = ("specversion", "id", "source", "type")
ATTRIBUTES = {b"ce-specversion": b"1.0", b"ce-id": b"e1", b"ce-source": b"/ci/spark", b"ce-type": b"commit"}


def binary(*more: tuple[bytes, bytes], **changed: bytes | None) -> Headers:
    """Headers of a binary event, some with another value, or left out."""
    attributes = ATTRIBUTES | {f"ce-{name}".encode(): value for name, value in changed.items()}
    return [*((name, value) for name, value in attributes.items() if value is not None), *more]


def test_our_own_format_is_carried_and_the_envelopes_id_is_the_events() -> None:
    body = json.dumps(cloudevent(ORDERS | {"event_id": "inner", "metadata_location": "s3://b/1.json"})).encode()
    hint = Notification(TABLE, "one", "/ci/spark e1", "s3://b/1.json", body=body)
    for headers in ((), STRUCTURED, [JSON]):
        assert decoded(body, ONE, headers) == DecodedRequest((hint,), 0, "cloudevents")
    assert decoded(b"[" + body + b"]", ONE, BATCH) == DecodedRequest((hint,), 0, "cloudevents")
    hint = Notification(TABLE, "one", "/ci/spark e1", body=RAW)
    assert decoded(RAW, ONE, binary(JSON)) == DecodedRequest((hint,), 0, "cloudevents")
    assert decoded(RAW, ONE, binary()) == DecodedRequest((hint,), 0, "cloudevents")


def test_a_rename_that_is_carried_has_two_ids() -> None:
    rename = ORDERS | {"operation": "rename", "destination": {"namespace": ["a"], "name": "archive"}}
    assert [hint.event_id for hint in hints(cloudevent(rename), ONE)] == ["/ci/spark e1", "/ci/spark e1\x1fdestination"]


def test_ids_of_two_sources_are_two_however_they_are_written() -> None:
    pairs = [("a", "b c"), ("a b", "c"), ("a", "b"), ("a", "b" * 400), ("a" * 400, "b" * 400), ("a" * 399, "ab" * 200)]
    ids = [hints(cloudevent(ORDERS, source, id=event_id), ONE)[0].event_id for source, event_id in pairs]
    assert len(set(ids)) == len(pairs)
    assert all(event_id is not None and len(event_id) <= MAX_NAME for event_id in ids)


def test_the_catalog_is_said_as_in_our_own_format() -> None:
    assert hints(cloudevent(ORDERS | {"catalog": "theirs"}))[0].subject == TABLE
    assert refused(cloudevent(ORDERS | {"catalog": "other"})) == (422, "#/data/catalog")
    assert refused(cloudevent(ORDERS)) == (422, "#/data/catalog")


@pytest.mark.parametrize("data", [None, "text", 7, [], [ORDERS], {}, {"name": "t"}, cloudevent(ORDERS)])
def test_what_carries_anything_else_is_of_no_concern(data: object) -> None:
    assert outcome(cloudevent(data), ONE) == ("cloudevents", 0, 1, 0)


def test_a_batch_is_an_array_which_may_be_empty() -> None:
    assert decoded([], ONE, BATCH) == DecodedRequest((), 0)
    assert outcome([cloudevent(ORDERS), cloudevent({})], ONE, BATCH) == ("cloudevents", 1, 1, 0)
    assert refused(cloudevent(ORDERS), ONE, BATCH) == (422, "#")
    assert refused([cloudevent(ORDERS), ORDERS], ONE, BATCH) == (422, "#/1/specversion")
    assert refused([7], ONE, BATCH) == (422, "#/0")
    assert refused(b"[", ONE, BATCH)[0] == refused(b"{", ONE, BATCH)[0] == 400


@pytest.mark.parametrize("body", [[cloudevent(ORDERS)], 7, "x"])
def test_where_one_event_is_promised_anything_else_is_refused(body: object) -> None:
    assert refused(body, ONE, STRUCTURED) == (422, "#")


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("value", [None, "", 7, "a\x00b", "x" * (MAX_NAME + 1)])
def test_a_broken_envelope_is_refused_and_its_attribute_named(name: str, value: object) -> None:
    assert refused(cloudevent(ORDERS) | {name: value}, ONE) == (422, f"#/{name}")
    missing = {key: kept for key, kept in cloudevent(ORDERS).items() if key != name}
    assert refused(missing, ONE, STRUCTURED) == (422, f"#/{name}")
    assert refused(RAW, ONE, binary(**{name: None})) == (422, f"headers/{name}")


def test_another_version_is_refused() -> None:
    assert refused(cloudevent(ORDERS, specversion="0.3"), ONE) == (422, "#/specversion")
    assert refused(RAW, ONE, binary(specversion=b"2.0")) == (422, "headers/specversion")


@pytest.mark.parametrize("media_type", [b"application/cloudevents+avro", b"application/cloudevents-batch+xml"])
def test_another_format_than_json_is_415(media_type: bytes) -> None:
    assert refused(b"", ONE, [(b"content-type", media_type)]) == (415, "#")


@pytest.mark.parametrize(
    "media_type",
    [b"application/cloudevents", b"Application/CloudEvents+JSON", b"application/cloudevents+json;charset=utf-8"],
)
def test_media_types_are_read_as_http_has_them(media_type: bytes) -> None:
    assert outcome(cloudevent(ORDERS), ONE, [(b"content-type", media_type)]) == ("cloudevents", 1, 0, 0)
    assert refused(ORDERS, ONE, [(b"content-type", media_type)]) == (422, "#/specversion")


@pytest.mark.parametrize("media_type", [None, "application/json", "application/vnd.example+json; charset=utf-8"])
def test_data_in_base64_is_data(media_type: str | None) -> None:
    event = cloudevent(None, datacontenttype=media_type, data_base64=b64encode(RAW).decode())
    assert hints(event, ONE)[0].subject == TABLE


@pytest.mark.parametrize(
    ("event", "where"),
    [
        (cloudevent(ORDERS, data_base64=b64encode(RAW).decode()), "data_base64"),
        (cloudevent(data_base64=7), "data_base64"),
        (cloudevent(data_base64="?"), "data_base64"),
        (cloudevent(data_base64="é"), "data_base64"),
        (cloudevent(data_base64=b64encode(b"{").decode()), "data_base64"),
        (cloudevent(data_base64=b64encode(b"[" * 100_000).decode()), "data_base64"),
    ],
)
def test_base64_that_is_none_is_refused(event: object, where: str) -> None:
    assert refused(event, ONE) == (422, f"#/{where}")


def test_what_is_no_json_and_does_not_say_that_it_is_is_of_no_concern() -> None:
    assert outcome(b"\x00avro", ONE, binary((b"content-type", b"application/avro"))) == ("cloudevents", 0, 1, 0)
    assert outcome(b"", ONE, binary(JSON)) == ("cloudevents", 0, 1, 0)
    assert outcome(b"null", ONE, binary(JSON)) == ("cloudevents", 0, 1, 0)
    encoded = cloudevent(datacontenttype="application/avro", data_base64="AAEC")
    assert outcome(encoded, ONE) == ("cloudevents", 0, 1, 0)
    assert hints(RAW, ONE, binary((b"content-type", b"application/octet-stream")))[0].subject == TABLE


@pytest.mark.parametrize("media_type", [[], [JSON], [(b"content-type", b"application/x+json")]])
@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000])
def test_what_says_that_it_is_json_and_is_none_is_400(body: bytes, media_type: list[tuple[bytes, bytes]]) -> None:
    assert refused(body, ONE, binary(*media_type)) == (400, "#")


def test_values_of_headers_are_unquoted_and_then_decoded_once() -> None:
    def id_of(value: bytes) -> str | None:
        return hints(RAW, ONE, binary(id=value))[0].event_id

    assert id_of(b"a%20b") == "/ci/spark a b"
    assert id_of(b"a%2520b") == "/ci/spark a%20b"
    assert id_of(b"%E2%82%AC") == "/ci/spark €"
    assert id_of("€".encode()) == "/ci/spark €"
    assert id_of(b'"a\\"b\\\\%41"') == '/ci/spark a"b\\A'
    assert id_of(b"100%") == "/ci/spark 100%"
    assert refused(RAW, ONE, binary(id=b"%FF")) == (400, "headers/id")
    assert refused(RAW, ONE, binary(id=b"%00")) == (422, "headers/id")


def test_a_header_twice_is_refused() -> None:
    for other in (b"ce-id", b"ce_id"):
        assert refused(RAW, ONE, binary((other, b"e2"))) == (400, "headers/id")


def test_no_header_stands_for_the_body() -> None:
    assert outcome(b"", ONE, binary((b"ce-data", RAW))) == ("cloudevents", 0, 1, 0)


@given(identifiers, names, names)
def test_whatever_carries_our_format_becomes_its_hint(identifier: dict[str, Any], source: str, event_id: str) -> None:
    (structured,) = hints(cloudevent(identifier, source, id=event_id), ONE)
    assert structured.subject == TableIdentifier("prod", tuple(identifier["namespace"]), identifier["name"])
    encoded = {"id": quote(event_id).encode(), "source": quote(source).encode()}
    (carried,) = hints(identifier, ONE, binary(**encoded))
    assert (carried.subject, carried.event_id) == (structured.subject, structured.event_id)


header_names = st.sampled_from([*ATTRIBUTES, b"ce_id", b"content-type", b"x-polaris-event", b"ce-", b"ce-data"])
values = st.binary(max_size=20) | st.sampled_from([b"1.0", b"application/cloudevents+json", b"org.apache.polaris"])


@given(st.lists(st.tuples(header_names | st.binary(max_size=8), values), max_size=8), anything | st.just(ORDERS))
def test_any_headers_are_taken_or_refused(headers: Headers, content: object) -> None:
    body = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for sender in (ONE, SENDER):
        refusal = refusal_of(body, sender, headers)
        assert refusal is None or refusal.status in {400, 415, 422}
        refusal = refusal_of(body, sender, [*ATTRIBUTES.items(), *headers])
        assert refusal is None or refusal.status in {400, 415, 422}


def test_a_deeply_nested_attribute_is_refused_as_others_are() -> None:
    deep: object = "1.0"
    for _ in range(100_000):
        deep = [deep]

    class Attributes(msgspec.Struct):
        specversion: str

    with pytest.raises(Rejected, match="#/specversion: expected a string, found an array"):
        convert_object({"specversion": deep}, Attributes, "#", ())


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONTEXT = bytes.fromhex("0af7651916cd43dd8448eb211c80319cb7ad6b7169203331")


@pytest.mark.parametrize("value", [TRACE, f"{TRACE[:-1]}3", f"cc{TRACE[2:]}-more"])
def test_the_trace_of_an_event_is_taken(value: str) -> None:
    event = {**cloudevent(ORDERS), "traceparent": value}
    assert [hint.trace for hint in hints(event, ONE)] == [CONTEXT]


@pytest.mark.parametrize(
    "value",
    [
        f"{TRACE}-more",
        f"{TRACE[:-1]}0",
        TRACE.upper(),
        f"ff{TRACE[2:]}",
        TRACE.replace("b7ad6b7169203331", "0" * 16),
        TRACE.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        7,
        None,
    ],
)
def test_a_trace_that_is_malformed_or_not_sampled_is_none(value: object) -> None:
    event = {**cloudevent(ORDERS), "traceparent": value}
    assert [hint.trace for hint in hints(event, ONE)] == [b""]


def test_a_trace_in_a_header_of_the_binary_mode_is_the_events() -> None:
    headers = binary((b"ce-traceparent", TRACE.encode()))
    assert [one.trace for one in decoded(RAW, ONE, headers).notifications] == [CONTEXT]
