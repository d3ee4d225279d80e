"""All sections, with the defaults of the specification's table "Settings".

A key that is not in that table is refused: a setting without effect would be a lie.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from sfn.settings.catalogs import CatalogSettings
from sfn.settings.gateways import GatewaySettings
from sfn.settings.inbox import InboxSettings
from sfn.settings.kinds import Name
from sfn.settings.listener import ListenerSettings
from sfn.settings.parties import AdminSettings, SenderSettings
from sfn.settings.section import Section
from sfn.settings.stores import StoreSettings
from sfn.settings.telemetry import TelemetrySettings
from sfn.settings.work import RetrySettings, SweepSettings, WorkerSettings


class Settings(Section):
    """Everything."""

    listener: ListenerSettings = ListenerSettings()
    inbox: InboxSettings = InboxSettings()
    worker: WorkerSettings = WorkerSettings()
    retry: RetrySettings = RetrySettings()
    sweep: SweepSettings = SweepSettings()
    senders: Mapping[Name, SenderSettings] = Field(default_factory=dict)
    catalogs: Mapping[Name, CatalogSettings] = Field(default_factory=dict)
    stores: Mapping[Name, StoreSettings] = Field(default_factory=dict)
    gateway: Mapping[Name, GatewaySettings] = Field(default_factory=dict)
    admin: AdminSettings = AdminSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @property
    def told(self) -> frozenset[str]:
        """The catalogs that nobody can ask."""
        return frozenset(name for name, one in self.catalogs.items() if one.is_told)

    @property
    def lacks_stores(self) -> bool:
        """Whether a catalog's tables have no place: none is configured, and it vends no credentials either."""
        return not self.stores and not all(one.vended_credentials for one in self.catalogs.values())

    def catalogs_of(self, sender: str) -> Mapping[str, str]:
        """The catalogs that a configured sender speaks for: its own names of them, and ours.

        A sender that names none speaks for the only one that there is.
        """
        named = self.senders[sender]
        if named.catalogs:
            return named.catalogs
        ours = [named.catalog] if named.catalog is not None else self.catalogs
        return {catalog: catalog for catalog in ours}

    def behind(self, gateway: str) -> Mapping[str, str]:
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
