"""The settings in effect, each with where it was set: for `sfn config show`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from sfn.settings import load
from sfn.settings.sources import SettingsSources, find_file, load_sources
from sfn.settings.types import parse_duration_or_off, parse_size

SettingValue: TypeAlias = "bool | int | float | str | list[str] | None"

DEFAULT: Final = "default"
"""The source of a value that nothing sets."""
MASKED: Final = "***"
"""Stands for a secret."""
_PASSWORD: Final = re.compile(r"(?<=:)[^:@/]*(?=@)|(?<=password=)[^&]*", re.IGNORECASE)
"""A password in a URL: before the @, or as a parameter."""
_SIZES: Final = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One setting.

    Attributes:
        keys: its path, such as `("catalogs", "prod", "uri")`.
        value: its value as TOML has it, with secrets masked; None if it is not set and has no default.
        source: the environment variable, the name of the file, or `DEFAULT`.
    """

    keys: tuple[str, ...]
    value: SettingValue
    source: str

    @property
    def toml(self) -> str:
        """The value in TOML."""
        return json.dumps(self.value, ensure_ascii=False)


def effective_settings(path: Path | None, environ: Mapping[str, str] | None = None) -> list[EffectiveSetting]:
    """Return all settings, in the order of the sections.

    Args:
        path: the TOML file; None for the first of `sfn.settings.sources.DEFAULT_FILES` that exists, if any.
        environ: the environment variables; None for those of the process.

    Raises:
        ConfigurationError: with all problems.
    """
    environ = os.environ if environ is None else environ
    settings = load(path, environ)
    sources = load_sources(find_file(path), environ)
    return list(_walk(settings, (), sources))


def _walk(
    table: BaseModel | Mapping[str, object], above: tuple[str, ...], sources: SettingsSources
) -> Iterator[EffectiveSetting]:
    """Yield the settings of a table and of the tables in it; the tables last, as in a TOML file."""
    names = table if isinstance(table, Mapping) else type(table).model_fields
    values = {key: table[key] if isinstance(table, Mapping) else getattr(table, key) for key in names}
    for key, value in values.items():
        if not isinstance(value, BaseModel | Mapping):
            plain = _spelled(value, type(table).model_fields[key]) if isinstance(table, BaseModel) else _plain(value)
            yield EffectiveSetting((*above, key), plain, _source((*above, key), sources))
    for key, value in values.items():
        if isinstance(value, BaseModel | Mapping):
            yield from _walk(value, (*above, key), sources)


def _spelled(value: object, field: FieldInfo) -> SettingValue:
    """Return a value as its field reads it: a size with its unit, and a duration that is off."""
    readers = {check.func for check in field.metadata if isinstance(check, BeforeValidator)}
    if parse_size in readers and isinstance(value, int):
        unit, size = next((unit, size) for unit, size in _SIZES if value % size == 0)
        return f"{value // size}{unit}"
    return "off" if value is None and parse_duration_or_off in readers else _plain(value)


def _plain(value: object) -> SettingValue:
    match value:
        case SecretStr():
            return MASKED
        case timedelta():
            return _duration(value)
        case Enum():
            return str(value.value)
        case tuple() | list() | frozenset():
            return [str(_plain(one)) for one in value]
        case bool() | int() | float() | None:
            return value
        case _:
            return _PASSWORD.sub(MASKED, str(value))


def _duration(value: timedelta) -> str:
    """Return a duration as the settings spell it, in the largest unit that has a whole number of it."""
    seconds = value.total_seconds()
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds and seconds % size == 0), ("s", 1))
    return f"{seconds / size:g}{unit}" if seconds % 1 == 0 else f"{seconds * 1_000:g}ms"


def _source(keys: tuple[str, ...], sources: SettingsSources) -> str:
    """Return where a value was set. A variable may set a whole table."""
    for length in range(len(keys), 0, -1):
        if keys[:length] in sources.variables:
            return sources.variables[keys[:length]]
    table: object = sources.tables
    for key in keys:
        if not isinstance(table, Mapping) or key not in table:
            return DEFAULT
        table = table[key]
    return sources.file
