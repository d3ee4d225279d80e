"""The HTTP server of a listener: uvicorn, with limits for clients that are not authenticated yet."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from itertools import chain, count
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

import anyio
import httptools
import structlog
import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from sfn.concurrency import WatchedFiles, unreadable_file_error
from sfn.errors import FatalError
from sfn.http import responses
from sfn.http.ingest import EVENTS_PATH, EventsEndpoint, RequestHead, handles, read_head
from sfn.http.responses import AsgiApplication
from sfn.limits import connections_per_listener
from sfn.telemetry.logs import LogThrottle

BACKLOG: Final = 2048
"""Most connections that wait to be accepted."""


@contextmanager
def listening_socket(host: str, port: int, section: str = "listener", remedy: str = "") -> Iterator[socket.socket]:
    """Open a socket that listens on an address.

    Args:
        host: address or name of this machine.
        port: port; 0 for any free one.
        section: section of the settings with the address, for the error.
        remedy: another way to set the address, for the error.

    Raises:
        FatalError: the address is in use, invalid, or not of this machine.
    """
    name = host.removeprefix("[").removesuffix("]")
    is_six = ":" in name
    try:
        listener = socket.create_server(
            (name, port),
            family=socket.AF_INET6 if is_six else socket.AF_INET,
            backlog=BACKLOG,
            dualstack_ipv6=is_six and name == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        raise FatalError(
            f"{section} {host}:{port}",
            expected="a free address of this machine",
            found=error.strerror or type(error).__name__,
            remedy=f"{remedy or f'set {section}.host and {section}.port'}, or stop the process that listens there",
        ) from error
    with listener:
        yield listener


_log = structlog.stdlib.get_logger(__name__)


class LoggedHandshake(ssl.SSLObject):
    """TLS of a connection that logs a failed handshake, each reason at most once per second.

    The client's address is not known here. A client that only disconnects is not logged.
    """

    throttle: ClassVar[LogThrottle] = LogThrottle()
    """Limit for the log, for all connections together."""

    @override
    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            why = (error.reason or type(error).__name__).lower().replace("_", " ")
            suppressed = self.throttle.allow(why)
            if suppressed is not None:
                _log.warning("TLS handshake failed", why=why, suppressed=suppressed)
            raise


_MISMATCHES: Final = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""OpenSSL's reasons if a key does not belong to a certificate; the last one if the two are of different types."""


class Certificate:
    """The listener's certificate and key, read again after each change.

    New connections get the current certificate. A renewal replaces one file after the other, so the old pair stays
    active until the two files belong together.

    Args:
        chain: PEM file, the listener's own certificate first.
        key: PEM file of its private key, not encrypted.

    Attributes:
        context: TLS context for a server.

    Raises:
        FatalError: the files are not usable now.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self._pairs = WatchedFiles("certificate and key", (chain, key), partial(_load_pair, chain, key))
        self.context = _context()
        # Loading a wrong key into a context would leave it without a certificate, so each pair has its own context.
        self.context.sni_callback = self._set_current
        self.context.sslobject_class = LoggedHandshake

    def reload_if_changed(self) -> None:
        """Read the files again if one changed. Blocks."""
        self._pairs.reload_if_changed()

    async def watch(self) -> NoReturn:
        """Read the files again after each change, for ever."""
        await self._pairs.watch()

    def _set_current(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        # OpenSSL calls this with every ClientHello, with or without a server name.
        connection.context = self._pairs.current


def _context() -> ssl.SSLContext:
    # Equal for all pairs: OpenSSL takes some settings from the first context of a connection, others from the second.
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_pair(chain: Path, key: Path) -> ssl.SSLContext:
    for file in (chain, key):
        # OpenSSL's errors do not name the file.
        try:
            file.open("rb").close()
        except OSError as error:
            raise unreadable_file_error(file, error) from error
    context = _context()
    try:
        # Without the callback OpenSSL asks for a passphrase on the terminal.
        context.load_cert_chain(chain, key, password=partial(_refuse_encrypted_key, key))
    except ssl.SSLError as error:
        raise _invalid_pair_error(chain, key, error.reason) from error
    except OSError as error:
        raise unreadable_file_error(chain, error) from error
    return context


def _refuse_encrypted_key(key: Path) -> NoReturn:
    raise FatalError(
        str(key),
        expected="a private key that is not encrypted",
        found="one with a passphrase",
        remedy="decrypt it with openssl pkey, and restrict the file's permissions",
    )


def _invalid_pair_error(chain: Path, key: Path, reason: str | None) -> FatalError:
    if reason in _MISMATCHES:
        return FatalError(
            f"{chain} and {key}",
            expected="a certificate and the key that belongs to it",
            found="another key",
            remedy="put the listener's own certificate first in its file",
        )
    if reason is not None:
        expected = "a certificate and a key that OpenSSL accepts"
        return FatalError(f"{chain} and {key}", expected=expected, found=reason.lower().replace("_", " "))
    if not _holds_certificates(chain):
        return FatalError(str(chain), expected="PEM certificates: -----BEGIN CERTIFICATE-----", found="something else")
    return FatalError(str(key), expected="a PEM private key: -----BEGIN PRIVATE KEY-----", found="something else")


def _holds_certificates(file: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except OSError:
        return False
    return True


HEAD_LIMIT: Final = 65_536
"""Approximate limit in bytes for a request line with header fields, and for trailer fields.

