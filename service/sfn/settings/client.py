"""What a client of the running service needs of its settings, and no more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from sfn.errors import SfnError
from sfn.settings.complaints import validation_errors
from sfn.settings.listener import ListenerSettings
from sfn.settings.misconfigured import ConfigurationError
from sfn.settings.parties import AdminSettings
from sfn.settings.section import Section
from sfn.settings.sources import load_sources, no_settings_error


class ClientSettings(Section):
    """Where the service listens, and what an operator shows it."""

    listener: ListenerSettings = ListenerSettings()
    admin: AdminSettings = AdminSettings()


def load_client(path: Path | None, environ: Mapping[str, str] | None = None) -> ClientSettings:
    """These two sections of the file and the environment. What is wrong in another one is the service's business.

    Args:
        path: the TOML file; None for the environment and the defaults alone.
        environ: instead of the process's own.

    Raises:
        Misconfigured: with everything that is wrong in them.
    """
    sources = load_sources(path, os.environ if environ is None else environ)
    ours = {name: sources.tables[name] for name in ClientSettings.model_fields if name in sources.tables}
    try:
        return ClientSettings.model_validate(ours)
    except ValidationError as error:
        raise ConfigurationError(validation_errors(error, sources)) from None


def explain_no_settings(path: Path | None, problem: SfnError) -> ConfigurationError:
    """The error of something that these settings lack: before it stands that there are none, where it is so."""
    return ConfigurationError((*no_settings_error(path, os.environ), problem))
