"""One connection, by nats-py. What that raises becomes `Away`.

nats-py would connect again by itself. It is not let do so: files with secrets are read for each new connection, what
was missed in between is ours to make up for, and so are the pauses, and what is told of them.
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

# ── Options


@dataclass(frozen=True, slots=True)
class DurableConsumer:
    """Of JetStream.

    Attributes:
        stream: must exist.
        name: of the consumer, which is made where there is none.
    """

    stream: str
    name: str


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """One source.

    Attributes:
        where: the section of the settings, for messages.
        servers: `nats://` or `tls://`, host and port; one of them is enough.
        subject: whose messages are wanted; may have wildcards.
        group: core NATS: who is in it shares the messages.
        durable: of JetStream; None for core NATS.
        ca_file: certificates (PEM) that are trusted instead of the system's; with it, nothing but TLS is spoken.
        credentials_file: who asks: a file `.creds`.
        token_file: or a token.
        user: or a name, with its `password_file`.
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


# ── Login

MAX_FILE: Final = 65_536
"""Most bytes of a file with a secret."""

_BLOCK: Final = r"-+BEGIN {}-+\s+(\S+)\s+-+END {}-+"
_JWT: Final = re.compile(_BLOCK.format("NATS USER JWT", "NATS USER JWT"), re.ASCII)
_SEED: Final = re.compile(_BLOCK.format("USER NKEY SEED", "USER NKEY SEED"), re.ASCII)
_PREFIX: Final = 2
"""Bytes before the key itself: that it is a seed, and a user's."""
_KEY: Final = 32
_CHECKSUM: Final = 2


@dataclass(frozen=True, slots=True)
class NatsCredentials:
    """What a file `.creds` has: whom we are, as somebody has signed it, and the key that proves it.

    Attributes:
        jwt: is shown.
        key: signs what the server makes up.
    """

    jwt: bytes = field(repr=False)
    key: Ed25519PrivateKey = field(repr=False)

    def sign(self, nonce: str) -> bytes:
        """What the server made up, with our signature, as it wants it."""
        return base64.b64encode(self.key.sign(nonce.encode()))


@dataclass(frozen=True, slots=True)
class Login:
    """What the files of a source hold.

    Attributes:
        ssl_context: whose certificates are trusted.
        credentials: who asks, or
        token: that, or
        password: of the configured user.
    """

    ssl_context: ssl.SSLContext
    credentials: NatsCredentials | None = None
    token: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


class LoginFiles:
    """The files of a source. A mount that hangs has one thread hang, however often they are read.

    Args:
        options: of the source.
        timeout: seconds for all of them.
    """

    def __init__(self, options: NatsOptions, timeout: float) -> None:
        self._options, self._timeout = options, timeout
        # Nothing but looks: the end of a process need not wait for them, as it does for those of stores.
        self._threads = AbandonableThreads(1, timeout, ErrorScope.INBOX, read_only=True)

    async def read(self) -> Login:
        """What they hold now.

        Raises:
            SourceUnavailable: one can't be read in time, or makes no sense.
        """
        terms = self._options
        try:
            found = await self._threads.run(f"read the files of {terms.where}", lambda _: _read(terms))
        except Transient as error:
            raise SourceUnavailable(
                terms.where, expected=error.expected, found=error.found, remedy=error.remedy
            ) from None
        if isinstance(found, TimedOut):
            named = (terms.credentials_file, terms.token_file, terms.password_file, terms.ca_file)
            files = ", ".join(str(file) for file in named if file is not None) or "the system's certificates"
            found_instead, remedy = describe_timeout(self._timeout), "see whether a mount hangs"
            raise SourceUnavailable(
                f"{terms.where}: {files}", expected="files that can be read", found=found_instead, remedy=remedy
            )
        return found


def _read(terms: NatsOptions) -> Login:
    """Read all of them; blocks.

    Raises:
        SourceUnavailable: one can't be read, or makes no sense.
    """
    where, credentials, token, password = terms.where, None, None, None
    if terms.credentials_file is not None:
        credentials = _credentials(f"{where}.credentials_file", terms.credentials_file)
    if terms.token_file is not None:
        token = _line(f"{where}.token_file", terms.token_file)
    if terms.password_file is not None:
        password = _line(f"{where}.password_file", terms.password_file)
    return Login(_trust(f"{where}.ca_file", terms.ca_file), credentials, token, password)


