"""`CatalogRequests`: HTTP requests to one catalog, their limits, and their errors as failures of the catalog."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import aiohttp
import anyio
from anyio import to_thread
from yarl import URL

from sfn.catalogs import CatalogFailure, CatalogRequestFailed, combine
from sfn.catalogs.activity import CatalogActivity
from sfn.catalogs.metadata import UnreadableDocument
from sfn.catalogs.rest import responses
from sfn.catalogs.rest.auth import Auth, AuthRequest, RenewedFile, build_auth
from sfn.catalogs.rest.errors import (
    CatalogReply,
    failure_of_body,
    failure_of_status,
    failure_of_transport,
    is_denied,
    is_unauthenticated,
)
from sfn.catalogs.rest.responses import CatalogPaths
from sfn.catalogs.rest.settings import RestSettings, is_valid_header
from sfn.clock import Clock
from sfn.errors import ErrorScope, Permanent, SfnError, Transient
from sfn.telemetry import tracing


class CatalogTrust:
    """The certificate authorities of new connections: the system's, or those of a file that is reloaded on change.

    Args:
        catalog: the catalog's name in the settings.
        file: None for the system's authorities.
    """

    def __init__(self, catalog: str, file: Path | None) -> None:
        self._authorities = None if file is None else RenewedFile(catalog, "ca_file", file, "authorities", _read)

    async def current(self) -> ssl.SSLContext | bool:
        """Return the authorities in the form that aiohttp accepts.

        Raises:
            CatalogRequestFailed: scope catalog; the file cannot be used, and never could.
        """
        return True if self._authorities is None else await self._authorities.current()


def _read(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        found = (error.reason or "an unknown TLS error").lower().replace("_", " ")
    except OSError as error:
        found = error.strerror or type(error).__name__
    raise SfnError(str(file), expected="a file of PEM certificates", found=found)


ExtractBody: TypeAlias = Callable[[bytearray, AsyncIterator[bytes]], Awaitable[bytearray]]
"""Makes an excerpt from the beginning of a large body and the parts that follow; may leave some unread."""

_ERROR_LIMIT: Final = 2**20
"""Bytes of an error body that are read: Iceberg's contain a Java stack trace."""

_SMALL_BYTES: Final = 2**18
"""Bytes up to which a body is read directly; nearly every table's metadata are shorter."""
_LARGE_BYTES: Final = 8 * 2**20
"""Bytes above which a body is large."""
_MAX_LARGE_BODIES: Final = 2
"""Large bodies that are read at the same time: all requests in flight at their limit would be gigabytes."""


_USELESS: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS})
"""Statuses of answers, beside those of 500 and more, that say nothing about what was asked."""


