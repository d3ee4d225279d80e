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
from sfn.errors import nearest
from sfn.inbox import Brake, Intake, Roster
from sfn.inbox.desk import Custody, DeadLetters, Desk
from sfn.inbox.letters import Order
from sfn.publish.policy import TableFilter
from sfn.words import Hint, TableName, Undecodable
from sfn.work.lanes import BreakerState
from sfn.work.report import SweepReport

MAX_ACTOR: Final = 200
"""Most characters of a `From` header that the audit log repeats."""

SECURED: Final[dict[str, Any]] = {"security": [{"operator": []}]}
"""What the description of each route says of it."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The inbox's faces to operators."""

    desk: Desk
    letters: DeadLetters
    custody: Custody
    brake: Brake
    roster: Roster
    intake: Intake


@dataclass(frozen=True, slots=True)
class Followed:
    """A configured catalog.

    Attributes:
        type: how it is spoken to.
        swept: whether its tables can be listed.
        interest: which of its tables get files.
    """

    type: str
    swept: bool = True
    interest: TableFilter = TableFilter()


@dataclass(slots=True)
class Retirement:
    """Which catalogs' tables get no files any more: read once, and after each change, so that all can ask."""

    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Process:
    """What this process alone knows.

    Attributes:
        version: of the service.
        started_at: when it started.
        reasons: why it is not ready.
        identities: the `catalog_id` of each catalog that was reached.
        breakers: those that are not closed.
        sweeps: by catalog, the sweep that runs, or the last one.
        retirement: which catalogs retired.
        roles: what it does of the service, where others do the rest; empty for all.
    """

    version: str
    started_at: datetime
    reasons: Callable[[], Sequence[str]]
    identities: Callable[[], Mapping[str, str]]
    breakers: Callable[[], Sequence[BreakerState]]
    sweeps: Callable[[], Mapping[str, SweepReport]]
    retirement: Retirement = field(default_factory=Retirement)
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Operations:
    """All of it.

    Attributes:
        inbox: its faces.
        process: what this process knows.
        catalogs: the configured ones, by name.
        understand: the hints of a request that nobody understood when it came; raises `Rejected`, also where its
            sender is not configured any more.
        clock: the wall clock.
    """

    inbox: Operator
    process: Process
    catalogs: Mapping[str, Followed]
    understand: Callable[[Undecodable], Sequence[Hint]]
    clock: Clock

    def order(self, request: Request, about: str) -> Order:
        """What an operator said now: by the name of the token, and who is behind it as the client has it.

        `From` is that header's purpose (RFC 9110, section 10.1.2). It is believed as far as the token is.
        """
        token: str = request.state.token
        said = request.headers.get("from", "")
        shown = "".join(letter for letter in said[:MAX_ACTOR] if letter.isprintable())
        return Order(f"{shown} ({token})" if shown else token, about, self.clock.now())

    def followed(self, catalog: str) -> Followed:
        """A configured catalog.

        Raises:
            HTTPException: 404, there is none of that name.
        """
        found = self.catalogs.get(catalog)
        if found is None:
            detail = f"no catalog of that name is configured; {nearest(catalog, tuple(self.catalogs))}"
            raise HTTPException(HTTPStatus.NOT_FOUND, detail)
        return found

    def named(self, identifier: str, catalog: str | None) -> TableName:
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
        return TableName(catalog or next(iter(self.catalogs)), tuple(namespace), name)

    def chosen(self, catalogs: Collection[str]) -> list[str]:
        """Those of these catalogs that can be swept; of none, all that can.

        Raises:
            HTTPException: 404, one is not configured; 422, one can't be swept.
        """
        for name in catalogs:
            if not self.followed(name).swept:
                detail = f"{name}: there is no catalog to ask, what is not told of it can't be found"
                raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        return list(dict.fromkeys(catalogs)) or [name for name, one in self.catalogs.items() if one.swept]
