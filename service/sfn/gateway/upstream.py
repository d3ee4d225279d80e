"""Requests to the catalog behind a gateway, over a pool of connections to one fixed address.

The catalog may close an idle connection just as a request is sent over it. Then it is unknown whether the catalog
received the request, so a request that may change something is never sent twice. Instead:

- `Keep-Alive: timeout=N` is respected: a connection is not used in the last second of that time.
- Without that field, a request that may not be repeated uses no connection that was idle for longer than
  `UpstreamOptions.max_idle`. A new connection costs a commit one or two round trips; a lost response costs its client
  an error.
- A connection is not used if data, or its end, arrived since its last response.
- GET, HEAD and OPTIONS are sent once more over a new connection, if a connection that was used before ends without one
  byte of a response. RFC 9110 (section 9.2.2) allows that for idempotent methods, including DELETE. But a repeated drop
  would be answered with 404 although the first one succeeded.

Other programs: Go's transport repeats a request if nothing of it was written or its method is safe (or it has an
`Idempotency-Key`, which a catalog may not know). nginx never repeats a POST (`proxy_next_upstream`), and has
`keepalive_timeout` for its idle connections. Envoy retries by a policy such as `reset-before-request`. aiohttp repeats
all requests except POST and PATCH.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from bisect import insort
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import SplitResult, urlsplit

import aiohappyeyeballs
import msgspec

from sfn.errors import ErrorScope, OutcomeUnknown, Rejected, Transient
from sfn.gateway.connection import (
    FIELD_NAME,
    FIELD_VALUE,
    ORIGIN_FORM,
    ConnectionLost,
    HeaderFields,
    ReadTimedOut,
    ResponseHead,
    UpstreamConnection,
)

CONNECT_TIMEOUT: Final = 10.0
"""Most seconds to get a connection, including the wait for a place in the pool, DNS and TLS."""
IDLE_TIMEOUT: Final = 4.0
"""Seconds that an idle connection stays open for requests that may be repeated."""
_NEXT_ADDRESS: Final = 0.25
"""Seconds until the next address of a host is tried in parallel (RFC 8305)."""
_REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class UpstreamOptions:
    """Options for the connections to a catalog.

    Attributes:
        base: URL of the catalog: scheme, authority, and the prefix of all paths.
        read_timeout: seconds without a byte after which waiting for a response ends.
        max_connections: most connections at a time.
        max_idle: most idle seconds of a connection for a request that may not be repeated.
    """

    base: str
    read_timeout: float
    max_connections: int
    max_idle: float = 0.5


@dataclass(frozen=True, slots=True)
class Origin:
    """The fixed destination of all requests.

    Attributes:
        host: name or IP address.
        port: port of the host.
        is_secure: whether TLS is used.
        authority: value of the `Host` field.
        path: prefix of all paths, without a slash at the end.
    """

    host: str
    port: int
    is_secure: bool
    authority: bytes
    path: bytes

    @classmethod
    def parse(cls, base: str) -> Origin:
        """Return the origin of a configured URL."""
        parts = urlsplit(base)
        host, default = parts.hostname or "", _PORTS[parts.scheme]
        port = parts.port or default
        name = f"[{host}]" if ":" in host else host.encode("idna").decode() if not host.isascii() else host
        authority = name if port == default else f"{name}:{port}"
        path = parts.path.rstrip("/").encode()
        return cls(name.strip("[]"), port, parts.scheme == "https", authority.encode(), path)


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request to the catalog.

    Attributes:
        method: HTTP method.
        target: path and query after the base URL, as received.
        fields: header fields without `Host`. Fields for the length of the body are replaced.
        body: whole body, or its parts as they arrive; None for no body.
        length: length in bytes of a body in parts; None if unknown.
        is_whole: whether all parts of the body have arrived, so that sending them does not wait for a client.
    """

    method: str
    target: bytes
    fields: HeaderFields
    body: bytes | AsyncIterator[bytes] | None
    length: int | None = None
    is_whole: bool = False

    def head(self, origin: Origin) -> bytes:
        """Return the request line and the fields, with the empty line after them.

        Raises:
            Rejected: 400; the catalog would read a different request, or several requests.
        """
        target = origin.path + self.target
        if target[:1] != b"/":
            target = b"/" + target
        if self.target[:1] not in _BEGINS or ORIGIN_FORM.fullmatch(target) is None:
            raise Rejected("", status=400, expected="a path that begins with / as the target", found="another one")
        line = b"%b %b HTTP/1.1" % (self.method.encode("latin-1"), target)
        lines, framing = [line, b"Host: " + origin.authority], self._framing()
        for name, value in self.fields:
            if FIELD_NAME.fullmatch(name) is None or FIELD_VALUE.fullmatch(value) is None:
                raise Rejected("", status=400, expected="header fields of HTTP", found="a byte that ends one")
            if name.lower() not in _FRAMING:
                lines.append(b"%b: %b" % (name, value))
            elif name.lower() == b"content-length":
                # The length of the body to send replaces the client's value in the same place.
                lines += framing
                framing = []
        return b"\r\n".join([*lines, *framing, b"", b""])

    def _framing(self) -> list[bytes]:
        if self.body is None:
            return []
        size = len(self.body) if isinstance(self.body, bytes) else self.length
        return [b"Transfer-Encoding: chunked" if size is None else b"Content-Length: %d" % size]


