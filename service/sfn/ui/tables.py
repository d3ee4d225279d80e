"""The list of tables: filters, pages, and a search for one name, which leads to its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException

from sfn.admin.routes import AdminContext
from sfn.admin.table_schemas import ListedTableModel, TableSearch
from sfn.admin.tables import TableRoutes
from sfn.domain.identifiers import TableIdentifier, decode_identifier
from sfn.inbox.table_list import SCAN_SIZE
from sfn.ui.queries import number_in, parse_fields
from sfn.ui.rendering import PREFIX, Renderer, table_path

LIST_PATH: Final = f"{PREFIX}/tables"
PAGE_SIZE: Final = 100
MAX_ROUNDS: Final = 4
"""Most pages of the inbox for one page of the list: a rare table may be behind many others."""
MAX_EXACT: Final = 20
"""Most catalogs in which a name is looked up directly."""
STATES: Final = ("due", "scheduled", "retrying", "leased", "dead", "held")
VIEWS: Final[Sequence[tuple[str, Mapping[str, str]]]] = (
    ("All", {}),
    ("Late", {"late": "true"}),
    ("Retrying", {"state": "retrying"}),
    ("Given up", {"state": "dead"}),
    ("Held", {"state": "held"}),
)
"""Searches that operators need most, with their query."""
_FILTERS: Final = ("catalog", "namespace", "table", "state", "late", "sort")


@dataclass(frozen=True, slots=True)
class FoundTables:
    """A page of the list.

    Attributes:
        tables: the tables.
        next: where the next page begins; None at the end.
        searched: about how many tables were searched so far; 0 if each page of the inbox was full.
    """

    tables: Sequence[ListedTableModel] = ()
    next: str | None = None
    searched: int = 0


class TableListRoutes:
    """The list of tables."""

    def __init__(self, context: AdminContext, renderer: Renderer) -> None:
        self._context, self._renderer = context, renderer
        self._tables = TableRoutes(context)

    def register(self, router: APIRouter) -> None:
        """Add the routes to a router."""
        router.add_api_route(LIST_PATH, self.tables)

    async def tables(self, request: Request) -> Response:
        """The tables that fit the filters; the page of a table for the name of one."""
        query = request.query_params
        found, problem, status = FoundTables(), "", HTTPStatus.OK
        try:
            search = self._search(query)
            if (exact := await self._exact(search)) is not None:
                return RedirectResponse(exact, HTTPStatus.SEE_OTHER)
            found = await self._find(search, number_in(query, "searched"))
        except HTTPException as error:
            problem, status = str(error.detail), HTTPStatus(error.status_code)
        values = {
            "found": found,
            "problem": problem,
            "filters": {name: query.get(name, "") for name in _FILTERS},
            "views": [(name, f"{LIST_PATH}?{urlencode(view)}", _is_view(query, view)) for name, view in VIEWS],
            "catalogs": list(self._context.catalogs),
            "states": STATES,
            "this": _address(query),
            "following": _address(query, after=found.next or "", searched=str(found.searched or "")),
            "first": _address(query, after="", searched=""),
            "is_filtered": any(query.get(name) for name in _FILTERS if name != "sort"),
            "is_first": not query.get("after"),
            "paused": "paused" in query,
            "pause": _address(query, paused="true"),
            "resume": _address(query, paused=""),
        }
        return self._renderer.page(request, "tables.html", values, status)

    def _search(self, query: QueryParams) -> TableSearch:
        """Return the search of a query; an empty field is no filter.

        Raises:
            HTTPException: 422: a field is not valid.
        """
        fields: dict[str, object] = {name: query[name] for name in _FILTERS if query.get(name)}
        fields |= {name: [one for one in query.getlist(name) if one] for name in ("catalog", "state")}
        fields |= {"after": query.get("after") or None, "limit": PAGE_SIZE}
        catalog, separator, table = query.get("table", "").partition(":")
        if separator and table and catalog in self._context.catalogs:
            # As logs and the command line write a table.
            fields |= {"catalog": [catalog], "table": table}
        return parse_fields(TableSearch, fields)

    async def _exact(self, search: TableSearch) -> str | None:
        """Return the address of the page of a table for its complete name; None for other searches."""
        typed = search.table
        if typed is None or "*" in typed or search.after is not None or search.state or search.late:
            return None
        catalogs = tuple(search.catalog) or tuple(self._context.catalogs)
        names = [typed]
        if search.namespace is not None and "*" not in search.namespace:
            names.append(f"{search.namespace}.{typed}")
        return await self._only_known(catalogs[:MAX_EXACT], names)

    async def _only_known(self, catalogs: Sequence[str], names: Sequence[str]) -> str | None:
        """Return the address of the only table that the inbox knows of these."""
        known = []
        for name in names:
            try:
                *namespace, last = decode_identifier(name)
            except ValueError:
                continue
            candidates = [TableIdentifier(one, tuple(namespace), last) for one in catalogs]
            known += [one for one in candidates if await self._context.inbox.table_status(one) is not None]
        return table_path(known[0].catalog, known[0].namespace, known[0].name) if len(known) == 1 else None

    async def _find(self, search: TableSearch, searched: int) -> FoundTables:
        """Return the tables of a page: of several pages of the inbox if one has too few.

        Args:
            search: the search.
            searched: about how many tables the pages before have searched.
        """
        if search.table is not None and "." not in search.table and not search.table.startswith("**"):
            # A name alone: in every namespace.
            search = search.model_copy(update={"table": f"**.{search.table}"})
        tables: list[ListedTableModel] = []
        for _ in range(MAX_ROUNDS):
            page = await self._tables.tables(search)
            tables += page.tables
            if page.next is None or len(tables) >= PAGE_SIZE:
                return FoundTables(tables, page.next, searched)
            searched += SCAN_SIZE
            search = search.model_copy(update={"after": page.next, "limit": PAGE_SIZE - len(tables)})
        return FoundTables(tables, search.after, searched)


def _address(query: QueryParams, **changed: str) -> str:
    """Return the address of the list with other fields; an empty one is left out."""
    names = dict.fromkeys((*_FILTERS, "after", "searched", "paused"))
    unchanged = [(name, one) for name in names if name not in changed for one in query.getlist(name) if one]
    fields = [*unchanged, *((name, one) for name, one in changed.items() if one)]
    return f"{LIST_PATH}?{urlencode(fields)}" if fields else LIST_PATH


def _is_view(query: QueryParams, view: Mapping[str, str]) -> bool:
    """Return whether a query has exactly the filters of a view."""
    return {name: query[name] for name in _FILTERS if name != "sort" and query.get(name)} == view
