"""Listings, page after page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from sfn.catalog import Skip, Withheld
from sfn.catalog.refusal import Refused
from sfn.catalog.rest import answers
from sfn.catalog.rest.answers import Page
from sfn.catalog.rest.asking import Asking
from sfn.catalog.rest.paths import Paths
from sfn.catalog.rest.refusals import NO_NAMESPACE, Reply, complaint, garbled, of_status
from sfn.catalog.walk import walk
from sfn.words import TableName

T = TypeVar("T")

_NO_NESTING: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_ACCEPTABLE})
"""How catalogs without nested namespaces refuse to look below one."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A question whose answer comes in pages.

    Attributes:
        target: path and query without paging.
        read: parses a page.
        void: whether a refusal says that nothing is there to be listed.
    """

    target: Callable[[Paths], tuple[str, str]]
    read: Callable[[bytes | bytearray], Page[T]]
    void: Callable[[Reply], bool]


def _gone(reply: Reply) -> bool:
    return reply.status == HTTPStatus.NOT_FOUND and complaint(reply) == NO_NAMESPACE


def _childless(reply: Reply) -> bool:
    return _gone(reply) or (reply.status in _NO_NESTING and complaint(reply) is not None)


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

    def tables(self, namespace: tuple[str, ...]) -> Listing[tuple[tuple[str, ...], str]]:
        """The tables of a namespace; one that is missing lists nothing."""
        return Listing(lambda paths: (paths.tables(self._catalog, namespace), ""), answers.read_tables, _gone)

    def namespaces(self, parent: tuple[str, ...]) -> Listing[tuple[str, ...]]:
        """The namespaces right below another, or the outermost; a parent that is missing has none."""
        void = _childless if parent else lambda _: False
        return Listing(lambda paths: paths.namespaces(self._catalog, parent), answers.read_namespaces, void)

    async def items(self, listing: Listing[T]) -> AsyncGenerator[T]:
        """Every entry of a listing.

        Raises:
            Transient, Permanent: it cannot be had, or not whole.
        """
        token, seen = "", set[str]()
        while True:
            page = await self._asking.told(self._page(listing, token, seen))
            for item in page.items:
                yield item
            if page.next is None:
                return
            token = page.next
            seen.add(token)

    def walk(self, skip: Skip | None = None) -> AsyncGenerator[TableName | Withheld]:
        """As `sfn.catalog.walk.walk`, by these listings."""
        return walk(
            self._catalog,
            lambda namespace: self.items(self.tables(namespace)),
            lambda parent: self.items(self.namespaces(parent)),
            skip,
        )

    async def _page(self, listing: Listing[T], token: str, seen: set[str]) -> Page[T]:
        def target(paths: Paths) -> str:
            path, query = listing.target(paths)
            # An empty token asks for the first page: without one a catalog may send everything at once.
            return f"{path}?{query}{self._size}pageToken={quote(token, safe='')}"

        expected = "a page of a listing"
        reply = await self._asking.get(target)
        if listing.void(reply):
            return Page((), None)
        if reply.status != HTTPStatus.OK:
            raise Refused(of_status(reply, expected=expected))
        page = await self._asking.parsed(reply, listing.read, expected)
        if page.next in seen:
            raise Refused(garbled(reply, expected=expected, found="the next-page-token of an earlier page"))
        return page
