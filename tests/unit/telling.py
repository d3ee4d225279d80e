"""Requests to the table of dialects, and what becomes of them."""

from __future__ import annotations

import json

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import Rejected
from sfn.formats.decode import decode
from sfn.formats.event import EventRequest, Sender

ONE = Sender("etl", {"prod": "prod"})
ORDERS = TableIdentifier("prod", ("sales",), "orders")


def said(body: bytes | object, sender: Sender = ONE) -> tuple[Notification, ...]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    decoded = decode(EventRequest("/v1/events", [], raw, sender))
    assert decoded.ignored == 0
    return decoded.notifications


def refusal_of(body: bytes | object, sender: Sender = ONE) -> Rejected | None:
    """Anything else that is raised fails the test."""
    try:
        said(body, sender)
    except Rejected as refusal:
        return refusal
    return None


def refused(body: bytes | object, sender: Sender = ONE) -> tuple[int, str]:
    refusal = refusal_of(body, sender)
    assert refusal is not None
    assert str(refusal)
    return refusal.status, refusal.where


def orders(**more: object) -> dict[str, object]:
    return {"namespace": ["sales"], "name": "orders", **more}
