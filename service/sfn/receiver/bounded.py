"""What a request to the other routes may cost: its body is read once a route asks for it, and no further than so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from starlette.exceptions import HTTPException

from sfn.errors import Rejected
from sfn.limits import EXHAUSTED_MESSAGE, RETRY_AFTER, BodyMemory, BodyMemoryExhausted, BodyReservation
from sfn.receiver import body, faces, problem

ADMIN_BODY_LIMITS: Final = body.BodyLimits(size=1 << 20)
"""Of an operator's order."""

AsgiApplication: TypeAlias = Callable[[MutableMapping[str, Any], body.Receive, faces.Send], Awaitable[None]]

_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class BodyLimitMiddleware:
    """An application (ASGI 3) that gets a body whole, and none that is too large or comes too slowly.

    Args:
        application: answers an `HTTPException` that its `receive` raises.
        limits: what a body may cost.
        memory: for all bodies: a route sees only then who sent one.
    """

    def __init__(
        self,
        application: AsgiApplication,
        limits: body.BodyLimits = ADMIN_BODY_LIMITS,
        memory: BodyMemory | None = None,
    ) -> None:
        self._application, self._limits, self._memory = application, limits, memory or BodyMemory()

    async def __call__(self, scope: MutableMapping[str, Any], receive: body.Receive, send: faces.Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in _BODILESS:
            await self._application(scope, receive, send)
            return
        with self._memory.reserve() as held:
            await self._application(scope, _WholeBodyReceive(receive, _declared(scope), self._limits, held), send)


class _WholeBodyReceive:
    """A body in one message, and then whatever else comes."""

    def __init__(
        self, receive: body.Receive, declared: int | None, limits: body.BodyLimits, reservation: BodyReservation
    ) -> None:
        self._receive, self._declared, self._limits, self._reservation = receive, declared, limits, reservation
        self._is_read = False

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._is_read:
            return await self._receive()
        self._is_read = True
        try:
            content = await body.read_body(self._receive, self._declared, self._limits, self._reservation)
        except Rejected as refusal:
            # Its client is in the middle of a body: no next request could be told from it.
            raise HTTPException(refusal.status, problem.problem_detail(refusal), {"Connection": "close"}) from None
        except BodyMemoryExhausted:
            again = {"Connection": "close", "Retry-After": str(RETRY_AFTER)}
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, EXHAUSTED_MESSAGE, again) from None
        if content is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": content, "more_body": False}


def _declared(scope: MutableMapping[str, Any]) -> int | None:
    said = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(said) if said.isdigit() else None
