"""How operators' requests are matched and admitted, before anything else of them is read."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import unquote

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send
from typing_extensions import override

Authenticate: TypeAlias = Callable[[bytes | None, str | None], str | None]
"""The name of the operators' token in an `Authorization` header that a client of that address has shown; None for any
other header. It takes the same time for every wrong one, and is told to the log."""


def operator_route(authenticate: Authenticate) -> type[APIRoute]:
    """The class of a route for operators alone; `request.state.token` has the name of their token.

    What is percent-encoded in a path separates nothing: a table's name may have a slash.

    Args:
        authenticate: who is an operator.
    """

    class OperatorRoute(APIRoute):
        @override
        def matches(self, scope: Scope) -> tuple[Match, Scope]:
            # ASGI's `path` is decoded, and Starlette would see the slashes of names in it.
            raw: bytes = scope["raw_path"]
            match, child = super().matches({**scope, "path": raw.decode("ascii")})
            if match is not Match.NONE:
                child["path_params"] = {name: unquote(value) for name, value in child["path_params"].items()}
            return match, child

        @override
        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            # No dependency of FastAPI's: it reads a body, and refuses a malformed one, before it asks any.
            request = Request(scope)
            shown = request.headers.getlist("authorization")
            client = request.client.host if request.client is not None else None
            # Two of them are no answer to the question who it is (RFC 9110, section 5.3).
            # ASGI's headers are bytes, Starlette reads them as Latin-1.
            token = authenticate(shown[0].encode("latin-1") if len(shown) == 1 else None, client)
            if token is None:
                challenge = {"WWW-Authenticate": "Bearer"}
                raise HTTPException(HTTPStatus.UNAUTHORIZED, "a valid bearer token is needed", challenge)
            request.state.token = token
            await super().handle(scope, receive, send)

    return OperatorRoute
