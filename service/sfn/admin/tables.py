"""Routes of the admin API about tables: lists of them, one table, and a check of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from difflib import get_close_matches
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import unquote

import msgspec
import structlog
from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException

from sfn.admin.replicas import merged_breakers
from sfn.admin.routes import SECURITY_EXTRA, SENDER, AdminContext
from sfn.admin.schemas import CircuitBreakerModel
from sfn.admin.table_schemas import (
    CatalogNowModel,
    CheckAccepted,
    ListedTableModel,
    TableListPage,
    TableModel,
    TableSearch,
    UnpublishedReason,
)
from sfn.admin.verdict import breaker_subject
from sfn.clock import format_duration
from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier, decode_identifier
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.model import DeadLetterFilter, DeadLetterStatus, Job, TableStatus, cause_of, waiting_since
from sfn.inbox.table_list import ALWAYS, MAX_PAGE, ListedTable, Position, TableOrder, TableQuery
from sfn.publish.policy import TableFilter
from sfn.sfnfile.naming import dotted_name

LEVEL_SEPARATOR: Final = "\x1f"
"""Separator of the levels of a namespace in a path, as in Iceberg's REST catalog specification."""
MAX_DEAD_LETTERS: Final = 20
"""Most dead letters in the status of a table."""
MAX_SUGGESTIONS: Final = 3
MAX_WILDCARDS: Final = 5
"""Most wildcards of a glob: the time to compare a name grows with each."""
_POSITION_BITS: Final = 64

_log = structlog.stdlib.get_logger(__name__)

_encode_position: Final = msgspec.json.Encoder().encode
_decode_position: Final = msgspec.json.Decoder(Position).decode


def table_in_path(catalog: str, namespace: str, table: str) -> TableIdentifier:
    """Return the table of the decoded segments of a path."""
    return TableIdentifier(catalog, tuple(level for level in namespace.split(LEVEL_SEPARATOR) if level), table)