class CatalogHttpClient:
    """A pool of connections that follows no redirect, uses no proxy of the environment and stores no cookie.

    Args:
        settings: address, identity and limits.
        clock: clock for the times of replies.
    """

    def __init__(self, settings: RestSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._auth: Auth = build_auth(settings, self._post)
        self._authorities = CatalogTrust(settings.name, settings.ca_file)
        self._session: aiohttp.ClientSession | None = None
        self._large = anyio.Semaphore(_MAX_LARGE_BODIES)
        self._limit = self._timeout(settings.request_timeout)
        self.activity = CatalogActivity(clock)

    def secrets(self) -> tuple[str, ...]:
        """Return the values that messages must not contain: our tokens, and the values of configured headers."""
        return (*self._auth.secrets(), *self._settings.headers.values())

    async def get(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        request_timeout: float | None = None,
        cut: ExtractBody | None = None,
    ) -> CatalogReply:
        """Send an authenticated GET. Repeat it once with new credentials if the old ones are rejected or denied.

        Args:
            url: absolute and encoded; sent byte for byte.
            headers: further headers, names in lower case; our own take precedence.
            request_timeout: seconds for the whole request, None for the configured time.
            cut: makes an excerpt of a large body; None to read all of it.

        Returns:
            The reply, whatever its status.

        Raises:
            CatalogRequestFailed: there was no complete reply, or it is too long.
        """
        reply, auth_headers = await self._authorized(url, headers, request_timeout, cut)
        renew = (
            self._auth.renew
            if is_unauthenticated(reply)
            else self._auth.renew_after_denial
            if is_denied(reply)
            else None
        )
        if renew is not None and await renew(auth_headers):
            reply, _ = await self._authorized(url, headers, request_timeout, cut)
        return reply

    async def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _authorized(
        self, url: str, headers: Mapping[str, str], request_timeout: float | None, cut: ExtractBody | None
    ) -> tuple[CatalogReply, Mapping[str, str]]:
        auth_headers = await self._auth.headers(AuthRequest("GET", url))
        # By default Jetty compresses, with an etag that never matches again: `b7a04183--gzip` (facts/jvm.md).
        own_headers = {"accept": "application/json", "accept-encoding": "identity", **auth_headers}
        reply = await self._exchange(
            "GET", URL(url, encoded=True), {**headers, **own_headers}, request_timeout=request_timeout, cut=cut
        )
        return reply, auth_headers

    async def _post(self, url: str, form: Mapping[str, str]) -> CatalogReply:
        return await self._exchange("POST", URL(url), {"accept": "application/json"}, form=form)

    async def _exchange(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        *,
        form: Mapping[str, str] | None = None,
        request_timeout: float | None = None,
        cut: ExtractBody | None = None,
    ) -> CatalogReply:
        where = f"catalog {self._settings.name}: {method} {_redacted(str(url))}"
        limit = self._limit if request_timeout is None else self._timeout(request_timeout)
        authorities = await self._authorities.current()
        session = self._open()
        with (
            tracing.request(method, str(url), f"catalog {self._settings.name}") as step,
            self.activity.request(_kind_of(url), f"{method} {_redacted(str(url))}") as request,
        ):
            try:
                async with session.request(
                    method, url, headers=headers, data=form, timeout=limit, allow_redirects=False, ssl=authorities
                ) as response:
                    began = self._clock.now()
                    tracing.answered(step, response.status)
                    body = await self._read(where, response, cut)
            except (aiohttp.ClientError, OSError) as error:
                failure = failure_of_transport(where, error, request_timeout or self._settings.request_timeout)
                request.failure = str(replace(failure, where=request.what).to_error(ErrorScope.CATALOG, ()))
                raise CatalogRequestFailed(failure) from error
            if response.status in _USELESS or response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                request.failure = f"{request.what}: it answers with status {response.status}"
            # A table, or a namespace, may be forbidden alone.
            request.is_neutral = response.status == HTTPStatus.FORBIDDEN
        return CatalogReply(where, response.status, began, response.headers, body)

    async def _read(self, where: str, response: aiohttp.ClientResponse, cut: ExtractBody | None) -> bytes | bytearray:
        """Return the whole body, the excerpt of a large one, or the beginning of a long error."""
        most = min(_SMALL_BYTES, self._settings.body_limit)
        if (response.content_length or most + 1) <= most and "Content-Encoding" not in response.headers:
            return await response.read()
        body = bytearray()
        async with aclosing(self._parts(where, response)) as parts:
            async for part in parts:
                body += part
                if len(body) > _LARGE_BYTES:
                    break
            else:
                return body
            async with self._large:
                if cut is not None:
                    return await cut(body, parts)
                async for part in parts:
                    body += part
        return body

    async def _parts(self, where: str, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        """Yield the parts of a body up to its limit."""
        limit = self._settings.body_limit if response.ok else _ERROR_LIMIT
        if response.ok and (response.content_length or 0) > limit:
            raise CatalogRequestFailed(self._too_long(where))
        length = 0
        async for part in response.content.iter_any():
            length += len(part)
            if length > limit and response.ok:
                raise CatalogRequestFailed(self._too_long(where))
            yield part
            if length > limit:
                return

    def _timeout(self, total: float) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=total, sock_connect=self._settings.connect_timeout)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._settings.max_in_flight),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "iceberg-sfn"},
                trust_env=False,
            )
        return self._session

    def _too_long(self, where: str) -> CatalogFailure:
        return CatalogFailure(
            where,
            expected=f"at most {self._settings.body_limit} bytes",
            found="a longer answer",
            remedy="expire the table's snapshots and shorten its metadata-log, or exclude it",
            permanent=True,
            scope=ErrorScope.TABLE,
        )


