"""The routes for events in the OpenAPI document. Schemas are generated from the types that decode and encode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from sfn.errors import IcebergErrorResponse
from sfn.formats.cloudevents import CloudEvent
from sfn.formats.decode import MAX_EVENTS
from sfn.formats.event import CONTROL_CHARACTERS, Text
from sfn.formats.native import NativeEvent
from sfn.formats.polaris import SEPARATOR, PolarisNotification
from sfn.http import responses
from sfn.http.ingest import EVENTS_PATH
from sfn.http.signature import MAX_ORIGIN, ORIGIN_HEADER

_REFERENCES, SCHEMAS = msgspec.json.schema_components(
    [NativeEvent, CloudEvent, PolarisNotification, responses.Accepted, responses.Problem, IcebergErrorResponse],
    ref_template="#/components/schemas/{name}",
)
"""Schemas of requests and responses, and references to them."""
_EVENT, _CLOUD_EVENT, _NOTIFICATION, _ACCEPTED, _PROBLEM, _ICEBERG_ERROR = _REFERENCES

_UNAUTHENTICATED: Final = "no valid token or signature, or a signature that is too old"
_TOO_SLOW: Final = "the body arrived too slowly"
_FAILURES: Final = {
    "401": _UNAUTHENTICATED,
    "403": "a request of a web page (`Origin`) while no sender needs a token",
    "408": _TOO_SLOW,
    "429": "the sender exceeds its requests per minute; try again",
    "500": "an error of the service",
    "503": "nothing was stored; try again",
}
"""Errors of all routes for events."""
RETRY_AFTER: Final = {"Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 1}}}


def error_response(description: str, **headers: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a response with a problem document."""
    content = {responses.PROBLEM_MEDIA_TYPE: {"schema": _PROBLEM}}
    return {"description": description, "content": content, **({"headers": headers} if headers else {})}


def _iceberg_error(description: str, **headers: dict[str, Any]) -> dict[str, Any]:
    return {**error_response(description, **headers), "content": _json(_ICEBERG_ERROR)}


def _errors(response: Callable[..., dict[str, Any]], errors: Mapping[str, str]) -> dict[str, Any]:
    return {
        status: response(description, **(RETRY_AFTER if status in {"429", "503"} else {}))
        for status, description in {**_FAILURES, **errors}.items()
    }


def _json(schema: Mapping[str, Any], **more: object) -> dict[str, Any]:
    return {"application/json": {"schema": schema, **more}}


def _events_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema, "maxItems": MAX_EVENTS}


def _header(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "required": True, "schema": schema}


def _header_scheme(name: str, description: str) -> dict[str, Any]:
    return {"type": "apiKey", "in": "header", "name": name, "description": description}


SECURITY: Final[dict[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "not needed if no sender is configured"},
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
    "operator": {"type": "http", "scheme": "bearer", "description": "an operator's token; always required"},
    "scraper": {"type": "http", "scheme": "bearer", "description": "not needed if no `metrics_token` is configured"},
}
_SENDERS: Final[list[dict[str, list[str]]]] = [
    {"bearer": []},
    {"webhookId": [], "webhookTimestamp": [], "webhookSignature": []},
    {"bodySignature": []},
]
"""Security requirements of the routes for events. Each sender has one of these schemes configured."""


_SEND_EVENTS: Final[dict[str, Any]] = {
    "operationId": "sendEvents",
    "summary": "Send events about changed tables",
    "description": "Either all events of a request are accepted, or none. 202 means that they are on disk. The "
    "formats of Polaris, Lakekeeper, Nessie, AWS Glue and Iceberg's events endpoint are recognised, too.",
    "security": _SENDERS,
    "requestBody": {
        "required": True,
        "content": {
            **_json(
                {"oneOf": [_EVENT, _events_of(_EVENT)]},
                examples={
                    "commit": {"summary": "a commit", "value": {"namespace": ["sales"], "name": "orders"}},
                    "drop": {
                        "summary": "the table and its files were dropped",
                        "value": {"namespace": "sales.eu", "name": "orders", "operation": "drop", "purge": True},
                    },
                },
            ),
            "application/cloudevents+json": {"schema": _CLOUD_EVENT},
            "application/cloudevents-batch+json": {"schema": _events_of(_CLOUD_EVENT)},
        },
    },
    "responses": {
        "202": {"description": "stored on disk", "content": _json(_ACCEPTED)},
        **_errors(
            error_response,
            {
                "400": "not JSON",
                "405": "another method than POST or OPTIONS",
                "413": "too large. Unless the request is signed, its sender's catalogs are swept, not event-only ones.",
                "415": "no known event format, or not the sender's; or compressed, with the same sweep as for 413",
                "422": "a known format with a wrong field, named in `errors`",
            },
        ),
    },
}

