"""The OpenAPI 3.1 description of the routes that FastAPI does not know: those for events."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from sfn.formats.decode import MAX_EVENTS
from sfn.formats.event import CONTROL_CHARACTERS, MAX_LEVELS, MAX_LOCATION, MAX_NAME
from sfn.formats.native import OPERATIONS
from sfn.formats.polaris import NOTIFICATION_TYPES, SEPARATOR
from sfn.http import responses
from sfn.http.signature import MAX_ORIGIN, ORIGIN_HEADER

_UNAUTHENTICATED: Final = "no valid token or signature, or a signature that is too old"
_WEB_PAGE: Final = "a request of a web page (`Origin`) while no sender needs a token"
_TOO_SLOW: Final = "the body arrived too slowly"
_TOO_MANY: Final = "the sender exceeds its requests per minute; try again"
_INTERNAL: Final = "an error of the service"
_NOT_STORED: Final = "nothing was stored; try again"

_PROBLEM: Final = {responses.PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_ORIGIN: Final = {"type": "string", "minLength": 1, "maxLength": MAX_ORIGIN, "pattern": "^[!-+\\--~]+$"}
_RATE: Final = {"type": "string", "pattern": "^(\\*|[1-9][0-9]*)$"}


def _handshake_error(description: str) -> dict[str, Any]:
    return {"description": description, "content": _PROBLEM}


def _response_header(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "required": True, "schema": schema}


_ALLOW: Final = _response_header("the methods of this route", {"type": "string"})

OPTIONS: Final[dict[str, Any]] = {
    "operationId": "permitEvents",
    "summary": "Ask for permission to send events",
    "description": "The handshake of CloudEvents' HTTP 1.1 Web Hooks, section 4. It needs no token.",
    "security": [],
    "parameters": [
        {
            "name": ORIGIN_HEADER,
            "in": "header",
            "description": "the system that will send events",
            "schema": _ORIGIN,
            "example": "eventemitter.example.com",
        }
    ],
    "responses": {
        "200": {
            "description": "permission granted",
            "headers": {
                "WebHook-Allowed-Origin": _response_header("the origin of the request", _ORIGIN),
                "WebHook-Allowed-Rate": _response_header("requests per minute, or `*` for any number", _RATE),
                "Allow": _ALLOW,
            },
        },
        "204": {"description": "no origin in the request", "headers": {"Allow": _ALLOW}},
        "400": _handshake_error("an invalid origin, or more than one"),
        "405": _handshake_error("no sender is configured"),
        "500": _handshake_error(_INTERNAL),
    },
}


def _header_scheme(name: str, description: str) -> dict[str, Any]:
    return {"type": "apiKey", "in": "header", "name": name, "description": description}


SCHEMES: Final[dict[str, Any]] = {
    "webhookId": _header_scheme("webhook-id", "id of the message, the same for each retry; without a full stop"),
    "webhookTimestamp": _header_scheme("webhook-timestamp", "seconds since 1970, at most 300 from the present"),
    "webhookSignature": _header_scheme(
        "webhook-signature",
        "for senders with the scheme `standard-webhooks`: `v1,` and the base64 of the HMAC-SHA256 of "
        "`{id}.{timestamp}.{body}`. One of several signatures, separated by spaces, must match.",
    ),
    "bodySignature": _header_scheme(
        "X-Hub-Signature-256",
        "for senders with the scheme `hmac-sha256`: `sha256=` and the HMAC-SHA256 of the body in hexadecimal digits. "
        "The header's name is the sender's `signature_header`.",
    ),
}

SENDERS: Final[list[dict[str, list[str]]]] = [
    {"bearer": []},
    {"webhookId": [], "webhookTimestamp": [], "webhookSignature": []},
    {"bodySignature": []},
]
"""Security requirements of the routes for events. Each sender has one of these schemes configured."""


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
                "description": "CREATE and UPDATE have the same effect. VALIDATE and UNKNOWN are checked and change "
                "nothing.",
                "enum": [*NOTIFICATION_TYPES],
            },
            "payload": {"$ref": "#/components/schemas/TableUpdateNotification"},
        },
    },
    "TableUpdateNotification": {
        "type": "object",
        "required": ["table-name", "timestamp", "table-uuid", "metadata-location"],
        "properties": {
            "table-name": {**_POLARIS_TEXT, "description": "ignored: the path names the table"},
            "timestamp": {**_LONG, "description": "late and out-of-order notifications are accepted"},
            "table-uuid": _POLARIS_TEXT,
            "metadata-location": {**_POLARIS_TEXT, "maxLength": MAX_LOCATION},
            "metadata": {"description": "ignored"},
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
    """Return the description of the route for Polaris' notifications.

    Args:
        retry_after: headers of the responses 429 and 503.
    """
    levels = f"^{_POLARIS_LEVEL}({_SEPARATOR}{_POLARIS_LEVEL})*$"
    return {
        "/v1/{prefix}/namespaces/{namespace}/tables/{table}/notifications": {
            "parameters": [
                _in_path("prefix", "the sender's name for the catalog", "prod", _POLARIS_TEXT),
                _in_path("namespace", "levels separated by `%1F`", "sales", {**_POLARIS_TEXT, "pattern": levels}),
                _in_path("table", "the table's name without its namespace", "orders", _POLARIS_TEXT),
            ],
            "post": {
                "operationId": "sendNotification",
                "summary": "Send a notification of Apache Polaris about one table",
                "description": "204 means that the notification is on disk. Old notifications are accepted: there is "
                "no 409.",
                "security": SENDERS,
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {"$ref": "#/components/schemas/NotificationRequest"},
                            "examples": {
                                "update": _example("a commit", "UPDATE"),
                                "drop": _example("the table was dropped", "DROP"),
                                "validate": _example("a dry run", "VALIDATE"),
                            },
                        }
                    },
                },
                "responses": {
                    "204": {"description": "stored on disk, or ignored"},
                    "400": _polaris_error(
                        "not JSON, a wrong field, or a path that names no table. Or a signed notification of an "
                        "event-only catalog: the signature does not cover the path."
                    ),
                    "401": _polaris_error(_UNAUTHENTICATED),
                    "403": _polaris_error(_WEB_PAGE),
                    "404": _polaris_error("the sender has no catalog of that name"),
                    "405": _polaris_error("another method than POST"),
                    "408": _polaris_error(_TOO_SLOW),
                    "413": _polaris_error("too large. Unless the request is signed, the table is checked anyway."),
                    "415": _polaris_error("compressed. Unless the request is signed, the table is checked anyway."),
                    "429": _polaris_error(_TOO_MANY, retry_after),
                    "500": _polaris_error(_INTERNAL),
                    "503": _polaris_error(_NOT_STORED, retry_after),
                },
            },
        }
    }


_PLAIN: Final = f"^[^{CONTROL_CHARACTERS}]+$"
_LEVEL: Final = f"[^.{CONTROL_CHARACTERS}]{{1,{MAX_NAME}}}"
_DOTTED: Final = f"^{_LEVEL}(\\.{_LEVEL}){{0,{MAX_LEVELS - 1}}}$"
_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": _PLAIN}
_LEVELS: Final = {
    "description": "levels as an array, or joined by dots if no level contains a dot; without control characters",
    "oneOf": [{"type": "array", "items": _TEXT, "maxItems": MAX_LEVELS}, {"type": "string", "pattern": _DOTTED}],
}
_IDENTIFIER: Final = {"namespace": _LEVELS, "name": _TEXT}


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


SCHEMAS: Final[dict[str, Any]] = {
    "Identifier": {"type": "object", "required": ["namespace", "name"], "properties": _IDENTIFIER},
    "Event": {
        "type": "object",
        "required": ["namespace", "name"],
        "properties": {
            **_IDENTIFIER,
            "operation": {"enum": [*OPERATIONS, None], "default": OPERATIONS[0]},
            "destination": {
                "description": "the new name; only with the operation rename",
                "oneOf": [{"$ref": "#/components/schemas/Identifier"}, {"type": "null"}],
            },
            "purge": {
                "description": "the files are deleted, too; only with the operation drop",
                "type": ["boolean", "null"],
            },
            "catalog": {**_optional(_TEXT), "description": "required if the sender has several catalogs"},
            "event_id": {
                **_optional(_TEXT),
                "description": "an event with an id that this sender used before is a duplicate",
            },
            "table_uuid": {**_optional(_TEXT), "description": "identifies the table in an event-only catalog"},
            "metadata_location": {
                "description": "the new metadata file; required for event-only catalogs, except for a drop or a rename",
                "type": ["string", "null"],
                "minLength": 1,
                "maxLength": MAX_LOCATION,
                "pattern": _PLAIN,
            },
            "ref": _optional(_TEXT),
            "occurred_at": {"type": ["string", "null"], "format": "date-time"},
        },
    },
    "CloudEvent": {
        "type": "object",
        "description": "a CloudEvent of any source; its data is an Event, or data of a catalog that sends CloudEvents",
        "required": ["specversion", "id", "source", "type"],
        "properties": {"specversion": {"const": "1.0"}, "id": _TEXT, "source": _TEXT, "type": _TEXT},
    },
    "Accepted": {
        "type": "object",
        "description": "numbers of notifications; a rename counts as two",
        "required": ["accepted", "duplicates", "ignored"],
        "properties": {
            "accepted": {"type": "integer", "minimum": 0},
            "duplicates": {"type": "integer", "minimum": 0},
            "ignored": {"type": "integer", "minimum": 0},
        },
    },
    "Problem": {
        "type": "object",
        "description": "RFC 9457",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["detail", "pointer"],
                    "properties": {"detail": {"type": "string"}, "pointer": {"type": "string"}},
                },
            },
        },
    },
    **POLARIS_SCHEMAS,
}

_EVENT: Final = {"$ref": "#/components/schemas/Event"}
_CLOUD_EVENT: Final = {"$ref": "#/components/schemas/CloudEvent"}
RETRY_AFTER: Final = {"Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 1}}}


_MALFORMED: Final = "a parameter or the body is malformed, or they do not fit together"


def error_response(description: str, **headers: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a response with a problem document."""
    return {"description": description, "content": _PROBLEM, **({"headers": headers} if headers else {})}


