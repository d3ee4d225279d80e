"""Requests to the catalog behind a gateway, from a pool of connections to one address that no request can change.

The catalog may close an idle connection just as a request is sent over it. Then it is unknown whether the catalog
received the request, so a request that may change something is never sent twice. Instead:

- `Keep-Alive: timeout=N` is heeded: a connection is not used in the last second of that time.
- Where the catalog does not say it, a request that may not be repeated uses no connection that was idle for longer than
  `Terms.idle`. A new connection costs a commit a round trip or two, a lost answer costs its client an error.
- A connection on which anything has come since its last answer, its end above all, is not used.
- GET, HEAD and OPTIONS are sent once more, over a new connection, if a connection that was used before ends without one
  byte of an answer. RFC 9110 (section 9.2.2) allows that for idempotent methods, DELETE among them; but a drop that
  was made and is sent again is answered with 404.

Others: Go's transport sends a request again if nothing of it was written or its method is safe (or it has an
`Idempotency-Key`, which a catalog may not know); nginx passes no POST on again (`proxy_next_upstream`), and has
`keepalive_timeout` for its idle connections; Envoy tries again what a policy such as `reset-before-request` names;
aiohttp sends everything but POST and PATCH again.
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
"""Seconds to get a connection: a free place in the pool, the catalog's address, TLS."""
IDLE_TIMEOUT: Final = 4.0
"""Seconds that an idle connection is kept for requests that may be repeated."""
_NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address of a host is tried beside the first (RFC 8305)."""
_REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class UpstreamOptions:
    """How a catalog is reached.

    Attributes:
        base: scheme, authority and path that every request's path is put behind.
        read_timeout: seconds without a byte after which an answer is given up.
        max_connections: how many at once.
        max_idle: seconds for which a connection may have been idle that a request takes which may not be repeated.
    """

    base: str
    read_timeout: float
    max_connections: int
    max_idle: float = 0.5


@dataclass(frozen=True, slots=True)
class Origin:
    """Where all requests go, whatever they ask for.

    Attributes:
        host: a name or an address.
        port: of it.
        is_secure: it speaks TLS.
        authority: for `Host`.
        path: what every request's path is put behind, without a slash in the end.
    """

    host: str
    port: int
    is_secure: bool
    authority: bytes
    path: bytes

    @classmethod
    def parse(cls, base: str) -> Origin:
        """That of a configured address."""
        parts = urlsplit(base)
        host, default = parts.hostname or "", _PORTS[parts.scheme]
        port = parts.port or default
        named = f"[{host}]" if ":" in host else host.encode("idna").decode() if not host.isascii() else host
        authority = named if port == default else f"{named}:{port}"
        path = parts.path.rstrip("/").encode()
        return cls(named.strip("[]"), port, parts.scheme == "https", authority.encode(), path)


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request.

    Attributes:
        method: HTTP's.
        target: path and query behind the base, as they came.
        fields: all header fields but `Host`, and those that say how long the body is.
        body: all of it, or its parts as they come; None for none.
        length: bytes of a body that comes in parts; None where that is not known.
        is_whole: all parts of the body are here: none waits for a client.
    """

    method: str
    target: bytes
    fields: HeaderFields
    body: bytes | AsyncIterator[bytes] | None
    length: int | None = None
    is_whole: bool = False

    def head(self, origin: Origin) -> bytes:
        """Return the request's line and its fields, with the empty line behind them.

        Raises:
            Rejected: 400; it would be another request, or several, to the catalog.
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
                # In its place, and of what is sent: never what a client says of it.
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
    """An answer, whose body may still be on its way."""

    def __init__(
        self, where: str, connection: UpstreamConnection, head: ResponseHead, release: Callable[[], None]
    ) -> None:
        self._where, self._connection, self._release = where, connection, release
        self.status, self.fields = head.status, head.fields

    def release(self) -> None:
        """Give the connection back; where the body is not over, it can't be used again."""
        self._release()

    async def parts(self, limit: int | None = None) -> AsyncIterator[bytes]:
        """Return the body as it comes.

        Args:
            limit: most bytes of it, None for all.

        Raises:
            OutcomeUnknown: it broke off, or it is longer than that.
        """
        size = 0
        try:
            async for part in self._connection.parts():
                size += len(part)
                if limit is not None and size > limit:
                    expected = f"at most {limit} bytes"
                    raise OutcomeUnknown(
                        self._where, scope=ErrorScope.CATALOG, expected=expected, found="a longer answer"
                    )
                yield part
        except ConnectionLost as error:
            raise _outcome_unknown(self._where, error) from (
                TimeoutError() if isinstance(error, ReadTimedOut) else error
            )


