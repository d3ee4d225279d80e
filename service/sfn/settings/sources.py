"""Where settings come from: a TOML file, with the environment over it, and the memory of which said what."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from sfn.errors import SfnError

# ── misconfigured: The error of settings that are wrong


class ConfigurationError(SfnError):
    """The settings can't be used.

    Args:
        problems: everything that is wrong with them; no secret is repeated in it.
    """

    def __init__(self, problems: Iterable[SfnError]) -> None:
        self.problems = tuple(problems)
        found = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__("settings", expected="none of these problems", found=found)


# ── sources: Where settings come from

PREFIX: Final = "SFN_"
SEPARATOR: Final = "__"

Keys: TypeAlias = tuple[str, ...]
"""The way to a value: section, table, key."""


@dataclass(frozen=True, slots=True, repr=False)
class SettingsSources:
    """What was said, and where.

    Attributes:
        tables: all of it, the environment's values as strings.
        file: what the file is called in messages.
        variables: environment variables, by the keys that they set.
        problems: variables that fit nowhere.
    """

    tables: Mapping[str, Any]
    file: str
    variables: Mapping[Keys, str]
    problems: tuple[SfnError, ...] = ()

    def location_of(self, keys: Sequence[str]) -> str:
        """Where the value at these keys was set, or would be."""
        for length in range(len(keys), 0, -1):
            if (name := self.variables.get(tuple(keys[:length]))) is not None:
                return name
        for said, name in self.variables.items():
            if said[: len(keys)] == tuple(keys):
                return name
        table, key = ".".join(keys[:-1]), keys[-1] if keys else ""
        return f"{self.file}: [{table}] {key}" if table else f"{self.file}: {key}"


def no_settings_error(path: Path | None, environ: Mapping[str, str]) -> tuple[SfnError, ...]:
    """What stands before all else that is wrong where neither a file nor any variable says a thing."""
    if path is not None or any(_is_settings_variable(name) for name in environ):
        return ()
    remedy = "name it: --config FILE or SFN_CONFIG; or set each key as SFN_SECTION__KEY"
    return (SfnError("settings", expected="a configuration file", found="none that was given", remedy=remedy),)


def variable_name(keys: Sequence[str]) -> str:
    """The environment variable that sets the value at these keys."""
    return PREFIX + SEPARATOR.join(_normalised(key) for key in keys)


def load_sources(path: Path | None, environ: Mapping[str, str]) -> SettingsSources:
    """Read the file and lay the environment over it.

    Raises:
        Misconfigured: the file can't be read or is no TOML.
    """
    tables = {} if path is None else _read(path)
    variables: dict[Keys, str] = {}
    problems: list[SfnError] = []
    for name, value in sorted(environ.items()):
        if _is_settings_variable(name):
            problem = _apply_variable(tables, variables, name, value)
            problems.extend([problem] if problem is not None else [])
    return SettingsSources(tables, "settings" if path is None else path.name, variables, tuple(problems))


def _is_settings_variable(name: str) -> bool:
    # Orchestrators add variables for a service of this name (SFN_PORT, SFN_SERVICE_HOST): single underscores.
    return name.startswith(PREFIX) and SEPARATOR in name


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        found = error.strerror or "an error"
    except UnicodeDecodeError:
        found = "bytes that are not UTF-8"
    except tomllib.TOMLDecodeError as error:
        found = str(error)
    raise ConfigurationError((SfnError(str(path), expected="a TOML file", found=found),))


def _apply_variable(tables: dict[str, Any], variables: dict[Keys, str], name: str, value: str) -> SfnError | None:
    table, keys = tables, []
    *above, last = name.removeprefix(PREFIX).split(SEPARATOR)
    for part in above:
        keys.append(_matching_key(table, part))
        inner = table.setdefault(keys[-1], {})
        if not isinstance(inner, dict):
            return SfnError(name, expected=f"a table {'.'.join(keys)}", found="a single value of that name")
        table = inner
    keys.append(_matching_key(table, last))
    table[keys[-1]] = value
    variables[tuple(keys)] = name
    return None


def _matching_key(table: Mapping[str, Any], part: str) -> str:
    """A key as the file spells it: a variable knows neither lower case nor hyphens nor dots."""
    return next((key for key in table if _normalised(key) == _normalised(part)), part.lower())


def _normalised(key: str) -> str:
    return key.upper().replace("-", "_").replace(".", "_")
