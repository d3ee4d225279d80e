"""A catalog behind Iceberg's REST API: Polaris, Lakekeeper, Nessie, Gravitino, Unity, Glue, Iceberg's test server."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from hashlib import sha256
from http import HTTPStatus
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from sfn.catalogs import CatalogFailure, CatalogRequestFailed, SkipNamespace, UnlistedNamespace
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
from sfn.domain.catalog_answer import Loaded, LoadResult, NoSuchTable, NotModified, StagedCreate, VendedCredential
from sfn.domain.events import EventHistory
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError

# ── listing: Listings

T = TypeVar("T")

MAX_PAGES_WITHOUT_NEW: Final = 1_000
"""Pages, one after the other, that bring nothing that was not listed before."""

_NO_NESTING: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_ACCEPTABLE})
"""How catalogs without nested namespaces refuse to look below one."""


@dataclass(frozen=True, slots=True)
class PagedQuery(Generic[T]):
    """A question whose answer comes in pages.

    Attributes:
        kind: what it lists.
        target: path and query without paging.
        parse: parses a page.
        is_empty_answer: whether a refusal says that nothing is there to be listed.
    """

    kind: str
    target: Callable[[CatalogPaths], tuple[str, str]]
    parse: Callable[[bytes | bytearray], ListingPage[T]]
    is_empty_answer: Callable[[CatalogReply], Awaitable[bool]]


class CatalogListings:
    """What one catalog lists.

    Args:
        asking: asks it.
        catalog: the name that the configuration gives it.
        page_size: entries a page; None leaves it to the catalog.
    """

    def __init__(self, requests: CatalogRequests, catalog: str, page_size: int | None) -> None:
        self._requests = requests
        self._catalog = catalog
        self._size = "" if page_size is None else f"pageSize={page_size}&"
        self._paging = {"tables": OptionalParameter(), "namespaces": OptionalParameter()}

    def tables(self, namespace: tuple[str, ...]) -> PagedQuery[tuple[tuple[str, ...], str]]:
        """The tables of a namespace; one that is missing lists nothing."""

        async def void(reply: CatalogReply) -> bool:
            return await self._is_gone(reply, namespace)

        return PagedQuery(
            "tables", lambda paths: (paths.tables(self._catalog, namespace), ""), responses.read_tables, void
        )

    def namespaces(self, parent: tuple[str, ...]) -> PagedQuery[tuple[str, ...]]:
        """The namespaces right below another, or the outermost; a parent that is missing has none."""

        async def void(reply: CatalogReply) -> bool:
            is_flat = reply.status in _NO_NESTING and iceberg_error_type(reply) is not None
            return bool(parent) and (is_flat or await self._is_gone(reply, parent))

        return PagedQuery(
            "namespaces", lambda paths: paths.namespaces(self._catalog, parent), responses.read_namespaces, void
        )

    async def items(self, listing: PagedQuery[T]) -> AsyncGenerator[T]:
        """Every entry of a listing, once.

        Raises:
            Transient, Permanent: it cannot be had, or not whole.
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
        """Return whether the namespace of a table lists it; raises as `items`."""
        async with aclosing(self.items(self.tables(table.namespace))) as tables:
            async for levels, name in tables:
                # Some catalogs list a nested namespace as one level with dots.
                if ".".join((*levels, name)) == table.dotted:
                    return True
        return False

    def walk(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        """As `sfn.catalogs.listing.walk_tables`, by these listings."""
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
        """One page. Where its first one is refused it is asked for once more as by a client that knows no pages.

        By the specification all entries come at once then; a catalog that gives a token all the same is followed.
        """

        def target(paths: CatalogPaths, *, paged: bool = True) -> str:
            path, query = listing.target(paths)
            # An empty token asks for the first page: without one a catalog may send everything at once.
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
                remedy="look into the catalog's own log: it lists what has no name",
            )
        )

    async def _is_gone(self, reply: CatalogReply, namespace: tuple[str, ...]) -> bool:
        """Return whether a reply says that there is no such namespace.

        Where the type of the error does not say so, the namespace that it lies in must not list it.
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


# ── catalog: The catalog port over Iceberg's REST API

_EXPECTED: Final = "the table, or a 404 in Iceberg's error shape"


class RestCatalog:
    """A catalog behind Iceberg's REST API.

    Scope of trouble: as in behaviour.md; where one reply cannot tell, one `GET /v1/config` decides. In `tables` scope
    table means that the walk has that trouble while the catalog answers other questions.

    Args:
        settings: where, as whom, how long.
        clock: for a Retry-After that names a date.
    """

    def __init__(self, settings: RestSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._requests = CatalogRequests(settings, clock or SystemClock())
        self._listings = CatalogListings(self._requests, settings.name, settings.page_size)
        self._refs_parameter = OptionalParameter()
        self._credentials = CredentialCache(self._requests, self._refs_parameter, self._is_gone)

    async def load(
        self, table: TableIdentifier, known_etag: str | None, history: EventHistory | None = None
    ) -> LoadResult:
        """As the port promises.

        Asks for the snapshots that a branch or tag names and no others, and once more for all where that answer lacks
        the metadata's location (Polaris issue 4656), or where the catalog refuses the question.

        A 404 of a type that is not Iceberg's for a missing table counts once the table's namespace does not list it.
        """
        return await self._requests.map_errors(self._load(table, known_etag))

    async def is_listed(self, table: TableIdentifier) -> bool:
        """As the port promises."""
        return await self._listings.is_listed(table)

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        """As the port promises."""
        async with aclosing(self._listings.walk(skip)) as found:
            async for one in found:
                yield one

    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        """As `NamespaceLister` promises."""
        async with aclosing(self._listings.items(self._listings.namespaces(parent))) as found:
            async for one in found:
                yield one

    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        """As `NamespaceLister` promises."""
        async with aclosing(self._listings.items(self._listings.tables(namespace))) as found:
            async for levels, name in found:
                yield TableIdentifier(self._settings.name, levels, name)

    async def vended_credentials(self, table: TableIdentifier) -> tuple[VendedCredential, ...] | NoSuchTable:
        """As `CredentialVendor` promises."""
        return await self._requests.map_errors(self._credentials.get(table), lambda: self._credentials.secrets(table))

    async def renew_credentials(
        self, table: TableIdentifier, rejected: Sequence[VendedCredential]
    ) -> tuple[VendedCredential, ...] | NoSuchTable:
        """As `CredentialVendor` promises."""
        secrets = secrets_in(rejected)
        return await self._requests.map_errors(
            self._credentials.renew(table, rejected), lambda: (*secrets, *self._credentials.secrets(table))
        )

    async def identity(self) -> str:
        """Whose tables these are, for `catalog_id` in our files (behaviour.md, "catalog_id").

        Raises:
            Transient, Permanent: scope catalog; its configuration cannot be had.
        """
        if self._settings.catalog_id is not None:
            return self._settings.catalog_id
        route = await self._requests.map_errors(self._requests.route())
        words = (responses.base_url(self._settings.uri), self._settings.warehouse or "", route.prefix)
        return sha256("\n".join(words).encode()).hexdigest()[:32]

    async def advertised_config(self) -> Mapping[str, str]:
        """As `ConfigAdvertiser` promises."""
        return (await self._requests.map_errors(self._requests.route())).settings

    async def advertised_encoding(self) -> str:
        """As `ConfigAdvertiser` promises."""
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
            # A grant that was revoked by mistake must not send every table to the dead letters.
            failure = replace(failure, permanent=False)
        raise CatalogRequestFailed(failure)

    async def _is_gone(self, reply: CatalogReply, table: TableIdentifier) -> bool:
        return await self._why_not_gone(reply, table) is None

    async def _why_not_gone(self, reply: CatalogReply, table: TableIdentifier) -> str | None:
        """Return why a table may be there though a reply does not have it; None where it is gone.

        Where the type of the error does not say so, the table's namespace must not list it.
        """
        if is_missing_table(reply):
            return None
        if not may_be_missing(reply):
            return ""
        try:
            is_listed = await self._listings.is_listed(table)
        except ExternalError as trouble:
            if trouble.scope is not ErrorScope.TABLE:
                raise
            return f"and its namespace cannot be listed: {trouble.found}"
        return "and its namespace lists it" if is_listed else None


def _etag(reply: CatalogReply) -> str | None:
    """The entity tag to send back: without the suffix of a compressing Jetty, with which it never matches.

    None also for what can't be stored or sent back safely: a load without a tag is only slower.
    """
    etag = reply.headers.get("ETag", "").strip().removesuffix("--gzip").replace('--gzip"', '"')
    return etag if re.fullmatch(r"[\x21-\x7e]{1,256}", etag) else None
