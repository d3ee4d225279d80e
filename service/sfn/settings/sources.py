"""The sources of settings: a TOML file, overridden by environment variables, and the origin of each value."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from sfn.errors import SfnError


class ConfigurationError(SfnError):
    """Settings that cannot be used.

    Args:
        problems: all problems of the settings. They repeat no secret.
    """

    def __init__(self, problems: Iterable[SfnError]) -> None:
        self.problems = tuple(problems)
        found = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__("settings", expected="none of these problems", found=found)


PREFIX: Final = "SFN_"
SEPARATOR: Final = "__"

Keys: TypeAlias = tuple[str, ...]
"""The path of a value: section, table, key."""


@dataclass(frozen=True, slots=True, repr=False)
class SettingsSources:
    """The values of all settings, before validation, and their origins.

    Attributes:
        tables: all values; those from the environment are strings.
        file: name of the file, for messages.
        variables: names of the environment variables, by the path that each sets.
        problems: errors of variables that cannot be applied.
    """

    tables: Mapping[str, Any]
    file: str
    variables: Mapping[Keys, str]
    problems: tuple[SfnError, ...] = ()

    def location_of(self, keys: Sequence[str]) -> str:
        """Return the variable or the place in the file where the value at a path was set, or would be set."""
        for length in range(len(keys), 0, -1):
            if (name := self.variables.get(tuple(keys[:length]))) is not None:
                return name
        for path, name in self.variables.items():
            if path[: len(keys)] == tuple(keys):
                return name
        table, key = ".".join(keys[:-1]), keys[-1] if keys else ""
        return f"{self.file}: [{table}] {key}" if table else f"{self.file}: {key}"


DEFAULT_FILES: Final = (Path("sfn.toml"), Path("/etc/sfn/sfn.toml"))
"""The files that are read if none is named; the first that exists."""


def find_file(path: Path | None) -> Path | None:
    """Return the configuration file: the given one, else the first of `DEFAULT_FILES`; None if there is none."""
    return path if path is not None else next((file for file in DEFAULT_FILES if file.is_file()), None)


def no_settings_error(path: Path | None, environ: Mapping[str, str]) -> tuple[SfnError, ...]:
    """Return an error if neither a file nor any environment variable sets anything; else nothing."""
    if path is not None or any(_is_settings_variable(name) for name in environ):
        return ()
    found = f"neither {' nor '.join(str(file) for file in DEFAULT_FILES)}"
    remedy = "write one: sfn init; or name it: --config FILE or SFN_CONFIG; or set each key as SFN_SECTION__KEY"
    return (SfnError("settings", expected="a configuration file", found=found, remedy=remedy),)


def variable_name(keys: Sequence[str]) -> str:
    """Return the name of the environment variable for a path."""
    return PREFIX + SEPARATOR.join(_normalised(key) for key in keys)


def load_sources(path: Path | None, environ: Mapping[str, str]) -> SettingsSources:
    """Read the file and override its values by the environment.

    Raises:
        ConfigurationError: the file cannot be read, or is not TOML.
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
    # Kubernetes sets SFN_PORT and SFN_SERVICE_HOST for a service named `sfn`: these have single underscores.
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
    """Return the key of `table` that a part of a variable's name means.

    Names of variables have no lower case, hyphens or dots, so these are compared as upper case and underscores.
    """
    return next((key for key in table if _normalised(key) == _normalised(part)), part.lower())


def _normalised(key: str) -> str:
    return key.upper().replace("-", "_").replace(".", "_")


def near_misses(environ: Mapping[str, str], known: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    """Return the variables that look like settings but are none, each with the variable that was meant.

    `SFN_LISTENER_PORT` has one underscore too few. Kubernetes sets other variables of this form, such as
    `SFN_SERVICE_HOST`: only those count that end with the key of a section.

    Args:
        environ: the environment variables.
        known: by section, its keys; for a section of named tables the keys of each table.
    """
    found = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or _is_settings_variable(name):
            continue
        rest = name.removeprefix(PREFIX)
        for section, keys in known.items():
            start = f"{_normalised(section)}_"
            ending = max((key for key in keys if rest.endswith(f"_{_normalised(key)}")), key=len, default=None)
            if not rest.startswith(start) or ending is None:
                continue
            middle = rest[len(start) : len(rest) - len(ending)].rstrip("_")
            found.append((name, variable_name([section, *([middle] if middle else []), ending])))
    return found
