"""The routes that FastAPI does not see, in OpenAPI 3.1."""

from __future__ import annotations

from typing import Any, Final

from sfn.dialects import MAX_EVENTS
from sfn.dialects.own import MAX_LEVELS, MAX_LOCATION, MAX_NAME, OPERATIONS
from sfn.receiver import problem

_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
_LEVELS: Final = {
    "description": "levels as an array, or joined by dots where none of them holds a dot",
    "oneOf": [{"type": "array", "items": _TEXT, "maxItems": MAX_LEVELS}, {"type": "string", "minLength": 1}],
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
            },
            "ref": _optional(_TEXT),
            "occurred_at": {"type": ["string", "null"], "format": "date-time"},
        },
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
}

_PROBLEM: Final = {problem.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_EVENT: Final = {"$ref": "#/components/schemas/Event"}
RETRY_AFTER: Final = {"Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 1}}}


def refusal(description: str, **headers: dict[str, Any]) -> dict[str, Any]:
    """An answer that is a problem document."""
    return {"description": description, "content": _PROBLEM, **({"headers": headers} if headers else {})}


PATHS: Final[dict[str, Any]] = {
    "/v1/events": {
        "post": {
            "operationId": "sendEvents",
            "summary": "Tell of changes to tables",
            "description": "All events of a request are taken or none is. 202 comes after they are on disk.",
            "security": [{"bearer": []}],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {"oneOf": [_EVENT, {"type": "array", "items": _EVENT, "maxItems": MAX_EVENTS}]},
                        "example": {"namespace": ["sales"], "name": "orders"},
                    }
                },
            },
            "responses": {
                "202": {
                    "description": "taken, and on disk",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Accepted"}}},
                },
                "400": refusal("not JSON"),
                "401": refusal("no valid token"),
                "405": refusal("another method than POST"),
                "408": refusal("the body came too slowly"),
                "413": refusal(
                    "too large; those of the sender's catalogs that can be listed are looked through instead"
                ),
                "415": refusal("no known event format, or compressed"),
                "422": refusal("a known format with a wrong field, named in `errors`"),
                "500": refusal("an error of the service"),
                "503": refusal("nothing was taken; try again", **RETRY_AFTER),
            },
        }
    }
}

SECURITY: Final[dict[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "not needed where no sender is configured"},
    "operator": {"type": "http", "scheme": "bearer", "description": "an operator's token; always needed"},
}
