"""The routes that FastAPI does not see, in OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from sfn.formats import MAX_EVENTS
from sfn.formats.event import CONTROL_CHARACTERS, MAX_LEVELS, MAX_LOCATION, MAX_NAME
from sfn.formats.native import OPERATIONS
from sfn.receiver import openapi_permission, openapi_polaris, openapi_signed, problem

_PLAIN: Final = f"^[^{CONTROL_CHARACTERS}]+$"
_LEVEL: Final = f"[^.{CONTROL_CHARACTERS}]{{1,{MAX_NAME}}}"
_DOTTED: Final = f"^{_LEVEL}(\\.{_LEVEL}){{0,{MAX_LEVELS - 1}}}$"
_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": _PLAIN}
_LEVELS: Final = {
    "description": "levels as an array, or joined by dots where none of them holds a dot; without control characters",
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
                "description": "the new name; with the operation rename, and only there",
                "oneOf": [{"$ref": "#/components/schemas/Identifier"}, {"type": "null"}],
            },
            "purge": {
                "description": "the files are deleted too; with the operation drop, and only there",
                "type": ["boolean", "null"],
            },
            "catalog": {**_optional(_TEXT), "description": "needed where the sender speaks for several"},
            "event_id": {**_optional(_TEXT), "description": "an event whose id this sender sent before is a duplicate"},
            "table_uuid": {**_optional(_TEXT), "description": "whose event it is, where nobody can ask the catalog"},
            "metadata_location": {
                "description": "the new one; needed where nobody can ask the catalog, but for a drop and a rename",
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
        "description": "of any source; its data is an Event, or that of a catalog which sends CloudEvents",
        "required": ["specversion", "id", "source", "type"],
        "properties": {"specversion": {"const": "1.0"}, "id": _TEXT, "source": _TEXT, "type": _TEXT},
    },
    "Accepted": {
        "type": "object",
        "description": "what became of the hints; a rename is two",
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
    **openapi_polaris.POLARIS_SCHEMAS,
}

_PROBLEM: Final = {problem.PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_EVENT: Final = {"$ref": "#/components/schemas/Event"}
_CLOUD_EVENT: Final = {"$ref": "#/components/schemas/CloudEvent"}
RETRY_AFTER: Final = {"Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 1}}}


_MALFORMED: Final = "a parameter or the body is malformed, or they do not fit together"


def error_response(description: str, **headers: dict[str, Any]) -> dict[str, Any]:
    """An answer that is a problem document."""
    return {"description": description, "content": _PROBLEM, **({"headers": headers} if headers else {})}


def with_problems(paths: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """FastAPI's description of routes, with our own errors: every refusal is a problem document, whatever it says."""
    return {
        path: {method: _with_problems(operation) for method, operation in methods.items()}
        for path, methods in paths.items()
    }


def _with_problems(operation: Mapping[str, Any]) -> dict[str, Any]:
    answers = dict(operation["responses"])
    if "requestBody" in operation:
        answers |= {"400": {"description": "no text in UTF-8"}, "408": {"description": "the body came too slowly"}}
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
            "summary": "Tell of changes to tables",
            "description": "All events of a request are taken or none is. 202 comes after they are on disk. What "
            "Polaris, Lakekeeper, Nessie, AWS Glue and Iceberg's events endpoint send is recognised, too, as it is.",
            "security": openapi_signed.SENDERS,
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
                    "description": "taken, and on disk",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Accepted"}}},
                },
                "400": error_response("not JSON"),
                "401": error_response("no valid token or signature, or one that is not of now"),
                "403": error_response("a web page's request (`Origin`) where no sender need show who it is"),
                "405": error_response("another method than POST or OPTIONS"),
                "408": error_response("the body came too slowly"),
                "413": error_response(
                    "too large; unless the sender signs, those of its catalogs that can be listed are looked through "
                    "instead"
                ),
                "415": error_response(
                    "no known event format, or not the sender's; or compressed, which is made up for as with 413"
                ),
                "422": error_response("a known format with a wrong field, named in `errors`"),
                "429": error_response("more requests a minute than the sender may make; try again", **RETRY_AFTER),
                "500": error_response("an error of the service"),
                "503": error_response("nothing was taken; try again", **RETRY_AFTER),
            },
        },
        "options": openapi_permission.OPTIONS,
    },
    **openapi_polaris.polaris_paths(RETRY_AFTER),
}

FOREIGN: Final = frozenset({"HTTPValidationError", "ValidationError"})
"""FastAPI's own error, which we never answer."""

SECURITY: Final[dict[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "not needed where no sender is configured"},
    **openapi_signed.SCHEMES,
    "operator": {"type": "http", "scheme": "bearer", "description": "an operator's token; always needed"},
    "scraper": {"type": "http", "scheme": "bearer", "description": "not needed where no `metrics_token` is configured"},
}