@dataclass(frozen=True, slots=True)
class _RequestKind:
    """What a request asks of a connection.

    Attributes:
        is_streaming: its body is still on its way from the client.
        is_repeatable: it may be sent once more if nothing tells what became of it.
    """

    is_streaming: bool
    is_repeatable: bool


_Pooled: TypeAlias = tuple[UpstreamConnection, "ssl.SSLContext | None"]
"""A connection, and what its certificate was checked with."""


class UpstreamPool:
    """One catalog's pool. Follows no redirect, opens no body, trusts no proxy of the environment, keeps no cookie.

    Args:
        name: the gateway's.
        options: where, how long, how many.
        ssl_context: whose certificates are believed now; True for the system's.
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
        """Return the answer to a request, once its header is here; whoever gets it ends it.

        Raises:
            Rejected: it is no request that could be sent.
            Transient: scope catalog: nothing of it was sent.
            OutcomeUnknown: it may have reached the catalog.
        """
        head = request.head(self._origin)
        is_here = isinstance(request.body, bytes | None)
        kind = _RequestKind(not (is_here or request.is_whole), is_repeatable=request.method in _REPEATABLE and is_here)
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
        """Close all connections that are idle, and each of the others once its request is over."""
        self._is_closed = True
        if self._pruning is not None:
            self._pruning.cancel()
            self._pruning = None
        while self._idle:
            self._idle.pop()[0].close()

    async def _acquire(self, kind: _RequestKind) -> _Pooled:
        """Return a connection that no other request has."""
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
        """Return whether one more may be under way. Bodies that still come from a client have no more than half of the places:
        however slowly they come, others find one.
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
            # Who gives up is done at once, and still waits here until its task comes to run.
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
                # It was given the place at the very moment at which it gave up.
                self._leave(kind)
            if isinstance(error, TimeoutError):
                raise self._unreachable(f"all {self._options.max_connections} in use") from error
            raise

    def _reuse(self, kind: _RequestKind) -> _Pooled | None:
        now, context = asyncio.get_running_loop().time(), self._context()
        while self._idle:
            # The one whose last answer was complete last.
            connection, trusted = self._idle[-1]
            if trusted is context and now - connection.idle_since > self._max_idle_of(connection, kind):
                return None
            self._idle.pop()
            if trusted is context and connection.is_quiet:
                return connection, context
            connection.close()
        return None

    def _max_idle_of(self, connection: UpstreamConnection, kind: _RequestKind | None = None) -> float:
        """Return seconds for which a connection may be idle, for a request or for any."""
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
                held = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=_NEXT_ADDRESS, interleave=1)
                try:
                    _, connection = await loop.create_connection(
                        partial(UpstreamConnection, self._options.read_timeout),
                        sock=held,
                        ssl=context,
                        server_hostname=None if context is None else origin.host,
                    )
                except BaseException:
                    held.close()
                    raise
        except OSError as error:
            raise self._unreachable(_describe_error(error)) from error
        return connection, context

    def _context(self) -> ssl.SSLContext | None:
        """What certificates are checked with; None for an address without TLS."""
        if not self._origin.is_secure:
            return None
        trusted = self._ssl_context()
        if isinstance(trusted, ssl.SSLContext):
            return trusted
        if self._system is None:
            self._system = ssl.create_default_context()
        return self._system

    def _release(self, kind: _RequestKind, pooled: _Pooled) -> None:
        """Let others have a connection, or its place."""
        try:
            self._return_or_close(pooled)
        finally:
            self._leave(kind)

    def _return_or_close(self, pooled: _Pooled) -> None:
        """Keep a connection for another request, or close it. What it was checked with matters once it is used."""
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
        """Close connections that no request may use any more."""
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
    """What went wrong, without what was sent: that may hold a secret."""
    if isinstance(error, TimeoutError):
        return "none in time"
    return error.strerror or type(error).__name__


# ── Rewritten configuration and locations

SEPARATOR_KEY: Final = "namespace-separator"
PREFIX_KEY: Final = "prefix"
READABLE_CODINGS: Final = frozenset({b"gzip", b"x-gzip", b"deflate", b"identity"})
"""Content codings that a configuration may have for its addresses to be changed."""
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_SECTIONS: Final = ("defaults", "overrides")


class RewrittenConfiguration(NamedTuple):
    """An answer, read.

    Attributes:
        body: for the client.
        separator: between the levels of a namespace, as the catalog says it; None where it says none.
        prefix: what it has its clients put before its paths; "" where it says none.
    """

    body: bytes
    separator: str | None
    prefix: str


