"""Listings, page after page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from sfn.catalog import Skip, Withheld
from sfn.catalog.refusal import Refusal, Refused
from sfn.catalog.rest import answers
from sfn.catalog.rest.answers import Page
from sfn.catalog.rest.asking import Asking, Optional
from sfn.catalog.rest.paths import Paths
from sfn.catalog.rest.refusals import NO_NAMESPACE, Reply, complaint, garbled, is_absence, of_status
from sfn.catalog.walk import walk
from sfn.words import TableName

T = TypeVar("T")

FRUITLESS: Final = 1_000
"""Pages, one after the other, that bring nothing that was not listed before."""

_NO_NESTING: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_ACCEPTABLE})
"""How catalogs without nested namespaces refuse to look below one."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A question whose answer comes in pages.

    Attributes:
        kind: what it lists.
        target: path and query without paging.
        read: parses a page.
        void: whether a refusal says that nothing is there to be listed.
    """

    kind: str
    target: Callable[[Paths], tuple[str, str]]
    read: Callable[[bytes | bytearray], Page[T]]
    void: Callable[[Reply], Awaitable[bool]]


class Listings:
    """What one catalog lists.

    Args:
        asking: asks it.
        catalog: the name that the configuration gives it.
        page_size: entries a page; None leaves it to the catalog.
    """

    def __init__(self, asking: Asking, catalog: str, page_size: int | None) -> None:
        self._asking = asking
        self._catalog = catalog
        self._size = "" if page_size is None else f"pageSize={page_size}&"
        self._paging = {"tables": Optional(), "namespaces": Optional()}

    def tables(self, namespace: tuple[str, ...]) -> Listing[tuple[tuple[str, ...], str]]:
        """The tables of a namespace; one that is missing lists nothing."""

        async def void(reply: Reply) -> bool:
            return await self._is_gone(reply, namespace)

        return Listing("tables", lambda paths: (paths.tables(self._catalog, namespace), ""), answers.read_tables, void)

    def namespaces(self, parent: tuple[str, ...]) -> Listing[tuple[str, ...]]:
        """The namespaces right below another, or the outermost; a parent that is missing has none."""

        async def void(reply: Reply) -> bool:
            is_flat = reply.status in _NO_NESTING and complaint(reply) is not None
            return bool(parent) and (is_flat or await self._is_gone(reply, parent))

        return Listing(
            "namespaces", lambda paths: paths.namespaces(self._catalog, parent), answers.read_namespaces, void
        )

    async def items(self, listing: Listing[T]) -> AsyncGenerator[T]:
        """Every entry of a listing, once.

        Raises:
            Transient, Permanent: it cannot be had, or not whole.
        """
        token, tokens, found = "", set[str](), set[T]()
        odd = fruitless = 0
        while True:
            page = await self._asking.told(self._page(listing, token, tokens, fruitless))
            odd += page.odd
            before = len(found)
            for item in page.items:
                if item not in found:
                    found.add(item)
                    yield item
            if page.next is None:
                break
            fruitless = 0 if len(found) > before else fruitless + 1
            token = page.next
            tokens.add(token)
        if odd:
            await self._asking.told(self._incomplete(listing, odd))

    async def lists(self, table: TableName) -> bool:
        """Return whether the namespace of a table lists it; raises as `items`."""
        async with aclosing(self.items(self.tables(table.namespace))) as tables:
            async for levels, name in tables:
                # Some catalogs list a nested namespace as one level with dots.
                if ".".join((*levels, name)) == table.identifier:
                    return True
        return False

    def walk(self, skip: Skip | None = None) -> AsyncGenerator[TableName | Withheld]:
        """As `sfn.catalog.walk.walk`, by these listings."""
        return walk(
            self._catalog,
            lambda namespace: self.items(self.tables(namespace)),
            lambda parent: self.items(self.namespaces(parent)),
            skip,
        )

    async def _page(self, listing: Listing[T], token: str, tokens: set[str], fruitless: int) -> Page[T]:
        expected = "a page of a listing"
        reply = await self._asked(listing, token)
        if await listing.void(reply):
            return Page((), None)
        if reply.status != HTTPStatus.OK:
            raise Refused(of_status(reply, expected=expected))
        page = await self._asking.parsed(reply, listing.read, expected)
        if page.next in tokens:
            raise Refused(garbled(reply, expected=expected, found="the next-page-token of an earlier page"))
        if page.next is not None and fruitless >= FRUITLESS:
            raise Refused(garbled(reply, expected=expected, found=f"{FRUITLESS} pages without a new entry, and no end"))
        return page

    async def _asked(self, listing: Listing[T], token: str) -> Reply:
        """One page. Where its first one is refused it is asked for once more as by a client that knows no pages.

        By the specification all entries come at once then; a catalog that gives a token all the same is followed.
        """

        def target(paths: Paths, *, paged: bool = True) -> str:
            path, query = listing.target(paths)
            # An empty token asks for the first page: without one a catalog may send everything at once.
            query = f"{query}{self._size}pageToken={quote(token, safe='')}" if paged else query.removesuffix("&")
            return f"{path}?{query}" if query else path

        if token:
            return await self._asking.get(target)
        return await self._paging[listing.kind].asked(
            lambda: self._asking.get(target), lambda: self._asking.get(lambda paths: target(paths, paged=False))
        )

    async def _incomplete(self, listing: Listing[T], odd: int) -> None:
        where, _ = listing.target((await self._asking.route()).paths)
        raise Refused(
            Refusal(
                f"catalog {self._catalog}: GET {where}",
                expected=f"a listing of {listing.kind}",
                found=f"{odd} of its entries of another shape; the others were taken",
                remedy="look into the catalog's own log: it lists what has no name",
            )
        )

    async def _is_gone(self, reply: Reply, namespace: tuple[str, ...]) -> bool:
        """Return whether a reply says that there is no such namespace.

        Where the type of the error does not say so, the namespace that it lies in must not list it.
        """
        if not is_absence(reply):
            return False
        if complaint(reply) == NO_NAMESPACE and reply.status == HTTPStatus.NOT_FOUND:
            return True
        above = self.namespaces(namespace[:-1])
        async with aclosing(self.items(above)) as found:
            async for one in found:
                if one == namespace or ".".join(one) == ".".join(namespace):
                    return False
        return True
