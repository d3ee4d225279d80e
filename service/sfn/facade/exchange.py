"""A request's end and an answer's way to its client (ASGI 3): no client is waited for without an end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import anyio
import structlog

from sfn.facade.routes import READ_METHODS

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_CLOSE: Final = (b"connection", b"close")
_BODY: Final = 1 << 20
"""Bytes of a request's body that are passed over so that the connection can go on."""
_PART: Final = 1 << 18
"""Bytes of an answer that are sent at a time."""
_CLIENT_TIMEOUT: Final = 30.0
"""Seconds that a client has to send such a body, and to begin to take an answer."""
_MIN_RATE: Final = 1 << 18
"""Bytes a second that a client takes of an answer at least: it holds memory that others may need."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AsgiResponse:
    """A response.

    Attributes:
        status: HTTP status code.
        body: its content.
        fields: of its header, but for the length.
    """

    status: int
    body: bytes | memoryview = b""
    fields: Sequence[tuple[bytes, bytes]] = ()


async def send_response(answer: AsgiResponse, method: str, receive: Receive, send: Send) -> None:
    """Send an answer to a request."""
    fields = list(answer.fields)
    if method not in READ_METHODS and not await _drain_body(receive):
        fields.append(_CLOSE)
    if answer.status not in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
        fields.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": fields})
    if len(answer.body) <= _PART:
        await send({"type": "http.response.body", "body": answer.body})
    else:
        await _send_parts(answer.body, send)


async def _drain_body(receive: Receive) -> bool:
    """Whether a request's body has come to its end, so that the next request may follow; nobody looks at it.

    A connection that is closed before its client has sent all may cost that client the answer.
    """
    left = _BODY
    with anyio.move_on_after(_CLIENT_TIMEOUT):
        while left >= 0:
            message = await receive()
            if not message.get("more_body", False):
                return bool(message["type"] == "http.request")
            left -= len(message["body"])
    return False


async def _send_parts(body: bytes | memoryview, send: Send) -> None:
    """Send a body in parts: of one that a client is slow to take no copy lies in the connection's buffer."""
    at = 0
    with anyio.move_on_after(_CLIENT_TIMEOUT + len(body) / _MIN_RATE) as waiting:
        while at < len(body):
            part = body[at : at + _PART]
            await send({"type": "http.response.body", "body": part, "more_body": at + _PART < len(body)})
            at += _PART
    if waiting.cancelled_caught:
        # The server ends a connection whose answer is not whole.
        _log.info("a reader takes no more", sent=at, of=len(body))
