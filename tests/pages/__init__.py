"""Pages of the documentation that are generated from the code.

Generate `docs/reference/settings.md` from the settings model, and `docs/reference/cli.md` from the command line.

`python -m tests.pages` writes both; `tests/unit/test_reference_pages.py` compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import typer
from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from sfn.cli.main import app
from sfn.settings.root import Settings
from sfn.settings.types import DURATION_UNITS, parse_size, validate_http_url
from tests.pages.descriptions import DESCRIPTIONS, SECTIONS
from tests.pages.json_keys import JSON_KEYS, MORE_JSON_KEYS
from tests.support.pages import Shown

MODULE: Final = "tests.pages"
_SIZES: Final = (("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))


def pages() -> list[Shown]:
    """Return every generated reference page."""
    return [
        Shown("docs/reference/settings.md", MODULE, f"\n{settings_text()}\n"),
        Shown("docs/reference/cli.md", MODULE, f"\n{cli_text()}\n"),
    ]


def keys() -> Iterator[tuple[str, str, FieldInfo]]:
    """Yield section, key and field of each setting, such as `catalogs`, `catalogs.NAME.uri`."""
    for section, info in Settings.model_fields.items():
        model, path = _model_of(section, info)
        for key, field in model.model_fields.items():
            yield section, f"{path}.{key}", field


def settings_text() -> str:
    """Return a heading for each section and below it one for each key: type, default, environment variable, meaning."""
    parts: list[str] = []
    seen: set[str] = set()
    for section, name, field in keys():
        if section not in seen:
            seen.add(section)
            parts.append(f"## `[{name.rpartition('.')[0]}]`\n\n{SECTIONS[section]}")
        parts.append(_setting(name, field))
    return "\n\n".join(parts) + "\n"


def cli_text() -> str:
    """Return a heading for each command: its usage, its help, its arguments and options."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return "\n\n".join(_commands(group, typer.Context(group, info_name="sfn"))) + "\n"


def _model_of(section: str, info: FieldInfo) -> tuple[type[BaseModel], str]:
    """Return the model of a section and its path: `catalogs.NAME` where the section is a table of such models."""
    if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
        return info.annotation, section
    return next(part for part in get_args(info.annotation) if isinstance(part, type) and issubclass(part, BaseModel)), (
        f"{section}.NAME"
    )


def _setting(name: str, field: FieldInfo) -> str:
    described = field.description or DESCRIPTIONS[name]
    facts = f"{type_in_words(field.annotation, field.metadata)}. {_default(field)}. `{_variable(name)}`"
    return f"### `{name}`\n\n{facts}\n\n{described}"


def _variable(name: str) -> str:
    """Return the environment variable of a key."""
    return "SFN_" + name.upper().replace(".", "__")


