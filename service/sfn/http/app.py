"""The listener's ASGI application: events, metrics, health, the OpenAPI description and further routes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from sfn.errors import FatalError, Rejected, Transient
from sfn.http import ingest, openapi, responses
from sfn.http.ingest import EventsEndpoint, Readiness, parse_length
from sfn.http.responses import AsgiApplication, problem_detail
from sfn.limits import (
    EXHAUSTED_MESSAGE,
    RETRY_AFTER,
    BodyLimits,
    BodyMemory,
    BodyMemoryExhausted,
    BodyReservation,
    read_body,
)
from sfn.telemetry.scrape import Exposition

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
            headers = {"Connection": "close", "Retry-After": str(RETRY_AFTER)}
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, EXHAUSTED_MESSAGE, headers) from None
        if content is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": content, "more_body": False}


def _declared(scope: MutableMapping[str, Any]) -> int | None:
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return parse_length(length)


METRICS_PATH: Final = "/metrics"
_NO_ROUTE: Final = (
    "expected a route of this service; events go to POST /v1/events, and GET /openapi.json lists all routes"
)

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
            self.openapi_schema = openapi.with_events(super().openapi())
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

    refusals: dict[int | str, dict[str, Any]] = {
        503: openapi.error_response("not ready, with the reasons", **openapi.RETRY_AFTER)
    }
    router.add_api_route("/livez", alive, methods=["GET"])
    router.add_api_route("/readyz", ready, methods=["GET"], responses=refusals)
    for path, endpoint in (("/livez", alive), ("/readyz", ready)):
        router.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False)
    return router


def _answer_errors(api: FastAPI, on_fatal: Callable[[FatalError], None]) -> None:
    async def refused(_: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            is_unknown = (error.status_code, error.detail) == (HTTPStatus.NOT_FOUND, HTTPStatus.NOT_FOUND.phrase)
            return _problem(error.status_code, _NO_ROUTE if is_unknown else str(error.detail), error.headers)
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