class TableRoutes:
    """Routes about tables."""

    def __init__(self, context: AdminContext) -> None:
        self._context, self._inbox = context, context.inbox

    def register(self, router: APIRouter) -> None:
        """Add them."""
        unknown: dict[int | str, dict[str, Any]] = {404: {"description": "no such catalog, or table"}}
        for path, route, name in (
            ("/tables", self.tables, "tables"),
            ("/tables/{catalog}/{namespace}/{table}", self.table, "table"),
        ):
            router.add_api_route(path, route, operation_id=name, responses=unknown, openapi_extra=SECURITY_EXTRA)
        router.add_api_route(
            "/tables/{catalog}/{namespace}/{table}:check",
            self.check,
            methods=["POST"],
            operation_id="checkTable",
            status_code=HTTPStatus.ACCEPTED,
            responses=unknown,
            openapi_extra=SECURITY_EXTRA,
        )

    async def tables(self, search: Annotated[TableSearch, Query()]) -> TableListPage:
        """Return a page of the tables that the inbox knows.

        A page may have fewer tables than its limit, even none, because it ends after 5,000 rows: the list ends where
        `next` is null.
        """
        for name in search.catalog:
            self._context.configured_catalog(name)
        now = self._context.clock.now()
        query = TableQuery(
            tuple(dict.fromkeys(search.catalog)) or tuple(self._context.catalogs),
            TableOrder.LAG if search.late else search.sort,
            frozenset(search.state),
            now - self._context.late_after if search.late else ALWAYS,
            _fixed_levels(search.namespace, search.table),
            _name_filter(search.namespace, search.table),
        )
        page = await self._inbox.list_tables(query, _position(search.after), search.limit)
        breakers = merged_breakers(await self._context.replicas.reports())
        return TableListPage(
            tables=[self._listed(one, now, breakers) for one in page.tables],
            next=_encode_position(page.next).decode() if page.next is not None else None,
        )

    async def table(
        self,
        catalog: str,
        namespace: str,
        table: str,
        ask_catalog: Annotated[  # noqa: FBT002 - a parameter of the query
            bool, Query(description="also ask the catalog, for a few seconds at most")
        ] = False,
    ) -> TableModel:
        """Return the state of a table: the published file, the pending change, attempts and the next attempt.

        Separate the levels of the namespace by %1F; for a table without a namespace use `%1F` alone.
        """
        name = table_in_path(catalog, namespace, table)
        table_status = await self._status_of(name)
        is_covered = self._context.configured_catalog(catalog).interest.covers(name)
        retired = catalog in self._context.process.retired_catalogs.names
        unpublished = UnpublishedReason.for_table(name, table_status, is_retired=retired, is_covered=is_covered)
        letters = await self._inbox.list_newest(DeadLetterFilter(status=None, table=name), MAX_DEAD_LETTERS)
        open_letter = next((one for one in letters if one.status is DeadLetterStatus.OPEN), None)
        breakers = merged_breakers(await self._context.replicas.reports())
        model = TableModel.from_status(
            name,
            table_status,
            unpublished,
            letters,
            self._listed(ListedTable(table_status.job, open_letter), self._context.clock.now(), breakers),
            await self._inbox.outcome_history(name),
        )
        ask = self._context.process.catalog_now
        if not ask_catalog or ask is None:
            return model
        published = None if model.published is None else model.published.metadata_location
        return model.model_copy(update={"catalog_now": CatalogNowModel.from_answer(await ask(name), published)})

    async def check(self, catalog: str, namespace: str, table: str, request: Request) -> CheckAccepted:
        """Check a table now: ask the catalog, read the table's files whatever is cached, and publish the answer.

        The path is that of the table. A table that was given up is tried again.
        """
        name = table_in_path(catalog, namespace, table)
        await self._status_of(name)
        command = self._context.command(request, str(name))
        await self._inbox.check([Notification(name, sender=SENDER, force=True, retry=True)], command)
        _log.info("check requested", table=str(name), actor=command.actor)
        return CheckAccepted(table=name.dotted, requested_at=command.at)

    async def _status_of(self, table: TableIdentifier) -> TableStatus:
        """Return the status of a table.

        Raises:
            HTTPException: 404: no such catalog, or table.
        """
        configured = self._context.configured_catalog(table.catalog)
        found = await self._inbox.table_status(table)
        if found is not None:
            return found
        is_covered = configured.interest.covers(table)
        why = "no event has named it yet" if is_covered else "the catalog's include or exclude leaves it out"
        names = await self._similar_names(table)
        similar = [f"did you mean {' or '.join(names)}?"] if names else []
        raise HTTPException(HTTPStatus.NOT_FOUND, "; ".join([f"the inbox knows no table {table}: {why}", *similar]))

    def _listed(self, one: ListedTable, now: datetime, breakers: Collection[CircuitBreakerModel]) -> ListedTableModel:
        stores = {prefix: name for name, prefix in self._context.stores.items()}
        cause = wait_cause(one, breakers, stores, now)
        return ListedTableModel.from_listed(one, now, self._context.late_after, cause)

    async def _similar_names(self, table: TableIdentifier) -> list[str]:
        """Return names of known tables that resemble a name: of its namespace, or else of its catalog."""
        for namespace in dict.fromkeys((table.namespace, ())):
            query = TableQuery((table.catalog,), namespace=namespace)
            page = await self._inbox.list_tables(query, Position(), MAX_PAGE)
            names = [one.job.subject.dotted for one in page.tables if isinstance(one.job.subject, TableIdentifier)]
            if similar := get_close_matches(table.dotted, names, MAX_SUGGESTIONS):
                return similar
        return []


