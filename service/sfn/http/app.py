"""Where events arrive over HTTP."""

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
from sfn.http import events as http_events
from sfn.http import openapi, responses
from sfn.http.body import BodyLimitMiddleware, Receive
from sfn.http.events import Readiness
from sfn.limits import BodyMemory
from sfn.telemetry.scrape import Exposition

# ── Metrics

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
    """Return the route of the metrics.

    Args:
        scrape: writes them, given an `Accept` header.
        admit: whether the value of an `Authorization` header opens them; None: they are open to everybody.
    """

    async def metrics(request: Request) -> Response:
        """What Prometheus reads."""
        if admit is not None:
            shown = request.headers.getlist("authorization")
            # Two of them are no answer to the question who it is (RFC 9110, section 5.3).
            if not admit(shown[0].encode("latin-1") if len(shown) == 1 else None):
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


# ── Malformed requests

_NAMED: Final = 3
"""Wrong fields that are named."""
_SHOWN: Final = 40
"""Most characters of a key that are repeated."""

_SAYS: Final = {
    "extra_forbidden": "no such key is known",
    "json_invalid": "should be JSON",
    "missing": "is needed, and missing",
}
"""By kind of error of pydantic's, or of FastAPI's, where its own words do not fit."""
_EXPECTATION: Final = re.compile(r"\w+ (should (?:be|have) .*)", re.DOTALL)
"""Those of pydantic's texts that name what is expected; they repeat nothing."""


def describe_errors(errors: Sequence[Mapping[str, Any]]) -> str:
    """Which fields are wrong, and what was expected of each.

    Args:
        errors: as in `RequestValidationError.errors()`.
    """
    named = "; ".join(_described(error) for error in errors[:_NAMED])
    return f"{named}; and more" if len(errors) > _NAMED else named


def _described(error: Mapping[str, Any]) -> str:
    # Behind what is no JSON FastAPI puts the offset at which that turned out.
    loc = error["loc"][:1] if error["type"] == "json_invalid" else error["loc"]
    expectation = _EXPECTATION.fullmatch(error["msg"])
    says = _SAYS.get(error["type"]) or (expectation[1] if expectation is not None else "is malformed")
    return f"{' '.join(str(part)[:_SHOWN] for part in loc)}: {says}"


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
        events: takes what `ingest.takes` says: an `ingest.Ingest`; None where this process takes none.
        readiness: what `/readyz` says.
        version: of this service.
        on_fatal: told of a `Broken` that a route of `routers` raised, so that the process may end.
        routers: more routes, such as the admin's. An `HTTPException`, a `Transient` or a `Broken` that they raise
            becomes a problem document.
        memory: for the bodies of requests to those routes.
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

    others = BodyLimitMiddleware(api, memory=memory)

    async def dispatch(scope: MutableMapping[str, Any], receive: Receive, send: responses.Send) -> None:
        if events is not None and scope["type"] == "http" and http_events.handles(scope):
            await events(scope, receive, send)
        else:
            await others(scope, receive, send)

    return dispatch


def _health(readiness: Readiness) -> APIRouter:
    router = APIRouter(tags=["health"])

    async def alive() -> dict[str, str]:
        """Return the process answers. Nothing else is asked."""
        return {"status": "alive"}

    async def ready() -> Response:
        """Return whether to send traffic here."""
        if reasons := readiness.reasons:
            return _problem(HTTPStatus.SERVICE_UNAVAILABLE, ", ".join(reasons), {"Retry-After": "1"})
        return JSONResponse({"status": "ready"})

    refusals: dict[int | str, dict[str, Any]] = {
        503: openapi.error_response("not ready, and why", **openapi.RETRY_AFTER)
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
        return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "this is an error of the service; its log says more")

    async def malformed(_: Request, error: Exception) -> Response:
        found = error.errors() if isinstance(error, RequestValidationError) else ()
        return _problem(HTTPStatus.UNPROCESSABLE_ENTITY, describe_errors(found))

    async def transient(_: Request, error: Exception) -> Response:
        _log.warning("request not served", error=str(error))
        seconds = responses.retry_after_seconds(error.retry_after if isinstance(error, Transient) else None)
        return _problem(HTTPStatus.SERVICE_UNAVAILABLE, "the inbox can't answer now", {"Retry-After": str(seconds)})

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
