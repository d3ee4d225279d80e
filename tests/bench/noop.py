"""What the accept, and a reader's question, are compared with: requests that are answered with nothing done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from fastapi import FastAPI, Request

_BODY: Final = b'{"accepted":1,"duplicates":0,"ignored":0}'
_HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]

_ANSWER: Final = {"accepted": 1, "duplicates": 0, "ignored": 0}

fastapi, reading = FastAPI(), FastAPI()


# As FastAPI's own first example has it, which has no annotation: that is what no response model stands for.
@fastapi.post("/v1/events", status_code=202, response_model=None)
async def accept() -> dict[str, int]:
    """A route that does nothing: neither the token is looked at nor the body."""
    return _ANSWER


@fastapi.get("/v1/nothing", response_model=None)
async def nothing() -> dict[str, int]:
    """A route that does nothing either: what a reader's question is compared with."""
    return _ANSWER


@reading.post("/v1/events", status_code=202, response_model=None)
async def accept_and_read(request: Request) -> dict[str, int]:
    """One that reads the event, and does nothing with it."""
    await request.json()
    return _ANSWER


async def raw(
    scope: MutableMapping[str, Any],
    _receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """The least that an ASGI application can do."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 202, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})
