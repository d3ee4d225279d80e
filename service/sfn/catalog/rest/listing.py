"""Listings, page after page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from sfn.catalog import SkipNamespace, UnlistedNamespace
from sfn.catalog.refusal import CatalogFailure, CatalogRequestFailed
from sfn.catalog.rest import answers
from sfn.catalog.rest.answers import ListingPage
from sfn.catalog.rest.asking import CatalogRequests, OptionalParameter
from sfn.catalog.rest.paths import CatalogPaths
from sfn.catalog.rest.refusals import (
    NO_NAMESPACE,
    CatalogReply,
    failure_of_body,
    failure_of_status,
    iceberg_error_type,
    may_be_missing,
)
from sfn.catalog.walk import walk_tables
from sfn.domain.identifiers import TableIdentifier

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
            "tables", lambda paths: (paths.tables(self._catalog, namespace), ""), answers.read_tables, void
        )

    def namespaces(self, parent: tuple[str, ...]) -> PagedQuery[tuple[str, ...]]:
        """The namespaces right below another, or the outermost; a parent that is missing has none."""

        async def void(reply: CatalogReply) -> bool:
            is_flat = reply.status in _NO_NESTING and iceberg_error_type(reply) is not None
            return bool(parent) and (is_flat or await self._is_gone(reply, parent))

        return PagedQuery(
            "namespaces", lambda paths: paths.namespaces(self._catalog, parent), answers.read_namespaces, void
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
        """As `sfn.catalog.walk.walk_tables`, by these listings."""
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