_BEGINS: Final = frozenset({b"/", b"?", b""})
_FRAMING: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})


class PooledResponse:
    """A response that may still be arriving.

    Attributes:
        status: HTTP status.
        fields: header fields.
    """

    def __init__(
        self, where: str, connection: UpstreamConnection, head: ResponseHead, release: Callable[[], None]
    ) -> None:
        self._where, self._connection, self._release = where, connection, release
        self.status, self.fields = head.status, head.fields

    def release(self) -> None:
        """Return the connection to the pool. It is closed if the body is incomplete."""
        self._release()

    async def parts(self, limit: int | None = None) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Args:
            limit: most bytes of the body; None for no limit.

        Raises:
            OutcomeUnknown: the body is incomplete, or longer than the limit.
        """
        size = 0
        try:
            async for part in self._connection.parts():
                size += len(part)
                if limit is not None and size > limit:
                    expected = f"at most {limit} bytes"
                    raise OutcomeUnknown(
                        self._where, scope=ErrorScope.CATALOG, expected=expected, found="a longer response"
                    )
                yield part
        except ConnectionLost as error:
            raise _outcome_unknown(self._where, error) from (
                TimeoutError() if isinstance(error, ReadTimedOut) else error
            )


@dataclass(frozen=True, slots=True)
class _RequestKind:
    """The requirements of a request on a connection.

    Attributes:
        is_streaming: its body is still arriving from the client.
        is_repeatable: it may be sent again if its outcome is unknown.
    """

    is_streaming: bool
    is_repeatable: bool


_Pooled: TypeAlias = tuple[UpstreamConnection, "ssl.SSLContext | None"]
"""A connection, and the TLS context that checked its certificate."""


class UpstreamPool:
    """The pool of connections to one catalog.

    It follows no redirects, decodes no bodies, uses no proxy from the environment and stores no cookies.

    Args:
        name: name of the gateway.
        options: options for the connections.
        ssl_context: function that returns the current TLS context; True for the system's certificates.
    """

    def __init__(self, name: str, options: UpstreamOptions, ssl_context: Callable[[], ssl.SSLContext | bool]) -> None:
        self._options, self._ssl_context = options, ssl_context
        self._origin = Origin.parse(options.base)
        self._where = f"gateway {name}: {options.base}"
        self._idle_timeout = max(IDLE_TIMEOUT, options.max_idle)
        self._idle: list[_Pooled] = []
        self._taken = self._streams = 0
        self._waiting: deque[tuple[_RequestKind, asyncio.Future[None]]] = deque()
        self._pruning: asyncio.TimerHandle | None = None
        self._system: ssl.SSLContext | None = None
        self._is_closed = False

    async def send(self, request: UpstreamRequest) -> PooledResponse:
        """Send a request and return the response once its header has arrived. The caller must release the response.

        Raises:
            Rejected: the request is invalid.
            Transient: scope catalog: nothing was sent.
            OutcomeUnknown: the catalog may have received the request.
        """
        head = request.head(self._origin)
        in_memory = isinstance(request.body, bytes | None)
        kind = _RequestKind(
            is_streaming=not (in_memory or request.is_whole),
            is_repeatable=request.method in _REPEATABLE and in_memory,
        )
        pooled = await self._acquire(kind)
        try:
            try:
                begun = await self._send_over(pooled, request, head)
            except ConnectionLost as error:
                if not (kind.is_repeatable and error.is_unanswered and pooled[0].is_used):
                    raise
                pooled[0].close()
                pooled = await self._connect(asyncio.get_running_loop().time() + CONNECT_TIMEOUT)
                begun = await self._send_over(pooled, request, head)
        except ConnectionLost as error:
            self._release(kind, pooled)
            raise _outcome_unknown(self._where, error) from (
                TimeoutError() if isinstance(error, ReadTimedOut) else error
            )
        except BaseException:
            self._release(kind, pooled)
            raise
        return PooledResponse(self._where, pooled[0], begun, partial(self._release, kind, pooled))

    async def close(self) -> None:
        """Close all idle connections now, and each other connection at the end of its request."""
        self._is_closed = True
        if self._pruning is not None:
            self._pruning.cancel()
            self._pruning = None
        while self._idle:
            self._idle.pop()[0].close()

    async def _acquire(self, kind: _RequestKind) -> _Pooled:
        """Return a connection for exclusive use."""
        until = asyncio.get_running_loop().time() + CONNECT_TIMEOUT
        if self._has_room(kind):
            self._enter(kind)
        else:
            await self._wait_for_place(kind, until)
        try:
            return self._reuse(kind) or await self._connect(until)
        except BaseException:
            self._leave(kind)
            raise

    def _has_room(self, kind: _RequestKind) -> bool:
        """Return whether another request may start.

        Requests with bodies that are still arriving use at most half of the connections, so that slow clients cannot
        block all others.
        """
        most = self._options.max_connections
        return self._taken < most and not (kind.is_streaming and self._streams >= max(1, most // 2))

    def _enter(self, kind: _RequestKind) -> None:
        self._taken += 1
        self._streams += kind.is_streaming

    def _leave(self, kind: _RequestKind) -> None:
        self._taken -= 1
        self._streams -= kind.is_streaming
        for waiting in self._waiting:
            # A waiter that was cancelled or timed out stays in the queue until its task runs.
            if self._has_room(waiting[0]) and not waiting[1].done():
                self._waiting.remove(waiting)
                self._enter(waiting[0])
                waiting[1].set_result(None)
                return

    async def _wait_for_place(self, kind: _RequestKind, until: float) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (kind, place)
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout_at(until):
                await place
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                # The place was assigned just as the wait ended, so it is passed on.
                self._leave(kind)
            if isinstance(error, TimeoutError):
                raise self._unreachable(f"all {self._options.max_connections} in use") from error
            raise

    def _reuse(self, kind: _RequestKind) -> _Pooled | None:
        now, context = asyncio.get_running_loop().time(), self._context()
        while self._idle:
            # The connection that became idle last.
            connection, trusted = self._idle[-1]
            if trusted is context and now - connection.idle_since > self._max_idle_of(connection, kind):
                return None
            self._idle.pop()
            if trusted is context and connection.is_quiet:
                return connection, context
            connection.close()
        return None

    def _max_idle_of(self, connection: UpstreamConnection, kind: _RequestKind | None = None) -> float:
        """Return the most idle seconds of a connection for a kind of request, or for any kind."""
        if connection.keep_alive is not None:
            return min(self._idle_timeout, connection.keep_alive)
        return self._idle_timeout if kind is None or kind.is_repeatable else self._options.max_idle

    async def _connect(self, until: float) -> _Pooled:
        while self._idle and self._taken + len(self._idle) > self._options.max_connections:
            self._idle.pop(0)[0].close()
        loop, origin, context = asyncio.get_running_loop(), self._origin, self._context()
        try:
            async with asyncio.timeout_at(until):
                found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
                sock = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=_NEXT_ADDRESS, interleave=1)
                try:
                    _, connection = await loop.create_connection(
                        partial(UpstreamConnection, self._options.read_timeout),
                        sock=sock,
                        ssl=context,
                        server_hostname=None if context is None else origin.host,
                    )
                except BaseException:
                    sock.close()
                    raise
        except OSError as error:
            raise self._unreachable(_describe_error(error)) from error
        return connection, context

    def _context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None for an address without TLS."""
        if not self._origin.is_secure:
            return None
        trusted = self._ssl_context()
        if isinstance(trusted, ssl.SSLContext):
            return trusted
        if self._system is None:
            self._system = ssl.create_default_context()
        return self._system

    def _release(self, kind: _RequestKind, pooled: _Pooled) -> None:
        """Return a connection to the pool or close it, and free its place."""
        try:
            self._return_or_close(pooled)
        finally:
            self._leave(kind)

    def _return_or_close(self, pooled: _Pooled) -> None:
        """Return a connection to the pool, or close it. `_reuse` checks its TLS context."""
        connection = pooled[0]
        is_good = connection.is_reusable and self._max_idle_of(connection) > 0 and not self._is_closed
        if is_good and self._taken + len(self._idle) <= self._options.max_connections:
            connection.is_used = True
            insort(self._idle, pooled, key=_idle_since)
            if self._pruning is None:
                self._pruning = asyncio.get_running_loop().call_later(self._idle_timeout, self._prune)
        else:
            connection.close()

    def _prune(self) -> None:
        """Close the connections that no request may use any more."""
        loop = asyncio.get_running_loop()
        now, idle, self._idle = loop.time(), self._idle, []
        for pooled in idle:
            connection = pooled[0]
            if connection.is_closed or now - connection.idle_since > self._max_idle_of(connection):
                connection.close()
            else:
                self._idle.append(pooled)
        self._pruning = loop.call_later(self._idle_timeout, self._prune) if self._idle else None

    async def _send_over(self, pooled: _Pooled, request: UpstreamRequest, head: bytes) -> ResponseHead:
        body = b"" if request.body is None else request.body
        chunked = request.length is None and not isinstance(body, bytes)
        return await pooled[0].send_request(request.method.encode(), head, body, chunked=chunked)

    def _unreachable(self, found: str) -> Transient:
        return Transient(self._where, scope=ErrorScope.CATALOG, expected="a connection", found=found, retry_after=1.0)


