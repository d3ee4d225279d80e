"""Recognition and decoding of events in all formats."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfn.errors import Rejected
from sfn.formats.decode import (
    EVENT_FORMATS,
    FORMAT_NAMES,
    MAX_EVENTS,
    NATIVE,
    POLARIS_NOTIFICATIONS,
    DecodedRequest,
    EventFormat,
    decode,
)
from sfn.formats.event import EventRequest, Headers, Sender
from sfn.http.ingest import to_request, to_undecodable
from tests.dialects.requests import BATCH, ONE, SENDER, STRUCTURED, anything, decoded, document, golden, nearly, outcome
from tests.dialects.requests import refusal_of as checked_refusal_of
from tests.dialects.requests import refused as checked_refused
from tests.dialects.samples import (
    ICEBERG_TABLE,
    KEY,
    NOTIFICATION,
    ORDERS,
    SAMPLES,
    Sample,
    cloudevent,
    glue,
    iceberg,
    lakekeeper,
    nessie,
    polaris,
    polaris_webhook,
)
from tests.unit.telling import orders, refusal_of, refused, said


def test_an_array_is_all_or_nothing_and_each_hint_has_its_own_bytes() -> None:
    one, two = b'{"namespace":["a"], "name":"t"}', b'{"name":"u","namespace":"b"}'
    hints = said(b" [" + one + b" ,\n" + two + b"]")
    assert [(str(hint.subject), hint.body) for hint in hints] == [("prod:a.t", one), ("prod:b.u", two)]
    assert refused([orders(), orders(name="")]) == (422, "#/1/name")
    assert refused([orders(), {}]) == (415, "#/1")
    assert said([]) == ()


def test_an_array_is_bounded() -> None:
    assert len(said([orders()] * MAX_EVENTS)) == MAX_EVENTS
    assert refused([orders()] * (MAX_EVENTS + 1)) == (422, "#")


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" ", b"{", b"nonsense", b"\xff", b'{"name": "\xff"}', b'{"a": "\\ud800"}', b"{} {}", b"\xef\xbb\xbf{}"),
        *(b"NaN", b'[{"namespace": "\\udc00"}]', b'{"a": 1e999}'),
    ],
)
def test_what_is_no_json_is_400(body: bytes) -> None:
    assert refused(body)[0] == 400


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":', b'{"namespace":[', b"[" * 7 + b'{"":'])
def test_endless_nesting_is_400(opening: bytes) -> None:
    assert refused(opening * (1_048_576 // len(opening)))[0] == 400


def test_deep_nesting_that_ends_is_refused_too() -> None:
    depth = 500_000
    assert refused(b'{"namespace":["a"],"name":"t","more":' + b"[" * depth + b"]" * depth + b"}")[0] == 400
    assert refused(b"[" * depth + b"]" * depth)[0] == 400


@pytest.mark.parametrize("body", [1, None, "x", {}, {"type": "x"}])
def test_what_is_no_known_format_is_415(body: object) -> None:
    assert refused(body) == (415, "#")


@pytest.mark.parametrize(("body", "missing"), [({"name": "t"}, "namespace"), ({"namespace": "a"}, "name")])
@pytest.mark.parametrize("event_format", [None, NATIVE])
def test_the_error_names_the_missing_key_of_our_own_format(
    body: object, missing: str, event_format: str | None
) -> None:
    with pytest.raises(Rejected) as refusal:
        decoded(body, replace(ONE, event_format=event_format))
    assert (refusal.value.status, refusal.value.where) == (422, f"#/{missing}")


def test_a_half_named_table_of_another_format_is_415() -> None:
    assert refused({"name": "t"}, replace(ONE, event_format="glue")) == (415, "#")


def test_each_dialect_has_a_name_of_its_own() -> None:
    assert len({dialect.name for dialect in EVENT_FORMATS}) == len(EVENT_FORMATS)


@given(anything)
def test_any_json_is_taken_or_refused(content: object) -> None:
    raw = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for body in (raw, b"[" + raw + b"]"):
        refusal = refusal_of(body)
        assert refusal is None or refusal.status in {400, 415, 422}


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused(body: bytes) -> None:
    refusal = refusal_of(body)
    assert refusal is None or refusal.status in {400, 415, 422}


CONTENTS = [sample.content for sample in SAMPLES]
ATTRIBUTES = [(b"ce-specversion", b"1.0"), (b"ce-id", b"e1"), (b"ce-source", b"/ci"), (b"ce-type", b"commit")]
HEADERS: list[Headers] = [
    *((), STRUCTURED, BATCH, ATTRIBUTES),
    [(b"content-type", b"application/json")],
    [(b"x-polaris-event", b"AFTER_UPDATE_TABLE")],
    [*ATTRIBUTES[:2], (b"ce-source", b"uri:iceberg-catalog-service:h"), (b"ce-type", b"updateTable")],
]

senders = st.builds(
    Sender, st.just("any"), st.sampled_from([SENDER.catalogs, ONE.catalogs, {}]), st.sampled_from([None, *FORMAT_NAMES])
)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.sampled_from(CONTENTS).flatmap(nearly), senders, st.sampled_from(HEADERS))
def test_an_event_that_is_nearly_right_is_taken_or_refused(content: object, sender: Sender, headers: Headers) -> None:
    raw = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for body in (raw, b"[" + raw + b"]"):
        refusal = checked_refusal_of(body, sender, headers)
        assert refusal is None or refusal.status in {400, 415, 422}


@pytest.mark.slow
@settings(max_examples=400)
@given(st.sampled_from(SAMPLES).flatmap(lambda sample: st.tuples(st.just(sample.sender), nearly(sample.content))))
def test_so_it_is_for_whom_it_is_of(sent: tuple[Sender, object]) -> None:
    sender, content = sent
    refusal = checked_refusal_of(json.dumps(content).encode("utf-8", "surrogatepass"), sender)
    assert refusal is None or refusal.status in {400, 415, 422}
    if refusal is not None and refusal.status == 422:
        assert refusal.where.startswith(("#", "path"))


@given(anything, senders, st.sampled_from(HEADERS))
def test_so_is_any_json(content: object, sender: Sender, headers: Headers) -> None:
    raw = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
    refusal = checked_refusal_of(raw, sender, headers)
    assert refusal is None or refusal.status in {400, 415, 422}


@given(st.binary(max_size=200), senders, st.sampled_from(HEADERS))
def test_so_are_any_bytes(body: bytes, sender: Sender, headers: Headers) -> None:
    refusal = checked_refusal_of(body, sender, headers)
    assert refusal is None or refusal.status in {400, 415, 422}


MARKED = [(b"x-polaris-event", b"AFTER_UPDATE_TABLE")]
LAKEKEEPER = [*ATTRIBUTES[:2], (b"ce-source", b"uri:iceberg-catalog-service:h"), (b"ce-type", b"createView")]
POLARIS_EVENT = polaris("AFTER_UPDATE_TABLE")
GLUE = document("glue-update-table")
ICEBERG = iceberg("drop-view")
NESSIE = nessie("CONTENT_STORED", contentKey=KEY, content=ICEBERG_TABLE)
REPORT = document("iceberg-commit-report")


def nested(levels: int) -> object:
    """Arrays and objects in each other, by turns."""
    content: object = 1
    for level in range(levels):
        content = [content] if level % 2 else {"x": content}
    return content


@pytest.mark.parametrize(
    ("dialect", "content", "headers"),
    [
        # Each is also all that comes after it.
        ("lakekeeper", [lakekeeper("dropTable")], BATCH),
        (
            "lakekeeper",
            lakekeeper("createView") | POLARIS_EVENT | GLUE | {"source": "uri:iceberg-catalog-service:h"},
            STRUCTURED,
        ),
        ("lakekeeper", NESSIE | ORDERS, LAKEKEEPER),
        (
            "polaris-webhook",
            polaris_webhook("AFTER_UPDATE_TABLE") | ICEBERG | NESSIE | ORDERS | {"source": "org.apache.polaris"},
            [],
        ),
        ("cloudevents", NESSIE | GLUE, ATTRIBUTES),
        ("cloudevents", cloudevent() | POLARIS_EVENT | ICEBERG | REPORT | ORDERS, []),
        ("polaris-events", GLUE | ICEBERG | NESSIE | REPORT | ORDERS | POLARIS_EVENT, []),
        ("glue", ICEBERG | NESSIE | REPORT | ORDERS | GLUE, []),
        ("iceberg", NESSIE | REPORT | ORDERS | ICEBERG, []),
        ("nessie", REPORT | ORDERS | NESSIE, []),
        ("reports", ORDERS | REPORT, []),
        ("own", ORDERS | {"catalog": "theirs"}, []),
    ],
)
def test_the_most_telling_mark_decides(dialect: str, content: object, headers: Headers) -> None:
    assert outcome(content, headers=headers)[0] == dialect


def test_a_notification_is_known_by_its_path_and_elsewhere_sent_to_it() -> None:
    notification = document("polaris-notification-update")
    assert decoded(notification, headers=ATTRIBUTES, path=NOTIFICATION).event_format == POLARIS_NOTIFICATIONS
    assert checked_refused(notification | ORDERS) == (422, "path")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.dialect} {sample.title}")
def test_an_event_of_every_type_is_recognised_as_what_it_is(sample: Sample) -> None:
    body = json.dumps(sample.content).encode()
    assert decode(EventRequest(sample.path, sample.headers, body, sample.sender)).event_format == sample.dialect


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.dialect} {sample.title}")
def test_to_a_pinned_sender_an_event_is_of_that_dialect_or_refused(sample: Sample) -> None:
    body = json.dumps(sample.content).encode()
    for name in FORMAT_NAMES:
        request = EventRequest(sample.path, sample.headers, body, replace(sample.sender, event_format=name))
        # A CloudEvent is one, whoever sent it.
        wider = name == "cloudevents" and sample.dialect in {"lakekeeper", "polaris-webhook"}
        if name == sample.dialect or wider:
            assert decode(request).event_format == name
        else:
            with pytest.raises(Rejected) as refusal:
                decode(request)
            assert refusal.value.status == 415
            assert f"in the format {name}" in str(refusal.value)
            assert f"senders.{sample.sender.name}.dialect" in refusal.value.remedy


def test_pinned_to_our_own_format_plain_events_are_read_alike() -> None:
    pinned = replace(ONE, event_format=NATIVE)
    assert decoded(ORDERS, pinned) == decoded(ORDERS, ONE)
    assert checked_refused(ORDERS, replace(ONE, event_format="glue")) == (415, "#")
    assert checked_refused(ORDERS, pinned, ATTRIBUTES) == (415, "headers")


@pytest.mark.parametrize(
    "content",
    [
        {"specversion": "1.0", "source": "/ci"},
        {"event_type": "AFTER_UPDATE_TABLE"},
        {"event_type": "DURING_UPDATE_TABLE", "realm_id": "r"},
        {"detail-type": "x", "source": "aws.s3"},
        {"event-id": "e1", "operation": "drop"},
        {"type": "CONTENT_STORED"},
        {"type": ["CONTENT_STORED"], "contentKey": {}},
        {"report-type": "other"},
        {"report-type": ["scan-report"]},
        {"notification-type": "UPDATE"},
        {"events": []},
    ],
)
def test_half_a_mark_is_none(content: dict[str, object]) -> None:
    assert checked_refused(content, ONE) == (415, "#")
    assert outcome(content | ORDERS, ONE) == (NATIVE, 1, 0, 0)


def test_an_array_may_be_of_several_formats_and_is_taken_whole_or_not_at_all() -> None:
    events = [GLUE, NESSIE, lakekeeper("dropTable"), POLARIS_EVENT, ORDERS | {"catalog": "theirs"}]
    assert outcome(events) == (NATIVE, 5, 0, 0)
    assert checked_refused([*events, glue("Glue Data Catalog Table State Change", "UpdateTable")]) == (
        422,
        "#/5/detail/tableName",
    )


def test_the_names_of_unmapped_catalogs_are_told_but_not_all_of_many() -> None:
    said = decoded([lakekeeper("dropTable", warehouse_id=f"w{index}") for index in range(100)])
    assert (said.unmapped_events, said.ignored) == (100, 0)
    assert said.unmapped_catalogs == tuple(f"w{index}" for index in range(8))


@pytest.mark.parametrize("dialect", EVENT_FORMATS, ids=lambda dialect: dialect.name)
def test_nesting_is_bounded_for_each_dialect_by_itself(dialect: EventFormat) -> None:
    sample = next(one for one in SAMPLES if one.dialect == dialect.name)
    assert isinstance(sample.content, dict)
    content = sample.content

    def asked(levels: int) -> EventRequest:
        body = json.dumps(content | {"more": nested(levels)}).encode()
        return EventRequest(sample.path, sample.headers, body, sample.sender)

    assert decode(asked(dialect.max_depth - 1)).event_format == dialect.name
    with pytest.raises(Rejected, match=f"at most {dialect.max_depth} levels of nesting") as refusal:
        decode(asked(dialect.max_depth))
    assert (refusal.value.status, refusal.value.where) == (400 if dialect.name == POLARIS_NOTIFICATIONS else 422, "#")


def test_the_sender_of_a_golden_event_need_not_be_pinned() -> None:
    for name in ("lakekeeper-updateTable", "glue-update-table"):
        assert (
            decoded(golden(name), SENDER).notifications
            == decoded(golden(name), replace(SENDER, event_format=name.split("-")[0])).notifications
        )


HOOK = Sender("hook", {"theirs": "prod"})
REFUSAL = Rejected("#", status=415, expected="a known format", found="something else")
JSON = (b"content-type", b"application/json")
ENCODED_ATTRIBUTES = [
    (b"ce-specversion", b"1.0"),
    (b"ce-id", b"e%201"),
    (b"ce-source", b"/ci"),
    (b"ce-type", b"commit"),
]
EVENT = json.dumps({"namespace": ["sales"], "name": "orders"}).encode()
PATH = "/v1/events"
NOTIFICATION_PATH = "/v1/theirs/namespaces/sales/tables/orders/notifications"


def again(headers: Headers, body: bytes, path: str = PATH, *, is_signed: bool = False, told: str = "") -> EventRequest:
    """A request after it was kept."""
    return to_request(
        to_undecodable(EventRequest(path, headers, body, HOOK), REFUSAL, is_signed=is_signed), HOOK, {told}
    )


def decoded_or_refused(request: EventRequest) -> DecodedRequest | int:
    """What a request says, but for its bytes; where it is refused only that it is."""
    try:
        decoded = decode(request)
    except Rejected:
        return 0
    hints = tuple(msgspec.structs.replace(hint, body=b"") for hint in decoded.notifications)
    return msgspec.structs.replace(decoded, notifications=hints)


@pytest.mark.parametrize("headers", [[], [JSON], [JSON, (b"x-other", b"x")], [(b"content-type", b"text/plain; \xe9")]])
@pytest.mark.parametrize("path", [PATH, NOTIFICATION_PATH])
def test_what_says_all_in_its_body_is_kept_as_it_came(headers: Headers, path: str) -> None:
    kind = [header for header in headers if header[0] == b"content-type"]
    assert again(headers, EVENT, path) == EventRequest(path, kind, EVENT, HOOK)


def test_attributes_that_came_as_headers_are_kept_in_the_body() -> None:
    whole = again([*ENCODED_ATTRIBUTES, JSON, (b"ce-data_base64", b"x"), (b"ce-data", b"x")], EVENT)
    assert whole.headers == [(b"content-type", b"application/cloudevents+json")]
    assert json.loads(whole.body) == {
        "specversion": "1.0",
        "id": "e 1",
        "source": "/ci",
        "type": "commit",
        "datacontenttype": "application/json",
        "data": json.loads(EVENT),
    }


def test_what_is_no_json_is_kept_in_base64() -> None:
    whole = json.loads(again([*ENCODED_ATTRIBUTES, (b"content-type", b"application/avro")], b"\x00\x01\x02").body)
    assert (whole["datacontenttype"], whole["data_base64"], "data" in whole) == ("application/avro", "AAEC", False)


@pytest.mark.parametrize("more", [(b"ce-id", b"e2"), (b"ce-subject", b"%ff")])
def test_attributes_that_can_not_be_read_leave_the_body_as_it_came(more: tuple[bytes, bytes]) -> None:
    assert again([*ENCODED_ATTRIBUTES, JSON, more], EVENT) == EventRequest(PATH, [JSON], EVENT, HOOK)


@given(
    st.one_of(st.just(EVENT), st.binary(max_size=20), anything.map(lambda one: json.dumps(one).encode())),
    st.sampled_from([[], [JSON], [(b"content-type", b"application/avro")]]),
    st.sets(st.sampled_from(ENCODED_ATTRIBUTES), min_size=1).map(list),
)
def test_a_cloudevent_says_the_same_once_it_was_kept(
    body: bytes, kind: list[tuple[bytes, bytes]], attributes: list[tuple[bytes, bytes]]
) -> None:
    headers = [*attributes, *kind]
    assert decoded_or_refused(again(headers, body)) == decoded_or_refused(EventRequest(PATH, headers, body, HOOK))


@pytest.mark.parametrize(("headers", "path"), [([JSON], NOTIFICATION_PATH), ([*ENCODED_ATTRIBUTES, JSON], PATH)])
def test_what_no_signature_covers_is_not_believed_once_it_was_kept(headers: Headers, path: str) -> None:
    with pytest.raises(Rejected) as caught:
        again(headers, EVENT, path, is_signed=True, told="prod")
    assert caught.value.expected == (
        "a request that its signature covers whole, because the catalogs prod are event-only"
    )
    assert again(headers, EVENT, path, is_signed=True) == again(headers, EVENT, path)
    assert again(headers, EVENT, path, told="prod") == again(headers, EVENT, path)


def test_a_body_that_was_signed_may_be_believed_once_it_was_kept() -> None:
    assert again([JSON], EVENT, is_signed=True, told="prod") == EventRequest(PATH, [JSON], EVENT, HOOK)
