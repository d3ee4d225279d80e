"""What is kept of a request that nobody understood: all that it said, and nothing to be believed that nobody signed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.errors import Rejected
from sfn.formats import DecodedRequest, decode
from sfn.formats.event import EventRequest, Headers, Sender
from sfn.http.events import to_request, to_undecodable
from tests.dialects.drawing import anything

SENDER = Sender("hook", {"theirs": "prod"})
REFUSAL = Rejected("#", status=415, expected="a known format", found="something else")
JSON = (b"content-type", b"application/json")
ATTRIBUTES = [(b"ce-specversion", b"1.0"), (b"ce-id", b"e%201"), (b"ce-source", b"/ci"), (b"ce-type", b"commit")]
EVENT = json.dumps({"namespace": ["sales"], "name": "orders"}).encode()
PATH = "/v1/events"
NOTIFICATION = "/v1/theirs/namespaces/sales/tables/orders/notifications"


def again(headers: Headers, body: bytes, path: str = PATH, *, is_signed: bool = False, told: str = "") -> EventRequest:
    """A request after it was kept."""
    return to_request(
        to_undecodable(EventRequest(path, headers, body, SENDER), REFUSAL, is_signed=is_signed), SENDER, {told}
    )


def said(request: EventRequest) -> DecodedRequest | int:
    """What a request says, but for its bytes; where it is refused only that it is."""
    try:
        decoded = decode(request)
    except Rejected:
        return 0
    return decoded._replace(notifications=tuple(replace(hint, body=b"") for hint in decoded.notifications))


@pytest.mark.parametrize("headers", [[], [JSON], [JSON, (b"x-other", b"x")], [(b"content-type", b"text/plain; \xe9")]])
@pytest.mark.parametrize("path", [PATH, NOTIFICATION])
def test_what_says_all_in_its_body_is_kept_as_it_came(headers: Headers, path: str) -> None:
    kind = [header for header in headers if header[0] == b"content-type"]
    assert again(headers, EVENT, path) == EventRequest(path, kind, EVENT, SENDER)


def test_attributes_that_came_as_headers_are_kept_in_the_body() -> None:
    whole = again([*ATTRIBUTES, JSON, (b"ce-data_base64", b"x"), (b"ce-data", b"x")], EVENT)
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
    whole = json.loads(again([*ATTRIBUTES, (b"content-type", b"application/avro")], b"\x00\x01\x02").body)
    assert (whole["datacontenttype"], whole["data_base64"], "data" in whole) == ("application/avro", "AAEC", False)


@pytest.mark.parametrize("more", [(b"ce-id", b"e2"), (b"ce-subject", b"%ff")])
def test_attributes_that_can_not_be_read_leave_the_body_as_it_came(more: tuple[bytes, bytes]) -> None:
    assert again([*ATTRIBUTES, JSON, more], EVENT) == EventRequest(PATH, [JSON], EVENT, SENDER)


@given(
    st.one_of(st.just(EVENT), st.binary(max_size=20), anything.map(lambda one: json.dumps(one).encode())),
    st.sampled_from([[], [JSON], [(b"content-type", b"application/avro")]]),
    st.sets(st.sampled_from(ATTRIBUTES), min_size=1).map(list),
)
def test_a_cloudevent_says_the_same_once_it_was_kept(
    body: bytes, kind: list[tuple[bytes, bytes]], attributes: list[tuple[bytes, bytes]]
) -> None:
    headers = [*attributes, *kind]
    assert said(again(headers, body)) == said(EventRequest(PATH, headers, body, SENDER))


@pytest.mark.parametrize(("headers", "path"), [([JSON], NOTIFICATION), ([*ATTRIBUTES, JSON], PATH)])
def test_what_no_signature_covers_is_not_believed_once_it_was_kept(headers: Headers, path: str) -> None:
    with pytest.raises(Rejected) as caught:
        again(headers, EVENT, path, is_signed=True, told="prod")
    assert caught.value.expected == "what a signature covers, as what is told of prod is believed"
    assert again(headers, EVENT, path, is_signed=True) == again(headers, EVENT, path)
    assert again(headers, EVENT, path, told="prod") == again(headers, EVENT, path)


def test_a_body_that_was_signed_may_be_believed_once_it_was_kept() -> None:
    assert again([JSON], EVENT, is_signed=True, told="prod") == EventRequest(PATH, [JSON], EVENT, SENDER)
