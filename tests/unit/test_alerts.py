"""The alarms for Prometheus rest on metrics and labels that the service exposes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.test_metrics import EXPOSED

FILE = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
OF_PROMETHEUS = {"instance", "job"}
RULES: list[dict[str, Any]] = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]


COMMANDS = {"check", "dead-letters", "reconcile", "release", "status"}
"""Of `sfn`, those that help."""


def exposed(rule: dict[str, Any]) -> list[str]:
    """The metrics that a rule's expression names."""
    return re.findall(r"\b(?:sfn|process)_\w+", rule["expr"])


def test_each_has_a_name_of_its_own() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_it_rests_on_what_is_exposed_and_says_what_to_do(rule: dict[str, Any]) -> None:
    labels = {label for name in exposed(rule) for label in EXPOSED[name]}
    selected = re.findall(r"(\w+) *[=!]~?\"", rule["expr"])
    texts = " ".join(rule["annotations"].values())
    told = re.findall(r"\$labels\.(\w+)", texts)
    assert {*selected, *told} <= {*labels, *OF_PROMETHEUS}
    assert set(re.findall(r"\bsfn_\w+", texts)) <= set(EXPOSED)
    assert set(re.findall(r"\bsfn ([a-z-]+)", texts)) <= COMMANDS
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description"}
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))


def test_what_the_brake_holds_is_let_go_by_a_command_that_the_alarm_names() -> None:
    (texts,) = [rule["annotations"]["description"] for rule in RULES if rule["alert"] == "SfnTablesHeld"]
    assert "sfn release {{ $labels.catalog }}" in texts


def test_what_operators_must_know_of_has_an_alarm() -> None:
    alarmed = {name for rule in RULES for name in exposed(rule)}
    assert alarmed >= {
        "sfn_sweep_last_end_timestamp_seconds",
        "sfn_catalog_reached",
        "sfn_dead_letters",
        "sfn_gateway_unmapped_total",
        "sfn_gateway_unnoted_total",
        "sfn_held_tables",
        "sfn_inbox_answers",
        "sfn_lease_expirations_total",
        "sfn_missing_tables",
        "sfn_oldest_pending_age_seconds",
        "sfn_pull_connected",
        "sfn_ready",
        "sfn_sweep_last_withheld",
    }
