"""The dashboard: Grafana's model has all of it, its queries rest on exported metrics, and a real service fills it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
import yaml

from tests.kit.observed import Exported
from tests.kit.promql import Selector, grouping, selectors, without_macros
from tests.kit.test_prometheus import MONITOR, RECORDED, RULES, RUNBOOKS, TARGET_LABELS
from tests.shape.wording import private_prose

with warnings.catch_warnings():
    # The library prefers the newer form of dashboards, which many installations of Grafana cannot import.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models import units
    from grafana_foundation_sdk.models.dashboard import Dashboard

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "grafana"
FILE: Final = FOLDER / "iceberg-sfn.json"
BOARD: Final[dict[str, Any]] = json.loads(FILE.read_text())
PANELS: Final = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES: Final = [
    (f"{panel['title']} {target['refId']}", target["expr"]) for panel in PANELS for target in panel["targets"]
]
ANNOTATIONS: Final = [(one["name"], one["expr"]) for one in BOARD["annotations"]["list"] if "expr" in one]
VARIABLES: Final = {one["name"]: one for one in BOARD["templating"]["list"]}
COLUMNS: Final = 24
UNITS: Final = {value for value in vars(units).values() if isinstance(value, str)}
AGGREGATIONS: Final = {"avg", "count", "max", "min", "sum"}

of_every_panel = pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
of_every_query = pytest.mark.parametrize(
    "expr", [expr for _, expr in [*QUERIES, *ANNOTATIONS]], ids=[title for title, _ in [*QUERIES, *ANNOTATIONS]]
)


@pytest.fixture(name="program")
def fixture_program(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program that writes the dashboard."""
    monkeypatch.syspath_prepend(FOLDER)
    spec = importlib.util.spec_from_file_location("dashboard", FOLDER / "dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # as above
        spec.loader.exec_module(module)
    yield module
    sys.modules.pop("panels", None)


def test_it_is_what_the_program_writes(program: ModuleType) -> None:
    assert FILE.read_text() == program.rendered(), "write it: python deploy/grafana/dashboard.py"


def test_the_model_of_grafana_has_every_key_of_it() -> None:
    register_default_plugins()
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(FILE.read_text()))))
    assert again == BOARD


def test_it_can_be_imported_beside_others() -> None:
    assert BOARD["uid"] == "iceberg-sfn"
    assert "iceberg-sfn" in BOARD["tags"]
    assert BOARD["schemaVersion"] == 42  # of Grafana 12
    assert not {"__inputs", "__requires", "id"} & set(BOARD)
    assert list(VARIABLES) == ["datasource", "job", "instance", "catalog"]


@of_every_panel
def test_a_panel_explains_itself(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert len(panel["description"]) > 20
    assert not list(private_prose(panel["description"]))
    for page in re.findall(r"Runbook: (\S+\.md)", panel["description"]):
        assert (RUNBOOKS / page).is_file()


@of_every_panel
def test_a_panel_has_a_unit_few_colours_and_the_chosen_data_source(panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"] in UNITS
    steps = defaults["thresholds"]["steps"]
    assert steps[0]["value"] is None
    values = [step["value"] for step in steps[1:]]
    assert values == sorted(values)
    assert {step["color"] for step in steps} <= {"green", "yellow", "red"}
    sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= COLUMNS for place in places)
    for one, other in itertools.combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


def test_grafana_in_compose_knows_the_scrape_interval_and_the_dashboard() -> None:
    (source,) = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((FOLDER / "provisioning/dashboards/iceberg-sfn.yml").read_text())["providers"]
    settings = yaml.safe_load((FOLDER.parent / "prometheus/prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == settings["global"]["scrape_interval"]
    assert settings["rule_files"] == ["recording.yml", "alerts.yml"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"


@of_every_query
def test_metrics_labels_and_values_are_exported(expr: str, exported: Exported) -> None:
    known = set(TARGET_LABELS)
    for selector in selectors(expr):
        labels = labels_of(selector, exported)
        known |= {*labels, "catalog"} if selector.metric in RECORDED else set(labels)
        for matcher in selector.matchers:
            assert matcher.label in {*labels, *TARGET_LABELS}, selector
            assert set(matcher.values) <= labels.get(matcher.label, set()), selector
    assert grouping(expr) <= known | labels_made_by(expr)


def labels_of(selector: Selector, exported: Exported) -> dict[str, set[str]]:
    """Return the labels of a metric, with their values."""
    if selector.metric in RECORDED:
        return {"catalog": set()}
    assert selector.metric in exported.values, selector
    return dict(exported.values[selector.metric])


def labels_made_by(expr: str) -> set[str]:
    """Return the labels that an expression adds itself."""
    return set(re.findall(r'label_replace\(.*?, "(\w+)", "\$1"', expr))


@of_every_query
def test_replicas_are_not_counted_twice(expr: str, exported: Exported) -> None:
    """Replicas export the same gauges of their inbox, and each has its own counters."""
    for selector in selectors(expr):
        around = [one for one in selector.inside if one in AGGREGATIONS]
        if exported.types.get(selector.metric) == "gauge" and around:
            assert around[-1] in {"max", "min"}, selector


@of_every_query
def test_counters_survive_restarts(expr: str, exported: Exported) -> None:
    for selector in selectors(expr):
        if exported.types.get(selector.metric) in {"counter", "histogram"}:
            assert {"rate", "increase"} & set(selector.inside), selector


@of_every_query
def test_it_is_limited_to_what_was_chosen(expr: str, exported: Exported) -> None:
    for selector in selectors(expr):
        chosen = {matcher.label for matcher in selector.matchers}
        if selector.metric == "sfn:staleness_objective:ratio":
            continue
        if selector.metric in {"sfn_ready", "sfn_build_info"} and not chosen:
            assert "job" in grouping(expr)
            continue
        wanted = {"job"} if selector.metric in RECORDED else {"job", "instance"}
        if "catalog" in labels_of(selector, exported):
            wanted.add("catalog")
        assert wanted <= chosen, selector


@pytest.mark.parametrize("name", ["job", "instance", "catalog"])
def test_a_variable_has_the_values_of_an_exported_label(name: str, exported: Exported) -> None:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", VARIABLES[name]["query"])
    assert found is not None
    (selector,) = selectors(found[1])
    assert found[2] == name
    assert name in {*exported.values[selector.metric], *TARGET_LABELS}


def test_every_metric_is_shown_or_alerted_on_or_listed_as_not_shown(exported: Exported) -> None:
    expressions = [*(expr for _, expr in QUERIES), *(rule["expr"] for rule in RULES)]
    used = {selector.metric for expr in expressions for selector in selectors(expr)}
    (listed,) = re.findall(r"The dashboard does not show (.+?)\.\n", MONITOR.read_text(), re.DOTALL)
    hidden = set(re.findall(r"`(\w+)`", listed))
    parts = {name for name, kind in exported.types.items() if kind == "histogram" and not name.endswith("_bucket")}
    assert set(exported.values) - used - parts == hidden


def test_it_uses_only_recorded_series_that_exist() -> None:
    recorded = {selector.metric for _, expr in QUERIES for selector in selectors(expr) if ":" in selector.metric}
    assert recorded
    assert recorded <= RECORDED


@pytest.mark.parametrize("expr", [expr for _, expr in QUERIES], ids=[title for title, _ in QUERIES])
def test_a_real_service_fills_it(expr: str, until_filled: Callable[[str], None]) -> None:
    everything = {"job": "iceberg-sfn", "instance": ".*", "catalog": ".*"}
    until_filled(without_macros(expr, everything))
