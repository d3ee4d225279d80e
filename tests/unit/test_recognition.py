"""Which dialect an event is taken for, and which a sender may be pinned to."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sfn.errors import Rejected
from sfn.formats import EVENT_FORMATS, FORMAT_NAMES, NATIVE, POLARIS_NOTIFICATIONS, EventFormat, decode
from sfn.formats.event import EventRequest, Headers
from tests.dialects.asking import BATCH, ONE, SENDER, STRUCTURED, decoded, document, golden, outcome, refused
from tests.dialects.samples import (
    ICEBERG_TABLE,
    KEY,
    ORDERS,
    SAMPLES,
    Sample,
    cloudevent,
    glue,
    iceberg,
    lakekeeper,
    nessie,
)
from tests.dialects.samples_polaris import NOTIFICATION, event, webhook

ATTRIBUTES = [(b"ce-specversion", b"1.0"), (b"ce-id", b"e1"), (b"ce-source", b"/ci"), (b"ce-type", b"commit")]
MARKED = [(b"x-polaris-event", b"AFTER_UPDATE_TABLE")]
LAKEKEEPER = [*ATTRIBUTES[:2], (b"ce-source", b"uri:iceberg-catalog-service:h"), (b"ce-type", b"createView")]
POLARIS_EVENT = event("AFTER_UPDATE_TABLE")
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
            webhook("AFTER_UPDATE_TABLE") | ICEBERG | NESSIE | ORDERS | {"source": "org.apache.polaris"},
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
    assert refused(notification | ORDERS) == (422, "path")


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
    assert refused(ORDERS, replace(ONE, event_format="glue")) == (415, "#")
    assert refused(ORDERS, pinned, ATTRIBUTES) == (415, "headers")


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
    assert refused(content, ONE) == (415, "#")
    assert outcome(content | ORDERS, ONE) == (NATIVE, 1, 0, 0)


def test_an_array_may_be_of_several_formats_and_is_taken_whole_or_not_at_all() -> None:
    events = [GLUE, NESSIE, lakekeeper("dropTable"), POLARIS_EVENT, ORDERS | {"catalog": "theirs"}]
    assert outcome(events) == (NATIVE, 5, 0, 0)
    assert refused([*events, glue("Glue Data Catalog Table State Change", "UpdateTable")]) == (
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