_ORIGIN: Final = {"type": "string", "minLength": 1, "maxLength": MAX_ORIGIN, "pattern": "^[!-+\\--~]+$"}
_ALLOW: Final = _header("the methods of this route", {"type": "string"})
_PERMIT_EVENTS: Final[dict[str, Any]] = {
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
                "WebHook-Allowed-Origin": _header("the origin of the request", _ORIGIN),
                "WebHook-Allowed-Rate": _header(
                    "requests per minute, or `*` for any number", {"type": "string", "pattern": "^(\\*|[1-9][0-9]*)$"}
                ),
                "Allow": _ALLOW,
            },
        },
        "204": {"description": "no origin in the request", "headers": {"Allow": _ALLOW}},
        "400": error_response("an invalid origin, or more than one"),
        "405": error_response("no sender is configured"),
        "500": error_response(_FAILURES["500"]),
    },
}


def _example(summary: str, kind: str) -> dict[str, Any]:
    payload = {
        "table-name": "orders",
        "timestamp": 1788000000123,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "metadata-location": "/warehouse/sales/orders/metadata/00003-5b1c.metadata.json",
    }
    return {"summary": summary, "value": {"notification-type": kind, "payload": payload}}


def _in_path(name: str, description: str, example: str, **more: str) -> dict[str, Any]:
    schema = {**msgspec.json.schema(Text), **more}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
        "example": example,
    }


_LEVEL: Final = f"[^{CONTROL_CHARACTERS}]+"
_SEND_NOTIFICATION: Final[dict[str, Any]] = {
    "operationId": "sendNotification",
    "summary": "Send a notification of Apache Polaris about one table",
    "description": "204 means that the notification is on disk. Old notifications are accepted: there is no 409.",
    "security": _SENDERS,
    "requestBody": {
        "required": True,
        "content": _json(
            _NOTIFICATION,
            examples={
                "update": _example("a commit", "UPDATE"),
                "drop": _example("the table was dropped", "DROP"),
                "validate": _example("a dry run", "VALIDATE"),
            },
        ),
    },
    "responses": {
        "204": {"description": "stored on disk, or ignored"},
        **_errors(
            _iceberg_error,
            {
                "400": "not JSON, a wrong field, or a path that names no table. Or a signed notification of an "
                "event-only catalog: the signature does not cover the path.",
                "404": "the sender has no catalog of that name",
                "405": "another method than POST",
                "413": "too large. Unless the request is signed, the table is checked anyway.",
                "415": "compressed. Unless the request is signed, the table is checked anyway.",
            },
        ),
    },
}

_PATHS: Final[dict[str, Any]] = {
    EVENTS_PATH: {"post": _SEND_EVENTS, "options": _PERMIT_EVENTS},
    "/v1/{prefix}/namespaces/{namespace}/tables/{table}/notifications": {
        "parameters": [
            _in_path("prefix", "the sender's name for the catalog", "prod"),
            _in_path(
                "namespace",
                "levels separated by `%1F`",
                "sales",
                pattern=f"^{_LEVEL}(\\u{ord(SEPARATOR):04x}{_LEVEL})*$",
            ),
            _in_path("table", "the table's name without its namespace", "orders"),
        ],
        "post": _SEND_NOTIFICATION,
    },
}

_FOREIGN: Final = frozenset({"HTTPValidationError", "ValidationError"})
"""Schemas of FastAPI's own errors, which the listener never answers with."""


def with_events(description: dict[str, Any]) -> dict[str, Any]:
    """Return FastAPI's description with the routes for events, and with problem documents for errors."""
    components = description.setdefault("components", {})
    own = {name: one for name, one in components.get("schemas", {}).items() if name not in _FOREIGN}
    components["schemas"], components["securitySchemes"] = SCHEMAS | own, SECURITY
    paths = {
        path: {method: _with_problems(operation) for method, operation in methods.items()}
        for path, methods in description["paths"].items()
    }
    description["paths"] = _PATHS | paths
    return description


def _with_problems(operation: Mapping[str, Any]) -> dict[str, Any]:
    answers = dict(operation["responses"])
    if "requestBody" in operation:
        answers |= {"400": {"description": "no text in UTF-8"}, "408": {"description": _TOO_SLOW}}
        answers["413"] = {"description": "the body is too large"}
    for status, answer in answers.items():
        if int(status) >= HTTPStatus.BAD_REQUEST:
            text = "a parameter or the body is malformed, or they do not fit together" if status == "422" else None
            headers = RETRY_AFTER if int(status) == HTTPStatus.SERVICE_UNAVAILABLE else {}
            answers[status] = error_response(text or answer["description"], **headers)
    return {**operation, "responses": answers}