def _kind_of(url: URL) -> str:
    """Return what a request asks for: a server that hangs on tables may well answer for its configuration."""
    path = url.raw_path.rstrip("/")
    if "/tables/" in path or "/views/" in path:
        return "table"
    return "list" if path.endswith(("/tables", "/namespaces")) else "other"


def _redacted(url: str) -> str:
    """Return a URL without the parts that may be secret: user information, query and fragment."""
    shown = url.partition("#")[0].partition("?")[0]
    return str(URL(shown, encoded=True).with_user(None)) if "@" in shown else shown


_EXPECTED: Final = "the catalog's configuration"

_RESERVED_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "if-none-match",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that frame a message or that we depend on, which configuration must not set."""


@dataclass(frozen=True, slots=True)
class CatalogRoute:
    """The route to a catalog, by its configuration.

    Attributes:
        base_url: base of all URLs.
        prefix: prefix from `/v1/config`, "" for none.
        paths: the paths below that prefix.
        headers: further headers, names in lower case; from the settings and the catalog.
        has_credentials_endpoint: True if tables' credentials have an endpoint of their own; None if the catalog does
            not say.
        settings: the whole configuration.
        encoding: `Content-Encoding` of the configuration; "" for none.
    """

    base_url: str
    prefix: str
    paths: responses.CatalogPaths
    headers: Mapping[str, str] = field(repr=False)
    has_credentials_endpoint: bool | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    encoding: str = ""


class RouteFinder:
    """The route to one catalog. Concurrent callers share one request and its outcome, good or bad.

    Args:
        settings: address of the configuration.
        client: sends requests.
    """

    def __init__(self, settings: RestSettings, client: CatalogHttpClient) -> None:
        self._settings = settings
        self._client = client
        self._requesting = anyio.Lock()
        self._first: CatalogRoute | None = None
        self._route: CatalogRoute | None = None
        self._last: CatalogRoute | CatalogFailure | None = None
        self._requested_at = 0.0

    async def current(self) -> CatalogRoute:
        """Return the route, and request it if it is not known.

        Raises:
            CatalogRequestFailed: scope catalog.
        """
        return self._route or await self.refresh()

    async def refresh(self) -> CatalogRoute:
        """Return the route by an answer that came after this call; raises as `current`."""
        since = anyio.current_time()
        async with self._requesting:
            # Callers share one request. Otherwise the last of many would wait for all their time-outs in turn.
            if self._last is None or self._requested_at < since:
                self._last = await self._request()
                self._requested_at = anyio.current_time()
            last = self._last
        if isinstance(last, CatalogFailure):
            raise CatalogRequestFailed(last)
        self._route = last
        return last

    def forget(self) -> None:
        """Request the route again on next use; the outcome of a request in progress counts all the same."""
        self._route = None

    async def _request(self) -> CatalogRoute | CatalogFailure:
        settings = self._settings
        url = f"{_wire_form(settings.uri)}{responses.config_path(settings.warehouse)}"
        headers = _headers({}, settings.headers, {})
        try:
            reply = await self._client.get(url, headers, request_timeout=settings.config_timeout)
        except CatalogRequestFailed as refused:
            failure = refused.failure
        else:
            if reply.status == HTTPStatus.OK:
                found = route_of(settings, reply)
                return self._check_unchanged(found, reply.where) if isinstance(found, CatalogRoute) else found
            failure = failure_of_status(reply, expected=_EXPECTED)
            if reply.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}:
                failure = replace(failure, remedy=_check(settings, "uri (without /v1) and warehouse"))
        return replace(failure, scope=ErrorScope.CATALOG)

    def _check_unchanged(self, found: CatalogRoute, where: str) -> CatalogRoute | CatalogFailure:
        """Return the route, or a failure if it differs from the first one."""
        first = self._first = self._first or found
        if (found.base_url, found.prefix) == (first.base_url, first.prefix):
            return found
        old, new = (f"{one.base_url} with prefix {one.prefix!r}" for one in (first, found))
        remedy = "correct the catalog's configuration, or restart the service, which then uses the new one"
        return CatalogFailure(
            where, f"the route {old}, as at the start", f"{new} instead of {old}", remedy, scope=ErrorScope.CATALOG
        )


def route_of(settings: RestSettings, reply: CatalogReply) -> CatalogRoute | CatalogFailure:
    """Return the route that a catalog's configuration names, or why it names none. A pure function.

    Args:
        settings: our settings.
        reply: the catalog's reply, status 200.
    """
    try:
        config = responses.read_config(reply.body)
    except UnreadableDocument as error:
        failure = failure_of_body(reply, expected=_EXPECTED, found=str(error))
        return replace(failure, remedy=_check(settings, "uri (without /v1)"), scope=ErrorScope.CATALOG)
    uri = config.uri or settings.uri
    try:
        base_url = _wire_form(uri)
        found = "a uri override that leaves TLS" if _leaves_tls(settings.uri, uri) else None
    except ValueError:
        base_url, found = "", "a uri override that is no http or https URI"
    if found is not None:
        remedy = "correct the catalog's configuration: its uri must be its address for clients, with TLS"
        return CatalogFailure(reply.where, _EXPECTED, found, remedy, permanent=True, scope=ErrorScope.CATALOG)
    return CatalogRoute(
        base_url=base_url,
        prefix=config.prefix,
        paths=responses.CatalogPaths(config.prefix, config.separator or responses.DEFAULT_SEPARATOR),
        headers=_headers(config.defaults, settings.headers, config.overrides),
        has_credentials_endpoint=config.has_credentials_endpoint,
        settings=config.settings,
        encoding=reply.headers.get("content-encoding", ""),
    )


def _check(settings: RestSettings, what: str) -> str:
    return f"check catalogs.{settings.name}.{what}"


def _wire_form(uri: str) -> str:
    """Return a URI's base as it is sent: an international host name in ASCII."""
    return str(URL(responses.base_url(uri))).rstrip("/")


