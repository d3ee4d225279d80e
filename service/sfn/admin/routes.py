"""Routes of the admin API: authentication, status, and commands about whole catalogs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

import structlog
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from sfn.admin.schemas import (
    MAX_BATCH,
    AdoptRequest,
    AffectedTables,
    DropLimitDetails,
    PassedStepModel,
    PullSourceModel,
    ReleasedTables,
    RetireRequest,
    SweepAccepted,
    SweepRequest,
)
from sfn.catalogs.activity import CatalogAnswers
from sfn.clock import Clock
from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import DeadLetterReason, IndexedTable
from sfn.errors import suggest_name
from sfn.http.recent_requests import RecentRequests
from sfn.inbox import DropLimitState, QueueStats
from sfn.inbox.inbox import Inbox
from sfn.inbox.model import AdminCommand, Job
from sfn.publish.policy import TableFilter
from sfn.worker.capacity import CircuitBreakerState
from sfn.worker.catalog_now import CatalogNow
from sfn.worker.lag import LagHistory
from sfn.worker.sweep import SweepReport
from sfn.worker.table_files import TableFilesNow

if TYPE_CHECKING:
    from sfn.admin.replicas import Replicas

Authenticate: TypeAlias = Callable[[bytes | None, str | None], str | None]
"""Return the name of the admin token in an `Authorization` header, sent from a client address; None if there is none.

Every wrong header takes the same time, and is logged."""


class EncodedPathRoute(APIRoute):
    """A route with a path in which percent-encoded characters separate nothing: a table's name may contain a slash."""

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        # ASGI's `path` is decoded, so Starlette would split it at the slashes of names.
        raw: bytes = scope["raw_path"]
        match, child = super().matches({**scope, "path": raw.decode("ascii")})
        if match is not Match.NONE:
            child["path_params"] = {name: unquote(value) for name, value in child["path_params"].items()}
        return match, child


def operator_route(authenticate: Authenticate) -> type[EncodedPathRoute]:
    """Return the class of a route that requires the admin token; `request.state.token` has the name of the token.

    Args:
        authenticate: identifies operators.
    """

    class OperatorRoute(EncodedPathRoute):
        @override
        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            # Not a FastAPI dependency: FastAPI reads the body, and rejects a malformed one, before dependencies.
            request = Request(scope)
            headers = request.headers.getlist("authorization")
            client = request.client.host if request.client is not None else None
            # Two headers do not identify anybody (RFC 9110, section 5.3).
            # ASGI's headers are bytes, Starlette reads them as Latin-1.
            token = authenticate(headers[0].encode("latin-1") if len(headers) == 1 else None, client)
            if token is None:
                challenge = {"WWW-Authenticate": "Bearer"}
                raise HTTPException(HTTPStatus.UNAUTHORIZED, "a valid bearer token is needed", challenge)
            request.state.token = token
            await super().handle(scope, receive, send)

    return OperatorRoute


MAX_ACTOR: Final = 200
"""Most characters of a `From` header that the audit log stores."""

SECURITY_EXTRA: Final[dict[str, Any]] = {"security": [{"operator": []}]}
"""Security requirement in the OpenAPI description of each route."""


@dataclass(frozen=True, slots=True)
class ConfiguredCatalog:
    """A configured catalog.

    Attributes:
        type: type of the catalog.
        is_sweepable: True if its tables can be listed.
        is_swept: True if it is swept at intervals.
        interest: filter of the tables that get files.
    """

    type: str
    is_sweepable: bool = True
    is_swept: bool = False
    interest: TableFilter = TableFilter()


@dataclass(slots=True)
class RetiredCatalogs:
    """Cached names of the retired catalogs, read at the start and after each change."""

    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """State of this process.

    Attributes:
        version: version of the service.
        started_at: start of the process.
        not_ready_reasons: returns the reasons why the process is not ready.
        catalog_ids: returns the `catalog_id` of each catalog that was reached.
        catalog_answers: returns what is known of the answers of each catalog that is asked over a network.
        catalog_now: returns what the catalog of a table answers now, within a few seconds; None if this process cannot
            ask.
        table_files: returns the files of a table as they are now, within a few seconds; None if this process cannot
            read them.
        lag: how late the publishes of this process were.
        recent: the last requests with events to this process.
        breakers: returns the breakers that are not closed.
        sweep_reports: returns the report of the running sweep, or the last one, by catalog.
        retired_catalogs: the retired catalogs.
        roles: roles of this process; empty for all roles.
        pull_sources: returns the state of the pull sources of this process.
    """

    version: str
    started_at: datetime
    not_ready_reasons: Callable[[], Sequence[str]]
    catalog_ids: Callable[[], Mapping[str, str]]
    catalog_answers: Callable[[], Mapping[str, CatalogAnswers]]
    breakers: Callable[[], Sequence[CircuitBreakerState]]
    sweep_reports: Callable[[], Mapping[str, SweepReport]]
    retired_catalogs: RetiredCatalogs = field(default_factory=RetiredCatalogs)
    catalog_now: Callable[[TableIdentifier], Awaitable[CatalogNow]] | None = None
    table_files: Callable[[TableIdentifier, Job], Awaitable[TableFilesNow]] | None = None
    lag: LagHistory = field(default_factory=LagHistory)
    recent: RecentRequests = field(default_factory=RecentRequests)
    roles: frozenset[str] = frozenset()
    pull_sources: Callable[[], Sequence[PullSourceModel]] = tuple


