"""A connection to NATS with nats-py. Errors of nats-py become `SourceUnavailable`.

nats-py's own reconnecting is switched off. The caller reconnects, because it reads the files with secrets again, makes
up for missed messages, and logs the outage.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import nats.errors
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol.parser import AUTHORIZATION_VIOLATION, PERMISSIONS_ERR
from typing_extensions import override

from sfn.concurrency import AbandonableThreads, TimedOut, describe_timeout
from sfn.errors import ErrorScope, SfnError, Transient
from sfn.pull import SourceUnavailable


@dataclass(frozen=True, slots=True)
class DurableConsumer:
    """A durable consumer of JetStream.

    Attributes:
        stream: name of the stream, which must exist.
        name: name of the consumer, which is created if it does not exist.
    """

    stream: str
    name: str


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """The configuration of a NATS source.

    Attributes:
        where: section of the settings, for messages.
        servers: URLs `nats://` or `tls://` with host and port; one reachable server is enough.
        subject: subject of the messages; may have wildcards.
        group: queue group of core NATS; its members share the messages.
        durable: consumer of JetStream; None for core NATS.
        ca_file: trusted certificates (PEM) instead of the system's; with it, only TLS is used.
        credentials_file: `.creds` file with a user's JWT and seed. One of this, `token_file` and `user` is enough.
        token_file: file with a token.
        user: user name; needs `password_file`.
        password_file: file with the user's password.
    """

    where: str
    servers: tuple[str, ...]
    subject: str
    group: str
    durable: DurableConsumer | None = None
    ca_file: Path | None = None
    credentials_file: Path | None = None
    token_file: Path | None = None
    user: str | None = None
    password_file: Path | None = None


MAX_FILE: Final = 65_536
"""Most bytes of a file with a secret."""

_BLOCK: Final = r"-+BEGIN {}-+\s+(\S+)\s+-+END {}-+"
_JWT: Final = re.compile(_BLOCK.format("NATS USER JWT", "NATS USER JWT"), re.ASCII)
_SEED: Final = re.compile(_BLOCK.format("USER NKEY SEED", "USER NKEY SEED"), re.ASCII)
_PREFIX: Final = 2
"""Bytes before the key, which name its type: the seed of a user."""
_KEY: Final = 32
_CHECKSUM: Final = 2


@dataclass(frozen=True, slots=True)
class NatsCredentials:
    """The content of a `.creds` file.

    Attributes:
        jwt: signed identity of the user.
        key: private key that signs the server's nonce.
    """

    jwt: bytes = field(repr=False)
    key: Ed25519PrivateKey = field(repr=False)

    def sign(self, nonce: str) -> bytes:
        """Return the signature of the server's nonce, in base64."""
        return base64.b64encode(self.key.sign(nonce.encode()))


@dataclass(frozen=True, slots=True)
class Login:
    """The content of a source's files. At most one of `credentials`, `token` and `password` is set.

    Attributes:
        ssl_context: TLS context with the trusted certificates.
        credentials: content of `credentials_file`.
        token: content of `token_file`.
        password: password of the configured user.
    """

    ssl_context: ssl.SSLContext
    credentials: NatsCredentials | None = None
    token: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


class LoginFiles:
    """The reader of a source's files. A hanging mount blocks one thread only, however often the files are read.

    Args:
        options: configuration of the source.
        timeout: seconds for reading all files.
    """

    def __init__(self, options: NatsOptions, timeout: float) -> None:
        self._options, self._timeout = options, timeout
        # The threads only read, so the process may end without waiting for them.
        self._threads = AbandonableThreads(1, timeout, ErrorScope.INBOX, read_only=True)

    async def read(self) -> Login:
        """Read the files.

        Raises:
            SourceUnavailable: a file is malformed, or not readable in time.
        """
        options = self._options
        try:
            found = await self._threads.run(f"read the files of {options.where}", lambda _: _read(options))
        except Transient as error:
            raise SourceUnavailable(
                options.where, expected=error.expected, found=error.found, remedy=error.remedy
            ) from None
        if isinstance(found, TimedOut):
            configured = (options.credentials_file, options.token_file, options.password_file, options.ca_file)
            files = ", ".join(str(file) for file in configured if file is not None) or "the system's certificates"
            raise SourceUnavailable(
                f"{options.where}: {files}",
                expected="files that can be read",
                found=describe_timeout(self._timeout),
                remedy="check whether a mount hangs",
            )
        return found


def _read(options: NatsOptions) -> Login:
    where, credentials, token, password = options.where, None, None, None
    if options.credentials_file is not None:
        credentials = _credentials(f"{where}.credentials_file", options.credentials_file)
    if options.token_file is not None:
        token = _line(f"{where}.token_file", options.token_file)
    if options.password_file is not None:
        password = _line(f"{where}.password_file", options.password_file)
    return Login(_ssl_context(f"{where}.ca_file", options.ca_file), credentials, token, password)


