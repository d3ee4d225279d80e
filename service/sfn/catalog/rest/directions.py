"""Where a catalog wants to be asked: `/v1/config`, asked once, and again when there was trouble.

The first answer says whose tables these are, for as long as the process runs. Were a later one followed elsewhere, the
tables there would be written under the identity of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import anyio
from yarl import URL

from sfn.catalog.metadata import UnreadableDocument
from sfn.catalog.refusal import CatalogFailure, CatalogRequestFailed
from sfn.catalog.rest import answers, paths
from sfn.catalog.rest.client import CatalogHttpClient
from sfn.catalog.rest.refusals import CatalogReply, failure_of_body, failure_of_status
from sfn.catalog.rest.settings import RestSettings, is_valid_header
from sfn.errors import ErrorScope

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
"""Headers that frame a message or that we rely on: nobody else sets them."""


@dataclass(frozen=True, slots=True)
class CatalogRoute:
    """How to ask one catalog.

    Attributes:
        base_url: what every path is appended to.
        prefix: as `/v1/config` gave it, "" for none.
        paths: the paths below that prefix.
        headers: to send along, names in lower case; configured and the catalog's own.
        has_credentials_endpoint: whether tables' credentials have an endpoint of their own; None where that is not
            said.
        settings: all that it says.
        encoding: what that came encoded with, as of `Content-Encoding`; "" for nothing.
    """

    base_url: str
    prefix: str
    paths: paths.CatalogPaths
    headers: Mapping[str, str] = field(repr=False)
    has_credentials_endpoint: bool | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    encoding: str = ""


class RouteFinder:
    """The route to one catalog. Whoever asks at the same time shares one request and its outcome, good or bad.

    Args:
        settings: where the configuration is to be had.
        client: asks.
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
        """The route, asked for where it is not known.

        Raises:
            Refused: scope catalog.
        """
        return self._route or await self.refresh()

    async def refresh(self) -> CatalogRoute:
        """The route by an answer that came after this call; errors as of `known`."""
        since = anyio.current_time()
        async with self._requesting:
            # Without sharing, the last of many that wait on a dead catalog would wait for all their time-outs in turn.
            if self._last is None or self._requested_at < since:
                self._last = await self._request()
                self._requested_at = anyio.current_time()
            last = self._last
        if isinstance(last, CatalogFailure):
            raise CatalogRequestFailed(last)
        self._route = last
        return last

    def forget(self) -> None:
        """Ask again the next time; what is being asked just now counts all the same."""
        self._route = None

    async def _request(self) -> CatalogRoute | CatalogFailure:
        settings = self._settings
        url = f"{_wire_form(settings.uri)}{paths.config_path(settings.warehouse)}"
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
        """The route, unless it leads elsewhere than the first."""
        first = self._first = self._first or found
        if (found.base_url, found.prefix) == (first.base_url, first.prefix):
            return found
        old, new = (f"{one.base_url} with prefix {one.prefix!r}" for one in (first, found))
        remedy = "have the catalog's configuration mended, or restart the service: it takes the new one then"
        return CatalogFailure(
            where, f"to be led to {old}, as at first", f"{new} instead of {old}", remedy, scope=ErrorScope.CATALOG
        )


def route_of(settings: RestSettings, reply: CatalogReply) -> CatalogRoute | CatalogFailure:
    """The way that a configuration names, or why it names none; pure.

    Args:
        settings: what we were told.
        reply: what the catalog says, status 200.
    """
    try:
        config = answers.read_config(reply.body)
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
        remedy = "have the catalog's configuration mended: its uri must be where clients reach it over TLS"
        return CatalogFailure(reply.where, _EXPECTED, found, remedy, permanent=True, scope=ErrorScope.CATALOG)
    return CatalogRoute(
        base_url=base_url,
        prefix=config.prefix,
        paths=paths.CatalogPaths(config.prefix, config.separator or paths.DEFAULT_SEPARATOR),
        headers=_headers(config.defaults, settings.headers, config.overrides),
        has_credentials_endpoint=config.has_credentials_endpoint,
        settings=config.settings,
        encoding=reply.headers.get("content-encoding", ""),
    )


def _check(settings: RestSettings, what: str) -> str:
    return f"check catalogs.{settings.name}.{what}"


def _wire_form(uri: str) -> str:
    """A URI's base in the form that goes over the wire: an international host name in ASCII."""
    return str(URL(paths.base_url(uri))).rstrip("/")


def _leaves_tls(configured: str, redirected: str) -> bool:
    return urlsplit(configured).scheme == "https" != urlsplit(redirected).scheme


def _headers(
    defaults: Mapping[str, str], configured: Mapping[str, str], overrides: Mapping[str, str]
) -> dict[str, str]:
    """One set of headers (REST specification, "getConfig": defaults, then the client's own, then overrides)."""
    merged: dict[str, str] = {}
    for some in (defaults, configured, overrides):
        for name, value in some.items():
            if name.lower() not in _RESERVED_HEADERS and is_valid_header(name, value):
                merged[name.lower()] = value
    return merged