def _trust(where: str, file: Path | None) -> ssl.SSLContext:
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
        raise _unusable(where, file, "what `nsc generate creds` writes", missing)
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
        raise _unusable(where, file, "one line", "none, or several" if text else "an empty file")
    return text


def _text(where: str, file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_FILE).decode()
    except OSError as error:
        raise _unusable(where, file, "a file that can be read", error.strerror or type(error).__name__) from None
    except UnicodeDecodeError:
        raise _unusable(where, file, "a text", "bytes that are not UTF-8") from None


def _unusable(where: str, file: Path | None, expected: str, found: str) -> SourceUnavailable:
    remedy = f"put it there for the service's user to read, or set {where}"
    return SourceUnavailable(f"{where}: {file}", expected=expected, found=found, remedy=remedy)


# ── Connection

STEP_TIMEOUT: Final = 5
"""Seconds for each step of making a connection, and for each answer."""
CLOSE_TIMEOUT: Final = 2.0
"""Seconds for a farewell."""
PING_INTERVAL: Final = 20
"""Seconds: a server that has been silent for three times as long is away."""


class _Client(Client):
    """nats-py's client, which says who we are over TLS alone where that is what is wanted.

    Args:
        encrypted: no server without TLS is spoken to; else none without whose URL is `tls:`.
    """

    def __init__(self, *, encrypted: bool) -> None:
        super().__init__()
        self._encrypted = encrypted

    @override
    def _connect_command(self) -> bytes:
        # Here its own goes on in clear text where the server, or who pretends to be it, offers nothing else.
        server = self._current_server
        wanted = self._encrypted or (server is not None and server.uri.scheme == "tls")
        if wanted and not self._server_info.get("tls_required", False):
            raise nats.errors.SecureConnWantedError
        return super()._connect_command()


@dataclass(frozen=True, slots=True)
class PendingLimits:
    """For what waits to be told.

    Attributes:
        messages: so many.
        size: of so many bytes together; 0 for any number.
    """

    messages: int
    size: int = 0


