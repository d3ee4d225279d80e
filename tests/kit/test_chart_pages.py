"""The page about Kubernetes: its values can be rendered, and its commands name what is there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import yaml

from sfn.settings import load
from tests.kit.chart import Chart, Rendered
from tests.kit.test_chart import schema_errors
from tests.pages.helm_chart import CHART, values
from tests.support.pages import ROOT

PAGE: Final = (ROOT / "docs" / "get-started" / "kubernetes.md").read_text()
BLOCKS: Final = dict(re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
COMMANDS: Final = re.sub(r"\\\n\s*", "", "".join(re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)))
RELEASE: Final = "sfn"
NAMESPACE: Final = "lake"
MADE_BY_OTHERS: Final = {"sfn-tls": "tls.crt tls.key"}
"""Secrets that another tool makes, and their keys."""
TOGETHER: Final = [
    ("values.yaml",),
    ("values.yaml", "s3-key.yaml"),
    ("postgresql.yaml",),
    ("postgresql.yaml", "deployments.yaml"),
]
"""Files that the page passes to one command."""
FILE: Final = re.compile(r"/etc/sfn/(?:secrets|configmaps)/([^/\s\"]+)/([^/\s\"]+)")


def rendered_from(chart: Chart, folder: Path, names: Sequence[str]) -> Rendered:
    """Return what Helm renders from files of the page."""
    arguments: list[str | Path] = []
    for name in names:
        (folder / name).write_text(BLOCKS[name])
        arguments += ["--values", folder / name]
    done = chart.run("template", RELEASE, CHART, "--namespace", NAMESPACE, *arguments)
    assert done.returncode == 0, done.stderr
    return Rendered(done.stdout, [one for one in yaml.safe_load_all(done.stdout) if one])


def test_every_block_of_values_has_a_name_and_is_tested() -> None:
    assert len(BLOCKS) == PAGE.count("```yaml")
    assert {name for names in TOGETHER for name in names} == BLOCKS.keys()


def test_values_for_postgresql_are_one_of_the_value_sets_of_the_chart() -> None:
    assert BLOCKS["postgresql.yaml"] == (CHART / "ci" / "production-values.yaml").read_text().partition("\n")[2]


@pytest.mark.parametrize("names", TOGETHER, ids="+".join)
def test_values_of_the_page_are_accepted_by_chart_and_service(
    chart: Chart, names: Sequence[str], tmp_path: Path
) -> None:
    rendered = rendered_from(chart, tmp_path, names)
    file = tmp_path / "sfn.toml"
    file.write_text(rendered.settings_text)
    settings = load(file, {"SFN_STORES__LAKE__SECRET_ACCESS_KEY": "x"} if "s3-key.yaml" in names else {})
    assert settings.admin.is_enabled
    made = dict(MADE_BY_OTHERS)
    for name, keys in re.findall(r"create (?:secret generic|configmap) (\S+) (.*)", COMMANDS):
        made[name] = " ".join(re.findall(r"--from-(?:literal|file)=([\w.]+)", keys))
    files = FILE.findall(rendered.settings_text)
    assert files
    assert [(name, key) for name, key in files if key not in made[name].split()] == []


def test_commands_name_objects_of_the_release(chart: Chart, tmp_path: Path) -> None:
    sqlite, postgresql = (rendered_from(chart, tmp_path, [name]) for name in ("values.yaml", "postgresql.yaml"))
    objects = {
        f"{one['kind'].lower()}/{one['metadata']['name']}" for made in (sqlite, postgresql) for one in made.objects
    }
    named = re.findall(r"(?:rollout status|exec) ((?:statefulset|deployment)/\S+)", COMMANDS)
    assert len(named) == 6
    assert set(named) <= objects
    assert set(re.findall(r"--values (\S+)", COMMANDS)) == {"values.yaml", "postgresql.yaml"}
    assert set(re.findall(r"delete pvc (\S+)", COMMANDS)) == {"sfn-iceberg-sfn-inbox"}
    assert "persistentvolumeclaim/sfn-iceberg-sfn-inbox" in objects
    assert set(re.findall(r"sfn-iceberg-sfn-\d", PAGE)) == {"sfn-iceberg-sfn-0"}
    assert "service/sfn-iceberg-sfn" in objects


def test_clients_and_prometheus_use_names_of_the_service(chart: Chart, tmp_path: Path) -> None:
    rendered = rendered_from(chart, tmp_path, ["postgresql.yaml"])
    (service,) = rendered.services
    name = f"{service['metadata']['name']}.{NAMESPACE}"
    (endpoint,) = rendered.the("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["tlsConfig"]["serverName"] == f"{name}.svc"
    assert all(f"`{one}`" in PAGE for one in (name, f"{name}.svc", f"{name}.svc.cluster.local"))
    assert set(re.findall(r"http://([\w.-]+):8085", PAGE)) == {name}


def test_network_policy_of_the_page_allows_what_the_listener_reaches(chart: Chart, tmp_path: Path) -> None:
    rendered = rendered_from(chart, tmp_path, ["postgresql.yaml"])
    egress = rendered.the("NetworkPolicy")["spec"]["egress"]
    open_ports = {port["port"] for rule in egress for port in rule["ports"]}
    settings = rendered.settings
    addresses = [settings["inbox"]["url"], *(one["uri"] for one in settings["catalogs"].values())]
    assert {urlsplit(one).port or 443 for one in addresses} <= open_ports
    more = [
        rule for text in re.findall(r"^\| .*\| `(- \{to: .*)` \|$", PAGE, re.MULTILINE) for rule in yaml.safe_load(text)
    ]
    assert len(more) == 3
    assert all(ip_network(peer["ipBlock"]["cidr"]).is_link_local for rule in more for peer in rule["to"])
    wider = chart.render("production", {"networkPolicy.egress": more}).the("NetworkPolicy")
    assert wider["spec"]["egress"][1:] == more
    assert schema_errors(wider) == []


def test_values_that_the_page_names_exist() -> None:
    known = {value.name for value in values()} | {"config.telemetry.metrics_token_file", "config.worker.concurrency"}
    tops = {name.partition(".")[0] for name in known}
    named = {name for name in re.findall(r"`([a-z]\w*(?:\.\w+)+)[:`]", PAGE) if name.partition(".")[0] in tops}
    assert len(named) > 10
    assert named - known - {"worker.lease", "sfn.toml"} == set()
