"""Apache Polaris' webhook: CloudEvents that name neither their table nor its catalog.

    {"specversion": "1.0", "id": …, "source": "org.apache.polaris", "type": "AFTER_UPDATE_TABLE", "realmid": …}

So all that is known is that a table of some catalog changed: those that the sender speaks for are swept.
"""

from __future__ import annotations

from typing import Final

from sfn.dialects.envelope import POLARIS_EVENT_HEADER
from sfn.dialects.event import Event
from sfn.dialects.outcome import global_event_id, partial_event_id
from sfn.words import CatalogName, Notification

SOURCE: Final = "org.apache.polaris"
WEBHOOK_TYPES: Final = frozenset(
    {
        "AFTER_CREATE_TABLE",
        "AFTER_REGISTER_TABLE",
        "AFTER_UPDATE_TABLE",
        "AFTER_COMMIT_TABLE",
        "AFTER_DROP_TABLE",
        "AFTER_RENAME_TABLE",
        "AFTER_SEND_NOTIFICATION",
    }
)
"""What changes tables."""


def is_polaris_webhook(event: Event) -> bool:
    """Whether it is a CloudEvent of Polaris' that carries nothing."""
    is_one = event.data_at is not None and event.data is None
    return is_one and (event.content.get("source") == SOURCE or event.has_header(POLARIS_EVENT_HEADER))


def decode_polaris_webhook(event: Event) -> tuple[Notification, ...]:
    """A sweep of each of the sender's catalogs."""
    content = event.content
    # Of late such a type is said in lower case, after a prefix.
    if str(content["type"]).rpartition(".")[2].upper() not in WEBHOOK_TYPES:
        return ()
    event_id = global_event_id(str(content["source"]), str(content["id"]))
    catalogs = dict.fromkeys(event.catalogs.values())
    return tuple(
        Notification(CatalogName(one), event.sender, partial_event_id(event_id, one), body=event.body)
        for one in catalogs
    )
