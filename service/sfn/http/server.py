"""The listener's server: uvicorn, with what a client may cost before its token is looked at."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

import anyio
import httptools
import structlog
import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from sfn.concurrency import WatchedFiles, unreadable_file_error
from sfn.errors import FatalError
from sfn.http import responses
from sfn.http.app import AsgiApplication
from sfn.limits import connections_per_listener
from sfn.telemetry.logs import LogThrottle

# ── Listening socket

BACKLOG: Final = 2048
"""Connections that wait to be accepted."""


@contextmanager
def listening_socket(host: str, port: int, section: str = "listener", remedy: str = "") -> Iterator[socket.socket]:
    """Return a socket that listens on an address; port 0 is any free one.

    Args:
        host: an address of this machine, or a name of one.
        port: of it.
        section: that of the settings which says both, for the error.
        remedy: how else to say another address, for the error.

    Raises:
        FatalError: the address is taken, not ours, or none.
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
            remedy=f"{remedy or f'set {section}.host and {section}.port'}, or end what listens there",
        ) from error
    with listener:
        yield listener


# ── TLS handshakes

_log = structlog.stdlib.get_logger(__name__)


class LoggedHandshake(ssl.SSLObject):
    """A connection's TLS, which tells of its handshake where that fails, a reason at most once a second.

    The address of the client is not known here, nor can either loop be asked for it. Who just hangs up is not told of.
    """

    throttle: ClassVar[LogThrottle] = LogThrottle()
    """Keeps the log small, for all connections."""

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


# ── Certificate

_MISMATCHES: Final = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""OpenSSL's reasons against a key of another certificate; the last one, where the keys are of different kinds."""


class Certificate:
    """Shows clients the certificate that is in force when they connect; connections that are open keep theirs.

    Whoever renews certificate and key replaces one after the other: until they belong together the old pair stays in
    force.

    Args:
        chain: PEM file, the listener's own certificate first.
        key: PEM file of its private key, not encrypted.

    Attributes:
        context: for a server.

    Raises:
        FatalError: the files can't be used now.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self._pairs = WatchedFiles("certificate and key", (chain, key), partial(_load_pair, chain, key))
        self.context = _context()
        # A key that does not fit, loaded into a context in use, would leave it with neither: each pair has its own.
        self.context.sni_callback = self._show
        self.context.sslobject_class = LoggedHandshake

    def reload_if_changed(self) -> None:
        """Read the files again if one changed. Blocks for as long as the file system does."""
        self._pairs.reload_if_changed()

    async def watch(self) -> NoReturn:
        """See `Watched.watch`."""
        await self._pairs.watch()

    def _show(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        # Called with every ClientHello, whether or not it names a server.
        connection.context = self._pairs.current


def _context() -> ssl.SSLContext:
    # The same for all: some of it is looked up in the one that a connection began with, some in the one it was given.
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_pair(chain: Path, key: Path) -> ssl.SSLContext:
    for file in (chain, key):
        # OpenSSL's errors do not say which file it was.
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
        remedy="take it off with openssl pkey, and let nobody else read the file",
    )


def _invalid_pair_error(chain: Path, key: Path, reason: str | None) -> FatalError:
    if reason in _MISMATCHES:
        return FatalError(
            f"{chain} and {key}",
            expected="a certificate and the key that belongs to it",
            found="another key",
            remedy="see that the listener's own certificate is the first one in its file",
        )
    if reason is not None:
        expected = "a certificate and a key that OpenSSL takes"
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


# ── Server

HEAD_LIMIT: Final = 65_536
"""About the most bytes of a request's line and header fields, and of the trailer fields after a body.

What arrives at once with the end of these is not counted, so memory is bounded by this and one read of the socket.
"""


MAX_BUFFERED: Final = 65_536
"""Most bytes that are held back until the end of a turn of the event loop."""


class BufferedTransport:
    """A connection's transport. What is written in one turn of the event loop is sent by one system call.

    uvicorn writes the head of a response and its body one after the other; to send a small one takes as long as to
    make it.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        # Asked for with each response.
        self.is_closing = transport.is_closing
        self._held: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a transport can
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._send)
        self._held.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED:
            self._send()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._held:
            self._transport.write(b"".join(self._held))
            self._held.clear()
            self._size = 0


