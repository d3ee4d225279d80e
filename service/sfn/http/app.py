"""The listener's ASGI application: events, metrics, health, the OpenAPI description and further routes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import structlog
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sfn.errors import FatalError, Transient
from sfn.http import ingest, openapi, responses
from sfn.http.body import BodyLimitMiddleware, Receive
from sfn.http.ingest import Readiness
from sfn.limits import BodyMemory
from sfn.telemetry.scrape import Exposition

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


AsgiApplication: TypeAlias = Callable[[MutableMapping[str, Any], Receive, responses.Send], Awaitable[None]]

_log = structlog.stdlib.get_logger(__name__)


def build_app(
    events: AsgiApplication | None,
    readiness: Readiness,
    *,
    version: str,
    on_fatal: Callable[[FatalError], None],
    routers: Sequence[APIRouter] = (),
    memory: BodyMemory | None = None,
) -> AsgiApplication:
    """Return the listener's application.

    Args:
        events: an `EventsEndpoint`; None if this process accepts no events.
        readiness: state for `/readyz`.
        version: version of the service.
        on_fatal: callback for a `FatalError` that a route of `routers` raised. It ends the process.
        routers: more routes, such as the admin API. An `HTTPException`, a `Transient` or a `FatalError` that they
            raise becomes a problem document.
        memory: memory for the bodies of requests to those routes.
    """
    api = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for router in (_health(readiness), *routers):
        api.include_router(router)
    _answer_errors(api, on_fatal)

    @cache
    def schema() -> dict[str, Any]:
        return _schema(api, version)

    async def description() -> JSONResponse:
        return JSONResponse(schema())

    api.add_api_route("/openapi.json", description, methods=["GET", "HEAD"], include_in_schema=False)
    limited_api = BodyLimitMiddleware(api, memory=memory)

    async def dispatch(scope: MutableMapping[str, Any], receive: Receive, send: responses.Send) -> None:
        if events is not None and scope["type"] == "http" and ingest.handles(scope):
            await events(scope, receive, send)
        else:
            await limited_api(scope, receive, send)

    return dispatch


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


def _schema(api: FastAPI, version: str) -> dict[str, Any]:
    schema = get_openapi(title="Iceberg SFN listener", version=version, routes=api.routes)
    components = schema.setdefault("components", {})
    own = {name: one for name, one in components.get("schemas", {}).items() if name not in openapi.FOREIGN}
    components["schemas"] = openapi.SCHEMAS | own
    components["securitySchemes"] = openapi.SECURITY
    schema["paths"] = openapi.PATHS | openapi.with_problems(schema["paths"])
    return schema