class NatsConnection:
    """One connection.

    Args:
        options: of the source.

    Attributes:
        lost: it is, or nobody lets us have what was asked for.
        dropped: messages that there was no room for.
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
        """nats-py's."""
        return self._client

    @property
    def url(self) -> str:
        """Of the server that answered."""
        found = self._client.connected_url
        return "" if found is None else found.geturl()

    def add_lost_callback(self, act: Callable[[], object]) -> None:
        """Have something done once the connection is lost."""
        self._on_lost.append(act)

    async def open(self, login: Login) -> None:
        """Connect to one of the servers.

        Raises:
            SourceUnavailable: none answers, or lets us in.
        """
        options: dict[str, Any] = {"tls": login.ssl_context, "token": login.token}
        if login.credentials is not None:
            shown = login.credentials
            options |= {"user_jwt_cb": lambda: shown.jwt, "signature_cb": shown.sign}
        if login.password is not None:
            options |= {"user": self._options.user, "password": login.password}
        with self.map_errors():
            await self._client.connect(
                list(self._options.servers),
                name="iceberg-sfn",
                allow_reconnect=False,
                connect_timeout=STEP_TIMEOUT,
                # nats-py's 0 stands for an endless number.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                ping_interval=PING_INTERVAL,
                error_cb=self._on_error,
                closed_cb=self._on_closed,
                **options,
            )
        # Of a server before the one that answered.
        self._error = None

    async def close(self) -> None:
        """Send what is still to be sent, and end it."""
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True), suppress(SourceUnavailable), self.map_errors():
            await self._client.close()

    async def subscribe(
        self, subject: str, group: str, act: Callable[[Msg], Awaitable[None]], limits: PendingLimits
    ) -> None:
        """Have messages told.

        Args:
            group: shares them; empty for none.
            act: is told of one at a time.
            limits: for those that wait for it.

        Raises:
            SourceUnavailable: we may not have them, or the connection is lost.
        """
        with self.map_errors():
            self._subscribed[subject] = await self._client.subscribe(
                subject, group, act, pending_msgs_limit=limits.messages, pending_bytes_limit=limits.size
            )
            await self._flush_and_check()

    async def unsubscribe(self, subject: str) -> None:
        """Have no more of them; those that are here stay.

        Raises:
            SourceUnavailable: the connection is lost.
        """
        with self.map_errors():
            await self._subscribed.pop(subject).unsubscribe()
            await self._flush_and_check()

    async def drain(self, subject: str) -> None:
        """Have no more of them, and wait until those that are here were told.

        Raises:
            SourceUnavailable: the connection is lost.
        """
        with self.map_errors():
            await self._subscribed.pop(subject).drain()  # type: ignore[no-untyped-call]

    async def _flush_and_check(self) -> None:
        # A refusal comes before the answer to what is asked after it, and nats-py's first question may overtake.
        await self._client.flush(STEP_TIMEOUT)
        await self._client.flush(STEP_TIMEOUT)
        self.check()

    def check(self) -> None:
        """Raise what the server said.

        Raises:
            SourceUnavailable: the connection is lost, or something was not permitted.
        """
        if self._error is not None and self.lost.is_set():
            raise self.to_unavailable(self._error)
        if self.lost.is_set() or self._client.is_closed:
            raise self.to_unavailable(self._client.last_error or nats.errors.ConnectionClosedError())

    @contextmanager
    def map_errors(self) -> Iterator[None]:
        """What nats-py raises, as ours."""
        try:
            yield
        except SfnError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it does not understand is no reason for us to end
            # A refusal tells more than that there was no answer.
            raise self.to_unavailable(self._error or error) from None

    def to_unavailable(self, error: Exception) -> SourceUnavailable:
        """What an error means."""
        where, servers = self._options.where, " or ".join(self._options.servers)
        found = _describe_error(error)
        match error:
            case nats.errors.AuthorizationError():
                return _access_denied(where, servers, found)
            case nats.errors.SecureConnWantedError():
                remedy = f"set up TLS there; to do without set {where}.servers to nats: URLs, and no ca_file"
                return SourceUnavailable(where, expected=f"TLS from {servers}", found="a server without", remedy=remedy)
            case ssl.SSLError():
                remedy = f"see whether {where}.ca_file has who signed its certificate, and the host is in that"
                return SourceUnavailable(
                    where, expected=f"a certificate of {servers} that we trust", found=found, remedy=remedy
                )
            case nats.errors.Error() if AUTHORIZATION_VIOLATION in found.lower():
                return _access_denied(where, servers, found)
            case nats.errors.Error() if PERMISSIONS_ERR in found.lower():
                remedy = "have it permitted to our user there, or set another subject"
                return SourceUnavailable(where, expected="leave to do what is asked for", found=found, remedy=remedy)
            case _:
                remedy = f"see whether it runs there, or correct {where}.servers"
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
        for act in self._on_lost:
            act()


@asynccontextmanager
async def connect_nats(options: NatsOptions, login: Login) -> AsyncIterator[NatsConnection]:
    """Return a new connection; closed in the end.

    Args:
        login: who asks.

    Raises:
        SourceUnavailable: none is to be had, or it is lost.
    """
    connection = NatsConnection(options)
    try:
        await connection.open(login)
        yield connection
    finally:
        await connection.close()


def _access_denied(where: str, servers: str, said: str) -> SourceUnavailable:
    remedy = f"see whether {where}.credentials_file, token_file, or user and password_file are those of a user there"
    return SourceUnavailable(where, expected=f"to be let in by {servers}", found=said, remedy=remedy)


def _describe_error(error: Exception) -> str:
    """Return an error in a few words."""
    match error:
        case asyncio.TimeoutError():
            return f"none within {STEP_TIMEOUT} s"
        case ssl.SSLCertVerificationError():
            return error.verify_message
        case ssl.SSLError():
            return (error.reason or "a failed handshake").lower().replace("_", " ")
        case OSError(errno=int(number)) if number in errno.errorcode:
            # asyncio's own text has the address, and not what is wrong.
            return os.strerror(number)
        case OSError():
            return error.strerror or type(error).__name__
        case _:
            return str(error).removeprefix("nats: ").strip("'") or type(error).__name__
