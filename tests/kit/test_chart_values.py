"""Values that cannot work are refused, each with its own message."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Final

import pytest

from sfn.settings.types import parse_duration
from tests.kit.chart import VALUE_SETS, Chart
from tests.pages import keys, type_in_words
from tests.pages.helm_chart import CHART

SQLITE, POSTGRESQL, PRODUCTION, ROLES, EVERYTHING, OWN_CONFIG = (
    "minimal-sqlite",
    "postgresql",
    "production",
    "roles",
    "everything",
    "s3-irsa",
)

REFUSED: Final[list[tuple[str, Mapping[str, Any], str]]] = [
    ("", {}, "config.catalogs is empty, so there is no configuration"),
    (SQLITE, {"existingConfig.secretName": "sfn"}, "config and existingConfig.secretName are both set"),
    (SQLITE, {"config.senders": None}, "config.senders is empty"),
    (SQLITE, {"config.stores": None}, "config.stores is empty, so no table of prod can be published"),
    (SQLITE, {"replicaCount": 2}, "replicaCount is 2, but the inbox is SQLite"),
    (OWN_CONFIG, {"replicaCount": 2}, "replicaCount is 2, but the inbox is SQLite"),
    (SQLITE, {"deployments.all.roles": ["worker"]}, "deployments is set, but the inbox is SQLite"),
    (
        ROLES,
        {"deployments": {"front": {"roles": ["receiver", "gateway", "facade"]}}},
        "no entry of deployments has the role worker",
    ),
    (ROLES, {"replicaCount": 2}, "replicaCount and deployments are both set"),
    (ROLES, {"deployments.worker.roles": ["reader"]}, "value must be one of 'receiver', 'worker'"),
    (ROLES, {"deployments.Worker.roles": ["worker"]}, "deployments.Worker has a wrong name"),
    (SQLITE, {"config.listener.host": "127.0.0.1"}, "config.listener.host is 127.0.0.1"),
    (SQLITE, {"config.listener.host": "localhost"}, "config.listener.host is localhost"),
    (SQLITE, {"config.listener.host": "::1"}, "config.listener.host is ::1"),
    (SQLITE, {"config.listener.port": 0}, "config.listener.port is 0"),
    (SQLITE, {"config.listener.prot": 1}, "additional properties 'prot' not allowed"),
    (SQLITE, {"config.sweep.every": False}, "'/config/sweep/every': got boolean"),
    (SQLITE, {"config.worker.lease": 30}, "'/config/worker/lease'"),
    (SQLITE, {"config.listener.tls_key_file": "/tls/key"}, "only one of tls_certificate_file and tls_key_file"),
    (SQLITE, {"config.inbox.url": "sqlite:///sfn/inbox.db"}, "names a file outside /var/lib/sfn"),
    (SQLITE, {"config.listener.drain": "60s"}, "needs config.listener.drain (60s) and 40 s more"),
    (PRODUCTION, {"config.listener.drain": "5m"}, "config.listener.drain (5m) and 40 s more to stop. Set it to 340."),
    (SQLITE, {"config.catalogs.prod.token_file": "token"}, "config.catalogs.prod.token_file is token. A path"),
    (SQLITE, {"config.catalogs.prod.token_file": "/etc/sfn/token"}, "Files are at /etc/sfn/secrets/NAME/KEY"),
    (SQLITE, {"config.catalogs.prod.token_file": "/etc/sfn/secrets/more/token"}, "Add more to secrets"),
    (SQLITE, {"config.catalogs.prod.ca_file": "/etc/sfn/configmaps/ca/ca.crt"}, "Add ca to configMaps"),
    (PRODUCTION, {"configMaps": []}, "sslrootcert in config.inbox.url is in company-ca, which is not mounted"),
    (ROLES, {"config.gateway.prod.host": "127.0.0.1"}, "config.gateway.prod.host is 127.0.0.1"),
    (ROLES, {"config.gateway.prod.port": 8085}, "config.gateway.prod.port is used twice"),
    (POSTGRESQL, {"config.inbox.url": "postgresql://sfn:hunter2@db/sfn"}, "config.inbox.url has a password"),
    (SQLITE, {"config.senders.etl.secrets": {"a": "b"}}, "set config.senders.etl.secrets_file"),
    (
        SQLITE,
        {"config.catalogs.prod.uri": "https://me:it@catalog"},
        "config.catalogs.prod.uri has a user or a password",
    ),
    (SQLITE, {"config.catalogs.prod.headers": {"Authorization": "x"}}, "named SFN_CATALOGS__PROD__HEADERS"),
    (SQLITE, {"config.catalogs.prod.properties": {"uri": "db://me:it@h/d"}}, "named SFN_CATALOGS__PROD__PROPERTIES"),
    (SQLITE, {"extraEnv": [{"name": "SFN_ADMIN__TOKEN", "value": "x"}]}, "extraEnv has the value of SFN_ADMIN__TOKEN"),
    (SQLITE, {"extraEnv": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}]}, "the value of AWS_SECRET_ACCESS_KEY"),
    (
        ROLES,
        {"deployments.worker.extraEnv": [{"name": "SFN_STORES__LAKE__SAS_TOKEN", "value": "x"}]},
        "deployments.worker.extraEnv has the value of SFN_STORES__LAKE__SAS_TOKEN",
    ),
    (POSTGRESQL, {"podDisruptionBudget.minAvailable": 1}, "exactly one of maxUnavailable and minAvailable"),
    (POSTGRESQL, {"podDisruptionBudget.maxUnavailable": ""}, "exactly one of maxUnavailable and minAvailable"),
    (POSTGRESQL, {"podDisruptionBudget.maxUnavailable": 0}, "maxUnavailable is 0, which blocks every drain"),
    (EVERYTHING, {"podDisruptionBudget.minAvailable": 2}, "minAvailable is 2, but there are 2 pods"),
    (EVERYTHING, {"podDisruptionBudget.minAvailable": "100%"}, "minAvailable is 100%"),
    (EVERYTHING, {"ingress.hosts": []}, "ingress.hosts is empty"),
    (EVERYTHING, {"config.gateway": {}}, "ingress.expose has gateway, but config.gateway is empty"),
    (EVERYTHING, {"config.facade": {}}, "ingress.expose has facade, but config.facade.token_file is not set"),
    (EVERYTHING, {"config.admin": {}}, "ingress.expose has admin, but config.admin.token_file is not set"),
    (ROLES, {"httpRoute.parentRefs": []}, "httpRoute.parentRefs is empty"),
    (
        ROLES,
        {"deployments": {"all": {"roles": ["receiver", "gateway", "worker"]}}},
        "httpRoute.expose has facade, but no entry of deployments has this role",
    ),
    (EVERYTHING, {"serviceMonitor.tlsConfig": None}, "serviceMonitor.tlsConfig is empty"),
    (EVERYTHING, {"config.telemetry.metrics_token_file": "/t"}, "serviceMonitor.bearerTokenSecret is not set"),
    (SQLITE, {"prometheusRule.disabled": ["Absent"]}, "prometheusRule.disabled has Absent, which is no alert"),
    (SQLITE, {"imagee.tag": "1"}, "additional properties 'imagee' not allowed"),
    (SQLITE, {"podLabels": {"app.kubernetes.io/name": "x"}}, "podLabels has app.kubernetes.io/name"),
    (SQLITE, {"fullnameOverride": "a" * 43}, "'/fullnameOverride'"),
]


@pytest.mark.parametrize(("name", "values", "message"), REFUSED)
def test_value_is_refused_with_its_message(chart: Chart, name: str, values: Mapping[str, Any], message: str) -> None:
    assert message in chart.refusal(name, values)


def test_all_problems_are_reported_at_once(chart: Chart) -> None:
    message = chart.refusal(SQLITE, {"replicaCount": 2, "config.listener.port": 0, "secrets": []})
    assert message.count("\n- ") == 3


SECRET_KEYS: Final = [
    name for _, name, field in keys() if type_in_words(field.annotation, field.metadata) == "Secret string"
]


@pytest.mark.parametrize("name", SECRET_KEYS)
def test_every_secret_setting_is_refused_in_the_values(chart: Chart, name: str) -> None:
    path = name.replace("catalogs.NAME", "catalogs.prod").replace("stores.NAME", "stores.lake")
    message = chart.refusal(SQLITE, {f"config.{path}": "hunter2"})
    assert f"config.{path} is a secret" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "value", [{"global": {"region": "eu"}}, {"enabled": True}, {"podSecurityContext.runAsUser": None}]
)
def test_values_of_parent_charts_and_of_openshift_are_accepted(chart: Chart, value: Mapping[str, Any]) -> None:
    chart.render(SQLITE, value)


@pytest.mark.parametrize("text", ["0", "30s", "29.5 s", "30500ms", "0.5m", "5m", "1.5h", "2d", "999999999ms"])
def test_time_to_stop_is_compared_with_every_duration_that_the_service_accepts(chart: Chart, text: str) -> None:
    needed = ceil(parse_duration(text).total_seconds()) + 40
    drain = {"config.listener.drain": 0 if text == "0" else text}
    chart.render(SQLITE, {**drain, "terminationGracePeriodSeconds": needed})
    message = chart.refusal(SQLITE, {**drain, "terminationGracePeriodSeconds": needed - 1})
    assert f"Set it to {needed}." in message


def test_catalogs_that_vend_credentials_need_no_store(chart: Chart) -> None:
    chart.render(SQLITE, {"config.stores": None, "config.catalogs.prod.vended_credentials": True})


@pytest.mark.parametrize("name", VALUE_SETS)
def test_chart_and_each_value_set_pass_the_linter(chart: Chart, name: str) -> None:
    done = chart.lint("--values", CHART / "ci" / f"{name}-values.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_chart_without_values_passes_the_linter(chart: Chart) -> None:
    done = chart.lint()
    assert done.returncode == 0, done.stdout + done.stderr