def type_in_words(annotation: Any, metadata: list[Any]) -> str:  # noqa: ANN401 - a type's annotation
    """Return a value's type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {Union, UnionType}:
        return type_in_words(next(one for one in arguments if one is not type(None)), metadata)
    if origin is Annotated:
        nested = [one for part in arguments[1:] for one in (part.metadata if isinstance(part, FieldInfo) else [part])]
        return type_in_words(arguments[0], [*metadata, *nested])
    if origin is Literal:
        return _one_of(arguments)
    if origin is tuple:
        return "Array of strings"
    if origin is not None and issubclass(origin, Mapping):
        return "Table of strings"
    return _plain(annotation, metadata)


def _plain(kind: type, metadata: list[Any]) -> str:
    checks = {check.func for check in metadata if isinstance(check, (AfterValidator, BeforeValidator))}
    if issubclass(kind, Enum):
        return _one_of([member.value for member in kind])
    if issubclass(kind, bool):
        return "Boolean"
    if issubclass(kind, int):
        return "Size" if parse_size in checks else f"Integer{_bounds(metadata)}"
    if issubclass(kind, float):
        return f"Number{_bounds(metadata)}"
    if issubclass(kind, str):
        return "URL" if validate_http_url in checks else "String"
    return next(words for base, words in _NAMES.items() if issubclass(kind, base))


_NAMES: Final[Mapping[type, str]] = {timedelta: "Duration", SecretStr: "Secret string", Path: "Path of a file"}


def _one_of(values: Any) -> str:  # noqa: ANN401 - of a literal
    return "One of " + ", ".join(f"`{value}`" for value in values)


def _bounds(metadata: list[Any]) -> str:
    least = next((check.ge for check in metadata if isinstance(check, Ge)), None)
    above = next((check.gt for check in metadata if isinstance(check, Gt)), None)
    most = next((check.le for check in metadata if isinstance(check, Le)), None)
    if least is None and above is None:
        return "" if most is None else f", at most {most}"
    if most is None:
        return f", at least {least}" if above is None else f", above {above}"
    return f", from {least} to {most}" if above is None else f", above {above} and at most {most}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "Required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ((), {}):
        return "No default"
    return f"Default `{_written(value, field)}`"


def _written(value: object, field: FieldInfo) -> str:
    """Return a default as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return f'"{_duration(value)}"'
    if isinstance(value, int):
        return f'"{_size(value)}"' if type_in_words(field.annotation, field.metadata) == "Size" else str(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{one}"' for one in value) + "]"
    return f'"{value.value if isinstance(value, Enum) else value}"'


def _duration(value: timedelta) -> str:
    for unit, length in reversed(DURATION_UNITS.items()):
        # Days stand for themselves only from a week on: 24h and 72h are how the settings write them.
        if value and not value % length and (unit != "d" or value >= timedelta(days=7)):
            return f"{value // length}{unit}"
    return "0s"


def _size(value: int) -> str:
    return next(f"{value // factor}{unit}" for unit, factor in _SIZES if value % factor == 0)


def _commands(command: TyperCommand | TyperGroup, context: typer.Context) -> Iterator[str]:
    """Yield the text of a command, then those of its subcommands in the order of their names."""
    yield _command(command, context)
    if isinstance(command, TyperGroup):
        for name, below in sorted(command.commands.items()):
            assert isinstance(below, (TyperCommand, TyperGroup))
            yield from _commands(below, typer.Context(below, info_name=name, parent=context))


def _command(command: TyperCommand | TyperGroup, context: typer.Context) -> str:
    path = context.command_path
    usage = " ".join((path, *command.collect_usage_pieces(context)))
    parts = [f"## `{path}`", f"```text\n{usage}\n```", *([command.help.strip()] if command.help else [])]
    if rows := "".join(_rows(command, context)):
        parts.append(f"| argument or option | meaning |\n| --- | --- |\n{rows}".rstrip())
    name = path.removeprefix("sfn ")
    if keys := JSON_KEYS.get(name):
        listed = ", ".join(f"`{key}`" for key in keys)
        noun = "key" if len(keys) == 1 else "keys"
        parts.append(f"`--json` prints an object with the {noun} {listed}.{MORE_JSON_KEYS.get(name, '')}")
    if isinstance(command, TyperCommand):
        parts.append("```console\n" + "".join(f"$ {example}\n" for example in examples_of(command)) + "```")
    return "\n\n".join(parts)


def examples_of(command: TyperCommand) -> list[str]:
    """Return the examples at the end of a command's help."""
    return re.findall(r"^- `(.+)`$", command.epilog or "", re.MULTILINE)


def _rows(command: TyperCommand | TyperGroup, context: typer.Context) -> Iterator[str]:
    """Yield a line for each argument and option, but `--help`, which every command has."""
    for parameter in command.get_params(context):
        assert isinstance(parameter, (TyperArgument, TyperOption))
        if isinstance(parameter, TyperOption) and parameter.is_flag:
            parameter.metavar = ""
        record = parameter.get_help_record(context)
        if record is None or parameter.name == "help":
            continue
        written, meaning = (" ".join(text.split()).replace("|", "\\|").replace("  ", " ") for text in record)
        yield f"| `{written.rstrip()}` | {meaning} |\n"
