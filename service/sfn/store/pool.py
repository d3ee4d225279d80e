"""HTTP to the services of one store: one pool of connections, and every foreign error turned into a refusal."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from anyio import to_thread
from yarl import URL

from sfn.errors import SfnError
from sfn.store.objects import Kind, Refused

IN_FLIGHT: Final = 128
"""Connections at once."""
CONNECTED_WITHIN: Final = 5.0
"""Seconds."""
ANSWERED_WITHIN: Final = 30.0
"""Seconds for one request, body included."""
BODY_LIMIT: Final = 16 * 2**20
"""Bytes of an answer that are read at most: a page of a listing with the longest keys that there are."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class Pool:
    """Connections that are kept. Follows no redirect, trusts no proxy of the environment, keeps no cookie.

    Args:
        ca_file: certificates (PEM) that are trusted instead of the system's.
        limit: seconds for one request.
    """

    def __init__(self, ca_file: Path | None = None, *, limit: float = ANSWERED_WITHIN) -> None:
        self._ca_file, self._limit = ca_file, limit
        self._trust: ssl.SSLContext | bool = True
        self._session: aiohttp.ClientSession | None = None

    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", most: int = BODY_LIMIT
    ) -> Reply:
        """One request and its answer.

        Args:
            url: absolute and encoded; sent byte for byte.
            most: bytes of a good answer that are read; more are left where they are.

        Raises:
            Refused: there was no whole answer.
            SfnError: the file of certificates makes no sense.
        """
        session = self._session or await self._opened()
        try:
            async with session.request(
                method,
                URL(url, encoded=True),
                headers=headers,
                data=body or None,
                allow_redirects=False,
                ssl=self._trust,
            ) as response:
                content = await _read(response, most if response.ok else BODY_LIMIT)
                return Reply(response.status, response.headers, content)
        except (aiohttp.ClientError, OSError) as error:
            raise _unheard(error, self._limit) from error

    async def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _opened(self) -> aiohttp.ClientSession:
        if self._ca_file is not None and self._trust is True:
            self._trust = await to_thread.run_sync(_authorities, self._ca_file)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=IN_FLIGHT),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "iceberg-sfn"},
                timeout=aiohttp.ClientTimeout(total=self._limit, sock_connect=CONNECTED_WITHIN),
                # A store's content is bytes, whatever it says that they are encoded with.
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    if response.content_length is not None and response.content_length <= most:
        return await response.read()
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) >= most:
            # What is left unread would have to be waited for before the connection could be used again.
            response.close()
            break
    return bytes(body[:most])


def _authorities(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except (ssl.SSLError, OSError) as error:
        found = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise SfnError(str(file), expected="a file of PEM certificates", found=found or type(error).__name__) from error


def _unheard(error: Exception, seconds: float) -> Refused:
    name = type(error).__name__
    if isinstance(error, aiohttp.ClientSSLError):
        remedy = "check the certificate, its names and its dates, ca_file, and whether that port speaks TLS"
        return Refused(Kind.UNHEARD, f"no TLS connection that can be trusted ({name})", remedy)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Refused(Kind.UNHEARD, f"a host that has no address ({name})", "check the endpoint and the DNS")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return Refused(Kind.UNHEARD, f"no connection ({name})")
    if isinstance(error, TimeoutError):
        return Refused(Kind.UNANSWERED, f"no whole answer within {seconds:g} s")
    return Refused(Kind.UNANSWERED, f"a connection that broke ({name})")
