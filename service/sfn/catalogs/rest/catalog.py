"""`RestCatalog`: a catalog behind Iceberg's REST API."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from hashlib import sha256
from http import HTTPStatus
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from sfn.catalogs import (
    CatalogFailure,
    CatalogRequestFailed,
    Loaded,
    LoadResult,
    NoSuchTable,
    NotModified,
    SkipNamespace,
    StagedCreate,
    UnlistedNamespace,
    VendedCredential,
)
from sfn.catalogs.activity import CatalogActivity
from sfn.catalogs.listing import walk_tables
from sfn.catalogs.rest import responses
from sfn.catalogs.rest.client import CatalogRequests, OptionalParameter
from sfn.catalogs.rest.credentials import CredentialCache, secrets_in
from sfn.catalogs.rest.errors import (
    NO_NAMESPACE,
    CatalogReply,
    failure_of_body,
    failure_of_status,
    iceberg_error_type,
    is_missing_table,
    may_be_missing,
)
from sfn.catalogs.rest.responses import CatalogPaths, ListingPage
from sfn.catalogs.rest.settings import RestSettings
from sfn.clock import Clock, SystemClock
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError

T = TypeVar("T")

MAX_PAGES_WITHOUT_NEW: Final = 1_000
"""Consecutive pages without a new entry, after which a listing fails."""

_NO_NESTING: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_ACCEPTABLE})
"""Answers of catalogs without nested namespaces to a listing below a namespace."""


@dataclass(frozen=True, slots=True)
class PagedQuery(Generic[T]):
    """A query with an answer in pages.

    Attributes:
        kind: the kind of its entries.
        target: returns path and query without paging.
        parse: parses a page.
        is_empty_answer: returns True if a refusal means that there is nothing to list.
    """

    kind: str
    target: Callable[[CatalogPaths], tuple[str, str]]
    parse: Callable[[bytes | bytearray], ListingPage[T]]
    is_empty_answer: Callable[[CatalogReply], Awaitable[bool]]


class CatalogListings:
    """The listings of one catalog.

    Args:
        requests: sends requests to the catalog.
        catalog: the catalog's name in the configuration.
        page_size: entries per page; None for the catalog's default.
    """

    def __init__(self, requests: CatalogRequests, catalog: str, page_size: int | None) -> None:
        self._requests = requests
        self._catalog = catalog
        self._size = "" if page_size is None else f"pageSize={page_size}&"
        self._paging = {"tables": OptionalParameter(), "namespaces": OptionalParameter()}

    def tables(self, namespace: tuple[str, ...]) -> PagedQuery[tuple[tuple[str, ...], str]]:
        """Return the query for the tables of a namespace; a missing one lists nothing."""

        async def void(reply: CatalogReply) -> bool:
            return await self._is_gone(reply, namespace)

        return PagedQuery(
            "tables", lambda paths: (paths.tables(self._catalog, namespace), ""), responses.read_tables, void
        )

    def namespaces(self, parent: tuple[str, ...]) -> PagedQuery[tuple[str, ...]]:
        """Return the query for the children of a namespace, or the outermost ones; a missing one lists nothing."""

        async def void(reply: CatalogReply) -> bool:
            is_flat = reply.status in _NO_NESTING and iceberg_error_type(reply) is not None
            return bool(parent) and (is_flat or await self._is_gone(reply, parent))

        return PagedQuery(
            "namespaces", lambda paths: paths.namespaces(self._catalog, parent), responses.read_namespaces, void
        )

    async def items(self, listing: PagedQuery[T]) -> AsyncGenerator[T]:
        """Yield every entry of a listing once.

        Raises:
            Transient, Permanent: the listing failed, or is incomplete.
        """
        token, tokens, found = "", set[str](), set[T]()
        malformed = fruitless = 0
        while True:
            page = await self._requests.map_errors(self._page(listing, token, tokens, fruitless))
            malformed += page.malformed
            before = len(found)
            for item in page.items:
                if item not in found:
                    found.add(item)
                    yield item
            if page.next_token is None:
                break
            fruitless = 0 if len(found) > before else fruitless + 1
            token = page.next_token
            tokens.add(token)
        if malformed:
            await self._requests.map_errors(self._incomplete(listing, malformed))

    async def is_listed(self, table: TableIdentifier) -> bool:
        """Return True if the namespace of a table lists it; raises as `items`."""
        async with aclosing(self.items(self.tables(table.namespace))) as tables:
            async for levels, name in tables:
                # Some catalogs list a nested namespace as one level with dots.
                if ".".join((*levels, name)) == table.dotted:
                    return True
        return False

    def walk(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        """Walk over all namespaces, as `sfn.catalogs.listing.walk_tables`."""
        return walk_tables(
            self._catalog,
            lambda namespace: self.items(self.tables(namespace)),
            lambda parent: self.items(self.namespaces(parent)),
            skip,
        )

    async def _page(self, listing: PagedQuery[T], token: str, tokens: set[str], fruitless: int) -> ListingPage[T]:
        expected = "a page of a listing"
        reply = await self._request_page(listing, token)
        if await listing.is_empty_answer(reply):
            return ListingPage((), None)
        if reply.status != HTTPStatus.OK:
            raise CatalogRequestFailed(failure_of_status(reply, expected=expected))
        page = await self._requests.parse(reply, listing.parse, expected)
        if page.next_token in tokens:
            raise CatalogRequestFailed(
                failure_of_body(reply, expected=expected, found="the next-page-token of an earlier page")
            )
        if page.next_token is not None and fruitless >= MAX_PAGES_WITHOUT_NEW:
            raise CatalogRequestFailed(
                failure_of_body(
                    reply, expected=expected, found=f"{MAX_PAGES_WITHOUT_NEW} pages without a new entry, and no end"
                )
            )
        return page

    async def _request_page(self, listing: PagedQuery[T], token: str) -> CatalogReply:
        """Return the reply to the query for a page. If the first page is refused, repeat the query without paging.

        By the specification all entries come at once then. If the catalog returns a token anyway, paging goes on.
        """

        def target(paths: CatalogPaths, *, paged: bool = True) -> str:
            path, query = listing.target(paths)
            # An empty token requests the first page: without a token a catalog may send everything at once.
            query = f"{query}{self._size}pageToken={quote(token, safe='')}" if paged else query.removesuffix("&")
            return f"{path}?{query}" if query else path

        if token:
            return await self._requests.get(target)
        return await self._paging[listing.kind].request(
            lambda: self._requests.get(target), lambda: self._requests.get(lambda paths: target(paths, paged=False))
        )

    async def _incomplete(self, listing: PagedQuery[T], malformed: int) -> None:
        where, _ = listing.target((await self._requests.route()).paths)
        raise CatalogRequestFailed(
            CatalogFailure(
                f"catalog {self._catalog}: GET {where}",
                expected=f"a listing of {listing.kind}",
                found=f"{malformed} of its entries of another shape; the others were taken",
                remedy="check the catalog's own log: it lists entries without a name",
            )
        )

    async def _is_gone(self, reply: CatalogReply, namespace: tuple[str, ...]) -> bool:
        """Return True if a reply means that there is no such namespace.

        If the type of the error does not say so, the listing of the parent decides.
        """
        if not may_be_missing(reply):
            return False
        if iceberg_error_type(reply) == NO_NAMESPACE and reply.status == HTTPStatus.NOT_FOUND:
            return True
        above = self.namespaces(namespace[:-1])
        async with aclosing(self.items(above)) as found:
            async for one in found:
                if one == namespace or ".".join(one) == ".".join(namespace):
                    return False
        return True


_EXPECTED: Final = "the table, or a 404 in Iceberg's error shape"


class RestCatalog:
    """A catalog behind Iceberg's REST API.

    Scope of errors: see behaviour.md. If one reply does not show its scope, one `GET /v1/config` decides. In `tables`,
    scope table means that the walk fails while the catalog answers other queries.

    Args:
        settings: address, identity and limits.
        clock: clock for a Retry-After with a date.
    """

    def __init__(self, settings: RestSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._requests = CatalogRequests(settings, clock or SystemClock())
        self._listings = CatalogListings(self._requests, settings.name, settings.page_size)
        self._refs_parameter = OptionalParameter()
        self._credentials = CredentialCache(self._requests, self._refs_parameter, self._is_gone)

    async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        """Return the current state of a table.

        The query asks only for snapshots that a branch or tag names. It is repeated for all snapshots if the answer
        lacks the metadata's location (Polaris issue 4656), or if the catalog refuses the query.

        A 404 with another type than Iceberg's for a missing table counts if the table's namespace does not list it.
        """
        return await self._requests.map_errors(self._load(table, known_etag))

    async def is_listed(self, table: TableIdentifier) -> bool:
        """Return True if the table's namespace lists it."""
        return await self._listings.is_listed(table)

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        """Yield every table, and each unlisted namespace."""
        async with aclosing(self._listings.walk(skip)) as found:
            async for one in found:
                yield one

    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        """Yield the children of a namespace, or the outermost ones."""
        async with aclosing(self._listings.items(self._listings.namespaces(parent))) as found:
            async for one in found:
                yield one

    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        async with aclosing(self._listings.items(self._listings.tables(namespace))) as found:
            async for levels, name in found:
                yield TableIdentifier(self._settings.name, levels, name)

    async def vended_credentials(self, table: TableIdentifier) -> tuple[VendedCredential, ...] | NoSuchTable:
        """Return the credentials for the location of a table."""
        return await self._requests.map_errors(self._credentials.get(table), lambda: self._credentials.secrets(table))

    async def renew_credentials(
        self, table: TableIdentifier, rejected: Sequence[VendedCredential]
    ) -> tuple[VendedCredential, ...] | NoSuchTable:
        """Return new credentials after a store rejected some."""
        secrets = secrets_in(rejected)
        return await self._requests.map_errors(
            self._credentials.renew(table, rejected), lambda: (*secrets, *self._credentials.secrets(table))
        )

    async def identity(self) -> str:
        """Return the `catalog_id` for our files (behaviour.md, "catalog_id").

        Raises:
            Transient, Permanent: scope catalog; the catalog's configuration cannot be had.
        """
        if self._settings.catalog_id is not None:
            return self._settings.catalog_id
        route = await self._requests.map_errors(self._requests.route())
        words = (responses.base_url(self._settings.uri), self._settings.warehouse or "", route.prefix)
        return sha256("\n".join(words).encode()).hexdigest()[:32]

    @property
    def activity(self) -> CatalogActivity:
        """The requests so far."""
        return self._requests.activity

    async def ping(self) -> None:
        """Ask the catalog for its configuration, to learn whether it answers."""
        await self._requests.map_errors(self._requests.ping())

    async def advertised_config(self) -> Mapping[str, str]:
        """Return the catalog's configuration for its clients."""
        return (await self._requests.map_errors(self._requests.route())).settings

    async def advertised_encoding(self) -> str:
        """Return the `Content-Encoding` of that configuration; "" for none."""
        return (await self._requests.map_errors(self._requests.route())).encoding

    async def close(self) -> None:
        """Close all connections."""
        await self._requests.close()

    async def _load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        reply = await self._refs_parameter.request(
            lambda: self._reply(table, known_etag, "?snapshots=refs"), lambda: self._reply(table, known_etag, "")
        )
        answer = await self._answer(table, known_etag, reply)
        if isinstance(answer, StagedCreate):
            return await self._answer(table, known_etag, await self._reply(table, known_etag, ""))
        return answer

    async def _reply(self, table: TableIdentifier, known_etag: str | None, query: str) -> CatalogReply:
        return await self._requests.get(lambda paths: paths.table(table) + query, known_etag, responses.extract_table)

    async def _answer(self, table: TableIdentifier, known_etag: str | None, reply: CatalogReply) -> LoadResult:
        if reply.status == HTTPStatus.OK:
            found = await self._requests.parse(reply, responses.read_table, _EXPECTED)
            return StagedCreate() if found is None else Loaded(found, _etag(reply))
        if reply.status == HTTPStatus.NOT_MODIFIED and known_etag is not None:
            return NotModified()
        why = await self._why_not_gone(reply, table)
        if why is None:
            return NoSuchTable()
        failure = failure_of_status(reply, expected=_EXPECTED)
        failure = replace(failure, found=f"{failure.found}; {why}" if why else failure.found)
        if reply.status == HTTPStatus.FORBIDDEN:
            # A grant that was revoked by mistake must not turn every table into a dead letter.
            failure = replace(failure, permanent=False)
        raise CatalogRequestFailed(failure)

    async def _is_gone(self, reply: CatalogReply, table: TableIdentifier) -> bool:
        return await self._why_not_gone(reply, table) is None

    async def _why_not_gone(self, reply: CatalogReply, table: TableIdentifier) -> str | None:
        """Return why a table may exist although a reply does not have it; None if it is gone.

        If the type of the error does not say so, the listing of the table's namespace decides.
        """
        if is_missing_table(reply):
            return None
        if not may_be_missing(reply):
            return ""
        try:
            is_listed = await self._listings.is_listed(table)
        except ExternalError as error:
            if error.scope is not ErrorScope.TABLE:
                raise
            return f"and its namespace cannot be listed: {error.found}"
        return "and its namespace lists it" if is_listed else None


def _etag(reply: CatalogReply) -> str | None:
    """Return the etag to send back, without the suffix of a compressing Jetty, with which it never matches.

    The result is None for an etag that cannot be stored or sent safely; loads are only slower without one.
    """
    etag = reply.headers.get("ETag", "").strip().removesuffix("--gzip").replace('--gzip"', '"')
    return etag if re.fullmatch(r"[\x21-\x7e]{1,256}", etag) else None