def _ssl_context(where: str, file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        found = (error.reason or "something else").lower().replace("_", " ")
    except OSError as error:
        found = error.strerror or type(error).__name__
    raise _unusable(where, file, "a file of PEM certificates", found)


def _credentials(where: str, file: Path) -> NatsCredentials:
    text = _text(where, file)
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt is None or seed is None:
        missing = "no user's JWT" if jwt is None else "no user's seed"
        raise _unusable(where, file, "a file as written by `nsc generate creds`", missing)
    return NatsCredentials(jwt[1].encode(), _key(where, file, seed[1]))


def _key(where: str, file: Path, seed: str) -> Ed25519PrivateKey:
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except ValueError:
        raw = b""
    whole, checksum = raw[:-_CHECKSUM], raw[-_CHECKSUM:]
    if len(whole) != _PREFIX + _KEY or binascii.crc_hqx(whole, 0).to_bytes(_CHECKSUM, "little") != checksum:
        raise _unusable(where, file, "a seed with its checksum", "another text")
    return Ed25519PrivateKey.from_private_bytes(whole[_PREFIX:])


def _line(where: str, file: Path) -> str:
    text = _text(where, file).strip()
    if not text or not text.isprintable():
        raise _unusable(where, file, "one line", "several lines" if text else "an empty file")
    return text


def _text(where: str, file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_FILE).decode()
    except OSError as error:
        raise _unusable(where, file, "a readable file", error.strerror or type(error).__name__) from None
    except UnicodeDecodeError:
        raise _unusable(where, file, "a text", "bytes that are not UTF-8") from None


def _unusable(where: str, file: Path | None, expected: str, found: str) -> SourceUnavailable:
    remedy = f"put the file there, readable for the service's user, or set {where}"
    return SourceUnavailable(f"{where}: {file}", expected=expected, found=found, remedy=remedy)


STEP_TIMEOUT: Final = 5
"""Seconds for each step of making a connection, and for each answer."""
CLOSE_TIMEOUT: Final = 2.0
"""Seconds for closing a connection."""
PING_INTERVAL: Final = 20
"""Seconds between pings. A server that is silent for three times as long counts as unreachable."""


class _Client(Client):
    """nats-py's client, which sends credentials over TLS only, if TLS is required.

    Args:
        encrypted: TLS is required for all servers; else only for those with a `tls:` URL.
    """

    def __init__(self, *, encrypted: bool) -> None:
        super().__init__()
        self._encrypted = encrypted

    @override
    def _connect_command(self) -> bytes:
        # nats-py's own method continues in clear text if the server, or an attacker in its place, does not offer TLS.
        server = self._current_server
        needs_tls = self._encrypted or (server is not None and server.uri.scheme == "tls")
        if needs_tls and not self._server_info.get("tls_required", False):
            raise nats.errors.SecureConnWantedError
        return super()._connect_command()


@dataclass(frozen=True, slots=True)
class PendingLimits:
    """Limits for the messages of a subscription that wait in nats-py.

    Attributes:
        messages: most messages.
        size: most bytes of all these messages; 0 for no limit.
    """

    messages: int
    size: int = 0


class NatsConnection:
    """A connection to a NATS server.

    Args:
        options: configuration of the source.

    Attributes:
        lost: event that is set once the connection is lost or the server denies an operation.
        dropped: number of messages that were dropped because of the limits.
    """

    def __init__(self, options: NatsOptions) -> None:
        self.lost = anyio.Event()
        self.dropped = 0
        self._options = options
        self._client = _Client(encrypted=options.ca_file is not None)
        self._error: Exception | None = None
        self._subscribed: dict[str, Subscription] = {}
        self._on_lost: list[Callable[[], object]] = []

    @property
    def client(self) -> Client:
        """The client of nats-py."""
        return self._client

    @property
    def url(self) -> str:
        """The URL of the server that answered."""
        found = self._client.connected_url
        return "" if found is None else found.geturl()

    def add_lost_callback(self, callback: Callable[[], object]) -> None:
        """Register a callback for the loss of the connection."""
        self._on_lost.append(callback)

    async def open(self, login: Login) -> None:
        """Connect to one of the servers.

        Raises:
            SourceUnavailable: no server answers or accepts the credentials.
        """
        options: dict[str, Any] = {"tls": login.ssl_context, "token": login.token}
        if login.credentials is not None:
            credentials = login.credentials
            options |= {"user_jwt_cb": lambda: credentials.jwt, "signature_cb": credentials.sign}
        if login.password is not None:
            options |= {"user": self._options.user, "password": login.password}
        with self.map_errors():
            await self._client.connect(
                list(self._options.servers),
                name="iceberg-sfn",
                allow_reconnect=False,
                connect_timeout=STEP_TIMEOUT,
                # In nats-py 0 means without limit.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                ping_interval=PING_INTERVAL,
                error_cb=self._on_error,
                closed_cb=self._on_closed,
                **options,
            )
        # The error is of another server, which was tried before.
        self._error = None

    async def close(self) -> None:
        """Flush the pending data and close the connection."""
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True), suppress(SourceUnavailable), self.map_errors():
            await self._client.close()

    async def subscribe(
        self, subject: str, group: str, callback: Callable[[Msg], Awaitable[None]], limits: PendingLimits
    ) -> None:
        """Subscribe to a subject.

        Args:
            subject: the subject, possibly with wildcards.
            group: queue group; "" for none.
            callback: coroutine function for each message, called for one message at a time.
            limits: limits for the messages that wait for `callback`.

        Raises:
            SourceUnavailable: the server denies the subscription, or the connection is lost.
        """
        with self.map_errors():
            self._subscribed[subject] = await self._client.subscribe(
                subject, group, callback, pending_msgs_limit=limits.messages, pending_bytes_limit=limits.size
            )
            await self._flush_and_check()

    async def unsubscribe(self, subject: str) -> None:
        """End a subscription. Delivered messages stay.

        Raises:
            SourceUnavailable: the connection is lost.
        """
        with self.map_errors():
            await self._subscribed.pop(subject).unsubscribe()
            await self._flush_and_check()

    async def drain(self, subject: str) -> None:
        """End a subscription and wait until its callback has processed the delivered messages.

        Raises:
            SourceUnavailable: the connection is lost.
        """
        with self.map_errors():
            await self._subscribed.pop(subject).drain()  # type: ignore[no-untyped-call]

    async def _flush_and_check(self) -> None:
        # The server sends a denial before its answer to a later ping. nats-py may send its first ping too early, hence
        # the second one.
        await self._client.flush(STEP_TIMEOUT)
        await self._client.flush(STEP_TIMEOUT)
        self.check()

    def check(self) -> None:
        """Check the state of the connection.

        Raises:
            SourceUnavailable: the connection is lost, or the server denied an operation.
        """
        if self._error is not None and self.lost.is_set():
            raise self.to_unavailable(self._error)
        if self.lost.is_set() or self._client.is_closed:
            raise self.to_unavailable(self._client.last_error or nats.errors.ConnectionClosedError())

    @contextmanager
    def map_errors(self) -> Iterator[None]:
        """Raise nats-py's errors as `SourceUnavailable`."""
        try:
            yield
        except SfnError:
            raise
        except Exception as error:  # noqa: BLE001 - no error of nats-py may end the process
            # An earlier denial is more precise than a timeout that follows it.
            raise self.to_unavailable(self._error or error) from None

    def to_unavailable(self, error: Exception) -> SourceUnavailable:
        """Return the error of the pull source for an error of nats-py."""
        where, servers = self._options.where, " or ".join(self._options.servers)
        found = _describe_error(error)
        match error:
            case nats.errors.AuthorizationError():
                return _access_denied(where, servers, found)
            case nats.errors.SecureConnWantedError():
                remedy = f"enable TLS there; for plain text set {where}.servers to nats: URLs, and no ca_file"
                return SourceUnavailable(where, expected=f"TLS from {servers}", found="a server without", remedy=remedy)
            case ssl.SSLError():
                remedy = f"check that {where}.ca_file has its issuer, and that the certificate names the host"
                return SourceUnavailable(
                    where, expected=f"a trusted certificate of {servers}", found=found, remedy=remedy
                )
            case nats.errors.Error() if AUTHORIZATION_VIOLATION in found.lower():
                return _access_denied(where, servers, found)
            case nats.errors.Error() if PERMISSIONS_ERR in found.lower():
                remedy = "grant the permission to the listener's user there, or set another subject"
                return SourceUnavailable(where, expected="permission for the operation", found=found, remedy=remedy)
            case _:
                remedy = f"check that the server runs there, or correct {where}.servers"
                return SourceUnavailable(where, expected=f"an answer from {servers}", found=found, remedy=remedy)

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            self.dropped += 1
            return
        self._error = error
        if self._client.is_connected and PERMISSIONS_ERR in str(error).lower():
            await self._on_closed()

    async def _on_closed(self) -> None:
        self.lost.set()
        for callback in self._on_lost:
            callback()


