"""One HTTP/1.1 connection to the catalog behind a gateway. What is sent and what comes back passes byte for byte.

No URL is built here and no header is decoded: a request is a method, a target and fields in bytes, and the connection
was opened to one fixed host before any of them was known.
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

# ── Header fields

HeaderFields: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names in any case, in the order of arrival."""

FIELD_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A field's name (RFC 9110, section 5.6.2)."""
FIELD_VALUE: Final = re.compile(rb"[^\x00\r\n]*")
"""What a field's value may hold without ending the field. Bytes above 7F are somebody's text and pass as they are."""
ORIGIN_FORM: Final = re.compile(rb"/[!-\"$-~]*")
"""A request's target in origin form (RFC 9112, section 3.2.1), the only form that passes: it names no host. The
catalog reads what stands behind its slash: `@`, a backslash and a second slash may stand there too."""

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
"""They speak of one connection (RFC 9110, section 7.6.1)."""

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
"""Of a request: they are made anew, or were answered here."""


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """How a client reached us: what links in answers must begin with.

    Attributes:
        scheme: `http` or `https`.
        authority: host, and port where it is not the scheme's.
        prefix: of the path, without a slash in the end.
    """

    scheme: str
    authority: str
    prefix: str

    @property
    def url(self) -> str:
        """All of it."""
        return f"{self.scheme}://{self.authority}{self.prefix}"

    @property
    def port(self) -> str:
        """The port."""
        tail = self.authority.rpartition("]")[2].rpartition(":")
        return tail[2] if tail[1] else ("443" if self.scheme == "https" else "80")


def public_address(fields: HeaderFields, scheme: str, prefix: str) -> PublicAddress:
    """How a client reached us, by what it and the proxies before us say.

    Whoever makes this up is told links that are made up, and nobody else is.

    Args:
        fields: of the request.
        scheme: of the connection.
        prefix: of the path that is ours.
    """
    said = {name.lower(): value.decode("latin-1").partition(",")[0].strip() for name, value in fields}
    return PublicAddress(
        said.get(b"x-forwarded-proto") or scheme,
        said.get(b"x-forwarded-host") or said.get(b"host", ""),
        said.get(b"x-forwarded-prefix", "").rstrip("/") + prefix,
    )


def request_fields(fields: HeaderFields, address: PublicAddress, peer: str | None) -> list[tuple[bytes, bytes]]:
    """Return a request's fields for the catalog, but for `Host`.

    Args:
        fields: as they came.
        address: how the client reached us.
        peer: the client's address; None where the server does not know it.
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
    """Return an answer's fields for the client. The server that speaks to it stamps the date.

    Args:
        fields: as they came.
        bodiless: the status allows no body: no length is told.
    """
    dropped = {b"date", b"content-length"} if bodiless else {b"date"}
    return _passing(fields, dropped)


def list_values(fields: HeaderFields, wanted: bytes) -> list[bytes]:
    """Return the words of all fields of a name that has a list of them, in lower case.

    Args:
        wanted: its name in lower case.
    """
    listed = [found for name, found in fields if name.lower() == wanted]
    return [word for one in listed for part in one.split(b",") if (word := part.strip().lower())]


def first_value(fields: HeaderFields, wanted: bytes) -> str | None:
    """Return the first value of a field, None where there is none.

    Args:
        wanted: its name in lower case.
    """
    return next((found.decode("latin-1").strip() for name, found in fields if name.lower() == wanted), None)


def _passing(fields: HeaderFields, dropped: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    without = {*HOP_BY_HOP, *dropped}
    without.update(list_values(fields, b"connection"))
    return [(name, value) for name, value in fields if name.lower() not in without]


# ── Connection

HEAD_LIMIT: Final = 262_144
"""Most bytes of an answer's status line and header fields, interim answers (1xx) included."""
MAX_READ_AHEAD: Final = 262_144
"""Bytes of an answer that are read ahead of a client that is slower than the catalog."""
MAX_WRITE: Final = 65_536
"""Bytes of a body that are written without a look at how fast the catalog takes them: as many as asyncio's transports
hold before they say that they are full."""

