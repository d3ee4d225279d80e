"""HTTP to the services of one store: one pool of connections, and every foreign error turned into a refusal."""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
from anyio import to_thread
from yarl import URL

from sfn.errors import SfnError
from sfn.store.objects import ErrorKind, RequestFailed

MAX_CONNECTIONS: Final = 128
"""Connections at once."""
CONNECT_TIMEOUT: Final = 5.0
"""Seconds."""
REQUEST_TIMEOUT: Final = 30.0
"""Seconds for one request, body included."""
BODY_LIMIT: Final = 16 * 2**20
"""Bytes of an answer that are read at most: a page of a listing with the longest keys that there are."""
_OVERHEAD: Final = 4096
"""Bytes by which a compressed body may be longer than what it holds."""
_PLAIN: Final = {"", "identity", "aws-chunked"}
"""Encodings that change nothing. Some services keep the last one, which is of a request, as an object's own."""
_GZIP_BEGINS: Final = b"\x1f\x8b"
_AUTOMATIC: Final = 47
"""A window size of zlib: it accepts the headers of gzip and of zlib."""
_RAW: Final = -15
"""A window size of zlib: no header. Some servers call that `deflate`."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer, whatever its status.

    Attributes:
        body: decompressed, except for a part of an object (status 206), which can't be decompressed.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def is_compressed(self) -> bool:
        """True if the body was compressed on its way, or is stored so."""
        return _encoding(self.headers) != ""


class HttpPool:
    """Connections that are kept. Follows no redirect, trusts no proxy of the environment, keeps no cookie.

    Requests ask for bodies that are not compressed, and the signatures of requests do not cover that header: some
    proxies change it. A server may compress nevertheless: its bodies are decompressed here.

    Args:
        ca_file: certificates (PEM) that are trusted instead of the system's.
        limit: seconds for one request.
    """

    def __init__(self, ca_file: Path | None = None, *, limit: float = REQUEST_TIMEOUT) -> None:
        self._ca_file, self._limit = ca_file, limit
        self._authorities: ssl.SSLContext | bool = True
        self._session: aiohttp.ClientSession | None = None

    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", most: int = BODY_LIMIT
    ) -> HttpReply:
        """One request and its answer.

        Args:
            url: absolute and encoded; sent byte for byte.
            most: bytes of a good answer that are read; more are left where they are.

        Raises:
            Refused: there was no whole answer.
            SfnError: the file of certificates makes no sense.
        """
        session = self._session or await self._open()
        try:
            async with session.request(
                method,
                URL(url, encoded=True),
                headers=headers,
                data=body or None,
                allow_redirects=False,
                ssl=self._authorities,
            ) as response:
                limit = most if response.ok else BODY_LIMIT
                encoding = "" if response.status == HTTPStatus.PARTIAL_CONTENT else _encoding(response.headers)
                content = await _read(response, limit + _OVERHEAD if encoding else limit)
                try:
                    content = _decompressed(content, encoding, limit)
                except RequestFailed:
                    if response.ok:
                        raise
                    # The status says enough.
                    content = b""
                return HttpReply(response.status, response.headers, content)
        except (aiohttp.ClientError, OSError) as error:
            raise _transport_failure(error, self._limit) from error

    async def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _open(self) -> aiohttp.ClientSession:
        if self._ca_file is not None and self._authorities is True:
            self._authorities = await to_thread.run_sync(_authorities, self._ca_file)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "iceberg-sfn", "Accept-Encoding": "identity"},
                timeout=aiohttp.ClientTimeout(total=self._limit, sock_connect=CONNECT_TIMEOUT),
                # The library does not bound what a body decompresses to.
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    if response.content_length is not None and response.content_length <= limit:
        return await response.read()
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) >= limit:
            # What is left unread would have to be waited for before the connection could be used again.
            response.close()
            break
    return bytes(body[:limit])


def _encoding(headers: Mapping[str, str]) -> str:
    """Return the encoding of a body in small letters, "" for none."""
    named = (part.strip().lower() for part in headers.get("Content-Encoding", "").split(","))
    return ", ".join(part for part in named if part not in _PLAIN)


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Decompress a body.

    Args:
        body: the whole body, or its beginning.
        encoding: as `_encoding` gives it.
        limit: bytes of the result.

    Raises:
        Refused: the encoding is unknown, or the body breaks off.
    """
    if not encoding or not body:
        return body
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise _compression_failure(f"a body in the encoding {encoding[:40]!r}")
    if encoding != "deflate" and not body.startswith(_GZIP_BEGINS):
        # The name of an encoding that was undone before.
        return body
    for window in (_AUTOMATIC, _RAW):
        inflater = zlib.decompressobj(window)
        try:
            # Without a maximum of one byte or more, zlib knows none.
            plain = inflater.decompress(body, max(limit, 1))
        except zlib.error:
            continue
        if inflater.eof or len(plain) >= limit:
            return plain[:limit]
    raise _compression_failure(f"a body in the encoding {encoding} that can't be decompressed")


def _compression_failure(found: str) -> RequestFailed:
    return RequestFailed(ErrorKind.NO_ANSWER, found, "switch off compression in the store and in the proxies before it")


def _authorities(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except (ssl.SSLError, OSError) as error:
        found = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise SfnError(str(file), expected="a file of PEM certificates", found=found or type(error).__name__) from error


def _transport_failure(error: Exception, seconds: float) -> RequestFailed:
    name = type(error).__name__
    if isinstance(error, aiohttp.ClientSSLError):
        remedy = "check the certificate, its names and its dates, ca_file, and whether that port speaks TLS"
        return RequestFailed(ErrorKind.UNREACHABLE, f"no TLS connection that can be trusted ({name})", remedy)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return RequestFailed(
            ErrorKind.UNREACHABLE, f"a host that has no address ({name})", "check the endpoint and the DNS"
        )
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return RequestFailed(ErrorKind.UNREACHABLE, f"no connection ({name})")
    if isinstance(error, TimeoutError):
        return RequestFailed(ErrorKind.NO_ANSWER, f"no whole answer within {seconds:g} s")
    return RequestFailed(ErrorKind.NO_ANSWER, f"a connection that broke ({name})")
