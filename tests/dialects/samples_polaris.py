"""An event of every type that Apache Polaris may send, in each of its ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.dialects.asking import document

NOTIFICATION: Final = "/v1/theirs/namespaces/ns1/tables/orders/notifications"
OPERATIONS: Final = (
    "CREATE",
    "REGISTER",
    "UPDATE",
    "COMMIT",
    "DROP",
    "RENAME",
    "REFRESH",
    "LOAD",
    "LIST",
    "CHECK_EXISTS",
)
"""On tables: each is told of before and after."""
OTHERS: Final = (
    "CREATE_VIEW",
    "COMMIT_VIEW",
    "DROP_VIEW",
    "CREATE_NAMESPACE",
    "DROP_NAMESPACE",
    "CREATE_GENERIC_TABLE",
)


def event(told: str, **more: object) -> dict[str, object]:
    """As it is sent to Kafka."""
    return document("polaris-kafka-after-update-table") | {"event_type": told, "catalog_name": "theirs"} | more


def webhook(told: str, **more: object) -> dict[str, object]:
    """As it is sent to a webhook."""
    return document("polaris-webhook-pr5084") | {"type": told} | more


def notifications() -> Iterator[tuple[str, object, str]]:
    """A notification of each type, and its path."""
    for told in ("CREATE", "UPDATE", "DROP", "VALIDATE", "UNKNOWN"):
        yield f"`{told}`", document("polaris-notification-update") | {"notification-type": told}, NOTIFICATION


def events() -> Iterator[tuple[str, object]]:
    """An event of each type."""
    rename = document("polaris-kafka-after-rename-table") | {"catalog_name": "theirs"}
    nameless = {"table_name": None, "namespace": None}
    for moment in ("AFTER", "BEFORE"):
        for operation in OPERATIONS:
            told = f"{moment}_{operation}_TABLE"
            match operation:
                case "RENAME":
                    yield f"`{told}`", rename | {"event_type": told}
                case "REFRESH":
                    yield f"`{told}`", event(told, **nameless, table_identifier=["ns1", "orders"])
                case "LIST":
                    yield f"`{told}S`", event(f"{told}S", **nameless)
                case _:
                    yield f"`{told}`", event(told)
        yield f"`{moment}_COMMIT_TRANSACTION`", event(f"{moment}_COMMIT_TRANSACTION", **nameless)
        yield f"`{moment}_SEND_NOTIFICATION`", event(f"{moment}_SEND_NOTIFICATION")
    for told in OTHERS:
        yield f"`AFTER_{told}`", event(f"AFTER_{told}", **nameless)
    yield "any other type", event("AFTER_ROTATE_CREDENTIALS")


def webhooks() -> Iterator[tuple[str, object]]:
    """A webhook's event of each type."""
    for moment in ("AFTER", "BEFORE"):
        for operation in OPERATIONS:
            told = f"{moment}_{operation}_TABLE{'S' if operation == 'LIST' else ''}"
            more = {"tableidentifier": "ns1.orders"} if operation == "REFRESH" else {}
            yield f"`{told}`", webhook(told, **more)
        for told in ("COMMIT_TRANSACTION", "SEND_NOTIFICATION"):
            yield f"`{moment}_{told}`", webhook(f"{moment}_{told}")
    for told in OTHERS:
        yield f"`AFTER_{told}`", webhook(f"AFTER_{told}")
    yield "any other type", webhook("AFTER_ROTATE_CREDENTIALS")