Data that arrives in the same read as their end is not counted, so memory is bounded by this limit plus one read.
"""
MAX_BUFFERED: Final = 65_536
"""Most bytes that are buffered until the end of an iteration of the event loop."""


class BufferedTransport:
    """A transport that joins all writes of one iteration of the event loop into one system call.

    uvicorn writes the head and the body of a response separately, and sending a small response takes as long as
    creating it.

    Args:
        transport: the transport.
        loop: its event loop.
        on_close: called after `close`, while data may still be unsent.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        self._transport, self._loop, self._on_close = transport, loop, on_close
        # Called with each response, so `__getattr__` would be slow.
        self.is_closing = transport.is_closing
        self._buffer: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a transport
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._buffer:
            self._loop.call_soon(self.flush)
        self._buffer.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED:
            self.flush()

    def write_at_once(self, data: bytes) -> None:
        """Write a whole response without waiting for the end of the iteration."""
        if self._buffer:
            self.flush()
        if not self.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        # asyncio's TLS transport cannot be aborted after a second call of its `close`.
        if not self.is_closing():
            self.flush()
            self._transport.close()
            self._on_close()

    def flush(self) -> None:
        """Send the buffered data now; drop it if the transport is closing."""
        if self._buffer:
            # uvloop raises an error for a write after the client reset the connection.
            if not self.is_closing():
                self._transport.write(b"".join(self._buffer))
            self._buffer.clear()
            self._size = 0


class PipelineFlow(FlowControl):
    """Flow control that reads nothing while requests are queued.

    uvicorn resumes reading with each response, and when an application reads a body. A client without credentials
    could queue requests until the memory is full.

    Args:
        connection: the connection.
    """

    def __init__(self, connection: HttpToolsProtocol) -> None:
        super().__init__(connection.transport)
        self._pipeline = connection.pipeline

    @override
    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class ConnectionLimit:
    """A limit for the connections of one server, because each takes a file descriptor.

    A connection counts after its TLS handshake.

    Above the limit, a connection without an open request is closed: the oldest one without any request, else the one
    that is idle for the longest time. So a client that opens many idle connections loses these, and no open request is
    lost.

    Args:
        max_connections: most connections at a time.
    """

    def __init__(self, max_connections: int) -> None:
        self._max_connections, self._count = max_connections, 0
        self._new: dict[ServerConnection, None] = {}
        self._idle: dict[ServerConnection, None] = {}
        self._throttle = LogThrottle()

    def add(self, connection: ServerConnection) -> None:
        """Add a new connection, and close an idle one above the limit."""
        self._count += 1
        if self._count > self._max_connections:
            closed = next(chain(self._new, self._idle), connection)
            self.mark_busy(closed)
            closed.transport.abort()
            suppressed = self._throttle.allow("room")
            if suppressed is not None:
                _log.warning(
                    "idle connection closed: too many connections",
                    limit=self._max_connections,
                    suppressed=suppressed,
                    remedy="raise the limit of open files (ulimit -n, LimitNOFILE=)",
                )
        self._new[connection] = None

    def mark_busy(self, connection: ServerConnection) -> None:
        """Mark a connection with an open request."""
        self._new.pop(connection, None)
        self._idle.pop(connection, None)

    def mark_idle(self, connection: ServerConnection) -> None:
        """Mark a connection without an open request."""
        self._idle[connection] = None

    def remove(self, connection: ServerConnection) -> None:
        """Remove a closed connection."""
        self._count -= 1
        self.mark_busy(connection)


