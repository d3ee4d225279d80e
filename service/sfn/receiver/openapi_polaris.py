"""Polaris' notifications in OpenAPI 3.1, in the names of Polaris' own description of them."""

from __future__ import annotations

from typing import Any, Final

from sfn.formats.event import CONTROL_CHARACTERS, MAX_LOCATION, MAX_NAME
from sfn.formats.polaris import NOTIFICATION_TYPES, SEPARATOR
from sfn.receiver import openapi_signed

_POLARIS_LEVEL: Final = f"[^{CONTROL_CHARACTERS}]+"
_POLARIS_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": f"^{_POLARIS_LEVEL}$"}
_SEPARATOR: Final = f"\\u{ord(SEPARATOR):04x}"
_LONG: Final = {"type": "integer", "format": "int64", "minimum": -(2**63), "maximum": 2**63 - 1}

POLARIS_SCHEMAS: Final[dict[str, Any]] = {
    "NotificationRequest": {
        "type": "object",
        "required": ["notification-type", "payload"],
        "properties": {
            "notification-type": {
                "description": "CREATE and UPDATE are one. VALIDATE and UNKNOWN are checked and change nothing.",
                "enum": [*NOTIFICATION_TYPES],
            },
            "payload": {"$ref": "#/components/schemas/TableUpdateNotification"},
        },
    },
    "TableUpdateNotification": {
        "type": "object",
        "required": ["table-name", "timestamp", "table-uuid", "metadata-location"],
        "properties": {
            "table-name": {**_POLARIS_TEXT, "description": "not looked at: the path says which table"},
            "timestamp": {**_LONG, "description": "one that is late, or not later than the last one's, is taken too"},
            "table-uuid": _POLARIS_TEXT,
            "metadata-location": {**_POLARIS_TEXT, "maxLength": MAX_LOCATION},
            "metadata": {"description": "not looked at"},
        },
    },
    "IcebergErrorResponse": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "code": {"type": "integer", "minimum": 400, "maximum": 600},
                },
            }
        },
    },
}


def _polaris_error(description: str, headers: dict[str, Any] | None = None) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/IcebergErrorResponse"}}}
    return {"description": description, "content": content, **({"headers": headers} if headers else {})}


def _in_path(name: str, description: str, example: str, schema: dict[str, Any]) -> dict[str, Any]:
    described = {"name": name, "in": "path", "required": True, "description": description}
    return {**described, "schema": schema, "example": example}


def _example(summary: str, kind: str) -> dict[str, Any]:
    payload = {
        "table-name": "orders",
        "timestamp": 1788000000123,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "metadata-location": "/warehouse/sales/orders/metadata/00003-5b1c.metadata.json",
    }
    return {"summary": summary, "value": {"notification-type": kind, "payload": payload}}


def polaris_paths(retry_after: dict[str, Any]) -> dict[str, Any]:
    """The path of notifications.

    Args:
        retry_after: the headers of a 429 and of a 503.
    """
    levels = f"^{_POLARIS_LEVEL}({_SEPARATOR}{_POLARIS_LEVEL})*$"
    return {
        "/v1/{prefix}/namespaces/{namespace}/tables/{table}/notifications": {
            "parameters": [
                _in_path("prefix", "the sender's name of the catalog", "prod", _POLARIS_TEXT),
                _in_path("namespace", "levels with `%1F` between them", "sales", {**_POLARIS_TEXT, "pattern": levels}),
                _in_path("table", "the table's own name", "orders", _POLARIS_TEXT),
            ],
            "post": {
                "operationId": "sendNotification",
                "summary": "Tell of a change to one table, as to Apache Polaris",
                "description": "204 comes after the notification is on disk. None is too old: there is no 409.",
                "security": openapi_signed.SENDERS,
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {"$ref": "#/components/schemas/NotificationRequest"},
                            "examples": {
                                "update": _example("a commit", "UPDATE"),
                                "drop": _example("the table is gone", "DROP"),
                                "validate": _example("a dry run", "VALIDATE"),
                            },
                        }
                    },
                },
                "responses": {
                    "204": {"description": "taken, and on disk; or of no concern"},
                    "400": _polaris_error(
                        "not JSON, a wrong field, or a path that names no table; which is said. Or nobody can ask the "
                        "catalog, and it is signed, which does not cover the path"
                    ),
                    "401": _polaris_error("no valid token or signature, or one that is not of now"),
                    "403": _polaris_error("a web page's request (`Origin`) where no sender need show who it is"),
                    "404": _polaris_error("the sender has no catalog of that name"),
                    "405": _polaris_error("another method than POST"),
                    "408": _polaris_error("the body came too slowly"),
                    "413": _polaris_error("too large; unless the sender signs the table is looked at all the same"),
                    "415": _polaris_error("compressed; unless the sender signs the table is looked at all the same"),
                    "429": _polaris_error("more requests a minute than the sender may make; try again", retry_after),
                    "500": _polaris_error("an error of the service"),
                    "503": _polaris_error("nothing was taken; try again", retry_after),
                },
            },
        }
    }
