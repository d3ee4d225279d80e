"""What operators reach, and who they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from fastapi import Request
from starlette.exceptions import HTTPException

from sfn.clock import Clock
from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import suggest_name
from sfn.inbox import AdminQueries, CatalogAdmin, DeadLetters, DropLimit, InboxWriter, TableIndex
from sfn.inbox.model import AdminCommand
from sfn.publish.policy import TableFilter
from sfn.worker.capacity import CircuitBreakerState
from sfn.worker.sweep import SweepReport

MAX_ACTOR: Final = 200
"""Most characters of a `From` header that the audit log repeats."""

SECURITY_EXTRA: Final[dict[str, Any]] = {"security": [{"operator": []}]}
"""What the description of each route says of it."""


@dataclass(frozen=True, slots=True)
class AdminInbox:
    """The inbox's faces to operators."""

    queries: AdminQueries
    dead_letters: DeadLetters
    catalog_admin: CatalogAdmin
    drop_limit: DropLimit
    table_index: TableIndex
    writer: InboxWriter


@dataclass(frozen=True, slots=True)
class ConfiguredCatalog:
    """A configured catalog.

    Attributes:
        type: how it is spoken to.
        is_sweepable: whether its tables can be listed.
        interest: which of its tables get files.
    """

    type: str
    is_sweepable: bool = True
    interest: TableFilter = TableFilter()


@dataclass(slots=True)
class RetiredCatalogs:
    """Which catalogs' tables get no files any more: read once, and after each change, so that all can ask."""

    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """What this process alone knows.

    Attributes:
        version: of the service.
        started_at: when it started.
        not_ready_reasons: why it is not ready.
        catalog_ids: the `catalog_id` of each catalog that was reached.
        breakers: those that are not closed.
        sweep_reports: by catalog, the sweep that runs, or the last one.
        retired_catalogs: which catalogs retired.
        roles: what it does of the service, where others do the rest; empty for all.
    """

    version: str
    started_at: datetime
    not_ready_reasons: Callable[[], Sequence[str]]
    catalog_ids: Callable[[], Mapping[str, str]]
    breakers: Callable[[], Sequence[CircuitBreakerState]]
    sweep_reports: Callable[[], Mapping[str, SweepReport]]
    retired_catalogs: RetiredCatalogs = field(default_factory=RetiredCatalogs)
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AdminContext:
    """All of it.

    Attributes:
        inbox: its faces.
        process: what this process knows.
        catalogs: the configured ones, by name.
        decode: the hints of a request that nobody understood when it came; raises `Rejected`, also where its
            sender is not configured any more.
        clock: the wall clock.
    """

    inbox: AdminInbox
    process: ProcessInfo
    catalogs: Mapping[str, ConfiguredCatalog]
    decode: Callable[[UndecodableRequest], Sequence[Notification]]
    clock: Clock

    def command(self, request: Request, target: str) -> AdminCommand:
        """What an operator said now: by the name of the token, and who is behind it as the client has it.

        `From` is that header's purpose (RFC 9110, section 10.1.2). It is believed as far as the token is.
        """
        token: str = request.state.token
        client_name = request.headers.get("from", "")
        shown = "".join(letter for letter in client_name[:MAX_ACTOR] if letter.isprintable())
        return AdminCommand(f"{shown} ({token})" if shown else token, target, self.clock.now())

    def configured_catalog(self, catalog: str) -> ConfiguredCatalog:
        """A configured catalog.

        Raises:
            HTTPException: 404, there is none of that name.
        """
        found = self.catalogs.get(catalog)
        if found is None:
            detail = f"no catalog of that name is configured; {suggest_name(catalog, tuple(self.catalogs))}"
            raise HTTPException(HTTPStatus.NOT_FOUND, detail)
        return found

    def parse_table(self, identifier: str, catalog: str | None) -> TableIdentifier:
        """The table of a dotted identifier, whose parts may be percent-encoded.

        Raises:
            HTTPException: 422, it is none, or it could be of several catalogs.
        """
        *namespace, name = (unquote(part, errors="replace") for part in identifier.split("."))
        if not all((*namespace, name)):
            detail = "table: expected levels and a name, joined by dots; %2E is a dot in one of them, %25 a %"
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        if catalog is None and len(self.catalogs) != 1:
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "catalog: there are several, and none was named")
        return TableIdentifier(catalog or next(iter(self.catalogs)), tuple(namespace), name)

    def sweepable_catalogs(self, catalogs: Collection[str]) -> list[str]:
        """Those of these catalogs that can be swept; of none, all that can.

        Raises:
            HTTPException: 404, one is not configured; 422, one can't be swept.
        """
        for name in catalogs:
            if not self.configured_catalog(name).is_sweepable:
                detail = f"{name}: there is no catalog to ask, what is not told of it can't be found"
                raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        return list(dict.fromkeys(catalogs)) or [name for name, one in self.catalogs.items() if one.is_sweepable]