class ServerConnection(HttpToolsProtocol):
    """One client's connection.

    Requests to upgrade the protocol are ignored, as RFC 9110, section 7.8, allows. Java's `HttpClient` sends one with
    its first request, and httptools would take the body of that request for data of the other protocol.
    """

    head_timeout: ClassVar[float] = 30.0
    """Most seconds for a request's header fields, from the start of the connection or the request's first byte."""
    keep_alive_timeout: ClassVar[int] = 75
    """Seconds that an idle connection stays open. Proxies keep theirs for less (nginx and AWS's load balancers 60), so
    that the proxy closes the connection. If the server closed it as a commit arrives, the commit would lose its
    answer."""
    write_timeout: ClassVar[float] = 60.0
    """Seconds after which a connection is aborted if its client takes none of the unsent data. The gateway tolerates a
    client that stalls for as long."""

    _without_body: int = 0
    """Bytes of header or trailer fields since the last byte of a body."""
    _has_begun: bool = False
    """A part of a request's header fields has arrived, but not all of them."""
    _head_deadline: float | None = None
    """Time by the loop's clock at which the header fields must be complete; None while no request is expected."""
    _idle_deadline: float | None = None
    """Time at which the connection is closed after a response of the fast path; None if it is not idle, or if uvicorn's
    own timer closes it."""
    _timer: asyncio.TimerHandle | None = None
    """Timer that checks the deadlines. It may fire early and is then set again, because setting it often is slow."""
    _timer_at: float = 0.0
    """Time at which `_timer` fires."""
    _write_timer: asyncio.TimerHandle | None = None
    """Timer for the write timeout; None while the client takes the data."""
    _is_body_open: bool = False
    """A request's header fields are complete, and the end of its body has not arrived."""
    _refused: bool = False
    """Nothing more is read. The connection ends after the pending responses."""
    is_last: bool = False
    """The pending or else the next response is the last one, and has `Connection: close`."""
    limit: ConnectionLimit | None = None
    """Limit of the server's connections; None for no limit."""
    events: FastPath | None = None
    """Fast path for events; None if all requests take the way through ASGI."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        buffered = BufferedTransport(transport, self.loop, self._limit_write)
        super().connection_made(buffered)  # type: ignore[arg-type]
        self.flow = PipelineFlow(self)
        self._expect_request()
        if self.limit is not None:
            self.limit.add(self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._head_deadline = self._idle_deadline = None
        if self._timer is not None:
            self._timer.cancel()
        if self.limit is not None:
            self.limit.remove(self)
        super().connection_lost(exc)
        # uvicorn may have closed the transport, which sets the timer.
        self._stop_write_timer()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._limit_write()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()
        if self.transport.is_closing():
            # The rest of the data keeps the connection open, however small it is.
            self._limit_write()

    def _limit_write(self) -> None:
        self._stop_write_timer()
        unsent = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.write_timeout, self._check_written, unsent)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _check_written(self, unsent: int) -> None:
        if self.transport.get_write_buffer_size() < unsent:
            self._limit_write()
        else:
            self.transport.abort()

    @override
    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether the connection stays open after the client has sent its last byte.

        Some senders close their side after a whole request, such as `nc -N`, and read the response. Other clients close
        both sides, which looks the same. A response to events costs nothing then, but the gateway must notice that its
        client is gone.
        """
        transport: Any = self.transport
        # The transport may be closed next.
        transport.flush()
        scope: Any = None if self._answered() or self._is_body_open or self.pipeline else self.cycle.scope
        # TLS closes both sides.
        if scope is None or self.scheme == "https" or not handles(scope):
            return False
        self.cycle.keep_alive = False
        return True

    @override
    def data_received(self, data: bytes) -> None:
        # uvicorn's own method extends the deadline with each byte. A client could send empty lines for ever.
        if self._refused:
            return
        self._without_body += len(data)
        try:
            while data:
                data = self._unparsed(data)
        except httptools.HttpParserError as error:
            # A callback's error names the callback only. All other reasons are constants of the parser.
            found = "something else" if isinstance(error, httptools.HttpParserCallbackError) else str(error)
            self._refuse(HTTPStatus.BAD_REQUEST, f"expected a request in HTTP/1.1, found: {found}")
        else:
            if self._without_body > HEAD_LIMIT:
                detail = f"header fields: expected at most {HEAD_LIMIT} bytes, found more"
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail)
            elif self._head_deadline is None:
                self._expect_rest()

    def _unparsed(self, data: bytes) -> bytes:
        """Parse received data.

        Returns:
            The rest, to be parsed again without the request to upgrade the protocol; empty if there was none.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            method, version = self.parser.get_method(), self.parser.get_http_version()
            if method == b"CONNECT":
                raise httptools.HttpParserInvalidMethodError("CONNECT") from None
            fields = [b"%b: %b" % field for field in self.headers if field[0] != b"upgrade"]
            head = b"\r\n".join([b"%b %b HTTP/%b" % (method, self.url, version.encode()), *fields, b"", b""])
            self.parser = httptools.HttpRequestParser(self)
            # As in uvicorn: data that a client sends after its last request must not cost it the response.
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            return head + data[offer.args[0] :]
        return b""

    @override
    def _should_upgrade(self) -> bool:
        # uvicorn calls this for a request to upgrade; `_unparsed` parses such a request again without it.
        return True

    @override
    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        self._has_begun = True
        # ASGI's scope is built in `on_headers_complete`, because the fast path does without.
        self.url, self.headers, self.expect_100_continue = b"", [], False

    @override
    def _unset_keepalive_if_required(self) -> None:
        self._idle_deadline = None
        if self.timeout_keep_alive_task is not None:
            super()._unset_keepalive_if_required()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailer fields after a chunked body (RFC 9110, section 6.5) must not be taken for header fields, above all by
        # a gateway that forwards them.
        if self._has_begun:
            super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        # The previous response may have been completed since this request began.
        self._unset_keepalive_if_required()
        self._without_body, self._has_begun = 0, False
        if not self.parser.should_upgrade():
            self._head_deadline = None
        if self.limit is not None:
            self.limit.mark_busy(self)
        if self.events is None or not self.events.start(self):
            url, headers, expects = self.url, self.headers, self.expect_100_continue
            super().on_message_begin()
            self.url, self.headers, self.expect_100_continue = url, headers, expects
            self.scope["headers"] = headers
            # ASGI's keys do not distinguish a target in absolute form or `*` from a path.
            self.scope["raw_target"] = url  # type: ignore[typeddict-unknown-key]
            super().on_headers_complete()
        # The body of a request to upgrade the protocol follows when `_unparsed` parses the request again.
        self._is_body_open = not self.parser.should_upgrade()
        if self.is_last:
            self.end()

    @override
    def on_body(self, body: bytes) -> None:
        self._without_body = 0
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._without_body, self._is_body_open = 0, False
        super().on_message_complete()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            # uvicorn does so before it takes the last request from the pipeline.
            self.flow.resume_reading()
        self._expect_rest()
        if self.limit is not None and self._answered():
            self.limit.mark_idle(self)

    def is_plain_post(self) -> bool:
        """Return whether nothing about the request, except its target, needs ASGI; `FastPath` has the conditions."""
        parser = self.parser
        return (
            parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not (parser.should_upgrade() or self.expect_100_continue or self.access_log)
            and self.limit_concurrency is None
            and self._answered()
        )

    def complete_fast(self, cycle: RequestResponseCycle, response: bytes) -> None:
        """Send a whole response and keep the connection, without a timer for each response."""
        # `self.cycle` may be a pipelined request's already.
        cycle.response_started = cycle.response_complete = True
        transport: Any = self.transport
        transport.write_at_once(response)
        if self.pipeline or self._has_begun or transport.is_closing():
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._idle_deadline = self.loop.time() + self.timeout_keep_alive
        self._check_at(self._idle_deadline)
        if self.limit is not None:
            self.limit.mark_idle(self)

    def end(self) -> None:
        """Close the connection after the pending response, or else after the next one."""
        self.is_last = True
        if not self._answered():
            self.cycle.keep_alive = False

    def _expect_request(self) -> None:
        self._head_deadline = self.loop.time() + self.head_timeout
        self._check_at(self._head_deadline)

    def _expect_rest(self) -> None:
        """Set the deadline for a request that has begun; without one, the keep-alive timeout applies."""
        if self._has_begun and self._answered():
            self._expect_request()

    def _check_at(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self.loop.call_at(deadline, self._check_deadline), deadline

    def _check_deadline(self) -> None:
        self._timer = None
        deadline = self._idle_deadline if self._head_deadline is None else self._head_deadline
        if deadline is None:
            return
        if self.loop.time() < deadline:
            self._check_at(deadline)
        elif self._head_deadline is None:
            self.timeout_keep_alive_handler()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"expected a whole request head within {self.head_timeout:g} s")

    def _answered(self) -> bool:
        """Return whether all requests have their responses."""
        latest: RequestResponseCycle | None = self.cycle
        return latest is None or latest.response_complete

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Answer with an error and close the connection; while complete requests are pending, after their responses."""
        if self.transport.is_closing() or self._refused:
            return
        self._refused = True
        if not self._answered() and (self.pipeline or not self._is_body_open):
            self.cycle.keep_alive = False
            if self._is_body_open:
                # The latest request in the pipeline gets the error instead of its response.
                self.pipeline[0] = (self.cycle, partial(_send_problem, status, detail))
            return
        if not self._is_body_open or not self.cycle.response_started:
            if self._is_body_open:
                # The application must neither wait for the rest of the body nor respond.
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            content = responses.problem_document(status, detail)
            line = f"HTTP/1.1 {status} {status.phrase}"
            fields = (
                f"Content-Type: {responses.PROBLEM_MEDIA_TYPE}\r\nContent-Length: {len(content)}\r\nConnection: close"
            )
            self.transport.write(f"{line}\r\n{fields}\r\n\r\n".encode() + content)
        self.transport.close()


