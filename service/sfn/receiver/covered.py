"""What a signature is for: a body, whoever sends it again, and nothing beside it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from sfn.domain.events import Notification
from sfn.errors import Rejected
from sfn.formats import polaris
from sfn.formats.event import EventRequest, Sender

_SEPARATOR: Final = "\x1f"
"""Between a message's id and the number of an event in it: no id that arrives holds a control character."""
_CONTENT_TYPE: Final = b"content-type"


def trusted_catalogs(sender: Sender, event_only: Collection[str]) -> str:
    """Our names of the catalogs of which a sender is believed what it tells, with commas between; empty for none."""
    return ", ".join(sorted(set(sender.catalogs.values()).intersection(event_only)))


def signed_parts(request: EventRequest, event_only: Collection[str]) -> EventRequest:
    """A signed request without what its signature does not cover, where what is told is believed.

    Elsewhere its path and its headers may say which table is meant: the catalog is asked, whoever changed them.

    Args:
        request: what arrived.
        event_only: our names of catalogs that nobody can ask.

    Raises:
        Rejected: 400, the path alone would say which table it is.
    """
    catalogs = trusted_catalogs(request.sender, event_only)
    if not catalogs:
        return request
    if polaris.parse_notification_path(request.path) is not None:
        raise Rejected(
            "path",
            status=400,
            expected=f"a sender that shows a token, as what is told of {catalogs} is believed",
            found="a signature, which does not cover the path",
        )
    return request._replace(headers=[(name, value) for name, value in request.headers if name == _CONTENT_TYPE])


def with_message_id(notifications: Sequence[Notification], message: str | None) -> Sequence[Notification]:
    """The hints of a message; what has no id of its own has that of the message: so the inbox knows a replay.

    Args:
        notifications: all of them, whether they matter or not.
        message: its id; None where it has none.
    """
    if message is None:
        return notifications
    return [
        replace(notification, event_id=f"{message}{_SEPARATOR}{index}")
        if notification.event_id is None
        else notification
        for index, notification in enumerate(notifications)
    ]
