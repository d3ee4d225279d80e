"""The handshake of CloudEvents' webhooks in OpenAPI 3.1."""

from __future__ import annotations

from typing import Any, Final

from sfn.receiver import problem
from sfn.receiver.permission import MAX_ORIGIN, ORIGIN_HEADER

_PROBLEM: Final = {problem.PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_ORIGIN: Final = {"type": "string", "minLength": 1, "maxLength": MAX_ORIGIN, "pattern": "^[!-+\\--~]+$"}
_RATE: Final = {"type": "string", "pattern": "^(\\*|[1-9][0-9]*)$"}


def _handshake_error(description: str) -> dict[str, Any]:
    return {"description": description, "content": _PROBLEM}


def _response_header(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "required": True, "schema": schema}


_ALLOW: Final = _response_header("the methods of this route", {"type": "string"})

OPTIONS: Final[dict[str, Any]] = {
    "operationId": "permitEvents",
    "summary": "Whether somebody may send events, and how often",
    "description": "The handshake of CloudEvents' HTTP 1.1 Web Hooks, section 4. It needs no token.",
    "security": [],
    "parameters": [
        {
            "name": ORIGIN_HEADER,
            "in": "header",
            "description": "the system that asks",
            "schema": _ORIGIN,
            "example": "eventemitter.example.com",
        }
    ],
    "responses": {
        "200": {
            "description": "it may send",
            "headers": {
                "WebHook-Allowed-Origin": _response_header("who asked", _ORIGIN),
                "WebHook-Allowed-Rate": _response_header("requests a minute, or any number", _RATE),
                "Allow": _ALLOW,
            },
        },
        "204": {"description": "nobody asked whether they may", "headers": {"Allow": _ALLOW}},
        "400": _handshake_error("no origin, or more than one"),
        "405": _handshake_error("no sender is configured"),
        "500": _handshake_error("an error of the service"),
    },
}
