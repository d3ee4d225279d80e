"""What is kept of a request that nobody understood, and what it is once it is to be decoded again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sfn.domain.events import MAX_STORED_BODY, UndecodableRequest
from sfn.errors import Rejected
from sfn.formats import as_structured, polaris
from sfn.formats.event import EventRequest, Sender
from sfn.receiver.covered import trusted_catalogs

_UNSIGNED: Final = "#unsigned"
"""Behind the path of what was signed, where that path or the headers say something: no path that is taken ends so."""


def to_undecodable(request: EventRequest, refusal: Rejected, *, is_signed: bool) -> UndecodableRequest:
    """All that says what a request is about, and the beginning of its body.

    Args:
        request: what nobody understood.
        refusal: why.
        is_signed: its sender is known by a signature, of the body alone.
    """
    whole = as_structured(request)
    says_more = whole is not request or polaris.parse_notification_path(request.path) is not None
    content_type = next((value.decode("latin-1") for name, value in whole.headers if name == b"content-type"), None)
    return UndecodableRequest(
        sender=request.sender.name,
        path=f"{request.path}{_UNSIGNED}" if is_signed and says_more else request.path,
        content_type=content_type,
        body=whole.body[:MAX_STORED_BODY],
        size=len(whole.body),
        detail=str(refusal),
    )


def to_request(event: UndecodableRequest, sender: Sender, event_only: Collection[str]) -> EventRequest:
    """What is kept of a request, as it arrived.

    Args:
        event: that.
        sender: whose it is, as it is configured now.
        event_only: our names of catalogs that nobody can ask.

    Raises:
        Rejected: 422, what no signature covers would be believed, however the sender shows now who it is.
    """
    path = event.path.removesuffix(_UNSIGNED)
    if path != event.path and (catalogs := trusted_catalogs(sender, event_only)):
        raise Rejected(
            "path",
            status=422,
            expected=f"what a signature covers, as what is told of {catalogs} is believed",
            found="a path or headers that it does not",
            remedy="have the sender tell it again, and show a token",
        )
    kind = [] if event.content_type is None else [(b"content-type", event.content_type.encode("latin-1"))]
    return EventRequest(path, kind, event.body, sender)
