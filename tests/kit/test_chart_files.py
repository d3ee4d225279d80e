"""The generated files of the chart are current, and its values, their comments and their schema agree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
import yaml

from sfn.settings.root import Role
from sfn.settings.types import parse_duration
from tests.pages.helm_chart import (
    CHART,
    SCHEMA,
    VALUES,
    Generated,
    generated_files,
    rule_files,
    values,
    values_page,
)
from tests.support.deployment import IMAGE, PROJECT

ABOUT: Final = yaml.safe_load((CHART / "Chart.yaml").read_text())
DEFAULTS: Final = yaml.safe_load(VALUES.read_text())
FOR_PARENT_CHARTS: Final = {"enabled", "global"}
"""Values that only a chart with this one as its dependency sets."""
OPEN: Final = {"podSecurityContext", "securityContext", "resources"}
"""Values whose keys are Kubernetes' own."""
OPTIONAL_FOR_PROBES: Final = {"initialDelaySeconds", "successThreshold"}


@pytest.mark.parametrize("file", generated_files(), ids=lambda file: file.path.name)
def test_generated_file_is_current(file: Generated) -> None:
    assert file.path.read_text() == file.text, "write it: python -m tests.pages"


def test_reference_of_values_is_current() -> None:
    page = values_page()
    assert page.path.read_text() == page.brought_up_to_date(), "write it: python -m tests.pages"


def test_chart_has_every_file_of_rules_and_dashboards_and_no_other() -> None:
    assert rule_files()
    copies = {file.path for file in generated_files()} - {SCHEMA}
    assert {path for path in (CHART / "files").rglob("*") if path.is_file()} == copies


def test_every_value_has_a_comment() -> None:
    assert [value.name for value in values() if value.default is not None and not value.comment] == []


def test_comments_are_sentences() -> None:
    wrong = [value.name for value in values() if value.comment and not re.search(r"[.:`]$", value.comment)]
    assert wrong == []


def test_every_value_is_on_the_page_and_each_value_of_the_page_exists() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \|", values_page().path.read_text(), re.MULTILINE)
    assert rows == [value.name for value in values() if value.comment]


def test_schema_has_exactly_the_values_of_the_chart() -> None:
    schema = json.loads(SCHEMA.read_text())
    known = set(_names(schema, schema["definitions"], ""))
    listed = {
        value.name
        for value in values()
        if not value.name.startswith("config.") and value.name.partition(".")[0] not in OPEN
    }
    probes = {name for name in known if name.rpartition(".")[2] in OPTIONAL_FOR_PROBES}
    assert known - FOR_PARENT_CHARTS - probes - OPEN == listed - OPEN


def _names(schema: Mapping[str, Any], definitions: Mapping[str, Any], above: str) -> Iterator[str]:
    """Yield the paths that a schema names; not those below `config`, which the settings model has."""
    for key, found in schema.get("properties", {}).items():
        name, one = f"{above}{key}", found
        if "$ref" in found:
            one = definitions[found["$ref"].removeprefix("#/definitions/")]
        yield name
        if name != "config":
            yield from _names(one, definitions, f"{name}.")


def test_objects_of_the_schema_refuse_unknown_keys() -> None:
    def open_objects(schema: object, path: str) -> Iterator[str]:
        if isinstance(schema, dict):
            if (
                schema.get("type") == "object"
                and "properties" in schema
                and schema["additionalProperties"] is not False
            ):
                yield path
            for key, value in schema.items():
                yield from open_objects(value, f"{path}/{key}")

    assert list(open_objects(json.loads(SCHEMA.read_text()), "")) == []


def test_roles_of_the_schema_are_those_of_the_service() -> None:
    deployment = json.loads(SCHEMA.read_text())["definitions"]["deployment"]
    assert deployment["properties"]["roles"]["items"]["enum"] == [role.value for role in Role]


def test_chart_has_the_version_and_the_description_of_the_project() -> None:
    project = PROJECT["project"]
    assert ABOUT["apiVersion"] == "v2"
    assert (ABOUT["version"], ABOUT["appVersion"]) == (project["version"], project["version"])
    assert ABOUT["description"] == project["description"]


def test_pods_have_the_user_of_the_image() -> None:
    context = DEFAULTS["podSecurityContext"]
    assert f"{context['runAsUser']}:{context['runAsGroup']}" == IMAGE.the("USER")
    assert context["fsGroup"] == context["runAsGroup"]


def test_pods_have_the_time_to_stop_that_the_default_of_drain_needs() -> None:
    assert timedelta(seconds=DEFAULTS["terminationGracePeriodSeconds"]) == parse_duration("30s") + timedelta(seconds=40)


def test_inbox_lies_in_the_volume_of_the_image() -> None:
    assert DEFAULTS["config"]["inbox"]["url"] == f"sqlite:///{IMAGE.the('VOLUME')}/inbox.db"
    assert str(DEFAULTS["config"]["listener"]["port"]) == IMAGE.the("EXPOSE")
