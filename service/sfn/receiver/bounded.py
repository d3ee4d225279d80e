"""What a request to the other routes may cost before anybody looks at its token: FastAPI reads a body first of all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from sfn.errors import Rejected
from sfn.receiver import body, faces

LIMITS: Final = body.Limits(size=1 << 20)
"""Of an operator's order."""

Application: TypeAlias = Callable[[MutableMapping[str, Any], body.Receive, faces.Send], Awaitable[None]]

_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Bounded:
    """An application (ASGI 3) that gets a body whole, and none that is too large or comes too slowly.

    Args:
        application: gets the rest.
        limits: what a body may cost.
    """

    def __init__(self, application: Application, limits: body.Limits = LIMITS) -> None:
        self._application, self._limits = application, limits

    async def __call__(self, scope: MutableMapping[str, Any], receive: body.Receive, send: faces.Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in _BODILESS:
            await self._application(scope, receive, send)
            return
        try:
            content = await body.read(receive, _declared(scope), self._limits)
        except Rejected as refusal:
            await faces.respond(send, faces.OWN.refused(refusal))
            return
        if content is not None:
            await self._application(scope, _Read(content, receive), send)


class _Read:
    """A body that was read, and then whatever else comes."""

    def __init__(self, content: bytes, receive: body.Receive) -> None:
        self._content: bytes | None = content
        self._receive = receive

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._content is None:
            return await self._receive()
        content, self._content = self._content, None
        return {"type": "http.request", "body": content, "more_body": False}


def _declared(scope: MutableMapping[str, Any]) -> int | None:
    said = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(said) if said.isdigit() else None
