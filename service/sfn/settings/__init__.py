"""What the operator configured: one TOML file, and `SFN_SECTION__KEY` in the environment, which wins.

    settings = load(Path("sfn.toml"))
    settings.listener.port
    settings.catalogs["prod"].replica_lag

Only this package reads the environment. What it returns are plain frozen values; files of secrets are named in it,
not read: they change while the process runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Final, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sfn.errors import SfnError, suggest_name
from sfn.settings.checks import consistency_errors
from sfn.settings.model import Settings
from sfn.settings.sections import AdminSettings
from sfn.settings.service import ListenerSettings
from sfn.settings.sources import ConfigurationError, SettingsSources, load_sources, no_settings_error, variable_name
from sfn.settings.types import Section, UnknownUrlParameter

# ── complaints: What pydantic found wrong

_SECRET_KEYS: Final = frozenset(
    {"token", "credential", "secrets", "headers", "properties", "uri", "oauth2_uri", "servers"}
)
"""Keys whose values no message may repeat."""

_TABLE_ERRORS: Final = frozenset({"model_type", "mapping_type", "dict_type"})
"""Errors of pydantic that ask for a table."""

_SECTION_DEPTH: Final = 2
"""Keys that lead to a section of a name, such as `catalogs.prod`."""

_EXAMPLE_NAMES: Final = {"secrets": "first", "headers": "X-Tenant", "properties": "type", "catalogs": "theirs"}
"""Keys of a section that are tables of names, each with such a name."""

_URL_KEYS: Final = frozenset({"uri", "oauth2_uri"})

_NO_SCHEME: Final = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}(/[A-Za-z0-9./_-]*)?")
"""A host and its port, which are no secret."""

_OF_THE_KEY: Final = "[key]"
"""What pydantic puts after a key that is itself wrong."""

_PREAMBLE: Final = re.compile(r"\w+ should (be|have) ")

_MAX_SHOWN: Final = 40
"""Most characters of a wrong value that a message repeats."""


def validation_errors(error: ValidationError, sources: SettingsSources) -> Iterator[SfnError]:
    """One error for each thing that is wrong."""
    for details in error.errors(include_url=False):
        yield _validation_error(details, sources)


def _validation_error(details: ErrorDetails, sources: SettingsSources) -> SfnError:
    kind = details["type"]
    # The place of an element is its array.
    keys = [part for part in takewhile(lambda part: isinstance(part, str), details["loc"]) if isinstance(part, str)]
    if kind == "extra_forbidden":
        return SfnError(
            sources.location_of(keys),
            expected="a key that this version supports",
            found=f"the unknown {keys[-1]}",
            remedy=_suggest_key(keys[-1], keys[:-1]),
        )
    if kind == "missing":
        remedy = f"set it there or as {variable_name(keys)}"
        return SfnError(sources.location_of(keys), expected="a value", found="none", remedy=remedy)
    if keys[-1] == _OF_THE_KEY:
        expected = "a name of letters, digits, '_', '-' and '.', at most 64"
        return SfnError(sources.location_of(keys[:-1]), expected=expected, found="another one")
    error = details.get("ctx", {}).get("error")
    if isinstance(error, UnknownUrlParameter):
        return SfnError(sources.location_of(keys), expected=str(error), found=error.found, remedy=error.remedy)
    found = _render_found(keys, kind, details["input"])
    return SfnError(sources.location_of(keys), expected=_expected(details), found=found, remedy=_remedy(details, keys))


def _remedy(details: ErrorDetails, keys: Sequence[str]) -> str:
    """What to write instead, where that can be told."""
    key, kind, value = keys[-1], details["type"], details["input"]
    if kind in _TABLE_ERRORS and len(keys) == _SECTION_DEPTH and key in _known_keys(keys[:1]):
        # Such as `uri` right below [catalogs].
        return f"{key} is a key of {_section_title(keys[0])}"
    if len(keys) > _SECTION_DEPTH and (name := _EXAMPLE_NAMES.get(key)) is not None:
        return f'it is a table of names: {key} = {{ {name} = "…" }}'
    if key in _URL_KEYS and isinstance(value, str) and _NO_SCHEME.fullmatch(value):
        return f"did you mean http://{value}?"
    return ""


def _expected(details: ErrorDetails) -> str:
    match details["type"]:
        case "value_error":
            return str(details.get("ctx", {}).get("error", details["msg"]))
        case kind if kind in _TABLE_ERRORS:
            return "a table"
        case _:
            return _PREAMBLE.sub("", details["msg"])


def _suggest_key(word: str, above: Sequence[str]) -> str:
    """A remedy for a key that its table does not have: the nearest that it has, or whose else it is."""
    known = _known_keys(above)
    close = get_close_matches(word.lower(), known, n=1)
    hints = [f"did you mean {close[0]}?"] if close else []
    owners = [_section_title(section) for section in Settings.model_fields if word.lower() in _known_keys([section])]
    if owners:
        hints.append(f"{word.lower()} is a key of {' and '.join(owners)}")
    return " ".join(hints) or _suggest_section(word) or suggest_name(word, known)


def _suggest_section(word: str) -> str:
    others = {key: _section_title(section) for section in Settings.model_fields for key in _known_keys([section])}
    close = get_close_matches(word.lower(), others, n=1)
    return f"did you mean {close[0]} of {others[close[0]]}?" if close else ""


def _section_title(section: str) -> str:
    """A section as it is written in a file."""
    named = get_origin(Settings.model_fields[section].annotation) is Mapping
    return f"[{section}.NAME]" if named else f"[{section}]"


def _known_keys(keys: Sequence[str]) -> list[str]:
    """The keys of a table; of the sections without any."""
    models = _models(Settings.model_fields[keys[0]].annotation) if keys else [Settings]
    return list(dict.fromkeys(key for model in models for key in model.model_fields))


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _render_found(keys: Sequence[str], kind: str, value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an array"
    # A single value where a table belongs may be a secret in the wrong place.
    if _SECRET_KEYS.intersection(keys) or kind in _TABLE_ERRORS or not isinstance(value, str | int | float):
        return "another value"
    # Before an @ a password may stand, in a URL at whatever key; and in one of a database behind its name.
    if "@" in str(value) or "password" in str(value):
        return "another value"
    return repr(value) if len(str(value)) <= _MAX_SHOWN else f"{str(value)[:_MAX_SHOWN]!r}…"


# ── client: What a client of the running service needs of its settings


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


# ── settings: What the operator configured


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
