"""Requests to the catalog behind a gateway: byte for byte, from a pool of connections."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from sfn.errors import Scope, Transient, Unsure
from sfn.gateway.fields import Fields

CONNECT: Final = 10.0
"""Seconds to get a connection: a free place in the pool, the catalog's address, TLS."""
IDLE: Final = 4.0
"""Seconds that a connection is kept for the next request: less than any catalog's server closes it after."""
_FIELD_LIMIT: Final = 65_536
"""Bytes of one header field of an answer."""
_CHUNK: Final = 262_144
"""Bytes that are read ahead of a client that is slower than the catalog."""

_UNASKED: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Fields that the library would make up."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a catalog is reached.

    Attributes:
        base: scheme, authority and path that every request's path is put behind.
        silence: seconds without a byte after which an answer is given up.
        connections: how many at once.
    """

    base: str
    silence: float
    connections: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request.

    Attributes:
        method: HTTP's.
        target: path and query behind the base, encoded as they are to be sent.
        fields: all header fields but `Host`.
        body: all of it, or its parts as they come; None for none.
    """

    method: str
    target: str
    fields: Fields
    body: bytes | AsyncIterator[bytes] | None


class Incoming:
    """An answer, whose body may still be on its way."""

    def __init__(self, where: str, response: aiohttp.ClientResponse) -> None:
        self._where, self._response = where, response
        self.status = response.status
        self.fields: Sequence[tuple[bytes, bytes]] = response.raw_headers

    def end(self) -> None:
        """Let go of the connection; where the body is not over, it can't be used again."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()

    async def parts(self, limit: int | None = None) -> AsyncIterator[bytes]:
        """The body as it comes.

        Args:
            limit: most bytes of it, None for all.

        Raises:
            Unsure: it broke off, or it is longer than that.
        """
        size = 0
        try:
            async for part in self._response.content.iter_any():
                size += len(part)
                if limit is not None and size > limit:
                    expected = f"at most {limit} bytes"
                    raise Unsure(self._where, scope=Scope.CATALOG, expected=expected, found="a longer answer")
                yield part
        except (aiohttp.ClientError, OSError) as error:
            raise _lost(self._where, error) from error


class Upstream:
    """One catalog's pool. Follows no redirect, opens no body, trusts no proxy of the environment, keeps no cookie.

    Args:
        name: the gateway's.
        terms: where, how long, how many.
        trust: whose certificates are believed now; True for the system's.
    """

    def __init__(self, name: str, terms: Terms, trust: Callable[[], ssl.SSLContext | bool]) -> None:
        self._terms, self._trust = terms, trust
        self._where = f"gateway {name}: {terms.base}"
        self._limit = aiohttp.ClientTimeout(total=None, connect=CONNECT, sock_read=terms.silence)
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Outgoing) -> Incoming:
        """The answer to a request, once its header is here; whoever gets it ends it.

        Raises:
            Transient: scope catalog: nothing of it was sent.
            Unsure: it may have reached the catalog.
        """
        fields = CIMultiDict((_text(name), _text(value)) for name, value in request.fields)
        try:
            response = await self._opened().request(
                request.method,
                URL(self._terms.base + request.target, encoded=True),
                headers=fields,
                data=request.body,
                skip_auto_headers=_UNASKED,
                allow_redirects=False,
                ssl=self._trust(),
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Transient(
                self._where, scope=Scope.CATALOG, expected="a connection", found=_said(error), retry_after=1.0
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _lost(self._where, error) from error
        return Incoming(self._where, response)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._terms.connections, keepalive_timeout=IDLE),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                read_bufsize=_CHUNK,
                max_line_size=_FIELD_LIMIT,
                max_field_size=_FIELD_LIMIT,
                timeout=self._limit,
                trust_env=False,
            )
            # By itself it would send a drop again whose answer was lost: the catalog knows no such table any more, and
            # the client is told so of a drop that was made. To try again is for the client to decide.
            self._session._retry_connection = False  # noqa: SLF001 - there is no other way to say it
        return self._session


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _lost(where: str, error: Exception) -> Unsure:
    return Unsure(where, scope=Scope.CATALOG, expected="an answer", found=_said(error))


def _said(error: Exception) -> str:
    """What went wrong, without what was sent: that may hold a secret."""
    if isinstance(error, TimeoutError):
        return "none in time"
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return (inner.strerror if isinstance(inner, OSError) else None) or type(error).__name__
