"""All sections, with the defaults of the specification's table "Settings".

A key that is not in that table is refused: a setting without effect would be a lie.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from sfn.settings.bound import EventOrigin
from sfn.settings.catalogs import CatalogSettings
from sfn.settings.facade import FacadeSettings
from sfn.settings.gateways import GatewaySettings
from sfn.settings.inbox import InboxSettings
from sfn.settings.kinds import Name
from sfn.settings.listener import ListenerSettings
from sfn.settings.parties import AdminSettings, SenderSettings
from sfn.settings.pulls import PullSettings
from sfn.settings.section import Section
from sfn.settings.stores import StoreSettings
from sfn.settings.telemetry import TelemetrySettings
from sfn.settings.work import RetrySettings, SweepSettings, WorkerSettings


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
