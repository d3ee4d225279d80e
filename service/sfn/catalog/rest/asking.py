"""One question to a catalog, from the route that it wants it on to the scope of the trouble that came instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Final, TypeVar

import anyio
from anyio import to_thread

from sfn.catalog.metadata import UnreadableDocument
from sfn.catalog.refusal import CatalogFailure, CatalogRequestFailed, combine
from sfn.catalog.rest.client import CatalogHttpClient, ExtractBody
from sfn.catalog.rest.directions import CatalogRoute, RouteFinder
from sfn.catalog.rest.paths import CatalogPaths
from sfn.catalog.rest.refusals import CatalogReply, failure_of_body
from sfn.catalog.rest.settings import RestSettings
from sfn.clock import Clock
from sfn.errors import ErrorScope, Permanent, Transient

T = TypeVar("T")

REMEMBER_SECONDS: Final = 3600.0
"""Seconds for which it is remembered whether a catalog takes a parameter."""
_PARAMETER_REFUSED: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_ACCEPTABLE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.NOT_IMPLEMENTED,
    }
)
"""How catalogs refuse a parameter that they do not know."""

_DECODED_IN_LOOP: Final = 2**20
"""Bytes that are decoded on the spot, in half a millisecond; more go to a thread."""


class CatalogRequests:
    """Questions to one catalog.

    Args:
        settings: where, as whom, how long.
        clock: for a Retry-After that names a date.
    """

    def __init__(self, settings: RestSettings, clock: Clock) -> None:
        self._client = CatalogHttpClient(settings, clock)
        self._route_finder = RouteFinder(settings, self._client)
        # msgspec holds the interpreter's lock while it decodes: between two large bodies the loop gets its turn.
        self._decoding = anyio.CapacityLimiter(1)

    async def route(self) -> CatalogRoute:
        """The way to the catalog; raises Refused."""
        return await self._route_finder.current()

    async def get(
        self,
        target: Callable[[CatalogPaths], str],
        etag: str | None = None,
        cut: ExtractBody | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> CatalogReply:
        """The reply to one GET.

        Args:
            target: path and query, encoded, below the catalog's prefix.
            etag: entity tag to send as If-None-Match, byte for byte as the catalog gave it.
            cut: what to make of a large body, None to take it whole.
            headers: to send in place of any others, names in lower case.

        Raises:
            Refused: there was no whole reply.
        """
        route = await self._route_finder.current()
        sent = {**route.headers, **(headers or {})}
        if etag is not None:
            sent["if-none-match"] = etag
        return await self._client.get(f"{route.base_url}{target(route.paths)}", sent, cut=cut)

    async def parse(self, reply: CatalogReply, read: Callable[[bytes | bytearray], T], expected: str) -> T:
        """A reply's body, by a function of `answers`; a large one in a thread.

        Raises:
            Refused: the body makes no sense.
        """
        try:
            if len(reply.body) <= _DECODED_IN_LOOP:
                return read(reply.body)
            return await to_thread.run_sync(read, reply.body, limiter=self._decoding)
        except UnreadableDocument as error:
            found = str(error)
        raise CatalogRequestFailed(failure_of_body(reply, expected=expected, found=found))

    async def map_errors(self, answer: Awaitable[T], secrets: Callable[[], Iterable[str]] = tuple) -> T:
        """What an answer gives.

        Args:
            answer: to a question.
            secrets: what must not show in any message, beside what tells who asks.

        Raises:
            Transient: it was refused, and may not be later.
            Permanent: it was refused, and will be until somebody changes something.
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
    """A parameter that a catalog need not know. Where one refuses it, it is asked once more without.

    What the catalog took is remembered for a while, for the process alone: neither a stray refusal nor an upgrade must
    switch a parameter off for ever.
    """

    def __init__(self) -> None:
        self._is_taken: bool | None = None
        self._valid_until = 0.0

    async def request(
        self, with_it: Callable[[], Awaitable[CatalogReply]], without: Callable[[], Awaitable[CatalogReply]]
    ) -> CatalogReply:
        """Return the reply to one of two questions.

        Args:
            with_it: asks with the parameter.
            without: asks without.
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
