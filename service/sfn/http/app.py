"""The listener's ASGI application: events, metrics, health, the OpenAPI description and further routes.

The OpenAPI schemas of the event routes are generated from the types that decode and encode.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from sfn.errors import FatalError, IcebergErrorResponse, Rejected, Transient
from sfn.formats.cloudevents import CloudEvent
from sfn.formats.decode import MAX_EVENTS
from sfn.formats.event import CONTROL_CHARACTERS, Text
from sfn.formats.native import NativeEvent
from sfn.formats.polaris import SEPARATOR, PolarisNotification
from sfn.http import ingest, responses
from sfn.http.ingest import EVENTS_PATH, EventsEndpoint, Readiness
from sfn.http.responses import AsgiApplication, problem_detail
from sfn.http.secrets import MAX_ORIGIN, ORIGIN_HEADER
from sfn.limits import EXHAUSTED_MESSAGE, BodyLimits, BodyMemory, BodyMemoryExhausted, BodyReservation, read_body
from sfn.limits import RETRY_AFTER as MEMORY_RETRY_AFTER
from sfn.telemetry.scrape import Exposition

# ── The routes for events in the OpenAPI document

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


# ── Limits of request bodies

ADMIN_BODY_LIMITS: Final = BodyLimits(size=1 << 20)
"""Limits for a request to the admin API."""

_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class BodyLimitMiddleware:
    """ASGI middleware that passes on whole bodies, and rejects bodies that are too large or too slow.

    Args:
        application: the application, which must answer an `HTTPException` that its `receive` raises.
        limits: limits for one body.
        memory: memory for all bodies. A client is unidentified until a route checks its token.
    """

    def __init__(
        self,
        application: AsgiApplication,
        limits: BodyLimits = ADMIN_BODY_LIMITS,
        memory: BodyMemory | None = None,
    ) -> None:
        self._application, self._limits, self._memory = application, limits, memory or BodyMemory()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in _BODILESS:
            await self._application(scope, receive, send)
            return
        with self._memory.reserve() as reservation:
            whole_body = _WholeBodyReceive(receive, _declared(scope), self._limits, reservation)
            await self._application(scope, whole_body, send)


class _WholeBodyReceive:
    """An ASGI `receive` with the whole body as its first message."""

    def __init__(
        self, receive: Receive, declared: int | None, limits: BodyLimits, reservation: BodyReservation
    ) -> None:
        self._receive, self._declared, self._limits, self._reservation = receive, declared, limits, reservation
        self._is_read = False

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._is_read:
            return await self._receive()
        self._is_read = True
        try:
            content = await read_body(self._receive, self._declared, self._limits, self._reservation)
        except Rejected as refusal:
            # The client is still sending the body, so the next request on this connection could not be recognised.
            raise HTTPException(refusal.status, problem_detail(refusal), {"Connection": "close"}) from None
        except BodyMemoryExhausted:
            headers = {"Connection": "close", "Retry-After": str(MEMORY_RETRY_AFTER)}
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, EXHAUSTED_MESSAGE, headers) from None
        if content is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": content, "more_body": False}


def _declared(scope: MutableMapping[str, Any]) -> int | None:
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(length) if length.isdigit() else None


# ── Metrics, errors and the application

METRICS_PATH: Final = "/metrics"

_DESCRIBED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "in Prometheus' text format, or in OpenMetrics where the client asks for it",
        "content": {"text/plain": {}, "application/openmetrics-text": {}},
    }
}
_GUARDED: Final[dict[int | str, dict[str, Any]]] = {401: {"description": "no valid token"}}


def metrics_router(
    scrape: Callable[[str], Awaitable[Exposition]], admit: Callable[[bytes | None], bool] | None = None
) -> APIRouter:
    """Return the route `GET /metrics`.

    Args:
        scrape: function that writes the metrics for a given `Accept` header.
        admit: check of an `Authorization` header; None if the metrics need no token.
    """

    async def metrics(request: Request) -> Response:
        """Metrics for Prometheus."""
        if admit is not None:
            values = request.headers.getlist("authorization")
            # Several `Authorization` headers identify no client (RFC 9110, section 5.3).
            if not admit(values[0].encode("latin-1") if len(values) == 1 else None):
                raise HTTPException(
                    HTTPStatus.UNAUTHORIZED, "a valid bearer token is needed", {"WWW-Authenticate": "Bearer"}
                )
        written = await scrape(", ".join(request.headers.getlist("accept")))
        return Response(written.content, headers={"Content-Type": written.media_type})

    router = APIRouter(tags=["metrics"])
    router.add_api_route(
        METRICS_PATH,
        metrics,
        methods=["GET"],
        operation_id="metrics",
        response_class=Response,
        responses=_DESCRIBED if admit is None else _DESCRIBED | _GUARDED,
        openapi_extra={"security": [{"scraper": []}] if admit is not None else []},
    )
    router.add_api_route(METRICS_PATH, metrics, methods=["HEAD"], include_in_schema=False)
    return router


_MAX_FIELDS: Final = 3
"""Most wrong fields in one message."""
_MAX_KEY: Final = 40
"""Most characters of a key in a message."""

_MESSAGES: Final = {
    "extra_forbidden": "no such key is known",
    "json_invalid": "should be JSON",
    "missing": "is needed, and missing",
}
"""Messages by type of pydantic's or FastAPI's error, where the original text does not fit."""
_EXPECTATION: Final = re.compile(r"\w+ (should (?:be|have) .*)", re.DOTALL)
"""Texts of pydantic that name the expected value. They do not repeat the client's input."""