class ConnectionLimit:
    """The connections of one server, limited in number: each takes a file descriptor, and work needs some too.

    A connection counts once its TLS handshake is done.

    Where there is no room for one more, a connection without a request in hand is closed: the oldest that never sent
    one, else the one whose last was answered longest ago. So who opens many connections and sends nothing loses their
    own, and no request in hand is lost.

    Args:
        max_connections: how many there may be.
    """

    def __init__(self, max_connections: int) -> None:
        self._max_connections, self._count = max_connections, 0
        self._new: dict[ServerConnection, None] = {}
        self._idle: dict[ServerConnection, None] = {}
        self._throttle = LogThrottle()

    def add(self, connection: ServerConnection) -> None:
        """Take a new connection, and close one where there are too many."""
        self._count += 1
        if self._count > self._max_connections:
            closed = next(chain(self._new, self._idle), connection)
            self.mark_busy(closed)
            closed.transport.abort()
            suppressed = self._throttle.allow("room")
            if suppressed is not None:
                _log.warning(
                    "too many connections: an idle one is closed",
                    most=self._max_connections,
                    suppressed=suppressed,
                    remedy="raise the limit of open files (ulimit -n, LimitNOFILE=)",
                )
        self._new[connection] = None

    def mark_busy(self, connection: ServerConnection) -> None:
        """Return the connection has a request in hand."""
        self._new.pop(connection, None)
        self._idle.pop(connection, None)

    def mark_idle(self, connection: ServerConnection) -> None:
        """Return the connection has none any more."""
        self._idle[connection] = None

    def remove(self, connection: ServerConnection) -> None:
        """Return the connection is closed."""
        self._count -= 1
        self.mark_busy(connection)