@dataclass(frozen=True, slots=True)
class AdminContext:
    """The inbox, the catalogs and the state of the process, for all routes.

    Attributes:
        inbox: the inbox.
        replicas: the state of this process, and what others see that share its inbox.
        catalogs: the configured catalogs, by name.
        decode: decodes an undecodable request again; raises `Rejected`, also if its sender is not configured any more.
        clock: the wall clock.
        late_after: how long a table may wait for its publish before it counts as late.
        cached_stats: returns the statistics of the inbox, a few seconds old; None to count them each time.
        cached_live: returns the number of tables with a live file, by catalog, a few seconds old; None to count each
            time.
        stores: prefix of each configured store, by name.
        gateways: the catalogs behind each configured gateway, by its name.
    """

    inbox: Inbox
    replicas: Replicas
    catalogs: Mapping[str, ConfiguredCatalog]
    decode: Callable[[UndecodableRequest], Sequence[Notification]]
    clock: Clock
    late_after: timedelta = timedelta(seconds=60)
    cached_stats: Callable[[], Awaitable[QueueStats]] | None = None
    cached_live: Callable[[], Awaitable[Mapping[str, int]]] | None = None
    stores: Mapping[str, str] = field(default_factory=dict)
    gateways: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def process(self) -> ProcessInfo:
        """The state of this process."""
        return self.replicas.process

    async def stats(self) -> QueueStats:
        """Return the statistics of the inbox."""
        return await (self.cached_stats or self.inbox.stats)()

    async def drop_limit_state(self, catalog: str) -> DropLimitState:
        """Return the state of a catalog's drop limit; the number of its live tables may be a few seconds old."""
        live = await (self.cached_live or self.inbox.live_counts)()
        return await self.inbox.drop_limit_state(catalog, live.get(catalog, 0))

    def command(self, request: Request, target: str) -> AdminCommand:
        """Return the audit entry of a request; the actor is the name in its `From` header and the name of its token.

        `From` names the person behind a request (RFC 9110, section 10.1.2). It is trusted as much as the token.
        """
        token: str = request.state.token
        client_name = request.headers.get("from", "")
        printable = "".join(character for character in client_name[:MAX_ACTOR] if character.isprintable())
        return AdminCommand(f"{printable} ({token})" if printable else token, target, self.clock.now())

    def configured_catalog(self, catalog: str) -> ConfiguredCatalog:
        """Return a configured catalog.

        Raises:
            HTTPException: 404: no catalog of that name is configured.
        """
        found = self.catalogs.get(catalog)
        if found is None:
            detail = f"no catalog of that name is configured; {suggest_name(catalog, tuple(self.catalogs))}"
            raise HTTPException(HTTPStatus.NOT_FOUND, detail)
        return found

    def parse_table(self, identifier: str, catalog: str | None) -> TableIdentifier:
        """Return the table of a dotted identifier with percent-encoded parts.

        Raises:
            HTTPException: 422: the identifier is invalid, or there are several catalogs and none is given.
        """
        *namespace, name = (unquote(part, errors="replace") for part in identifier.split("."))
        if not all((*namespace, name)):
            detail = "table: expected levels and a name, joined by dots; write a dot in a part as %2E, and % as %25"
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        if catalog is None and len(self.catalogs) != 1:
            detail = "catalog: several catalogs are configured; name one"
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        return TableIdentifier(catalog or next(iter(self.catalogs)), tuple(namespace), name)

    def sweepable_catalogs(self, catalogs: Collection[str]) -> list[str]:
        """Return these catalogs without repetitions; for an empty collection, all catalogs that can be swept.

        Raises:
            HTTPException: 404: a catalog is not configured; 422: a catalog cannot be swept.
        """
        for name in catalogs:
            if not self.configured_catalog(name).is_sweepable:
                detail = f"{name}: an event-only catalog cannot be queried, and therefore not swept"
                raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        return list(dict.fromkeys(catalogs)) or [name for name, one in self.catalogs.items() if one.is_sweepable]