def describe_errors(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return which fields are wrong, and the expected value of each.

    Args:
        errors: as in `RequestValidationError.errors()`.
    """
    described = "; ".join(_describe_error(error) for error in errors[:_MAX_FIELDS])
    return f"{described}; and more" if len(errors) > _MAX_FIELDS else described


def _describe_error(error: Mapping[str, Any]) -> str:
    # For invalid JSON FastAPI appends the offset of the error, which is no field.
    loc = error["loc"][:1] if error["type"] == "json_invalid" else error["loc"]
    expectation = _EXPECTATION.fullmatch(error["msg"])
    message = _MESSAGES.get(error["type"]) or (expectation[1] if expectation is not None else "is malformed")
    return f"{' '.join(str(part)[:_MAX_KEY] for part in loc)}: {message}"


_log = structlog.stdlib.get_logger(__name__)


class ListenerApplication(FastAPI):
    """The listener's application: FastAPI, with the endpoint for events in front of its middleware and its router.

    FastAPI's middleware and router take longer than the endpoint needs for an event.

    Args:
        events: endpoint for events; None if this process accepts no events.
        version: version of the service.

    Attributes:
        events: see Args.
    """

    def __init__(self, events: EventsEndpoint | None, version: str) -> None:
        super().__init__(
            title="Iceberg SFN listener", version=version, docs_url=None, redoc_url=None, redirect_slashes=False
        )
        self.events = events

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.events is not None and scope["type"] == "http" and ingest.handles(scope):
            await self.events(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    @override
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = with_events(super().openapi())
        return self.openapi_schema


def build_app(
    events: EventsEndpoint | None,
    readiness: Readiness,
    *,
    version: str,
    on_fatal: Callable[[FatalError], None],
    routers: Sequence[APIRouter] = (),
    memory: BodyMemory | None = None,
) -> ListenerApplication:
    """Return the listener's application.

    Args:
        events: endpoint for events; None if this process accepts no events.
        readiness: state for `/readyz`.
        version: version of the service.
        on_fatal: callback for a `FatalError` that a route of `routers` raised. It ends the process.
        routers: more routes, such as the admin API. An `HTTPException`, a `Transient` or a `FatalError` that they
            raise becomes a problem document.
        memory: memory for the bodies of requests to those routes.
    """
    api = ListenerApplication(events, version)
    for router in (_health(readiness), *routers):
        api.include_router(router)
    _answer_errors(api, on_fatal)
    api.add_middleware(BodyLimitMiddleware, memory=memory)
    return api


def _health(readiness: Readiness) -> APIRouter:
    router = APIRouter(tags=["health"])

    async def alive() -> dict[str, str]:
        """The process answers. Nothing else is checked."""
        return {"status": "alive"}

    async def ready() -> Response:
        """Readiness for traffic: 503 with the reasons while the process is not ready."""
        if reasons := readiness.reasons:
            return _problem(HTTPStatus.SERVICE_UNAVAILABLE, ", ".join(reasons), {"Retry-After": "1"})
        return JSONResponse({"status": "ready"})

    refusals: dict[int | str, dict[str, Any]] = {503: error_response("not ready, with the reasons", **RETRY_AFTER)}
    router.add_api_route("/livez", alive, methods=["GET"])
    router.add_api_route("/readyz", ready, methods=["GET"], responses=refusals)
    for path, endpoint in (("/livez", alive), ("/readyz", ready)):
        router.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False)
    return router


def _answer_errors(api: FastAPI, on_fatal: Callable[[FatalError], None]) -> None:
    async def refused(_: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return _problem(error.status_code, str(error.detail), error.headers)
        return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, responses.INTERNAL_ERROR)

    async def malformed(_: Request, error: Exception) -> Response:
        found = error.errors() if isinstance(error, RequestValidationError) else ()
        return _problem(HTTPStatus.UNPROCESSABLE_ENTITY, describe_errors(found))

    async def transient(_: Request, error: Exception) -> Response:
        _log.warning("inbox unavailable", error=str(error))
        seconds = responses.retry_after_seconds(error.retry_after if isinstance(error, Transient) else None)
        return _problem(HTTPStatus.SERVICE_UNAVAILABLE, "the inbox is unavailable", {"Retry-After": str(seconds)})

    async def broken(_: Request, error: Exception) -> Response:
        if isinstance(error, FatalError):
            on_fatal(error)
        return _problem(HTTPStatus.SERVICE_UNAVAILABLE, "the service is restarting", {"Retry-After": "1"})

    api.add_exception_handler(HTTPException, refused)
    api.add_exception_handler(Exception, refused)
    api.add_exception_handler(RequestValidationError, malformed)
    api.add_exception_handler(Transient, transient)
    api.add_exception_handler(FatalError, broken)


def _problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(responses.problem_document(status, detail), status, headers, responses.PROBLEM_MEDIA_TYPE)