@asynccontextmanager
async def connect_nats(options: NatsOptions, login: Login) -> AsyncIterator[NatsConnection]:
    """Open a connection and close it at the end.

    Args:
        options: configuration of the source.
        login: content of the source's files.

    Raises:
        SourceUnavailable: no connection is possible, or the connection is lost.
    """
    connection = NatsConnection(options)
    try:
        await connection.open(login)
        yield connection
    finally:
        await connection.close()


def _access_denied(where: str, servers: str, found: str) -> SourceUnavailable:
    remedy = f"check that {where}.credentials_file, token_file, or user and password_file are those of a user there"
    return SourceUnavailable(where, expected=f"access to {servers}", found=found, remedy=remedy)


def _describe_error(error: Exception) -> str:
    """Return a short description of an error."""
    match error:
        case asyncio.TimeoutError():
            return f"none within {STEP_TIMEOUT} s"
        case ssl.SSLCertVerificationError():
            return error.verify_message
        case ssl.SSLError():
            return (error.reason or "a failed handshake").lower().replace("_", " ")
        case OSError(errno=int(number)) if number in errno.errorcode:
            # asyncio's own text has the address, but not the cause.
            return os.strerror(number)
        case OSError():
            return error.strerror or type(error).__name__
        case _:
            return str(error).removeprefix("nats: ").strip("'") or type(error).__name__
