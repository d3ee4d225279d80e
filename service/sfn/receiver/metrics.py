"""`GET /metrics`, for the listener's application to include."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

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
    """The route of the metrics.

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