_RELEASE: Final = ":release"
SENDER: Final = "operator"
"""Sender of the notifications that commands put."""
BATCH_SIZE: Final = 500
"""Notifications per transaction, because puts wait meanwhile."""

_log = structlog.stdlib.get_logger(__name__)


class CatalogRoutes:
    """Routes for commands about whole catalogs."""

    def __init__(self, context: AdminContext) -> None:
        self._context, self._inbox = context, context.inbox

    def register(self, router: APIRouter) -> None:
        """Add them."""
        unknown: dict[int | str, dict[str, Any]] = {404: {"description": "no such catalog, or table"}}
        conflicting = {**unknown, 409: {"description": "the files are known to carry another catalog_id"}}
        router.add_api_route(
            "/drop-limits/{catalog}",
            self.drop_limit,
            operation_id="dropLimit",
            responses=unknown,
            openapi_extra=SECURITY_EXTRA,
        )
        for path, route, name, status in (
            ("/reconcile", self.reconcile, "reconcile", HTTPStatus.ACCEPTED),
            (f"/drop-limits/{{catalog}}{_RELEASE}", self.release, "releaseDropLimit", HTTPStatus.OK),
            ("/catalogs/{catalog}:adopt", self.adopt, "adopt", HTTPStatus.OK),
            ("/catalogs/{catalog}:retire", self.retire, "retire", HTTPStatus.OK),
        ):
            router.add_api_route(
                path,
                route,
                methods=["POST"],
                operation_id=name,
                status_code=status,
                responses=conflicting if route == self.adopt else unknown,
                openapi_extra=SECURITY_EXTRA,
            )

    async def reconcile(self, request: Request, body: SweepRequest | None = None) -> SweepAccepted:
        """Sweep catalogs now, and compare the SFN file of each table; `/status` shows the progress."""
        catalogs = self._context.sweepable_catalogs(body.catalogs if body is not None else ())
        command = self._context.command(request, ", ".join(catalogs))
        # `force`: an operator's sweep also finds files that somebody changed or deleted.
        notifications = [Notification(CatalogName(name), sender=SENDER, force=True) for name in catalogs]
        await self._inbox.reconcile(notifications, command)
        _log.info("sweeps requested", catalogs=catalogs, actor=command.actor)
        starts_at = {name: at for name in catalogs if (at := await self._starts_at(name)) is not None}
        return SweepAccepted(catalogs=catalogs, requested_at=command.at, starts_at=starts_at)

    async def drop_limit(self, catalog: str) -> DropLimitDetails:
        """Return what the drop limit of a catalog let pass within the last hour, and how many tables it holds."""
        if catalog.endswith(_RELEASE):
            # This path, too, is one of `/drop-limits/{catalog}`.
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, "a drop limit is released with POST", {"Allow": "POST"})
        self._context.configured_catalog(catalog)
        passed = await self._inbox.passed_steps(catalog)
        stats = await self._context.stats()
        state = await self._context.drop_limit_state(catalog)
        steps = [
            PassedStepModel(table=str(one.table), at=one.at, kind="drop" if one.is_drop else "rollback")
            for one in passed[:MAX_BATCH]
        ]
        return DropLimitDetails(
            passed=steps,
            passed_total=len(passed),
            held=stats.tables.get((catalog, "held"), 0),
            held_since=stats.letters_since.get((catalog, DeadLetterReason.HELD_DROP)),
            limit=state.limit,
        )

    async def release(self, catalog: str, request: Request) -> ReleasedTables:
        """Release the held tables of a catalog: each of them may take its step once."""
        self._context.configured_catalog(catalog)
        command = self._context.command(request, catalog)
        released = await self._inbox.release(catalog, command)
        _log.info("drop limit released", catalog=catalog, tables=released, actor=command.actor)
        return ReleasedTables(released=released)

    async def adopt(self, catalog: str, body: AdoptRequest, request: Request) -> AffectedTables:
        """Let tables adopt files with another `catalog_id` that belong to the same identifiers.

        Without names, this affects all tables of the catalog with files that carry the given id, or an unknown one. An
        unknown table is rejected with 404. An id that no file carries, while files carry another one, is rejected with
        409. Then no table is queued. `force` queues all of the tables.
        """
        self._context.configured_catalog(catalog)
        recorded_owner_id = await self._inbox.owner_id(catalog)
        if not body.force:
            await self._check_catalog_id(catalog, body, recorded_owner_id)
        count = 0
        async for page in self._adoption_pages(catalog, body.tables):
            fits = body.force or body.tables is not None
            tables = [
                known.table
                for known in page
                if fits or _catalog_id_in_file(known, recorded_owner_id) in {None, body.from_}
            ]
            if not tables:
                continue
            notifications = [
                Notification(table, sender=SENDER, force=True, adopt_catalog_id=body.from_) for table in tables
            ]
            about = f"{catalog} from {body.from_}: {', '.join(table.dotted for table in tables[:10])}"
            await self._inbox.adopt(notifications, self._context.command(request, about))
            count += len(notifications)
        _log.info("files adopted", catalog=catalog, catalog_id=body.from_, tables=count)
        return AffectedTables(tables=count)

    async def retire(self, catalog: str, request: Request, body: RetireRequest | None = None) -> AffectedTables:
        """Remove all files of a catalog and write none, until that is undone.

        The catalog is still queried, as for every publish: it must answer until all files are removed.
        """
        self._context.configured_catalog(catalog)
        undo = body is not None and body.undo
        command = self._context.command(request, catalog)
        await self._inbox.retire(catalog, retired=not undo, command=command)
        self._context.process.retired_catalogs.names = await self._inbox.retired_catalogs()
        _log.warning("catalog unretired" if undo else "catalog retired", catalog=catalog, actor=command.actor)
        count = 0
        async for page in self._pages(catalog):
            await self._inbox.put([Notification(known.table, sender=SENDER, force=True) for known in page])
            count += len(page)
        if undo and self._context.configured_catalog(catalog).is_sweepable:
            await self._inbox.put([Notification(CatalogName(catalog), sender=SENDER)])
        return AffectedTables(tables=count)

    async def _starts_at(self, catalog: str) -> datetime | None:
        """Return the earliest start of a requested sweep: there is a pause between two sweeps of a catalog."""
        status = await self._inbox.table_status(CatalogName(catalog))
        return status.job.due_at if status is not None and status.job.state == "queued" else None

    async def _check_catalog_id(self, catalog: str, body: AdoptRequest, recorded_owner_id: str | None) -> None:
        """Reject a `catalog_id` that no file carries if other ids are known that could be adopted.

        Raises:
            HTTPException: 409.
        """
        own_catalog_id = self._context.process.catalog_ids().get(catalog)
        others: set[str] = set()
        fits = False
        async for page in self._adoption_pages(catalog, body.tables):
            for known in page:
                found = _catalog_id_in_file(known, recorded_owner_id)
                fits = fits or found == body.from_
                if found not in {None, own_catalog_id, body.from_}:
                    others.add(found or "")
        if others and (body.tables is not None or not fits):
            detail = f"expected {' or '.join(sorted(others)[:3])} (the catalog_id in its files), found {body.from_}"
            raise HTTPException(HTTPStatus.CONFLICT, detail)

    async def _adoption_pages(self, catalog: str, named: Sequence[str] | None) -> AsyncIterator[list[IndexedTable]]:
        if named is None:
            async for known in self._pages(catalog):
                yield known
            return
        tables = [self._context.parse_table(identifier, catalog) for identifier in dict.fromkeys(named)]
        page = []
        for table in tables:
            status = await self._inbox.table_status(table)
            if status is None:
                detail = f"the inbox knows no table {table}: no event has named it yet; no table was queued"
                raise HTTPException(HTTPStatus.NOT_FOUND, detail)
            page.append(
                IndexedTable(
                    table,
                    status.job.table_state.live,
                    None,
                    foreign_catalog_id=status.job.table_state.foreign_catalog_id,
                )
            )
        yield page

    async def _pages(self, catalog: str) -> AsyncIterator[list[IndexedTable]]:
        page: list[IndexedTable] = []
        async for known in self._inbox.tables(catalog):
            page.append(known)
            if len(page) == BATCH_SIZE:
                yield page
                page = []
        if page:
            yield page


def _catalog_id_in_file(known: IndexedTable, recorded_owner_id: str | None) -> str | None:
    """Return the `catalog_id` in the file in a table's place; None if unknown.

    Args:
        known: the table.
        recorded_owner_id: the `catalog_id` of live files for which none is recorded.
    """
    return known.catalog_id_in_file or (recorded_owner_id if known.live is not None else None)
