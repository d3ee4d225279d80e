"""The rules for Prometheus: promtool accepts and tests them, they rest on exported metrics, and each has a runbook."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kit.observed import Exported
from tests.kit.prometheus import Prometheus
from tests.kit.promql import Matcher, Selector, grouping, selectors
from tests.shape.measures import anchors
from tests.shape.wording import private_prose

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "prometheus"
RUNBOOKS: Final = ROOT / "docs" / "operate" / "runbooks"
MONITOR: Final = ROOT / "docs" / "operate" / "monitor.md"
TARGET_LABELS: Final = {"cluster", "namespace", "job", "instance"}
"""Labels that Prometheus, or its operator, adds to each series."""
OF_PROMETHEUS: Final = {"up"}
COMMANDS: Final = {"check", "dead-letters", "reconcile", "release", "status", "tables"}
"""Of `sfn`, those that help."""


def rules_of(name: str) -> list[dict[str, Any]]:
    """Return the rules of a file."""
    return [rule for group in yaml.safe_load((FOLDER / name).read_text())["groups"] for rule in group["rules"]]


ALERTS: Final = rules_of("alerts.yml")
RECORDS: Final = rules_of("recording.yml")
RECORDED: Final = {rule["record"] for rule in RECORDS}
RULES: Final = [*ALERTS, *RECORDS]
TESTS: Final = yaml.safe_load((FOLDER / "tests.yml").read_text())["tests"]


def name_of(rule: dict[str, Any]) -> str:
    """Return the name of an alert or of a recorded series."""
    return str(rule.get("alert") or rule["record"])


def of_every(rules: list[dict[str, Any]]) -> pytest.MarkDecorator:
    """Run a test for every rule."""
    return pytest.mark.parametrize("rule", rules, ids=list(map(name_of, rules)))


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "--lint=all", "--lint-fatal", "recording.yml", "alerts.yml"),
        ("check", "config", "--lint=all", "--lint-fatal", "prometheus.yml"),
        ("test", "rules", "tests.yml"),
    ],
    ids=["rules", "configuration", "tests"],
)
def test_promtool_accepts_it(promtool: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run([promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_an_expression_is_read_with_what_is_around_each_metric() -> None:
    expr = 'max by (job) (rate(a{b="c",d=~"e|f",g!="h",i=~"$j"}[5m])) > on (k) group_left (l) m'
    conditions = (Matcher("b", ("c",)), Matcher("d", ("e", "f")), Matcher("g", ()), Matcher("i", ()))
    assert selectors(expr) == [Selector("a", conditions, ("max", "rate", "range")), Selector("m", (), ())]
    assert grouping(expr) == {"job", "k", "l"}
    with pytest.raises(ValueError, match="parenthesis"):
        selectors("sum by (a (b)")


def test_names_are_unique() -> None:
    names = list(map(name_of, RULES))
    assert len(set(names)) == len(names)


@of_every(RULES)
def test_metrics_labels_and_values_are_exported(rule: dict[str, Any], exported: Exported) -> None:
    known: set[str] = set(TARGET_LABELS)
    for selector in selectors(rule["expr"]):
        if selector.metric in RECORDED | OF_PROMETHEUS:
            known.add("catalog")
            continue
        assert selector.metric in exported.values, selector
        labels = exported.values[selector.metric]
        known |= set(labels)
        for matcher in selector.matchers:
            assert matcher.label in labels, selector
            assert set(matcher.values) <= labels[matcher.label], selector
    assert grouping(rule["expr"]) <= known


@of_every(ALERTS)
def test_an_alert_has_labels_and_texts(rule: dict[str, Any]) -> None:
    texts = " ".join(rule["annotations"].values())
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert not list(private_prose(texts))
    assert set(re.findall(r"\bsfn ([a-z-]+)", texts)) <= COMMANDS


@of_every(ALERTS)
def test_an_alert_names_only_exported_metrics_in_its_texts(rule: dict[str, Any], exported: Exported) -> None:
    named = re.findall(r"\bsfn_\w+", " ".join(rule["annotations"].values()))
    assert set(named) <= set(exported.values)


@of_every(ALERTS)
def test_an_alert_has_a_runbook_with_its_name_as_heading(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (ROOT / page).is_relative_to(RUNBOOKS)
    assert anchor in anchors(ROOT / page)
    assert f"## {rule['alert']}\n" in (ROOT / page).read_text()
    assert anchor == rule["alert"].lower()


def test_every_runbook_is_of_an_alert() -> None:
    pages = [page.read_text() for page in RUNBOOKS.glob("*.md")]
    headings = {heading for page in pages for heading in re.findall(r"^## (Sfn\w+)$", page, re.MULTILINE)}
    assert headings == {rule["alert"] for rule in ALERTS}


def test_the_list_of_runbooks_has_every_alert_with_its_severity() -> None:
    rows = re.findall(r"^\| \[`(\w+)`\]\(([^)]+)\) \| (\w+) \|", (RUNBOOKS / "README.md").read_text(), re.MULTILINE)
    listed = {(name, f"docs/operate/runbooks/{link}", severity) for name, link, severity in rows}
    assert listed == {
        (rule["alert"], rule["annotations"]["runbook_url"], rule["labels"]["severity"]) for rule in ALERTS
    }


def test_every_alert_is_tested_both_ways() -> None:
    expected: defaultdict[str, set[bool]] = defaultdict(set)
    for case in TESTS:
        for one in case.get("alert_rule_test", []):
            expected[one["alertname"]].add(bool(one["exp_alerts"]))
    assert expected == {rule["alert"]: {True, False} for rule in ALERTS}


def test_every_recorded_series_is_tested() -> None:
    expressions = [one["expr"] for case in TESTS for one in case.get("promql_expr_test", [])]
    assert {selector.metric for expr in expressions for selector in selectors(expr)} == RECORDED


def test_a_shown_command_puts_an_address_before_runbooks() -> None:
    commands = re.findall(r"^sed .*\n", MONITOR.read_text(), re.MULTILINE)
    results = []
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=FOLDER.parents[1], capture_output=True, text=True, check=True
        )
        rules = [rule for group in yaml.safe_load(done.stdout)["groups"] for rule in group["rules"]]
        results.append(next(rule["annotations"]["runbook_url"] for rule in rules if rule["alert"] == "SfnDeadLetters"))
    assert results == [
        "https://git.example.com/iceberg-sfn/blob/main/docs/operate/runbooks/dead-letters.md#sfndeadletters",
        "https://docs.example.com/operate/runbooks/dead-letters/#sfndeadletters",
    ]


def test_what_operators_must_know_of_has_an_alert() -> None:
    alarmed = {selector.metric for rule in RULES for selector in selectors(rule["expr"])}
    assert alarmed >= {
        "sfn_breaker_open",
        "sfn_build_info",
        "sfn_catalog_reached",
        "sfn_dead_letters",
        "sfn_gateway_unmapped_total",
        "sfn_gateway_unrecorded_total",
        "sfn_inbox_answers",
        "sfn_late_tables",
        "sfn_lease_expirations_total",
        "sfn_missing_tables",
        "sfn_oldest_pending_age_seconds",
        "sfn_pull_connected",
        "sfn_ready",
        "sfn_staleness_seconds_bucket",
        "sfn_sweep_last_end_timestamp_seconds",
        "sfn_sweep_last_unlisted_namespaces",
        "sfn_tables_on_hold",
    }


def test_a_real_prometheus_evaluates_every_rule(prometheus: Prometheus) -> None:
    rules = prometheus.rules()
    assert {rule["name"] for rule in rules} == set(map(name_of, RULES))
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] == "err"} == {}


@of_every(RULES)
def test_a_real_prometheus_answers_the_expression(rule: dict[str, Any], prometheus: Prometheus) -> None:
    prometheus.query(rule["expr"])


@of_every(RECORDS)
def test_a_real_service_fills_a_recorded_series(rule: dict[str, Any], until_filled: Callable[[str], None]) -> None:
    until_filled(rule["record"])
