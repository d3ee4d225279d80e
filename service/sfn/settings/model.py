"""All sections, with the defaults of the specification's table "Settings".

A key that is not in that table is refused: a setting without effect would be a lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final

from pydantic import Field

from sfn.errors import SfnError, suggest_name
from sfn.settings.sections import (
    AdminSettings,
    CatalogSettings,
    EventOrigin,
    GatewaySettings,
    PullSettings,
    SenderSettings,
    StoreSettings,
)
from sfn.settings.service import (
    FacadeSettings,
    InboxSettings,
    ListenerSettings,
    RetrySettings,
    SweepSettings,
    TelemetrySettings,
    WorkerSettings,
)
from sfn.settings.types import Name, Section

# ── model: All sections


def pull_origin_name(name: str) -> str:
    """What the events of a source are kept under."""
    return f"pull.{name}"


class Settings(Section):
    """Everything."""

    listener: ListenerSettings = ListenerSettings()
    inbox: InboxSettings = InboxSettings()
    worker: WorkerSettings = WorkerSettings()
    retry: RetrySettings = RetrySettings()
    sweep: SweepSettings = SweepSettings()
    senders: Mapping[Name, SenderSettings] = Field(default_factory=dict)
    pull: Mapping[Name, PullSettings] = Field(default_factory=dict)
    catalogs: Mapping[Name, CatalogSettings] = Field(default_factory=dict)
    stores: Mapping[Name, StoreSettings] = Field(default_factory=dict)
    gateway: Mapping[Name, GatewaySettings] = Field(default_factory=dict)
    facade: FacadeSettings = FacadeSettings()
    admin: AdminSettings = AdminSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @property
    def event_only_catalogs(self) -> frozenset[str]:
        """The catalogs that nobody can ask."""
        return frozenset(name for name, one in self.catalogs.items() if one.is_event_only)

    @property
    def lacks_stores(self) -> bool:
        """Whether a catalog's tables have no place: none is configured, and it vends no credentials either."""
        return not self.stores and not all(one.vended_credentials for one in self.catalogs.values())

    @property
    def origins(self) -> Mapping[str, EventOrigin]:
        """All that events come from, by the name that they are kept under: senders, and what they are fetched from."""
        return {**self.senders, **{pull_origin_name(name): one for name, one in self.pull.items()}}

    def catalogs_of(self, origin: str) -> Mapping[str, str]:
        """The catalogs that one of `origins` speaks for: its own names of them, and ours."""
        return self.origins[origin].resolve_catalogs(self.catalogs)

    def catalogs_behind(self, gateway: str) -> Mapping[str, str]:
        """The catalogs behind a configured gateway: the prefix that each has its clients use, and our name of it.

        A gateway that names none has the one of its own name behind it, or the only one that there is, under any
        prefix: that is "". Empty: there are several.
        """
        named = self.gateway[gateway]
        if named.catalogs:
            return named.catalogs
        if named.catalog is not None:
            return {"": named.catalog}
        if gateway in self.catalogs:
            return {"": gateway}
        return {"": next(iter(self.catalogs))} if len(self.catalogs) == 1 else {}


# ── roles: What one process of the service does


class Role(StrEnum):
    """A part of the service."""

    RECEIVER = "receiver"
    """Takes events."""
    WORKER = "worker"
    """Sweeps, asks the catalogs, writes files."""
    GATEWAY = "gateway"
    """Stands before catalogs, if gateways are configured."""
    FACADE = "facade"
    """Answers readers, if there is a facade."""
    ADMIN = "admin"
    """Answers operators, if they have a token."""


ALL_ROLES: Final = frozenset(Role)


def parse_roles(text: str) -> frozenset[Role]:
    """The roles in a list with commas.

    Raises:
        SfnError: one is none.
    """
    known = [role.value for role in Role]
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            remedy = suggest_name(word, known)
            raise SfnError("--roles", expected=f"some of {', '.join(known)}", found=repr(word), remedy=remedy)
    return frozenset(map(Role, words))


def check_roles(roles: AbstractSet[Role], settings: Settings) -> None:
    """Refuse roles that leave work to nobody.

    Raises:
        SfnError: the inbox is one that no other process can have, and nobody would work off what it takes.
    """
    if settings.inbox.path is not None and Role.WORKER not in roles:
        raise SfnError(
            "--roles",
            expected="worker among them, as one process alone has an inbox in SQLite",
            found=", ".join(sorted(roles)),
            remedy='add it, or share an inbox: [inbox] url = "postgresql://…"',
        )