def _leaves_tls(configured: str, redirected: str) -> bool:
    return urlsplit(configured).scheme == "https" != urlsplit(redirected).scheme


def _headers(
    defaults: Mapping[str, str], configured: Mapping[str, str], overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return merged headers (REST specification, "getConfig": defaults, then the client's own, then overrides)."""
    merged: dict[str, str] = {}
    for some in (defaults, configured, overrides):
        for name, value in some.items():
            if name.lower() not in _RESERVED_HEADERS and is_valid_header(name, value):
                merged[name.lower()] = value
    return merged


T = TypeVar("T")

REMEMBER_SECONDS: Final = 3600.0
"""Seconds for which the support of a parameter is remembered."""
_PARAMETER_REFUSED: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_ACCEPTABLE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.NOT_IMPLEMENTED,
    }
)
"""Answers of catalogs to an unknown parameter."""

_DECODED_IN_LOOP: Final = 2**20
"""Bytes up to which a body is decoded on the loop, in half a millisecond; longer ones go to a thread."""


class CatalogRequests:
    """Queries to one catalog.

    Args:
        settings: address, identity and limits.
        clock: clock for a Retry-After with a date.
    """

    def __init__(self, settings: RestSettings, clock: Clock) -> None:
        self._client = CatalogHttpClient(settings, clock)
        self._route_finder = RouteFinder(settings, self._client)
        # msgspec holds the interpreter lock while it decodes. One large body at a time lets the loop run in between.
        self._decoding = anyio.CapacityLimiter(1)

    @property
    def activity(self) -> CatalogActivity:
        """The requests so far."""
        return self._client.activity

    async def route(self) -> CatalogRoute:
        """Return the route to the catalog; raise CatalogRequestFailed."""
        return await self._route_finder.current()

    async def ping(self) -> None:
        """Ask the catalog for its configuration; raise CatalogRequestFailed if it does not answer."""
        await self._route_finder.refresh()

    async def get(
        self,
        target: Callable[[CatalogPaths], str],
        etag: str | None = None,
        cut: ExtractBody | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> CatalogReply:
        """Send a GET and return the reply.

        Args:
            target: returns path and query, encoded, below the catalog's prefix.
            etag: etag for If-None-Match, byte for byte as the catalog gave it.
            cut: makes an excerpt of a large body; None to read all of it.
            headers: headers that replace others of the same name; names in lower case.

        Raises:
            CatalogRequestFailed: there was no complete reply.
        """
        route = await self._route_finder.current()
        sent = {**route.headers, **(headers or {})}
        if etag is not None:
            sent["if-none-match"] = etag
        return await self._client.get(f"{route.base_url}{target(route.paths)}", sent, cut=cut)

    async def parse(self, reply: CatalogReply, read: Callable[[bytes | bytearray], T], expected: str) -> T:
        """Parse a reply's body with a function of `responses`; a large one on a thread.

        Raises:
            CatalogRequestFailed: the body is invalid.
        """
        try:
            if len(reply.body) <= _DECODED_IN_LOOP:
                return read(reply.body)
            return await to_thread.run_sync(read, reply.body, limiter=self._decoding)
        except UnreadableDocument as error:
            found = str(error)
        raise CatalogRequestFailed(failure_of_body(reply, expected=expected, found=found))

    async def map_errors(self, answer: Awaitable[T], secrets: Callable[[], Iterable[str]] = tuple) -> T:
        """Await the answer to a query, and turn its failure into an error.

        Args:
            answer: the answer.
            secrets: returns values that messages must not contain, in addition to our credentials.

        Raises:
            Transient: the query failed, which may pass.
            Permanent: the query fails until a person changes something.
        """
        try:
            return await answer
        except CatalogRequestFailed as refused:
            failure = refused.failure
        raise await self._error(failure, secrets())

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _error(self, failure: CatalogFailure, secrets: Iterable[str]) -> Transient | Permanent:
        scope = failure.scope
        if scope is None:
            try:
                await self._route_finder.refresh()
                scope = ErrorScope.TABLE
            except CatalogRequestFailed as other:
                failure, scope = combine(failure, other.failure), ErrorScope.CATALOG
        if scope is ErrorScope.CATALOG:
            self._route_finder.forget()
        return failure.to_error(scope, (*self._client.secrets(), *secrets))


class OptionalParameter:
    """A parameter that not every catalog supports. If a catalog refuses it, the request is repeated without it.

    The support is remembered for a while, in the process only: neither a stray refusal nor an upgrade of the catalog
    must disable a parameter for ever.
    """

    def __init__(self) -> None:
        self._is_taken: bool | None = None
        self._valid_until = 0.0

    async def request(
        self, with_it: Callable[[], Awaitable[CatalogReply]], without: Callable[[], Awaitable[CatalogReply]]
    ) -> CatalogReply:
        """Return the reply to one of two requests.

        Args:
            with_it: sends the request with the parameter.
            without: sends the request without it.
        """
        known = self._is_taken if anyio.current_time() < self._valid_until else None
        first, second = (with_it, without) if known is not False else (without, with_it)
        reply = await first()
        if reply.status not in _PARAMETER_REFUSED:
            if reply.status < HTTPStatus.BAD_REQUEST:
                self._note(is_taken=first is with_it)
            return reply
        if known:
            return reply
        other = await second()
        if other.status >= HTTPStatus.BAD_REQUEST:
            return reply
        self._note(is_taken=second is with_it)
        return other

    def _note(self, *, is_taken: bool) -> None:
        self._is_taken, self._valid_until = is_taken, anyio.current_time() + REMEMBER_SECONDS
