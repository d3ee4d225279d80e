"""The page about Kubernetes: its values can be rendered, and its commands name what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sfn.settings import load
from tests.kit.chart import Chart, paths_of_files
from tests.pages.helm_chart import values
from tests.support.pages import ROOT

PAGE: Final = (ROOT / "docs" / "get-started" / "kubernetes.md").read_text()
BLOCKS: Final = dict(re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
FIRST: Final = "values.yaml"
COMMANDS: Final = re.sub(r"\\\n\s*", "", "".join(re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)))
RELEASE: Final = "sfn"
MADE_BY_OTHERS: Final = {"sfn-tls"}
"""Secrets that another tool makes."""


def flattened(name: str) -> dict[str, Any]:
    """Return the values of a block on the page, together with those of the first, by path."""
    found: dict[str, Any] = {}
    for block in (FIRST, name):
        for key, value in yaml.safe_load(BLOCKS[block]).items():
            if key == "config":
                found.update({f"config.{section}": table for section, table in value.items()})
            else:
                found[key] = value
    return found


def test_every_block_of_values_has_a_name() -> None:
    assert len(BLOCKS) == PAGE.count("```yaml") == 4


@pytest.mark.parametrize("name", BLOCKS)
def test_values_of_the_page_are_accepted_by_chart_and_service(chart: Chart, name: str, tmp_path: Path) -> None:
    rendered = chart.render("", flattened(name), RELEASE)
    file = tmp_path / "sfn.toml"
    file.write_text(rendered.settings_text)
    settings = load(file, {})
    assert settings.admin.is_enabled
    made = dict.fromkeys(MADE_BY_OTHERS, "tls.crt tls.key")
    for secret, keys in re.findall(r"create secret generic (\S+) (.*)", COMMANDS):
        made[secret] = " ".join(re.findall(r"--from-literal=(\w+)=", keys))
    for path in paths_of_files(rendered.settings):
        secret, key = path.split("/")[-2:]
        assert key in made[secret].split()


def test_commands_name_objects_of_the_release(chart: Chart) -> None:
    sqlite, postgresql = (chart.render("", flattened(name), RELEASE) for name in (FIRST, "postgresql.yaml"))
    objects = {
        f"{one['kind'].lower()}/{one['metadata']['name']}" for made in (sqlite, postgresql) for one in made.objects
    }
    named = re.findall(r"(?:rollout status|exec) ((?:statefulset|deployment)/\S+)", COMMANDS)
    assert len(named) == 4
    assert set(named) <= objects
    assert set(re.findall(r"delete pvc (\S+)", COMMANDS)) == {"sfn-iceberg-sfn-inbox"}
    assert "persistentvolumeclaim/sfn-iceberg-sfn-inbox" in objects
    assert set(re.findall(r"sfn-iceberg-sfn-\d", PAGE)) == {"sfn-iceberg-sfn-0"}
    assert "service/sfn-iceberg-sfn" in objects


def test_values_that_the_page_names_exist() -> None:
    known = {value.name for value in values()} | {"config.telemetry.metrics_token_file", "config.worker.concurrency"}
    tops = {name.partition(".")[0] for name in known}
    named = {name for name in re.findall(r"`([a-z]\w*(?:\.\w+)+)[:`]", PAGE) if name.partition(".")[0] in tops}
    assert len(named) > 10
    assert named - known - {"worker.lease", "sfn.toml"} == set()