_SMALLEST: Final = 200
"""The smallest status of a final answer."""
_NO_CONTENT: Final = frozenset({204, 304})
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What our server sends in no field's value."""
_KEEP_ALIVE: Final = re.compile(rb"(?:^|[,;\s])timeout\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
_BEFORE_ITS_END: Final = 1.0
"""Seconds before the end that `Keep-Alive` names in which a connection is not used any more. Node's agents subtract as
much, for the time that a request is on its way."""


class ConnectionLost(Exception):
    """The connection broke, or what came over it is no HTTP.

    Attributes:
        is_unanswered: not one byte of an answer had come.
    """

    def __init__(self, why: str, *, is_unanswered: bool) -> None:
        super().__init__(why)
        self.is_unanswered = is_unanswered


class ReadTimedOut(ConnectionLost):
    """The catalog sent, or took, nothing for too long."""

    def __init__(self) -> None:
        super().__init__("none in time", is_unanswered=False)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The beginning of an answer.

    Attributes:
        status: HTTP status.
        fields: in their order, spelled as they came.
    """

    status: int
    fields: HeaderFields


class UpstreamConnection(asyncio.Protocol):
    """A connection that carries one request after the other.

    Args:
        read_timeout: seconds without a byte after which an answer is given up.

    Attributes:
        idle_since: when its last answer was complete, by the loop's clock.
        keep_alive: seconds for which the catalog said that it keeps an idle connection; None where it did not say.
        is_used: it carried a request before.
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

    # What the pool asks.

    @property
    def is_reusable(self) -> bool:
        """Return whether the last answer is complete and the connection is good for another request."""
        is_sent = self._sending is None or (self._sending.done() and not self._sending.cancelled())
        return self._is_over and self._is_persistent and is_sent and not self.is_closed

    @property
    def is_closed(self) -> bool:
        """Return whether it ended, as far as the event loop knows."""
        return self._error is not None or self._transport is None or self._transport.is_closing()

    @property
    def is_quiet(self) -> bool:
        """Return whether nothing came since the last answer: no end of the connection, and no unrequested byte.

        The socket itself is asked: the event loop may not have come to it yet.
        """
        if self.is_closed or self._transport is None:
            return False
        held = self._transport.get_extra_info("socket")
        if held is None:
            return True
        poll = select.poll()
        poll.register(held.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        return not poll.poll(0)

    def close(self) -> None:
        """Close it at once; what is under way is lost."""
        if self._sending is not None:
            self._sending.cancel()
        if self._transport is not None:
            self._transport.abort()

    # A request and its answer.

    async def send_request(
        self, method: bytes, head: bytes, body: bytes | AsyncIterator[bytes], *, chunked: bool
    ) -> ResponseHead:
        """Send a request; the head of its answer.

        Args:
            method: of the request.
            head: the request's line and fields, with the empty line behind them.
            body: all of it, or its parts as they come.
            chunked: the parts go in chunks.

        Raises:
            ConnectionLost: there was no answer.
            Exception: whatever the parts raise.
        """
        self._reset(method)
        self._parser = httptools.HttpResponseParser(self)
        # What other clients of HTTP take from servers. Nothing that says where an answer ends is among it.
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
        """Return the body of the answer as it comes.

        Raises:
            ConnectionLost: it broke off.
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
        """Wait until something else is known.

        Args:
            until_sent: the catalog owes nothing while the request is on its way to it.
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
            # The clients' own pace bounds it, and `_send` the catalog's.
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
            # From now on the catalog owes an answer.
            self._wake()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is waited for
            self._fail(error)

    async def _write(self, data: bytes) -> None:
        if self._error is not None:
            raise self._error
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost("a connection that was closed", is_unanswered=not self._received_any)
        self._transport.write(data)
        # uvloop's transports say in the next turn only that they are full.
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

    # asyncio's side.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        held = transport.get_extra_info("socket")
        if held is not None:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    @override
    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._is_over:
            # An unrequested answer, perhaps to an earlier request, must not be taken for the answer to the next one.
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
            # A callback's own error is the context of the parser's.
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
        """Return the connection ended: so does an answer that has no other end."""
        self._is_persistent = False
        if self._to_end and self._head is not None and not self._is_over and exc is None:
            self._end()
            self._wake()
        if self._sending is not None and self._head is None and not self._sending.done():
            self._sending.cancel()
        if not self._is_over:
            said = (exc.strerror if isinstance(exc, OSError) else None) or type(exc).__name__
            self._fail(
                ConnectionLost(
                    "a connection that was closed" if exc is None else said, is_unanswered=not self._received_any
                )
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

    # The parser's side.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Return a field, of the header or behind the body: the latter are passed over."""
        if self._head is None:
            # The parser knows a name by what stands before a space, and so must who reads the fields (RFC 9112,
            # section 5.1).
            name = name.rstrip()
            if FIELD_NAME.fullmatch(name) is None:
                raise ValueError("a header field with an invalid name")
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Return the head of an answer, or of an interim one."""
        if self._parser is None or self._head is not None:
            # Behind an answer that is over.
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
            # What has it is not what its length or its end says, and neither may a client be told so.
            raise ValueError("a transfer coding that was not requested")
        self._to_end = not coding and b"content-length" not in names
        said = list_values(fields, b"connection")
        is_old = self._parser.get_http_version() < "1.1"
        self._is_persistent = not self._to_end and b"close" not in said and (not is_old or b"keep-alive" in said)
        self.keep_alive = _keep_alive_of(fields)
        # A field of several lines is one line by now; other control characters become spaces (RFC 9110, section 5.5).
        self._head = ResponseHead(status, [(name, _CONTROL.sub(b" ", value)) for name, value in fields])
        if self._method == b"HEAD" or status in _NO_CONTENT:
            self._is_persistent = b"close" not in said and not is_old
            self._to_end = False
            self._end()

    def on_body(self, body: bytes) -> None:
        """Return a part of the body."""
        if self._is_over:
            # Behind an answer that has none.
            self._is_persistent = False
            return
        self._parts.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        """Return the end of an answer, or of an interim one."""
        if self._head is not None:
            self._end()
            self._parser = None

    def on_message_begin(self) -> None:
        """Another answer begins; after a complete answer it is unrequested."""
        if self._is_over:
            self._is_persistent = False


async def slices(body: bytes) -> AsyncIterator[bytes]:
    """Return a body, so much at a time as is written at once."""
    for start in range(0, len(body), MAX_WRITE):
        yield body[start : start + MAX_WRITE]


def _keep_alive_of(fields: Sequence[tuple[bytes, bytes]]) -> float | None:
    """Return seconds for which an idle connection may be used, by `Keep-Alive`; None where nothing says so."""
    for name, value in fields:
        if name.lower() == b"keep-alive" and (found := _KEEP_ALIVE.search(value)):
            return max(0.0, int(found[1]) - _BEFORE_ITS_END)
    return None