def _idle_since(pooled: _Pooled) -> float:
    return pooled[0].idle_since


def _outcome_unknown(where: str, error: ConnectionLost) -> OutcomeUnknown:
    return OutcomeUnknown(where, scope=ErrorScope.CATALOG, expected="an answer", found=str(error))


def _describe_error(error: OSError) -> str:
    """Return the cause of an error, without the sent data, which may contain a secret."""
    if isinstance(error, TimeoutError):
        return "none in time"
    return error.strerror or type(error).__name__


SEPARATOR_KEY: Final = "namespace-separator"
PREFIX_KEY: Final = "prefix"
READABLE_CODINGS: Final = frozenset({b"gzip", b"x-gzip", b"deflate", b"identity"})
"""Content codings of a configuration that can be rewritten."""
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_SECTIONS: Final = ("defaults", "overrides")


class RewrittenConfiguration(NamedTuple):
    """A configuration for the client, and settings from it.

    Attributes:
        body: body for the client.
        separator: separator of namespace levels, percent-encoded; None if the configuration has none.
        prefix: prefix of the catalog's paths; "" if the configuration has none.
    """

    body: bytes
    separator: str | None
    prefix: str


def rewrite_configuration(body: bytes, upstream: str, public_url: str) -> RewrittenConfiguration | None:
    """Return the configuration with the gateway's address instead of the catalog's; None for an unreadable body.

    A catalog that uses `X-Forwarded-*` appends its own path to the gateway's address. That address is replaced, too.

    Args:
        body: body of a response with status 200.
        upstream: the catalog's URL.
        public_url: the gateway's URL for clients.
    """
    try:
        content: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    sections = [section for key in _SECTIONS if isinstance(section := content.get(key), dict)]
    upstream_urls = (upstream, public_url + urlsplit(upstream).path)
    changing = [
        section for section in sections if any(is_same_address(section.get("uri"), url) for url in upstream_urls)
    ]
    for section in changing:
        section["uri"] = public_url
    changed = msgspec.json.encode(content) if changing else body
    return RewrittenConfiguration(
        changed, _setting_of(sections, SEPARATOR_KEY), _setting_of(sections, PREFIX_KEY) or ""
    )


