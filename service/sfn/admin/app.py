"""The operators' routes, for the listener's application to include; without a token there are none to include."""

from __future__ import annotations

from collections.abc import Callable, Collection
from http import HTTPStatus

import structlog
from fastapi import APIRouter, Depends, Request
from starlette.exceptions import HTTPException

from sfn.clock import Clock
from sfn.inbox import Brake
from sfn.inbox.letters import Order

Admit = Callable[[bytes | None], bool]
"""Whether the value of an `Authorization` header is an operator's; takes the same time for every wrong one."""

_log = structlog.stdlib.get_logger(__name__)


def routes(brake: Brake, clock: Clock, *, admit: Admit, catalogs: Collection[str]) -> APIRouter:
    """`/admin/v1/…`, each behind the operators' token.

    Args:
        brake: what holds drops.
        clock: tells the time.
        admit: who is an operator.
        catalogs: the configured ones.
    """

    async def operator(request: Request) -> None:
        shown = request.headers.getlist("authorization")
        # Two of them are no answer to the question who it is (RFC 9110, section 5.3).
        # ASGI's headers are bytes, Starlette reads them as Latin-1.
        if not admit(shown[0].encode("latin-1") if len(shown) == 1 else None):
            raise HTTPException(
                HTTPStatus.UNAUTHORIZED, "a valid bearer token is needed", {"WWW-Authenticate": "Bearer"}
            )

    async def release(catalog: str) -> dict[str, int]:
        """Let go what a catalog's brake holds: each of the held tables may take its step once."""
        if catalog not in catalogs:
            raise HTTPException(HTTPStatus.NOT_FOUND, "no such catalog is configured")
        released = await brake.release(catalog, Order("operator", catalog, clock.now()))
        _log.info("brake released", catalog=catalog, tables=released)
        return {"released": released}

    router = APIRouter(prefix="/admin/v1", tags=["admin"], dependencies=[Depends(operator)])
    router.add_api_route(
        "/brakes/{catalog}:release",
        release,
        methods=["POST"],
        operation_id="releaseBrake",
        responses={401: {"description": "not an operator"}, 404: {"description": "no such catalog"}},
        openapi_extra={"security": [{"operator": []}]},
    )
    return router
