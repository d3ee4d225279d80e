"""Files of the Helm chart that are generated, and the reference of its values.

`docs/reference/helm-values.md` comes from the comments in `values.yaml`. In `values.schema.json`, `properties.config`
comes from the settings model. `files` has copies from `deploy/prometheus` and `deploy/grafana`, because a chart reads
no files outside its folder.

`python -m tests.pages` writes all of them; `tests/kit/test_chart_files.py` compares them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_origin

import yaml

from sfn.settings.root import Settings
from tests.pages import MODULE, keys, type_in_words
from tests.support.pages import ROOT, Shown

CHART: Final = ROOT / "deploy" / "helm" / "iceberg-sfn"
VALUES: Final = CHART / "values.yaml"
SCHEMA: Final = CHART / "values.schema.json"
DASHBOARDS: Final = ROOT / "deploy" / "grafana"
RULES: Final = ROOT / "deploy" / "prometheus"
_SECTION: Final = re.compile(r"^# ---- (.+) ----$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Generated:
    """A file that is generated as a whole."""

    path: Path
    text: str

    def write(self) -> None:
        """Write the file."""
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(self.text)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the chart.

    Attributes:
        name: its path, such as `image.tag`.
        default: its default as YAML; None for a group of values.
        comment: the text above it in `values.yaml`, in one line.
        line: its line in that file, from 0.
    """

    name: str
    default: str | None
    comment: str
    line: int


def generated_files() -> list[Generated]:
    """Return the schema of the values, and copies of the rules for Prometheus and of the dashboards for Grafana."""
    sources = {"prometheus": rule_files(), "grafana": sorted(DASHBOARDS.glob("*.json"))}
    return [
        Generated(SCHEMA, schema_text()),
        *(
            Generated(CHART / "files" / name / path.name, path.read_text())
            for name in sources
            for path in sources[name]
        ),
    ]


def rule_files() -> list[Path]:
    """Return the files with rules; tests of rules are not among them."""
    return [path for path in sorted(RULES.glob("*.yml")) if "groups" in yaml.safe_load(path.read_text())]


def values_page() -> Shown:
    """Return the reference page of the values."""
    return Shown("docs/reference/helm-values.md", MODULE, f"\n{values_text()}\n")


def values() -> list[Value]:
    """Return all values and groups of values, in the order of the file."""
    text = VALUES.read_text()
    node = yaml.compose(text)
    assert isinstance(node, yaml.MappingNode)
    return list(_walk(node, "", text.splitlines()))


def values_text() -> str:
    """Return a table for each section of `values.yaml`."""
    text = VALUES.read_text()
    heads = [(text.count("\n", 0, found.start()), found[1]) for found in _SECTION.finditer(text)]
    parts = []
    for (begin, title), (end, _) in zip(heads, [*heads[1:], (text.count("\n") + 1, "")], strict=True):
        rows = [_row(value) for value in values() if begin < value.line < end and value.comment]
        parts.append(f"## {title}\n\n| value | default | meaning |\n|---|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def schema_text() -> str:
    """Return the schema with the settings of this version."""
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["config"] = _config_schema()
    return json.dumps(schema, indent=2) + "\n"


def _walk(node: yaml.MappingNode, above: str, lines: list[str]) -> Iterator[Value]:
    for key, value in node.value:
        name, line = f"{above}{key.value}", key.start_mark.line
        is_group = isinstance(value, yaml.MappingNode) and not value.flow_style
        default = None if is_group else _default(value, lines)
        yield Value(name, default, _comment(lines, line), line)
        if is_group:
            yield from _walk(value, f"{name}.", lines)


def _default(node: yaml.Node, lines: list[str]) -> str:
    """Return a default as the file has it, in one line."""
    start, end = node.start_mark, node.end_mark
    assert start.line == end.line, f"line {start.line + 1}: write the default in one line"
    return lines[start.line][start.column : end.column]


def _comment(lines: list[str], line: int) -> str:
    """Return the comment right above a line."""
    found: list[str] = []
    while line and (text := lines[line - 1].strip()).startswith("# ") and not _SECTION.match(text):
        found.insert(0, text.removeprefix("# "))
        line -= 1
    return " ".join(found)


def _row(value: Value) -> str:
    default = "" if value.default is None else f"`{value.default}`"
    return f"| `{value.name}` | {default} | {value.comment.replace('|', chr(92) + '|')} |"


def _config_schema() -> Mapping[str, Any]:
    """Return the schema of the settings: one object for each section."""
    sections: dict[str, dict[str, Any]] = {section: {} for section in Settings.model_fields}
    for section, name, field in keys():
        sections[section][name.rpartition(".")[2]] = _type_schema(type_in_words(field.annotation, field.metadata))
    return _closed({section: _section_schema(section, found) for section, found in sections.items()})


def _section_schema(section: str, properties: Mapping[str, Any]) -> Mapping[str, Any]:
    if get_origin(Settings.model_fields[section].annotation) is Mapping:
        return {"type": "object", "additionalProperties": _closed(properties)}
    return _closed(properties)


def _closed(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


_TYPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "Boolean": {"type": "boolean"},
    "String": {"type": "string", "minLength": 1},
    "Secret string": {"type": "string", "minLength": 1},
    "URL": {"type": "string", "pattern": "^https?://"},
    "Path of a file": {"type": "string", "minLength": 1},
    # A number needs a unit, except for 0.
    "Duration": {
        "type": ["string", "integer"],
        "pattern": "^(0|off|[0-9.]+ ?(ms|s|m|h|d))$",
        "minimum": 0,
        "maximum": 0,
    },
    "Size": {"type": "string", "pattern": "^[0-9.]+ ?(B|KiB|MiB|GiB|kB|MB|GB)$"},
    "Array of strings": {"type": "array", "items": {"type": "string"}},
    "Table of strings": {"type": "object", "additionalProperties": {"type": "string"}},
}
_BOUNDS: Final = re.compile(
    r"(?P<kind>Integer|Number)"
    r"(?:, (?:at least (?P<least>\d+)|at most (?P<most>\d+)|from (?P<low>\d+) to (?P<high>\d+)))?"
)


def _type_schema(words: str) -> Mapping[str, Any]:
    """Return the schema of a type as the reference of the settings writes it."""
    if words in _TYPES:
        return _TYPES[words]
    if words.startswith("One of "):
        return {"enum": re.findall(r"`([^`]+)`", words)}
    found = _BOUNDS.fullmatch(words)
    assert found is not None, words
    bounds = {"minimum": found["least"] or found["low"], "maximum": found["most"] or found["high"]}
    return {"type": found["kind"].lower(), **{name: int(value) for name, value in bounds.items() if value is not None}}