def is_readable(coding: str) -> bool:
    """Return whether a configuration with this `Content-Encoding` can be decoded."""
    return {part.strip() for part in coding.lower().encode().split(b",")} <= READABLE_CODINGS | {b""}


def decode_body(body: bytes, codings: Sequence[bytes], limit: int) -> bytes | None:
    """Return a decoded body; None if a coding is unknown, or the body is invalid or too long.

    Args:
        body: body as received.
        codings: codings from `Content-Encoding`, in the order in which they were applied.
        limit: most bytes of the decoded body.
    """
    for coding in reversed(codings):
        if coding == b"identity":
            continue
        if coding not in READABLE_CODINGS:
            return None
        # `deflate` data has a zlib header (RFC 9110, section 8.4.1.2), but some servers omit it.
        forms = (_GZIP_OR_ZLIB,) if coding != b"deflate" else (_GZIP_OR_ZLIB, -zlib.MAX_WBITS)
        plain = next((found for form in forms if (found := _inflated(body, form, limit)) is not None), None)
        if plain is None:
            return None
        body = plain
    return body


def _inflated(body: bytes, form: int, limit: int) -> bytes | None:
    plain = b""
    try:
        # A gzip body may have several members (RFC 1952, section 2.2).
        while body:
            inflate = zlib.decompressobj(form)
            plain += inflate.decompress(body, limit + 1 - len(plain))
            if len(plain) > limit or not inflate.eof:
                return None
            body = inflate.unused_data
    except zlib.error:
        return None
    return plain


