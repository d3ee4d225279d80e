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
from sfn.receiver.pull import Away
from sfn.receiver.pull.nats.login import Login
from sfn.receiver.pull.nats.terms import Terms

PATIENCE: Final = 5
"""Seconds for each step of making a connection, and for each answer."""
CLOSED_WITHIN: Final = 2.0
"""Seconds for a farewell."""
PING_EVERY: Final = 20
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
class Room:
    """For what waits to be told.

    Attributes:
        messages: so many.
        size: of so many bytes together; 0 for any number.
    """

    messages: int
    size: int = 0


class Connection:
    """One connection.

    Args:
        terms: of the source.

    Attributes:
        lost: it is, or nobody lets us have what was asked for.
        dropped: messages that there was no room for.
    """

    def __init__(self, terms: Terms) -> None:
        self.lost = anyio.Event()
        self.dropped = 0
        self._terms = terms
        self._client = _Client(encrypted=terms.ca_file is not None)
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

    def when_lost(self, act: Callable[[], object]) -> None:
        """Have something done once the connection is lost."""
        self._on_lost.append(act)

    async def open(self, known: Login) -> None:
        """Connect to one of the servers.

        Raises:
            Away: none answers, or lets us in.
        """
        options: dict[str, Any] = {"tls": known.trust, "token": known.token}
        if known.credentials is not None:
            shown = known.credentials
            options |= {"user_jwt_cb": lambda: shown.jwt, "signature_cb": shown.signed}
        if known.password is not None:
            options |= {"user": self._terms.user, "password": known.password}
        with self.told():
            await self._client.connect(
                list(self._terms.servers),
                name="iceberg-sfn",
                allow_reconnect=False,
                connect_timeout=PATIENCE,
                # nats-py's 0 stands for an endless number.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                ping_interval=PING_EVERY,
                error_cb=self._hear,
                closed_cb=self._end,
                **options,
            )
        # Of a server before the one that answered.
        self._error = None

    async def close(self) -> None:
        """Send what is still to be sent, and end it."""
        with anyio.move_on_after(CLOSED_WITHIN, shield=True), suppress(Away), self.told():
            await self._client.close()

    async def subscribe(self, subject: str, group: str, act: Callable[[Msg], Awaitable[None]], room: Room) -> None:
        """Have messages told.

        Args:
            group: shares them; empty for none.
            act: is told of one at a time.
            room: for those that wait for it.

        Raises:
            Away: we may not have them, or the connection is lost.
        """
        with self.told():
            self._subscribed[subject] = await self._client.subscribe(
                subject, group, act, pending_msgs_limit=room.messages, pending_bytes_limit=room.size
            )
            await self._settle()

    async def unsubscribe(self, subject: str) -> None:
        """Have no more of them; those that are here stay.

        Raises:
            Away: the connection is lost.
        """
        with self.told():
            await self._subscribed.pop(subject).unsubscribe()
            await self._settle()

    async def drain(self, subject: str) -> None:
        """Have no more of them, and wait until those that are here were told.

        Raises:
            Away: the connection is lost.
        """
        with self.told():
            await self._subscribed.pop(subject).drain()  # type: ignore[no-untyped-call]

    async def _settle(self) -> None:
        # A refusal comes before the answer to what is asked after it, and nats-py's first question may overtake.
        await self._client.flush(PATIENCE)
        await self._client.flush(PATIENCE)
        self.check()

    def check(self) -> None:
        """Raise what the server said.

        Raises:
            Away: the connection is lost, or something was not permitted.
        """
        if self._error is not None and self.lost.is_set():
            raise self.away(self._error)
        if self.lost.is_set() or self._client.is_closed:
            raise self.away(self._client.last_error or nats.errors.ConnectionClosedError())

    @contextmanager
    def told(self) -> Iterator[None]:
        """What nats-py raises, as ours."""
        try:
            yield
        except SfnError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it does not understand is no reason for us to end
            # A refusal tells more than that there was no answer.
            raise self.away(self._error or error) from None

    def away(self, error: Exception) -> Away:
        """What an error means."""
        where, servers = self._terms.where, " or ".join(self._terms.servers)
        said = _said(error)
        match error:
            case nats.errors.AuthorizationError():
                return _not_let_in(where, servers, said)
            case nats.errors.SecureConnWantedError():
                remedy = f"set up TLS there; to do without set {where}.servers to nats: URLs, and no ca_file"
                return Away(where, expected=f"TLS from {servers}", found="a server without", remedy=remedy)
            case ssl.SSLError():
                remedy = f"see whether {where}.ca_file has who signed its certificate, and the host is in that"
                return Away(where, expected=f"a certificate of {servers} that we trust", found=said, remedy=remedy)
            case nats.errors.Error() if AUTHORIZATION_VIOLATION in said.lower():
                return _not_let_in(where, servers, said)
            case nats.errors.Error() if PERMISSIONS_ERR in said.lower():
                remedy = "have it permitted to our user there, or set another subject"
                return Away(where, expected="leave to do what is asked for", found=said, remedy=remedy)
            case _:
                remedy = f"see whether it runs there, or correct {where}.servers"
                return Away(where, expected=f"an answer from {servers}", found=said, remedy=remedy)

    async def _hear(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            self.dropped += 1
            return
        self._error = error
        if self._client.is_connected and PERMISSIONS_ERR in str(error).lower():
            await self._end()

    async def _end(self) -> None:
        self.lost.set()
        for act in self._on_lost:
            act()


@asynccontextmanager
async def connected(terms: Terms, known: Login) -> AsyncIterator[Connection]:
    """A new connection; closed in the end.

    Args:
        known: who asks.

    Raises:
        Away: none is to be had, or it is lost.
    """
    connection = Connection(terms)
    try:
        await connection.open(known)
        yield connection
    finally:
        await connection.close()


def _not_let_in(where: str, servers: str, said: str) -> Away:
    remedy = f"see whether {where}.credentials_file, token_file, or user and password_file are those of a user there"
    return Away(where, expected=f"to be let in by {servers}", found=said, remedy=remedy)


def _said(error: Exception) -> str:
    """An error in a few words."""
    match error:
        case asyncio.TimeoutError():
            return f"none within {PATIENCE} s"
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