class ServerConnection(HttpToolsProtocol):
    """One client's connection.

    Offers of other protocols are ignored, as a server may (RFC 9110, section 7.8), and Java's `HttpClient` makes one
    with its first request: httptools alone takes the body of such a request for that protocol's first bytes.
    """

    head_timeout: ClassVar[float] = 30.0
    """Most seconds until a request's header fields are here, from the connection's begin or, later, its first byte."""
    keep_alive_timeout: ClassVar[int] = 75
    """Seconds that a connection is kept for the next request: longer than those before us keep theirs (nginx and AWS's
    balancers 60), so that it is they who end it. One that is ended as a commit comes costs that its answer."""

    _without_body: int = 0
    """Bytes since anything but header or trailer fields arrived."""
    _has_begun: bool = False
    """Some of a request's header is here, and not all of it."""
    _head_deadline: float | None = None
    """When a request's header fields must be here, by the loop's clock; None while nobody waits for any."""
    _timer: asyncio.TimerHandle | None = None
    """Looks at `_due` no later than that. One that was set for an earlier moment is kept: to set one takes long."""
    _refused: bool = False
    """Nothing more is read: the connection ends with the responses that are on their way."""
    is_last: bool = False
    """The response that is on its way, or else the next one, is the last, and says so."""
    limit: ConnectionLimit | None = None
    """Counts the connections of the server; None for one without a bound."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(BufferedTransport(transport, self.loop))  # type: ignore[arg-type]
        self._expect_request()
        if self.limit is not None:
            self.limit.add(self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._head_deadline = None
        if self._timer is not None:
            self._timer.cancel()
        if self.limit is not None:
            self.limit.remove(self)
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        # Not every byte keeps the connection, as uvicorn's own has it: empty lines, and a body that nobody reads, may
        # come for ever.
        if self._refused:
            return
        self._without_body += len(data)
        try:
            while data:
                data = self._unparsed(data)
        except httptools.HttpParserError:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1")
        else:
            if self._without_body > HEAD_LIMIT:
                detail = f"header fields: expected at most {HEAD_LIMIT} bytes, found more"
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail)
            elif self._head_deadline is None:
                self._expect_rest()

    def _unparsed(self, data: bytes) -> bytes:
        """Parse what arrived; what is left of it is to be parsed anew, since another protocol was offered before it."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            method, version = self.parser.get_method(), self.parser.get_http_version()
            if method == b"CONNECT":
                raise httptools.HttpParserInvalidMethodError("CONNECT") from None
            fields = [b"%b: %b" % field for field in self.headers if field[0] != b"upgrade"]
            head = b"\r\n".join([b"%b %b HTTP/%b" % (method, self.url, version.encode()), *fields, b"", b""])
            self.parser = httptools.HttpRequestParser(self)
            # As uvicorn's own: what a client sends after its last request must not cost it the response.
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            return head + data[offer.args[0] :]
        return b""

    @override
    def _should_upgrade(self) -> bool:
        # Asked where a request has such an offer: nothing is answered before it was parsed anew without.
        return True

    @override
    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        self._has_begun = True
        super().on_message_begin()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        # Behind a body in chunks there may be more fields (RFC 9110, section 6.5): code that reads the header then, a
        # gateway that passes it on above all, must not find them in it.
        if self._has_begun:
            super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        # The answer before may have come since this one began.
        self._unset_keepalive_if_required()
        self._without_body, self._has_begun = 0, False
        # A path in the absolute form, or behind a `*`, looks like any other in what ASGI has.
        self.scope["raw_target"] = self.url  # type: ignore[typeddict-unknown-key]
        if not self.parser.should_upgrade():
            self._head_deadline = None
        if self.limit is not None:
            self.limit.mark_busy(self)
        super().on_headers_complete()
        if self.is_last:
            self.end()

    @override
    def on_body(self, body: bytes) -> None:
        self._without_body = 0
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._without_body = 0
        super().on_message_complete()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_rest()
        if self.limit is not None and self._answered():
            self.limit.mark_idle(self)

    def end(self) -> None:
        """Have the connection end with the response that is on its way, or with the next one."""
        self.is_last = True
        if not self._answered():
            self.cycle.keep_alive = False

    def _expect_request(self) -> None:
        self._head_deadline = self.loop.time() + self.head_timeout
        if self._timer is None:
            self._timer = self.loop.call_at(self._head_deadline, self._check_deadline)

    def _expect_rest(self) -> None:
        """Return a request that has begun must go on; nobody need begin one."""
        if self._has_begun and self._answered():
            self._expect_request()

    def _check_deadline(self) -> None:
        self._timer = None
        if self._head_deadline is None:
            return
        if self.loop.time() < self._head_deadline:
            self._timer = self.loop.call_at(self._head_deadline, self._check_deadline)
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"expected a whole request head within {self.head_timeout:g} s")

    def _answered(self) -> bool:
        """Return whether no request waits for its response."""
        latest: RequestResponseCycle | None = self.cycle
        return latest is None or latest.response_complete

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Say what is wrong and close; where whole requests still wait for their responses, close after these."""
        if self.transport.is_closing() or self._refused:
            return
        self._refused = True
        if not self._answered() and not self.cycle.more_body:
            self.cycle.keep_alive = False
            return
        if self._answered():
            content = responses.problem_document(status, detail)
            line = f"HTTP/1.1 {status} {status.phrase}"
            fields = (
                f"Content-Type: {responses.PROBLEM_MEDIA_TYPE}\r\nContent-Length: {len(content)}\r\nConnection: close"
            )
            self.transport.write(f"{line}\r\n{fields}\r\n\r\n".encode() + content)
        self.transport.close()


class HttpServer(uvicorn.Server):
    """uvicorn's server without its signal handlers, and with deadlines for TLS.

    Args:
        application: what answers.
        certificate: what it shows; None for HTTP without TLS.
        max_connections: connections at a time; None for half of the files that the process may open.

    Attributes:
        up: it takes requests.
    """

    handshake_timeout: ClassVar[float] = 10.0
    """Most seconds until a client's TLS handshake is done: common clients (Go's, for one) give up after as many."""
    shutdown_timeout: ClassVar[float] = 2.0
    """Most seconds for a client's last TLS record after ours (RFC 8446, section 6.1), and for what is sent before: who
    reads nothing while it is idle would hold up every stop of the service."""

    def __init__(
        self, application: AsgiApplication, certificate: Certificate | None = None, max_connections: int | None = None
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                # uvicorn guesses wrong of what is no plain function.
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
        # uvicorn has it from its start on only.
        self.servers = []
        self.up = anyio.Event()
        self._certificate = certificate
        self._limit = ConnectionLimit(connections_per_listener(1) if max_connections is None else max_connections)
        self._is_draining = False

    def drain(self) -> None:
        """Have each connection end with its next response: whoever asks again is to come to another process."""
        self._is_draining = True
        for connection in self.server_state.connections:
            if isinstance(connection, ServerConnection):
                connection.end()

    @override
    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        async with anyio.create_task_group() as tasks:
            if self._certificate is not None:
                tasks.start_soon(self._certificate.watch)
            try:
                await super().serve(sockets)
            finally:
                # uvicorn leaves them open where it is cancelled.
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
        connection.is_last, connection.limit = self._is_draining, self._limit
        return connection

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
