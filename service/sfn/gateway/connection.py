"""One HTTP/1.1 connection to the catalog behind a gateway, and header fields. All bytes pass unchanged.

This module builds no URL and decodes no header: a request is a method, a target and fields in bytes. The connection is
opened to one fixed host, before the request is known.
"""

from __future__ import annotations

import asyncio
import re
import select
import socket
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import httptools
from typing_extensions import override

HeaderFields: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names in any case, in the order of arrival."""

FIELD_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A field's name (RFC 9110, section 5.6.2)."""
FIELD_VALUE: Final = re.compile(rb"[^\x00\r\n]*")
"""A field's value, without bytes that would end the field. Bytes above 7F pass unchanged."""
ORIGIN_FORM: Final = re.compile(rb"/[!-\"$-~]*")
"""A request's target in origin form (RFC 9112, section 3.2.1). No other form passes, because other forms name a host.
`@`, a backslash and a second slash may follow the first slash: the catalog interprets them as a path."""

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Fields that concern a single connection (RFC 9110, section 7.6.1)."""

_REPLACED: Final = frozenset(
    {
        b"host",
        b"expect",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-prefix",
        b"x-forwarded-proto",
    }
)
"""Fields of a request that the gateway sets itself, or (`expect`) has answered."""


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """The address under which a client reaches the gateway, the base of links in responses.

    Attributes:
        scheme: `http` or `https`.
        authority: host, and port if it is not the scheme's default.
        prefix: prefix of the path, without a slash at the end.
    """

    scheme: str
    authority: str
    prefix: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.prefix}"

    @property
    def port(self) -> str:
        tail = self.authority.rpartition("]")[2].rpartition(":")
        return tail[2] if tail[1] else ("443" if self.scheme == "https" else "80")


def public_address(fields: HeaderFields, scheme: str, prefix: str) -> PublicAddress:
    """Return the address under which a client reaches the gateway, from the fields of the client and its proxies.

    A client that forges these fields gets forged links in its own responses only.

    Args:
        fields: fields of the request.
        scheme: scheme of the connection.
        prefix: the gateway's own path.
    """
    values = {name.lower(): value.decode("latin-1").partition(",")[0].strip() for name, value in fields}
    return PublicAddress(
        values.get(b"x-forwarded-proto") or scheme,
        values.get(b"x-forwarded-host") or values.get(b"host", ""),
        values.get(b"x-forwarded-prefix", "").rstrip("/") + prefix,
    )


def request_fields(fields: HeaderFields, address: PublicAddress, peer: str | None) -> list[tuple[bytes, bytes]]:
    """Return a request's fields for the catalog, without `Host`.

    Args:
        fields: fields of the client's request.
        address: address under which the client reached the gateway.
        peer: the client's address; None if unknown.
    """
    forwarded = _passing(fields, _REPLACED)
    chain = [value for name, value in fields if name.lower() == b"x-forwarded-for"]
    if peer is not None:
        chain.append(peer.encode())
    forwarded += [
        (b"X-Forwarded-Host", address.authority.encode("latin-1")),
        (b"X-Forwarded-Proto", address.scheme.encode("latin-1")),
        (b"X-Forwarded-Port", address.port.encode("latin-1")),
        (b"X-Forwarded-Prefix", address.prefix.encode("latin-1")),
    ]
    if chain:
        forwarded.append((b"X-Forwarded-For", b", ".join(chain)))
    return forwarded


def response_fields(fields: HeaderFields, *, bodiless: bool) -> list[tuple[bytes, bytes]]:
    """Return a response's fields for the client, without `Date`, which the gateway's server adds.

    Args:
        fields: fields of the catalog's response.
        bodiless: whether the status allows no body, so that no length is sent.
    """
    dropped = {b"date", b"content-length"} if bodiless else {b"date"}
    return _passing(fields, dropped)


def list_values(fields: HeaderFields, wanted: bytes) -> list[bytes]:
    """Return the elements of a list field, in lower case.

    Args:
        fields: header fields.
        wanted: name of the field in lower case. All fields of that name are read.
    """
    values = [value for name, value in fields if name.lower() == wanted]
    return [element for value in values for part in value.split(b",") if (element := part.strip().lower())]


def first_value(fields: HeaderFields, wanted: bytes) -> str | None:
    """Return the first value of a field; None if the field is missing.

    Args:
        fields: header fields.
        wanted: name of the field in lower case.
    """
    return next((found.decode("latin-1").strip() for name, found in fields if name.lower() == wanted), None)


def _passing(fields: HeaderFields, dropped: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    without = {*HOP_BY_HOP, *dropped}
    without.update(list_values(fields, b"connection"))
    return [(name, value) for name, value in fields if name.lower() not in without]


HEAD_LIMIT: Final = 262_144
"""Most bytes of a response's status line and header fields, including interim responses (1xx)."""
MAX_READ_AHEAD: Final = 262_144
"""Bytes of a response that are read ahead of a client that is slower than the catalog."""
MAX_WRITE: Final = 65_536
"""Bytes of a body that are written at once, without regard to the catalog's pace. asyncio's transports pause writing
above the same number of buffered bytes."""

