"""The operators' routes, for the listener's application to include; without a token there are none to include."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final, TypeAlias

from fastapi import APIRouter, Depends, Request
from starlette.exceptions import HTTPException

from sfn.admin.catalogs import CatalogRoutes
from sfn.admin.dead_letters import DeadLetterRoutes
from sfn.admin.operators import Operations
from sfn.admin.standing import StandingRoutes

Admit: TypeAlias = Callable[[bytes | None, str | None], str | None]
"""The name of the operators' token in an `Authorization` header that a client of that address has shown; None for any
other header. It takes the same time for every wrong one, and is told to the log."""

PREFIX: Final = "/admin/v1"


def routes(operations: Operations, admit: Admit) -> APIRouter:
    """`/admin/v1/…`, each behind the operators' token.

    Args:
        operations: what they reach.
        admit: who is an operator.
    """

    async def operator(request: Request) -> None:
        shown = request.headers.getlist("authorization")
        # Two of them are no answer to the question who it is (RFC 9110, section 5.3).
        # ASGI's headers are bytes, Starlette reads them as Latin-1.
        token = admit(
            shown[0].encode("latin-1") if len(shown) == 1 else None, request.client.host if request.client else None
        )
        if token is None:
            raise HTTPException(
                HTTPStatus.UNAUTHORIZED, "a valid bearer token is needed", {"WWW-Authenticate": "Bearer"}
            )
        request.state.token = token

    router = APIRouter(
        prefix=PREFIX,
        tags=["admin"],
        dependencies=[Depends(operator)],
        responses={401: {"description": "not an operator"}, 503: {"description": "the inbox can't answer now"}},
    )
    StandingRoutes(operations).join(router)
    DeadLetterRoutes(operations).join(router)
    CatalogRoutes(operations).join(router)
    return router