async def _send_problem(
    status: HTTPStatus,
    detail: str,
    _scope: object,
    _receive: object,
    send: Any,  # noqa: ANN401 - uvicorn's types of ASGI are others
) -> None:
    await responses.send_response(send, responses.NATIVE.error(status, detail))


VERIFIED_UVICORN: Final = "0.54.0"
"""Version of uvicorn with which the fast path is tested. It relies on uvicorn's internals."""


class FastPath:
    """Answers plain requests for events without ASGI's scope and messages, in half of the time.

    A plain request is an HTTP/1.1 POST to the path for events, with `Content-Length`, on a connection that stays open
    and has no other pending request. uvicorn runs the response as a task of its own request cycle, as it runs an ASGI
    application, so that slow clients, disconnections, pipelines and a shutdown have the same effect. `EventsEndpoint`
    makes the response. All responses except the most frequent one are sent by uvicorn's own code.

    Args:
        endpoint: endpoint for events.
    """

    _SCOPE: ClassVar[dict[str, Any]] = {"type": "http", "method": "POST", "path": EVENTS_PATH}
    """All that uvicorn's request cycle and `handles` read of a scope."""
    _PATH: ClassVar[bytes] = EVENTS_PATH.encode()

    def __init__(self, endpoint: EventsEndpoint) -> None:
        self._endpoint = endpoint
        self._default_fields: list[tuple[bytes, bytes]] = []
        self._start_of_accepted = STATUS_LINE[HTTPStatus.ACCEPTED]

    def start(self, connection: ServerConnection) -> bool:
        """Start the response to a connection's request, after its headers have arrived.

        Returns:
            False if the request is not plain. Nothing is started then.
        """
        if connection.url != self._PATH or not connection.is_plain_post():
            return False
        head = read_head("POST", EVENTS_PATH, connection.headers, connection.client)
        if head.length is None:
            return False
        connection.cycle = cycle = RequestResponseCycle(
            scope=self._SCOPE,  # type: ignore[arg-type]
            transport=connection.transport,
            flow=connection.flow,
            logger=connection.logger,
            access_logger=connection.access_logger,
            access_log=False,
            default_headers=connection.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=connection.on_response_complete,
        )
        respond: Any = partial(self._respond, connection, head, cycle)
        connection._start_asgi_task(cycle, respond)  # noqa: SLF001 - uvicorn's own way to start a response
        return True

    async def _respond(
        self,
        connection: ServerConnection,
        head: RequestHead,
        cycle: Any,  # noqa: ANN401 - uvicorn's types of ASGI are others
        *_: object,
    ) -> None:
        arrived = None if cycle.more_body else bytes(cycle.body)
        answer = await self._endpoint.answer(responses.NATIVE, head, cycle.receive, arrived)
        if answer is None:
            return
        if not answer.encoded or not cycle.keep_alive or cycle.disconnected or cycle.flow.write_paused:
            await responses.send_response(cycle.send, answer)
            return
        if cycle.default_headers is not self._default_fields:
            # uvicorn replaces the list when the value of `Date` changes.
            self._default_fields = cycle.default_headers
            fields = (b"%b: %b\r\n" % field for field in cycle.default_headers)
            self._start_of_accepted = b"".join([STATUS_LINE[HTTPStatus.ACCEPTED], *fields])
        connection.complete_fast(cycle, self._start_of_accepted + answer.encoded)