_SMALLEST: Final = 200
"""The smallest status of a final response."""
_NO_CONTENT: Final = frozenset({204, 304})
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Control characters, which the gateway's server does not send in a field's value."""
_KEEP_ALIVE: Final = re.compile(rb"(?:^|[,;\s])timeout\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
_KEEP_ALIVE_MARGIN: Final = 1.0
"""Seconds before the end of the `Keep-Alive` timeout in which a connection is not used, because a request takes time to
arrive. Node's agents use the same margin."""


class ConnectionLost(Exception):
    """The connection was lost, or the response is no valid HTTP.

    Attributes:
        is_unanswered: not one byte of a response had arrived.
    """

    def __init__(self, why: str, *, is_unanswered: bool) -> None:
        super().__init__(why)
        self.is_unanswered = is_unanswered


class ReadTimedOut(ConnectionLost):
    """The catalog neither sent nor accepted data for too long."""

    def __init__(self) -> None:
        super().__init__("none in time", is_unanswered=False)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The status and header fields of a response.

    Attributes:
        status: HTTP status.
        fields: fields in their original order and spelling.
    """

    status: int
    fields: HeaderFields


class UpstreamConnection(asyncio.Protocol):
    """A connection that carries one request after the other.

    Args:
        read_timeout: seconds without a byte after which waiting for a response ends.

    Attributes:
        idle_since: completion time of the last response, by the loop's clock.
        keep_alive: seconds for which an idle connection may be used, from the catalog's `Keep-Alive`; None without it.
        is_used: the connection carried a request before.
    """

    def __init__(self, read_timeout: float) -> None:
        self._loop, self._read_timeout = asyncio.get_running_loop(), read_timeout
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self.idle_since, self.keep_alive, self.is_used = 0.0, cast("float | None", None), False
        self._reset(b"")

    def _reset(self, method: bytes) -> None:
        self._method = method
        self._head: ResponseHead | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._head_size = 0
        self._received_any = self._is_over = self._to_end = self._paused = False
        self._is_persistent = True

    # Interface for the pool

    @property
    def is_reusable(self) -> bool:
        """Return whether the last response is complete and the connection can carry another request."""
        is_sent = self._sending is None or (self._sending.done() and not self._sending.cancelled())
        return self._is_over and self._is_persistent and is_sent and not self.is_closed

    @property
    def is_closed(self) -> bool:
        """Return whether the connection is closed, as far as the event loop knows."""
        return self._error is not None or self._transport is None or self._transport.is_closing()

    @property
    def is_quiet(self) -> bool:
        """Return whether nothing arrived since the last response: neither data nor the end of the connection.

        The socket is polled, because the event loop may not have processed its events yet.
        """
        if self.is_closed or self._transport is None:
            return False
        sock = self._transport.get_extra_info("socket")
        if sock is None:
            return True
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        return not poll.poll(0)

    def close(self) -> None:
        """Close the connection at once, with the loss of pending data."""
        if self._sending is not None:
            self._sending.cancel()
        if self._transport is not None:
            self._transport.abort()

    # Requests and responses

    async def send_request(
        self, method: bytes, head: bytes, body: bytes | AsyncIterator[bytes], *, chunked: bool
    ) -> ResponseHead:
        """Send a request and return the head of its response.

        Args:
            method: method of the request.
            head: request line and fields, with the empty line after them.
            body: whole body, or its parts as they arrive.
            chunked: whether the parts are sent in chunked coding.

        Raises:
            ConnectionLost: no response arrived.
            Exception: an error of `body`'s iterator.
        """
        self._reset(method)
        self._parser = httptools.HttpResponseParser(self)
        # Other HTTP clients accept these deviations, too. None of them concerns the end of a response.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        assert self._transport is not None, "a connection is made before it is used"  # noqa: S101 - for the type
        if isinstance(body, bytes) and len(body) <= MAX_WRITE:
            self._sending = None
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            parts = slices(body) if isinstance(body, bytes) else body
            self._sending = self._loop.create_task(self._send(parts, chunked=chunked))
        while self._head is None:
            await self._more(until_sent=True)
        return self._head

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body of the response as it arrives.

        Raises:
            ConnectionLost: the response is incomplete.
        """
        while True:
            if self._parts:
                part = self._parts.popleft() if len(self._parts) == 1 else b"".join(self._parts)
                self._parts.clear()
                self._size = 0
                self._resume()
                yield part
            elif self._is_over:
                return
            else:
                await self._more(until_sent=False)

    async def _more(self, *, until_sent: bool) -> None:
        """Wait for the next event of the response.

        Args:
            until_sent: whether the read timeout starts after the request is sent.
        """
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(self._read_timeout, self._on_timeout, until_sent)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _on_timeout(self, until_sent: bool) -> None:  # noqa: FBT001 - a timer's
        if until_sent and self._sending is not None and not self._sending.done():
            # The time for sending is limited by the client's pace and by `_write`.
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
            return
        self._fail(ReadTimedOut())
        self.close()

    async def _send(self, parts: AsyncIterator[bytes], *, chunked: bool) -> None:
        try:
            async for part in parts:
                if part:
                    await self._write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            if chunked:
                await self._write(b"0\r\n\r\n")
            # The read timeout for the response starts now.
            self._wake()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again in `_more`
            self._fail(error)

    async def _write(self, data: bytes) -> None:
        if self._error is not None:
            raise self._error
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost("a closed connection", is_unanswered=not self._received_any)
        self._transport.write(data)
        # uvloop's transports call `pause_writing` in the next iteration of the event loop.
        await asyncio.sleep(0)
        while self._drained is not None:
            timer = self._loop.call_later(self._read_timeout, self._fail, ReadTimedOut())
            try:
                await self._drained
            finally:
                timer.cancel()
        if self._error is not None:
            raise self._error

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        for waiter in (self._waiter, self._drained):
            if waiter is not None and not waiter.done():
                if waiter is self._waiter:
                    waiter.set_exception(self._error)
                else:
                    waiter.set_result(None)
        self._drained = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _pause(self) -> None:
        if self._size > MAX_READ_AHEAD and not (self._paused or self._is_over) and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # Callbacks of asyncio

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    @override
    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._is_over:
            # An unrequested response, perhaps to an earlier request, must not become the response to the next request.
            self._is_persistent = False
            self.close()
            return
        self._received_any = True
        if self._head is None:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._abort("another protocol")
        except httptools.HttpParserError as error:
            # The parser's error has the error of a callback as its context.
            cause = error.__context__
            self._abort(f"no valid HTTP: {cause if isinstance(cause, ValueError) else error}")
        else:
            if self._head is None and self._head_size > HEAD_LIMIT:
                self._abort("a header that is too long")
        self._pause()
        self._wake()

    @override
    def eof_received(self) -> bool:
        self._finish(None)
        return False

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(exc)

    def _finish(self, exc: Exception | None) -> None:
        """Handle the end of the connection, which also completes a response without a length."""
        self._is_persistent = False
        if self._to_end and self._head is not None and not self._is_over and exc is None:
            self._end()
            self._wake()
        if self._sending is not None and self._head is None and not self._sending.done():
            self._sending.cancel()
        if not self._is_over:
            reason = (exc.strerror if isinstance(exc, OSError) else None) or type(exc).__name__
            self._fail(
                ConnectionLost("a closed connection" if exc is None else reason, is_unanswered=not self._received_any)
            )
        elif self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
            self._drained = None

    def _end(self) -> None:
        self._is_over, self.idle_since = True, self._loop.time()

    def _abort(self, why: str) -> None:
        self._is_persistent = False
        if not self._is_over:
            self._fail(ConnectionLost(why, is_unanswered=False))
        self.close()

    @override
    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    @override
    def resume_writing(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # Callbacks of the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field; ignore trailer fields."""
        if self._head is None:
            # The parser ignores spaces after a name, so readers of the fields must do the same (RFC 9112, section 5.1).
            name = name.rstrip()
            if FIELD_NAME.fullmatch(name) is None:
                raise ValueError("a header field with an invalid name")
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Handle the head of a response or of an interim response."""
        if self._parser is None or self._head is not None:
            # The header follows a complete response.
            self._is_persistent = False
            return
        status = self._parser.get_status_code()
        if status < _SMALLEST:
            self._fields = []
            return
        fields, self._fields = self._fields, []
        names = {name.lower() for name, _ in fields}
        coding = list_values(fields, b"transfer-encoding")
        if coding not in ([], [b"chunked"]):
            # The body's length would be that of the encoded body, and a client could not know the coding.
            raise ValueError("a transfer coding that was not requested")
        self._to_end = not coding and b"content-length" not in names
        options = list_values(fields, b"connection")
        is_old = self._parser.get_http_version() < "1.1"
        self._is_persistent = not self._to_end and b"close" not in options and (not is_old or b"keep-alive" in options)
        self.keep_alive = _keep_alive_of(fields)
        # The parser has joined folded lines. Other control characters become spaces (RFC 9110, section 5.5).
        self._head = ResponseHead(status, [(name, _CONTROL.sub(b" ", value)) for name, value in fields])
        if self._method == b"HEAD" or status in _NO_CONTENT:
            self._is_persistent = b"close" not in options and not is_old
            self._to_end = False
            self._end()

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        if self._is_over:
            # The response has no body.
            self._is_persistent = False
            return
        self._parts.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        """Handle the end of a response or of an interim response."""
        if self._head is not None:
            self._end()
            self._parser = None

    def on_message_begin(self) -> None:
        """Handle the start of a response; after a complete response it is unrequested."""
        if self._is_over:
            self._is_persistent = False


async def slices(body: bytes) -> AsyncIterator[bytes]:
    """Yield a body in parts of at most `MAX_WRITE` bytes."""
    for start in range(0, len(body), MAX_WRITE):
        yield body[start : start + MAX_WRITE]


def _keep_alive_of(fields: Sequence[tuple[bytes, bytes]]) -> float | None:
    """Return the seconds for which an idle connection may be used, by `Keep-Alive`; None without that field."""
    for name, value in fields:
        if name.lower() == b"keep-alive" and (found := _KEEP_ALIVE.search(value)):
            return max(0.0, int(found[1]) - _KEEP_ALIVE_MARGIN)
    return None