def wait_cause(
    one: ListedTable, breakers: Collection[CircuitBreakerModel], stores: Mapping[str, str], now: datetime
) -> str | None:
    """Return why a table waits, fails or was given up; None if all is well.

    Args:
        one: the table, with its open dead letter.
        breakers: the breakers that are not closed.
        stores: names of the configured stores by their prefix.
        now: the present.
    """
    job = one.job
    if one.letter is not None:
        return f"dead letter {one.letter.id} ({one.letter.reason}): {one.letter.cause}"
    if job.reason is not None:
        return f"given up ({job.reason}); the dead letter was discarded"
    if waiting_since(job) is None and job.attempt == 0:
        return None
    for breaker in sorted(breakers, key=lambda breaker: not _is_store_of(breaker, job)):
        is_its_own = breaker.name in {job.subject.catalog, ""} or _is_store_of(breaker, job)
        if is_its_own and breaker.failing:
            failing = format_duration(now - breaker.failing_since)
            # The error of a breaker is that of one table, and may name another one's file.
            cause = cause_of(DeadLetterReason.PERMANENT, breaker.error, breaker.error)
            return f"{breaker_subject(breaker, stores)} has failed for {failing}: {cause}"
    failed = job.last_result.why if job.last_result is not None and job.last_result.why is not None else ""
    if job.state == "leased" and job.claimed_at is not None:
        running = f"attempt {job.attempt} has run for {format_duration(now - job.claimed_at)}"
        return f"{running}; attempt {job.attempt - 1} failed: {failed}" if failed and job.attempt > 1 else running
    if failed:
        return failed
    return "waits for a free worker" if job.due_at <= now else f"waits {format_duration(job.due_at - now)} on purpose"


def _is_store_of(breaker: CircuitBreakerModel, job: Job) -> bool:
    """Return whether a breaker is that of the store in which a table lies."""
    live = job.table_state.live
    places = {*job.locations, *([live.location] if live is not None else [])}
    return "://" in breaker.name and any(place.startswith(breaker.name) for place in places)


def _fixed_levels(*globs: str | None) -> tuple[str, ...]:
    """Return the levels that all names have which match the globs: those before the first wildcard."""
    longest: tuple[str, ...] = ()
    for number, glob in enumerate(globs):
        levels = glob.split(".") if glob is not None else []
        fixed = next((at for at, level in enumerate(levels) if "*" in level), len(levels))
        # The last level of a table's glob is its name.
        found = tuple(levels[: min(fixed, len(levels) - number)])
        longest = max(longest, found, key=len)
    try:
        return decode_identifier(".".join(longest)) if longest else ()
    except ValueError as error:
        detail = f"table, namespace: expected levels and a name, joined by dots, such as sales.orders; found {error}"
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from None


def _name_filter(namespace: str | None, table: str | None) -> Callable[[TableIdentifier], bool] | None:
    """Return whether a name matches the globs; None if there are none."""
    globs = [*([f"{namespace}.**"] if namespace is not None else []), *([table] if table is not None else [])]
    filters = [TableFilter((_encoded_glob(glob),)) for glob in globs]
    return (lambda name: all(one.covers(name) for one in filters)) if filters else None


def _encoded_glob(glob: str) -> str:
    """Return a glob over encoded names, which may be typed with the characters of the names themselves.

    Raises:
        HTTPException: 422: too many wildcards.
    """
    parts = re.split(r"(\*+|\.)", glob)
    if sum(part.startswith("*") for part in parts) > MAX_WILDCARDS:
        detail = f"table, namespace: expected at most {MAX_WILDCARDS} wildcards, found more"
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    return "".join(part[:2] if number % 2 else dotted_name((), unquote(part)) for number, part in enumerate(parts))


def _position(after: str | None) -> Position:
    if after is None:
        return Position()
    try:
        position = _decode_position(after)
    except msgspec.DecodeError:
        position = None
    # Databases refuse longer integers, and PostgreSQL refuses a null character.
    if position is None or position.waiting_since.bit_length() >= _POSITION_BITS or "\0" in position.key:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "after: expected `next` of the page before")
    return position
