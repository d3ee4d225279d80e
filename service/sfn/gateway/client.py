"""The client's side of a request that passes: what it asked for, and how it is answered (ASGI 3)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import anyio.lowlevel

from sfn import errors
from sfn.errors import Rejected
from sfn.gateway.body import ClientPace, Receive, RequestBody
from sfn.gateway.fields import ORIGIN_FORM, HeaderFields, PublicAddress, first_value, list_values, public_address
from sfn.limits import BodyReservation

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
"""Answers without a body, and without its length (RFC 9110, section 8.6)."""
_TURNS: Final = 2
"""Turns of the event loop until what was written is sent: our server joins what is written in one of them, uvloop sends
what was written in the one before."""

_UPWARDS: Final = re.compile(r"(?:^|/|\\|%2f|%5c)(?:\.|%2e){2}(?:/|\\|%2f|%5c|;|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request.

    Attributes:
        method: HTTP's.
        target: path and query behind the gateway's own path, byte for byte as they came.
        path: the path of it, percent-encoded as it came.
        query: what stands behind the question mark, likewise.
        fields: the header, names in lower case.
        address: how the client reached us.
        peer: its address; None where the server does not know it.
        body: what it sends.
    """

    method: str
    target: bytes
    path: str
    query: str
    fields: HeaderFields
    address: PublicAddress
    peer: str | None
    body: RequestBody

    @property
    def has_parent_segments(self) -> bool:
        """Whether a server might take the path for one outside of the address that it is put behind."""
        return _UPWARDS.search(self.path) is not None


def parse_request(
    scope: Scope, receive: Receive, root: str, public: PublicAddress | None, reservation: BodyReservation
) -> ForwardedRequest:
    """The request of a scope.

    Args:
        scope: ASGI's, of type `http`; with `raw_target`, the target as it stands in the request's line, which
            `sfn.receiver.server` adds: ASGI's own keys do not tell an origin form from others.
        receive: ASGI's.
        root: the gateway's own path.
        public: how clients reach us, where that is configured.
        reservation: the memory that its body takes.

    Raises:
        Rejected: 400; the target is in no origin form, or several hosts are named.
    """
    fields: HeaderFields = scope["headers"]
    raw: bytes = scope["raw_target"]
    if ORIGIN_FORM.fullmatch(raw) is None or not raw.startswith(root.encode()):
        raise Rejected("", status=400, expected="a path that begins with / as the target", found="another form")
    if sum(name == b"host" for name, _ in fields) > 1:
        raise Rejected("", status=400, expected="one Host field", found="several")
    coding = list_values(fields, b"transfer-encoding")
    if coding not in ([], [b"chunked"]):
        # The gateway drops this field, and then the catalog could not know how the body is encoded.
        raise Rejected("", status=400, expected="no transfer coding but chunked", found="another one")
    target = raw[len(root) :]
    path, _, query = target.partition(b"?")
    client = scope.get("client")
    length = first_value(fields, b"content-length")
    has_body = length not in {None, "0"} or bool(coding)
    return ForwardedRequest(
        method=scope["method"],
        target=target,
        path=path.decode("latin-1"),
        query=query.decode("latin-1"),
        fields=fields,
        address=public or public_address(fields, scope["scheme"], root),
        peer=client[0] if client else None,
        body=RequestBody(
            receive, has_body=has_body, length=None if length is None else int(length), reservation=reservation
        ),
    )


class ResponseWriter:
    """One answer.

    Attributes:
        has_begun: its status is sent; another one can't be any more.
    """

    def __init__(self, send: Send) -> None:
        self._send, self._pace = send, ClientPace()
        self.has_begun = False

    async def begin(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the header.

        Raises:
            Stalled: the client takes nothing any more.
        """
        self.has_begun = True
        with self._pace.sending(0):
            await self._send({"type": "http.response.start", "status": status, "headers": list(fields)})

    async def send_part(self, content: bytes, *, more: bool = True) -> None:
        """Send a part of the body.

        Raises:
            Stalled: the client takes nothing any more, or too little.
        """
        with self._pace.sending(len(content)):
            await self._send({"type": "http.response.body", "body": content, "more_body": more})

    async def flush(self) -> None:
        """Have what was written on its way to the client, before this process does anything that takes long."""
        for _ in range(_TURNS):
            await anyio.lowlevel.checkpoint()

    async def send_whole(self, status: int, content: bytes, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Send an answer at once."""
        length = [] if status in BODILESS else [(b"content-length", b"%d" % len(content))]
        await self.begin(status, [*fields, *length])
        await self.send_part(content, more=False)

    async def send_error(self, status: int, message: str, fields: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Send an error of our own."""
        kind = (b"content-type", errors.ICEBERG_ERROR_MEDIA_TYPE)
        await self.send_whole(status, errors.iceberg_error_body(status, message), [*fields, kind])