def rewrite_configuration(body: bytes, upstream: str, public_url: str) -> RewrittenConfiguration | None:
    """Return the configuration with our address in place of the catalog's; None where the answer is none.

    A catalog that goes by `X-Forwarded-*` puts its own path behind the address that clients see: of that we took the
    place as well.

    Args:
        body: of the answer, status 200.
        upstream: the catalog's address.
        public_url: the one that clients see.
    """
    try:
        content: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    sections = [section for key in _SECTIONS if isinstance(section := content.get(key), dict)]
    upstream_urls = (upstream, public_url + urlsplit(upstream).path)
    leading = [
        section for section in sections if any(is_same_address(section.get("uri"), one) for one in upstream_urls)
    ]
    for section in leading:
        section["uri"] = public_url
    changed = msgspec.json.encode(content) if leading else body
    return RewrittenConfiguration(
        changed, _setting_of(sections, SEPARATOR_KEY), _setting_of(sections, PREFIX_KEY) or ""
    )


def is_readable(coding: str) -> bool:
    """Return whether a configuration can be read that came with a `Content-Encoding`."""
    return {part.strip() for part in coding.lower().encode().split(b",")} <= READABLE_CODINGS | {b""}


def decode_body(body: bytes, codings: Sequence[bytes], limit: int) -> bytes | None:
    """Return a decoded body; None if the coding is unknown or the result is too long.

    Args:
        body: as it came.
        codings: of `Content-Encoding`, in the order in which they were applied.
        limit: most bytes.
    """
    for coding in reversed(codings):
        if coding == b"identity":
            continue
        if coding not in READABLE_CODINGS:
            return None
        # What is called deflate comes with the header of zlib (RFC 9110, section 8.4.1.2), and without from some.
        forms = (_GZIP_OR_ZLIB,) if coding != b"deflate" else (_GZIP_OR_ZLIB, -zlib.MAX_WBITS)
        plain = next((found for form in forms if (found := _inflated(body, form, limit)) is not None), None)
        if plain is None:
            return None
        body = plain
    return body


def _inflated(body: bytes, form: int, limit: int) -> bytes | None:
    plain = b""
    try:
        # A body may be of several parts, one behind the other (RFC 1952, section 2.2).
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
    """Where an answer sends its client, with our address in place of the catalog's: else the client goes on past us.

    Args:
        value: of the field `Location`: a URL, or a path on the host that the client asked.
        upstream: the catalog's address.
        public_url: the one that clients see.
    """
    said = value.decode("latin-1")
    theirs, mine = urlsplit(upstream), urlsplit(public_url)
    try:
        parts = urlsplit(said)
        leads_here = (
            _origin(parts, theirs.scheme) in (_origin(theirs), _origin(mine)) if parts.netloc else said[:1] == "/"
        )
    except ValueError:
        return value
    if not leads_here:
        return value
    rest = said[said.index(parts.netloc) + len(parts.netloc) :]
    is_behind = not theirs.path
    # A catalog that goes by `X-Forwarded-Prefix` puts our path before its own.
    for path in (mine.path, theirs.path):
        if path and _is_below(rest, path):
            rest, is_behind = rest[len(path) :], True
    return f"{public_url}{rest}".encode("latin-1") if is_behind else value


def _is_below(path: str, of: str) -> bool:
    return path.startswith(of) and path[len(of) : len(of) + 1] in {"", "/", "?", "#"}


def _origin(parts: SplitResult, scheme: str = "") -> tuple[str, str | None, int | None]:
    scheme = parts.scheme or scheme
    return scheme, parts.hostname, parts.port or _PORTS.get(scheme)


def signer_addresses(config: Mapping[str, str]) -> dict[str, str]:
    """Where tables' requests to a store are to be signed, by key: clients go there past the gateway."""
    return {key: value for key, value in config.items() if key.endswith(("signer.uri", "signer.endpoint"))}


def is_same_address(uri: object, address: str) -> bool:
    """Return whether an address in a configuration is one that we know, however it is spelled."""
    return isinstance(uri, str) and _normalised(uri) == _normalised(address)


def _normalised(uri: str) -> tuple[object, ...]:
    """Return the parts of an address by which it is another one or not; a text that is none is itself."""
    try:
        parts = urlsplit(uri)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme), parts.path.rstrip("/"), parts.query
    except ValueError:
        return (uri,)


def _setting_of(sections: list[dict[str, object]], key: str) -> str | None:
    # Overrides come last, and win.
    said = [section[key] for section in sections if isinstance(section.get(key), str)]
    return str(said[-1]) if said else None
