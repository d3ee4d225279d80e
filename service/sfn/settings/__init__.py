"""The settings: one TOML file, overridden by environment variables `SFN_SECTION__KEY`.

    settings = load(Path("sfn.toml"))
    settings.listener.port
    settings.catalogs["prod"].replica_lag

Start reading with `load`, then `sfn.settings.root.Settings`, which has one attribute for each section of the file.
The sections with their keys are in `sections`: add a key there. Checks across sections are in `checks`, types of values
in `types`.
`tests/pages/descriptions.py` explains each key to operators.

Only this package reads the environment. Settings are frozen values. They hold the paths of files with secrets, not the
secrets in those files, because the files may change while the process runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Final, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sfn.errors import SfnError, suggest_name
from sfn.settings.checks import consistency_errors
from sfn.settings.root import Settings
from sfn.settings.sections import AdminSettings, ListenerSettings
from sfn.settings.sources import (
    ConfigurationError,
    SettingsSources,
    find_file,
    load_sources,
    near_misses,
    no_settings_error,
    variable_name,
)
from sfn.settings.types import Section, UnknownUrlParameter

_MAY_HOLD_SECRETS: Final = frozenset({"uri", "oauth2_uri", "servers", "traces_endpoint"})
"""Keys of URLs, which may have a password. No message repeats their values, nor those of `SecretStr`."""

_TABLE_ERRORS: Final = frozenset({"model_type", "mapping_type", "dict_type"})
"""Errors of pydantic for a value that should be a table."""

_SECTION_DEPTH: Final = 2
"""Number of keys in the path of a named section, such as `catalogs.prod`."""

_EXAMPLE_NAMES: Final = {
    "secrets": "first",
    "headers": "X-Tenant",
    "traces_headers": "api-key",
    "properties": "type",
    "catalogs": "theirs",
}
"""Keys of sections that take a table, each with an example of a key in that table."""

_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - compared with a setting, not bound

_URL_KEYS: Final = frozenset({"uri", "oauth2_uri", "traces_endpoint"})

_NO_SCHEME: Final = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}(/[A-Za-z0-9./_-]*)?")
"""A host and its port without `http://`. Neither is secret."""

_KEY_MARKER: Final = "[key]"
"""Last part of pydantic's location if the key itself is invalid."""

_PREAMBLE: Final = re.compile(r"\w+ should (be|have) ")

_MAX_SHOWN: Final = 40
"""Maximum number of characters of a wrong value in a message."""


def validation_errors(error: ValidationError, sources: SettingsSources) -> Iterator[SfnError]:
    """Yield one error for each problem that pydantic found."""
    for details in error.errors(include_url=False):
        yield _validation_error(details, sources)


def _validation_error(details: ErrorDetails, sources: SettingsSources) -> SfnError:
    kind = details["type"]
    # An error in an element of an array is reported at the array: an environment variable sets the whole array.
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
    if keys[-1] == _KEY_MARKER:
        expected = "a name of letters, digits, '_', '-' and '.', at most 64"
        return SfnError(sources.location_of(keys[:-1]), expected=expected, found="another one")
    error = details.get("ctx", {}).get("error")
    if isinstance(error, UnknownUrlParameter):
        return SfnError(sources.location_of(keys), expected=str(error), found=error.found, remedy=error.remedy)
    found = _render_found(keys, kind, details["input"])
    return SfnError(sources.location_of(keys), expected=_expected(details), found=found, remedy=_remedy(details, keys))


def _remedy(details: ErrorDetails, keys: Sequence[str]) -> str:
    """Return the correction to suggest; empty if there is no obvious one."""
    key, kind, value = keys[-1], details["type"], details["input"]
    if kind in _TABLE_ERRORS and len(keys) == _SECTION_DEPTH and key in _known_keys(keys[:1]):
        # Such as `uri` right below [catalogs].
        return f"{key} is a key of {_section_title(keys[0])}"
    if len(keys) > _SECTION_DEPTH and (name := _EXAMPLE_NAMES.get(key)) is not None:
        return f'write a table: {key} = {{ {name} = "…" }}'
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
    """Return a remedy for an unknown key: the most similar key of its table, or the sections that have such a key."""
    known = _known_keys(above)
    close = get_close_matches(word.lower(), known, n=1)
    suggestions = [f"did you mean {close[0]}?"] if close else []
    owners = [_section_title(section) for section in Settings.model_fields if word.lower() in _known_keys([section])]
    if owners:
        suggestions.append(f"{word.lower()} is a key of {' and '.join(owners)}")
    return " ".join(suggestions) or _suggest_section(word) or suggest_name(word, known)


