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

from sfn.catalog.metadata import Unintelligible
from sfn.catalog.refusal import Refusal, Refused
from sfn.catalog.rest import answers, paths
from sfn.catalog.rest.client import Client
from sfn.catalog.rest.refusals import Reply, garbled, of_status
from sfn.catalog.rest.settings import RestSettings, sendable
from sfn.errors import Scope

_EXPECTED: Final = "the catalog's configuration"

_OURS: Final = frozenset(
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
class Route:
    """How to ask one catalog.

    Attributes:
        home: what every path is appended to.
        prefix: as `/v1/config` gave it, "" for none.
        paths: the paths below that prefix.
        headers: to send along, names in lower case; configured and the catalog's own.
        vends: whether tables' credentials have an endpoint of their own; None where that is not said.
        told: all that it says.
        coding: what that came encoded with, as of `Content-Encoding`; "" for nothing.
    """

    home: str
    prefix: str
    paths: paths.Paths
    headers: Mapping[str, str] = field(repr=False)
    vends: bool | None = None
    told: Mapping[str, str] = field(default_factory=dict, repr=False)
    coding: str = ""


class Directions:
    """The route to one catalog. Whoever asks at the same time shares one request and its outcome, good or bad.

    Args:
        settings: where the configuration is to be had.
        client: asks.
    """

    def __init__(self, settings: RestSettings, client: Client) -> None:
        self._settings = settings
        self._client = client
        self._looking = anyio.Lock()
        self._first: Route | None = None
        self._route: Route | None = None
        self._last: Route | Refusal | None = None
        self._looked_at = 0.0

    async def known(self) -> Route:
        """The route, asked for where it is not known.

        Raises:
            Refused: scope catalog.
        """
        return self._route or await self.anew()

    async def anew(self) -> Route:
        """The route by an answer that came after this call; errors as of `known`."""
        since = anyio.current_time()
        async with self._looking:
            # Without sharing, the last of many that wait on a dead catalog would wait for all their time-outs in turn.
            if self._last is None or self._looked_at < since:
                self._last = await self._look()
                self._looked_at = anyio.current_time()
            last = self._last
        if isinstance(last, Refusal):
            raise Refused(last)
        self._route = last
        return last

    def forget(self) -> None:
        """Ask again the next time; what is being asked just now counts all the same."""
        self._route = None

    async def _look(self) -> Route | Refusal:
        settings = self._settings
        url = f"{_sent(settings.uri)}{paths.config(settings.warehouse)}"
        headers = _headers({}, settings.headers, {})
        try:
            reply = await self._client.get(url, headers, within=settings.config_timeout)
        except Refused as refused:
            refusal = refused.refusal
        else:
            if reply.status == HTTPStatus.OK:
                found = route(settings, reply)
                return self._as_before(found, reply.where) if isinstance(found, Route) else found
            refusal = of_status(reply, expected=_EXPECTED)
            if reply.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}:
                refusal = replace(refusal, remedy=_check(settings, "uri (without /v1) and warehouse"))
        return replace(refusal, reach=Scope.CATALOG)

    def _as_before(self, found: Route, where: str) -> Route | Refusal:
        """The route, unless it leads elsewhere than the first."""
        first = self._first = self._first or found
        if (found.home, found.prefix) == (first.home, first.prefix):
            return found
        old, new = (f"{one.home} with prefix {one.prefix!r}" for one in (first, found))
        remedy = "have the catalog's configuration mended, or restart the service: it takes the new one then"
        return Refusal(
            where, f"to be led to {old}, as at first", f"{new} instead of {old}", remedy, reach=Scope.CATALOG
        )


def route(settings: RestSettings, reply: Reply) -> Route | Refusal:
    """The way that a configuration names, or why it names none; pure.

    Args:
        settings: what we were told.
        reply: what the catalog says, status 200.
    """
    try:
        config = answers.read_config(reply.body)
    except Unintelligible as error:
        refusal = garbled(reply, expected=_EXPECTED, found=str(error))
        return replace(refusal, remedy=_check(settings, "uri (without /v1)"), reach=Scope.CATALOG)
    uri = config.uri or settings.uri
    try:
        home = _sent(uri)
        found = "a uri override that leaves TLS" if _leaves_tls(settings.uri, uri) else None
    except ValueError:
        home, found = "", "a uri override that is no http or https URI"
    if found is not None:
        remedy = "have the catalog's configuration mended: its uri must be where clients reach it over TLS"
        return Refusal(reply.where, _EXPECTED, found, remedy, permanent=True, reach=Scope.CATALOG)
    return Route(
        home=home,
        prefix=config.prefix,
        paths=paths.Paths(config.prefix, config.separator or paths.DEFAULT_SEPARATOR),
        headers=_headers(config.defaults, settings.headers, config.overrides),
        vends=config.vends,
        told=config.told,
        coding=reply.headers.get("content-encoding", ""),
    )


def _check(settings: RestSettings, what: str) -> str:
    return f"check catalogs.{settings.name}.{what}"


def _sent(uri: str) -> str:
    """A URI's base in the form that goes over the wire: an international host name in ASCII."""
    return str(URL(paths.base(uri))).rstrip("/")


def _leaves_tls(configured: str, told: str) -> bool:
    return urlsplit(configured).scheme == "https" != urlsplit(told).scheme


def _headers(
    defaults: Mapping[str, str], configured: Mapping[str, str], overrides: Mapping[str, str]
) -> dict[str, str]:
    """One set of headers (REST specification, "getConfig": defaults, then the client's own, then overrides)."""
    merged: dict[str, str] = {}
    for some in (defaults, configured, overrides):
        for name, value in some.items():
            if name.lower() not in _OURS and sendable(name, value):
                merged[name.lower()] = value
    return merged
