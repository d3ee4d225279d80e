"""What the operator configured: one TOML file, and `SFN_SECTION__KEY` in the environment, which wins.

    settings = load(Path("sfn.toml"))
    settings.listener.port
    settings.catalogs["prod"].replica_lag

Only this package reads the environment. What it returns are plain frozen values; files of secrets are named in it,
not read: they change while the process runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from sfn.settings.catalogs import CatalogSettings
from sfn.settings.client import ClientSettings, load_client, without_any
from sfn.settings.complaints import complaints
from sfn.settings.consistency import inconsistencies
from sfn.settings.facade import FacadeSettings
from sfn.settings.gateways import GatewaySettings
from sfn.settings.inbox import InboxSettings
from sfn.settings.listener import ListenerSettings
from sfn.settings.misconfigured import Misconfigured
from sfn.settings.model import Settings
from sfn.settings.parties import AdminSettings, SenderSettings
from sfn.settings.pulls import PullSettings
from sfn.settings.sources import forgotten, gather
from sfn.settings.stores import StoreSettings
from sfn.settings.telemetry import TelemetrySettings
from sfn.settings.work import RetrySettings, SweepSettings, WorkerSettings


def load(path: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a file and the environment, checked against each other.

    Args:
        path: the TOML file; None for the environment and the defaults alone.
        environ: instead of the process's own.

    Raises:
        Misconfigured: with everything that is wrong.
    """
    environ = os.environ if environ is None else environ
    sources, first = gather(path, environ), forgotten(path, environ)
    try:
        settings = Settings.model_validate(sources.tables)
    except ValidationError as error:
        raise Misconfigured((*first, *sources.problems, *complaints(error, sources))) from None
    if problems := (*sources.problems, *inconsistencies(settings, sources)):
        raise Misconfigured((*first, *problems))
    return settings


__all__ = [
    "AdminSettings",
    "CatalogSettings",
    "ClientSettings",
    "FacadeSettings",
    "GatewaySettings",
    "InboxSettings",
    "ListenerSettings",
    "Misconfigured",
    "PullSettings",
    "RetrySettings",
    "SenderSettings",
    "Settings",
    "StoreSettings",
    "SweepSettings",
    "TelemetrySettings",
    "WorkerSettings",
    "load",
    "load_client",
    "without_any",
]
