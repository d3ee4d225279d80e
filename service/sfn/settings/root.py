"""The root model, with one attribute for each section, and the roles of a process.

Unknown keys are errors, because a setting without effect would mislead the operator.
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
    FacadeSettings,
    GatewaySettings,
    InboxSettings,
    ListenerSettings,
    PullSettings,
    RetrySettings,
    SenderSettings,
    StoreSettings,
    SweepSettings,
    TelemetrySettings,
    WorkerSettings,
)
from sfn.settings.types import Name, Section


def pull_origin_name(name: str) -> str:
    """Return the sender's name under which the inbox stores the events of a pull source."""
    return f"pull.{name}"


class Settings(Section):
    """The settings of the service, one attribute for each section."""

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
        """The names of the catalogs that cannot be queried."""
        return frozenset(name for name, one in self.catalogs.items() if one.is_event_only)

    @property
    def lacks_stores(self) -> bool:
        """True if no store is configured and some catalog vends no credentials: its tables cannot be published."""
        return not self.stores and not all(one.vended_credentials for one in self.catalogs.values())

    @property
    def origins(self) -> Mapping[str, EventOrigin]:
        """All origins of events, senders and pull sources, by the sender's name that the inbox stores."""
        return {**self.senders, **{pull_origin_name(name): one for name, one in self.pull.items()}}

    def catalogs_of(self, origin: str) -> Mapping[str, str]:
        """Map the catalog names that an origin uses in its events to the configured names."""
        return self.origins[origin].resolve_catalogs(self.catalogs)

    def catalogs_behind(self, gateway: str) -> Mapping[str, str]:
        """Map the REST prefixes that clients of a gateway use to the configured catalog names.

        A gateway that names no catalog has the catalog with the gateway's name, or the only one, under any prefix. The
        key is then "". The result is empty if the catalog is not clear, because several are configured.
        """
        named = self.gateway[gateway]
        if named.catalogs:
            return named.catalogs
        if named.catalog is not None:
            return {"": named.catalog}
        if gateway in self.catalogs:
            return {"": gateway}
        return {"": next(iter(self.catalogs))} if len(self.catalogs) == 1 else {}


class Role(StrEnum):
    """A part of the service that a process can run."""

    RECEIVER = "receiver"
    """Accepts events."""
    WORKER = "worker"
    """Sweeps, queries the catalogs, writes files."""
    GATEWAY = "gateway"
    """Forwards requests to catalogs, if gateways are configured."""
    FACADE = "facade"
    """Answers readers, if the facade is configured."""
    ADMIN = "admin"
    """Answers operators, if they have a token."""


ALL_ROLES: Final = frozenset(Role)


def parse_roles(text: str) -> frozenset[Role]:
    """Parse a comma-separated list of roles.

    Raises:
        SfnError: a role is unknown.
    """
    known = [role.value for role in Role]
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            remedy = suggest_name(word, known)
            raise SfnError("--roles", expected=f"some of {', '.join(known)}", found=repr(word), remedy=remedy)
    return frozenset(map(Role, words))


def check_roles(roles: AbstractSet[Role], settings: Settings) -> None:
    """Refuse roles without a worker if no other process can open the inbox.

    Raises:
        SfnError: the inbox is a SQLite file and the roles have no worker, so no process would run its jobs.
    """
    if settings.inbox.path is not None and Role.WORKER not in roles:
        raise SfnError(
            "--roles",
            expected="worker among them, as only one process can open an inbox in SQLite",
            found=", ".join(sorted(roles)),
            remedy='add worker, or share an inbox: [inbox] url = "postgresql://…"',
        )
