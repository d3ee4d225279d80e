"""What a signature covers, and what is remembered of a message."""

from __future__ import annotations

import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import Rejected
from sfn.formats.event import EventRequest, Sender
from sfn.http.signature import signed_parts, with_message_id

SENDER = Sender("hook", {"theirs": "prod", "other": "dev"})
HEADERS = [
    (b"host", b"sfn"),
    (b"content-type", b"application/json"),
    (b"ce-subject", b"sales.orders"),
    (b"x-polaris-event", b"x"),
]
NOTIFICATION = "/v1/theirs/namespaces/sales/tables/orders/notifications"


def arrived(path: str = "/v1/events") -> EventRequest:
    return EventRequest(path, HEADERS, b"{}", SENDER)


@pytest.mark.parametrize("told", [set(), {"another"}])
@pytest.mark.parametrize("path", ["/v1/events", NOTIFICATION])
def test_where_the_catalog_is_asked_all_of_a_request_may_say_what_it_is_about(told: set[str], path: str) -> None:
    assert signed_parts(arrived(path), told) == arrived(path)


@pytest.mark.parametrize("told", [{"prod"}, {"dev", "another"}])
def test_where_what_is_told_is_believed_the_body_alone_says_it(told: set[str]) -> None:
    assert signed_parts(arrived(), told) == arrived()._replace(headers=[(b"content-type", b"application/json")])


def test_where_what_is_told_is_believed_no_path_names_a_table() -> None:
    with pytest.raises(Rejected) as caught:
        signed_parts(arrived(NOTIFICATION), {"prod", "dev"})
    assert caught.value.status == 400
    assert caught.value.found == "a signature, which does not cover the path"
    assert "what is told of dev, prod is believed" in caught.value.expected


def test_what_has_no_id_of_its_own_has_that_of_its_message_and_its_place_in_it() -> None:
    table = TableIdentifier("prod", ("sales",), "orders")
    hints = [Notification(table), Notification(table, event_id="own"), Notification(table, drop=True)]
    assert with_message_id(hints, "msg") == [
        Notification(table, event_id="msg\x1f0"),
        hints[1],
        Notification(table, "", "msg\x1f2", drop=True),
    ]
    assert with_message_id(hints, None) == hints