def _suggest_section(word: str) -> str:
    others = {key: _section_title(section) for section in Settings.model_fields for key in _known_keys([section])}
    close = get_close_matches(word.lower(), others, n=1)
    return f"did you mean {close[0]} of {others[close[0]]}?" if close else ""


def _section_title(section: str) -> str:
    """Return the header of a section in the file, such as `[catalogs.NAME]`."""
    named = get_origin(Settings.model_fields[section].annotation) is Mapping
    return f"[{section}.NAME]" if named else f"[{section}]"


def _known_keys(keys: Sequence[str]) -> list[str]:
    """Return the keys that a table may have; the names of all sections for an empty path."""
    models = _models(Settings.model_fields[keys[0]].annotation) if keys else [Settings]
    return list(dict.fromkeys(key for model in models for key in model.model_fields))


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


@cache
def _secret_keys() -> frozenset[str]:
    """Return the keys with values that no message may repeat."""
    fields = [
        (name, field)
        for section in Settings.model_fields.values()
        for model in _models(section.annotation)
        for name, field in model.model_fields.items()
    ]
    return _MAY_HOLD_SECRETS.union(name for name, field in fields if "SecretStr" in str(field.annotation))


def _render_found(keys: Sequence[str], kind: str, value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an array"
    # A single value in place of a table may be a misplaced secret.
    if not _secret_keys().isdisjoint(keys) or kind in _TABLE_ERRORS or not isinstance(value, str | int | float):
        return "another value"
    # A URL may hold a password before an @, and a database URL also as the parameter `password`.
    if "@" in str(value) or "password" in str(value):
        return "another value"
    return repr(value) if len(str(value)) <= _MAX_SHOWN else f"{str(value)[:_MAX_SHOWN]!r}…"


class ClientSettings(Section):
    """The settings that a client of the running service needs: its address and the operators' token."""

    listener: ListenerSettings = ListenerSettings()
    admin: AdminSettings = AdminSettings()


def load_client(path: Path | None, environ: Mapping[str, str] | None = None) -> ClientSettings:
    """Load the sections `listener` and `admin` from the file and the environment; ignore errors in other sections.

    Args:
        path: the TOML file; None for the first of `sfn.settings.sources.DEFAULT_FILES` that exists, if any.
        environ: the environment variables; None for those of the process.

    Raises:
        ConfigurationError: with all problems in the two sections.
    """
    sources = load_sources(find_file(path), os.environ if environ is None else environ)
    tables = {name: sources.tables[name] for name in ClientSettings.model_fields if name in sources.tables}
    try:
        return ClientSettings.model_validate(tables)
    except ValidationError as error:
        raise ConfigurationError(validation_errors(error, sources)) from None


def local_url(listener: ListenerSettings) -> str:
    """Return the URL of a listener on this machine.

    Raises:
        ConfigurationError: the port is 0, so that it is not known.
    """
    if listener.port == 0:
        remedy = "pass --url; the service logs the port with the event `started`"
        expected, found = "the port of the service", "0, which means any free port"
        raise ConfigurationError([SfnError("listener.port", expected=expected, found=found, remedy=remedy)])
    host = listener.host.removeprefix("[").removesuffix("]")
    if listener.host in _ANY_ADDRESS:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"{listener.scheme}://{f'[{host}]' if ':' in host else host}:{listener.port}"


def explain_no_settings(path: Path | None, problem: SfnError) -> ConfigurationError:
    """Return the error for a missing setting; it also says if no settings were given at all."""
    return ConfigurationError((*no_settings_error(find_file(path), os.environ), problem))


def mistaken_variables(environ: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Return the environment variables that look like settings but are none, each with the one that was meant."""
    known = {section: _known_keys([section]) for section in Settings.model_fields}
    return near_misses(os.environ if environ is None else environ, known)


def load(path: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """Load all settings from the file and the environment, and check that they fit together.

    Args:
        path: the TOML file; None for the first of `sfn.settings.sources.DEFAULT_FILES` that exists, if any.
        environ: the environment variables; None for those of the process.

    Raises:
        ConfigurationError: with all problems.
    """
    environ, path = os.environ if environ is None else environ, find_file(path)
    sources, first = load_sources(path, environ), no_settings_error(path, environ)
    try:
        settings = Settings.model_validate(sources.tables)
    except ValidationError as error:
        raise ConfigurationError((*first, *sources.problems, *validation_errors(error, sources))) from None
    if problems := (*sources.problems, *consistency_errors(settings, sources)):
        raise ConfigurationError((*first, *problems))
    return settings
