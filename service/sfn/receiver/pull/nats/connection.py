"""One connection, by nats-py. What that raises becomes `Away`.

nats-py would connect again by itself. It is not let do so: files with secrets are read for each new connection, what
was missed in between is ours to make up for, and so are the pauses, and what is told of them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol.parser import AUTHORIZATION_VIOLATION, PERMISSIONS_ERR
from typing_extensions import override

from sfn.errors import SfnError
from sfn.receiver.pull import SourceUnavailable
from sfn.receiver.pull.nats.login import Login
from sfn.receiver.pull.nats.terms import NatsOptions

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
            Away: none answers, or lets us in.
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
            Away: we may not have them, or the connection is lost.
        """
        with self.map_errors():
            self._subscribed[subject] = await self._client.subscribe(
                subject, group, act, pending_msgs_limit=limits.messages, pending_bytes_limit=limits.size
            )
            await self._flush_and_check()

    async def unsubscribe(self, subject: str) -> None:
        """Have no more of them; those that are here stay.

        Raises:
            Away: the connection is lost.
        """
        with self.map_errors():
            await self._subscribed.pop(subject).unsubscribe()
            await self._flush_and_check()

    async def drain(self, subject: str) -> None:
        """Have no more of them, and wait until those that are here were told.

        Raises:
            Away: the connection is lost.
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
            Away: the connection is lost, or something was not permitted.
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
    """A new connection; closed in the end.

    Args:
        login: who asks.

    Raises:
        Away: none is to be had, or it is lost.
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
    """An error in a few words."""
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