def _fast_path(endpoint: EventsEndpoint) -> FastPath | None:
    """Return the fast path; None for a version of uvicorn with which it is not tested."""
    if uvicorn.__version__ == VERIFIED_UVICORN:
        return FastPath(endpoint)
    _log.warning("fast path for events is off", uvicorn=uvicorn.__version__, remedy=f"install {VERIFIED_UVICORN}")
    return None


_TICK: Final = 0.1
"""Seconds between two calls of uvicorn's `on_tick`, which counts with this time."""
_ITERATIONS_OF_ACCEPT: Final = 4


class HttpServer(uvicorn.Server):
    """uvicorn's server without its signal handlers, and with deadlines for TLS.

    Args:
        application: application for all requests.
        certificate: certificate of the server; None for HTTP without TLS.
        max_connections: most connections at a time; None for half of the files that the process may open.
        events: endpoint for events, which `application` also has, for the fast path; None without it.

    Attributes:
        up: event that is set once the server accepts connections.
    """

    handshake_timeout: ClassVar[float] = 10.0
    """Most seconds for a client's TLS handshake. Common clients, such as Go's, give up after the same time."""
    shutdown_timeout: ClassVar[float] = 2.0
    """Most seconds for the rest of the data and a client's last TLS record after ours (RFC 8446, section 6.1). An idle
    client that reads nothing would delay each stop of the service."""

    def __init__(
        self,
        application: AsgiApplication,
        certificate: Certificate | None = None,
        max_connections: int | None = None,
        events: EventsEndpoint | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                # uvicorn detects the interface of plain functions only.
                interface="asgi3",
                http=ServerConnection,
                timeout_keep_alive=ServerConnection.keep_alive_timeout,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
            )
        )
        # uvicorn sets this attribute only at its start.
        self.servers = []
        self.up = anyio.Event()
        self._certificate = certificate
        self._limit = ConnectionLimit(connections_per_listener(1) if max_connections is None else max_connections)
        self._events = None if events is None else _fast_path(events)
        self._is_draining = False
        self._is_stopped = anyio.Event()

    def drain(self) -> None:
        """Close each connection after its next response, so that clients reconnect to another process."""
        self._is_draining = True
        for connection in self.server_state.connections:
            if isinstance(connection, ServerConnection):
                connection.end()

    def stop(self) -> None:
        """Accept no more connections, so that `serve` returns after the pending responses. Not safe for threads."""
        self.should_exit = True
        self._is_stopped.set()

    @override
    async def main_loop(self) -> None:
        # uvicorn's own loop sleeps, so that it would notice a stop a tick later.
        for number in count():
            if await self.on_tick(number):
                return
            with anyio.move_on_after(_TICK):
                await self._is_stopped.wait()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # An accepted connection has its protocol a few iterations of the event loop later. asyncio (Python 3.11) would
        # neither answer nor close it if its server were closed before.
        loop = asyncio.get_running_loop()
        for listener in [listener for server in self.servers for listener in server.sockets]:
            loop.remove_reader(listener)
        for _ in range(_ITERATIONS_OF_ACCEPT):
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        if self.server_state.connections or self.server_state.tasks or self._certificate is not None:
            await super().shutdown(sockets)
            return
        # uvicorn would wait a tenth of a second for nothing. With TLS, handshakes need that time, and are not listed.
        for sock in sockets or ():
            sock.close()

    @override
    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        async with anyio.create_task_group() as tasks:
            if self._certificate is not None:
                tasks.start_soon(self._certificate.watch)
            try:
                await super().serve(sockets)
            finally:
                # uvicorn leaves its servers open if it is cancelled.
                for server in self.servers:
                    server.close()
            tasks.cancel_scope.cancel()

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn has no settings for the deadlines of TLS.
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"backlog": self.config.backlog}
        if self._certificate is not None:
            options["ssl"] = self._certificate.context
            options["ssl_handshake_timeout"] = self.handshake_timeout
            options["ssl_shutdown_timeout"] = self.shutdown_timeout
        self.servers = [await loop.create_server(self._connection, sock=sock, **options) for sock in sockets or ()]
        self.started = True
        self.up.set()

    def _connection(self) -> ServerConnection:
        connection = ServerConnection(self.config, self.server_state, self.lifespan.state)
        connection.is_last, connection.limit, connection.events = self._is_draining, self._limit, self._events
        return connection

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
