"""All routes of the listener as one ASGI application: the bare ones beside FastAPI's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, TypeAlias

import structlog
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sfn.errors import FatalError, Transient
from sfn.limits import BodyMemory
from sfn.receiver import faces, ingest, openapi, problem
from sfn.receiver.body import Receive
from sfn.receiver.bounded import BodyLimitMiddleware
from sfn.receiver.malformed import describe_errors
from sfn.receiver.readiness import Readiness

AsgiApplication: TypeAlias = Callable[[MutableMapping[str, Any], Receive, faces.Send], Awaitable[None]]

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
    """The listener's application.

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

    async def dispatch(scope: MutableMapping[str, Any], receive: Receive, send: faces.Send) -> None:
        if events is not None and scope["type"] == "http" and ingest.handles(scope):
            await events(scope, receive, send)
        else:
            await others(scope, receive, send)

    return dispatch


def _health(readiness: Readiness) -> APIRouter:
    router = APIRouter(tags=["health"])

    async def alive() -> dict[str, str]:
        """The process answers. Nothing else is asked."""
        return {"status": "alive"}

    async def ready() -> Response:
        """Whether to send traffic here."""
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
        seconds = problem.retry_after_seconds(error.retry_after if isinstance(error, Transient) else None)
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
    return Response(problem.problem_document(status, detail), status, headers, problem.PROBLEM_MEDIA_TYPE)


def _schema(api: FastAPI, version: str) -> dict[str, Any]:
    schema = get_openapi(title="Iceberg SFN listener", version=version, routes=api.routes)
    components = schema.setdefault("components", {})
    own = {name: one for name, one in components.get("schemas", {}).items() if name not in openapi.FOREIGN}
    components["schemas"] = openapi.SCHEMAS | own
    components["securitySchemes"] = openapi.SECURITY
    schema["paths"] = openapi.PATHS | openapi.with_problems(schema["paths"])
    return schema