def rewrite_location(value: bytes, upstream: str, public_url: str) -> bytes:
    """Return a location with the gateway's address instead of the catalog's, so that clients do not bypass the gateway.

    Args:
        value: value of the field `Location`: a URL, or a path on the requested host.
        upstream: the catalog's URL.
        public_url: the gateway's URL for clients.
    """
    location = value.decode("latin-1")
    catalog, gateway = urlsplit(upstream), urlsplit(public_url)
    try:
        parts = urlsplit(location)
        is_rewritable = (
            _origin(parts, catalog.scheme) in (_origin(catalog), _origin(gateway))
            if parts.netloc
            else location[:1] == "/"
        )
    except ValueError:
        return value
    if not is_rewritable:
        return value
    rest = location[location.index(parts.netloc) + len(parts.netloc) :]
    is_below_catalog = not catalog.path
    # A catalog that uses `X-Forwarded-Prefix` puts the gateway's path before its own.
    for path in (gateway.path, catalog.path):
        if path and _is_below(rest, path):
            rest, is_below_catalog = rest[len(path) :], True
    return f"{public_url}{rest}".encode("latin-1") if is_below_catalog else value


def _is_below(path: str, parent: str) -> bool:
    return path.startswith(parent) and path[len(parent) : len(parent) + 1] in {"", "/", "?", "#"}


def _origin(parts: SplitResult, scheme: str = "") -> tuple[str, str | None, int | None]:
    scheme = parts.scheme or scheme
    return scheme, parts.hostname, parts.port or _PORTS.get(scheme)


def signer_addresses(config: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of signers for requests to stores, by key. Clients contact them without the gateway."""
    return {key: value for key, value in config.items() if key.endswith(("signer.uri", "signer.endpoint"))}


def is_same_address(uri: object, address: str) -> bool:
    """Return whether an address in a configuration equals a known URL after normalisation."""
    return isinstance(uri, str) and _normalised(uri) == _normalised(address)


def _normalised(uri: str) -> tuple[object, ...]:
    """Return the parts that identify an address; an invalid URL identifies itself."""
    try:
        parts = urlsplit(uri)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme), parts.path.rstrip("/"), parts.query
    except ValueError:
        return (uri,)


def _setting_of(sections: list[dict[str, object]], key: str) -> str | None:
    # Overrides are last and take precedence.
    values = [section[key] for section in sections if isinstance(section.get(key), str)]
    return str(values[-1]) if values else None
