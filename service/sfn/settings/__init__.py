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
from sfn.settings.client import ClientSettings, explain_no_settings, load_client
from sfn.settings.complaints import validation_errors
from sfn.settings.consistency import consistency_errors
from sfn.settings.facade import FacadeSettings
from sfn.settings.gateways import GatewaySettings
from sfn.settings.inbox import InboxSettings
from sfn.settings.listener import ListenerSettings
from sfn.settings.misconfigured import ConfigurationError
from sfn.settings.model import Settings
from sfn.settings.parties import AdminSettings, SenderSettings
from sfn.settings.pulls import PullSettings
from sfn.settings.sources import load_sources, no_settings_error
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
    sources, first = load_sources(path, environ), no_settings_error(path, environ)
    try:
        settings = Settings.model_validate(sources.tables)
    except ValidationError as error:
        raise ConfigurationError((*first, *sources.problems, *validation_errors(error, sources))) from None
    if problems := (*sources.problems, *consistency_errors(settings, sources)):
        raise ConfigurationError((*first, *problems))
    return settings


__all__ = [
    "AdminSettings",
    "CatalogSettings",
    "ClientSettings",
    "ConfigurationError",
    "FacadeSettings",
    "GatewaySettings",
    "InboxSettings",
    "ListenerSettings",
    "PullSettings",
    "RetrySettings",
    "SenderSettings",
    "Settings",
    "StoreSettings",
    "SweepSettings",
    "TelemetrySettings",
    "WorkerSettings",
    "explain_no_settings",
    "load",
    "load_client",
]
