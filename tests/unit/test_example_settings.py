"""`deploy/sfn.example.toml`: it loads as it stands, names every key, and shows the defaults as they are; and the
reference of settings has every key too.

A line that begins with `#` and no space after it is a setting that is not set.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sfn.app import catalogs
from sfn.settings import load
from sfn.settings.model import Settings

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "sfn.example.toml"
LINES = FILE.read_text().splitlines()
TABLE = re.compile(r"(#?)\[(.+)\]")
KEY = re.compile(r"(#?)([a-z0-9_]+) = (.+)")
NOTHING: tuple[object, ...] = (None, (), {}, PydanticUndefined)
"""Defaults that show nothing, or are none: an example stands in their place."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A key in the file.

    Attributes:
        section: `listener`, or `catalogs` for each table of that section.
        is_set: it is no remark.
        in_force: nor is its table.
        number: of its line.
    """

    section: str
    key: str
    value: Any
    is_set: bool
    in_force: bool
    number: int

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"


def shown() -> Iterator[Shown]:
    """The keys in the file, set or not."""
    section, in_force = "", True
    for number, line in enumerate(LINES):
        if table := TABLE.fullmatch(line):
            section, in_force = table[2].split(".")[0], not table[1]
        elif key := KEY.fullmatch(line):
            value = tomllib.loads(f"value = {key[3]}")["value"]
            yield Shown(section, key[2], value, is_set=not key[1], in_force=in_force, number=number)


def known() -> Iterator[tuple[str, FieldInfo]]:
    """The keys of the model."""
    for section, info in Settings.model_fields.items():
        # The model itself, or that of each table of a mapping.
        model = next(part for part in (info.annotation, *get_args(info.annotation)) if hasattr(part, "model_fields"))
        yield from ((f"{section}.{key}", field) for key, field in model.model_fields.items())


WITHOUT_VALUE = "catalogs.root"
"""The key that has no value yet which could be shown."""
FIELDS = dict(known())
SHOWN = list(shown())


def default_of(key: Shown) -> object:
    return FIELDS[key.name].get_default(call_default_factory=True)


DEFAULTS = [key for key in SHOWN if key.name in FIELDS and not key.is_set and default_of(key) not in NOTHING]


def test_every_key_is_in_it_once_and_no_other() -> None:
    assert sorted(key.name for key in SHOWN) == sorted(set(FIELDS) - {WITHOUT_VALUE})


def described() -> list[str]:
    """Return the keys with a heading in the reference of settings, such as `catalogs.uri`."""
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    return [key.replace(".NAME.", ".") for key in re.findall(r"^### `(.+)`$", text, re.MULTILINE)]


def test_every_key_is_in_the_reference_once_and_no_other() -> None:
    assert sorted(described()) == sorted(FIELDS)


def test_every_line_is_a_remark_a_table_or_a_key() -> None:
    others = [line for line in LINES if line and not line.startswith("# ") and line != "#"]
    assert [line for line in others if not TABLE.fullmatch(line) and not KEY.fullmatch(line)] == []


def test_what_is_set_is_what_has_no_default() -> None:
    assert [key.name for key in SHOWN if key.is_set] == ["catalogs.uri", "stores.prefix"]


def test_it_loads_as_it_stands() -> None:
    settings = load(FILE, {})
    catalogs.check_adapters(settings)
    assert (len(settings.catalogs), len(settings.stores)) == (1, 1)


@pytest.mark.parametrize("key", SHOWN, ids=lambda key: key.name)
def test_what_a_line_shows_is_the_default_or_an_example_of_another_value(key: Shown) -> None:
    field = FIELDS[key.name]
    annotation: Any = field.annotation
    alone = create_model("Alone", value=(annotation, field)).model_validate({"value": key.value})
    assert (vars(alone)["value"] == default_of(key)) == (key in DEFAULTS)


@pytest.mark.parametrize("key", [key for key in SHOWN if not key.is_set], ids=lambda key: key.name)
def test_what_shows_no_default_says_so(key: Shown) -> None:
    above = next(line for line in reversed(LINES[: key.number]) if line.startswith("# "))
    assert above.endswith("e.g.") == (key not in DEFAULTS)


def test_with_its_defaults_set_it_says_the_same(tmp_path: Path) -> None:
    lines = dict(enumerate(LINES))
    lines |= {key.number: LINES[key.number].removeprefix("#") for key in DEFAULTS if key.in_force}
    file = tmp_path / "sfn.toml"
    file.write_text("\n".join(lines.values()))
    assert tomllib.loads(file.read_text()) != tomllib.loads(FILE.read_text())
    assert load(file, {}) == load(FILE, {})


def test_the_sender_in_it_may_be_let_in(tmp_path: Path) -> None:
    wanted = ("#[senders.etl]", "#secrets =")
    file = tmp_path / "sfn.toml"
    file.write_text("\n".join(line.removeprefix("#") if line.startswith(wanted) else line for line in LINES))
    assert load(file, {"SFN_LISTENER__HOST": "0.0.0.0"}).catalogs_of("etl") == {"prod": "prod"}  # noqa: S104 - not bound
