"""What the accept is compared with: the same request, answered the same, with nothing done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from fastapi import FastAPI

_BODY: Final = b'{"accepted":1,"duplicates":0,"ignored":0}'
_HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]

fastapi = FastAPI()


@fastapi.post("/v1/events", status_code=202)
async def accept() -> dict[str, int]:
    """The least that a route of FastAPI can do: the token is not looked at, nor is the body."""
    return {"accepted": 1, "duplicates": 0, "ignored": 0}


async def raw(
    scope: MutableMapping[str, Any],
    _receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """The least that an ASGI application can do."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 202, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})