def with_problems(paths: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return FastAPI's description of routes, with a problem document for each error."""
    return {
        path: {method: _with_problems(operation) for method, operation in methods.items()}
        for path, methods in paths.items()
    }


def _with_problems(operation: Mapping[str, Any]) -> dict[str, Any]:
    answers = dict(operation["responses"])
    if "requestBody" in operation:
        answers |= {"400": {"description": "no text in UTF-8"}, "408": {"description": _TOO_SLOW}}
        answers["413"] = {"description": "the body is too large"}
    for status, answer in answers.items():
        if int(status) >= HTTPStatus.BAD_REQUEST:
            headers = RETRY_AFTER if int(status) == HTTPStatus.SERVICE_UNAVAILABLE else {}
            answers[status] = error_response(_MALFORMED if status == "422" else answer["description"], **headers)
    return {**operation, "responses": answers}


PATHS: Final[dict[str, Any]] = {
    "/v1/events": {
        "post": {
            "operationId": "sendEvents",
            "summary": "Send events about changed tables",
            "description": "Either all events of a request are accepted, or none. 202 means that they are on disk. The "
            "formats of Polaris, Lakekeeper, Nessie, AWS Glue and Iceberg's events endpoint are recognised, too.",
            "security": SENDERS,
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {"oneOf": [_EVENT, {"type": "array", "items": _EVENT, "maxItems": MAX_EVENTS}]},
                        "example": {"namespace": ["sales"], "name": "orders"},
                    },
                    "application/cloudevents+json": {"schema": _CLOUD_EVENT},
                    "application/cloudevents-batch+json": {
                        "schema": {"type": "array", "items": _CLOUD_EVENT, "maxItems": MAX_EVENTS}
                    },
                },
            },
            "responses": {
                "202": {
                    "description": "stored on disk",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Accepted"}}},
                },
                "400": error_response("not JSON"),
                "401": error_response(_UNAUTHENTICATED),
                "403": error_response(_WEB_PAGE),
                "405": error_response("another method than POST or OPTIONS"),
                "408": error_response(_TOO_SLOW),
                "413": error_response(
                    "too large. Unless the request is signed, the sender's catalogs are swept, except event-only ones."
                ),
                "415": error_response(
                    "no known event format, or not the sender's format; or compressed, with the same sweep as for 413"
                ),
                "422": error_response("a known format with a wrong field, named in `errors`"),
                "429": error_response(_TOO_MANY, **RETRY_AFTER),
                "500": error_response(_INTERNAL),
                "503": error_response(_NOT_STORED, **RETRY_AFTER),
            },
        },
        "options": OPTIONS,
    },
    **polaris_paths(RETRY_AFTER),
}

_FOREIGN: Final = frozenset({"HTTPValidationError", "ValidationError"})
"""Schemas of FastAPI's own errors, which the listener never answers with."""

SECURITY: Final[dict[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "not needed if no sender is configured"},
    **SCHEMES,
    "operator": {"type": "http", "scheme": "bearer", "description": "an operator's token; always required"},
    "scraper": {"type": "http", "scheme": "bearer", "description": "not needed if no `metrics_token` is configured"},
}


def with_events(description: dict[str, Any]) -> dict[str, Any]:
    """Return FastAPI's description with the routes for events, and with problem documents for errors."""
    components = description.setdefault("components", {})
    own = {name: one for name, one in components.get("schemas", {}).items() if name not in _FOREIGN}
    components["schemas"] = SCHEMAS | own
    components["securitySchemes"] = SECURITY
    description["paths"] = PATHS | with_problems(description["paths"])
    return description
