"""The manifests that the chart renders: valid for Kubernetes, hardened, and consistent with each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from jsonschema import Draft4Validator
from referencing import Registry
from referencing.jsonschema import DRAFT4

from sfn.settings.types import parse_duration
from tests.kit.chart import RELEASE, VALUE_SETS, Chart, Manifest, container, paths_of_files, selects
from tests.pages.helm_chart import CHART, rule_files
from tests.support.programs import tool

OLDEST, NEWEST = "1.30", "1.37.0"
"""Versions of Kubernetes that manifests are validated for."""
KINDS_OF_OPERATORS: Final = {"HTTPRoute", "PrometheusRule", "ServiceMonitor"}
"""Kinds that no schema of Kubernetes has."""
ONE_POD: Final = [("minimal-sqlite", "StatefulSet"), ("s3-irsa", "StatefulSet")]
SEVERAL_PODS: Final = ["postgresql", "production", "roles", "everything"]

every_set = pytest.mark.parametrize("name", VALUE_SETS)


def validated(program: Path, *arguments: str | Path) -> str:
    """Run a validator. Return an empty text if it found nothing, else its output."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=120)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def manifests(chart: Chart, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A file with the manifests of each value set."""
    place = tmp_path_factory.mktemp("manifests")
    files = {name: place / f"{name}.yaml" for name in VALUE_SETS}
    for name, file in files.items():
        file.write_text(chart.render(name).text)
    return files


@every_set
def test_manifests_are_valid_for_the_oldest_kubernetes(manifests: Mapping[str, Path], name: str) -> None:
    program, crds = tool("kubectl-validate"), tool("crds")
    assert validated(program, "--version", OLDEST, "--local-crds", crds, manifests[name]) == ""


@cache
def schema(name: str) -> Any:  # noqa: ANN401 - JSON
    """Return a schema of the newest Kubernetes."""
    place = tool("kubernetes-schemas") / f"v{NEWEST}-local-strict"
    return json.loads((place / f"{name}.json").read_text())


@cache
def registry() -> Registry[Any]:
    """Return what the schemas refer to: one file with all definitions, by this name."""
    definitions = DRAFT4.create_resource(schema("_definitions"))
    found: Registry[Any] = Registry().with_resource("/api/_definitions.json", definitions)
    return found


def schema_errors(manifest: Manifest) -> list[str]:
    """Validate a manifest by the schema of its kind. It refuses unknown fields, as `kubectl apply` does."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    name = "-".join(part for part in (manifest["kind"].lower(), group.partition(".")[0], version) if part)
    found = Draft4Validator(schema(name), registry=registry()).iter_errors(manifest)
    return [f"{manifest['kind']}: {error.json_path}: {error.message}" for error in found]


@every_set
def test_manifests_are_valid_for_the_newest_kubernetes(chart: Chart, name: str) -> None:
    own = [one for one in chart.render(name).objects if one["kind"] not in KINDS_OF_OPERATORS]
    assert [error for manifest in own for error in schema_errors(manifest)] == []


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("Deployment", "replicas: 2", "replicas: two"),
        ("Deployment", "terminationGracePeriodSeconds", "terminationGraceSeconds"),
        ("ServiceMonitor", "port: metrics", "port: [metrics]"),
        ("PrometheusRule", "alert: SfnTablesHeld", "alert: 1"),
        ("HTTPRoute", "type: PathPrefix", "type: Prefix"),
    ],
)
def test_validators_find_wrong_fields(chart: Chart, tmp_path: Path, kind: str, right: str, wrong: str) -> None:
    text, file = chart.render("roles" if kind == "HTTPRoute" else "everything").text, tmp_path / "wrong.yaml"
    file.write_text(text.replace(right, wrong))
    assert file.read_text() != text
    found = validated(tool("kubectl-validate"), "--version", OLDEST, "--local-crds", tool("crds"), file)
    assert wrong.partition(":")[0].strip() in found
    if kind not in KINDS_OF_OPERATORS:
        (broken,) = [one for one in yaml.safe_load_all(file.read_text()) if one and one["kind"] == kind]
        assert wrong.partition(":")[0].strip() in "".join(schema_errors(broken))


@every_set
def test_every_container_is_hardened(chart: Chart, name: str) -> None:
    rendered = chart.render(name)
    pods = [*rendered.pods, rendered.the("Pod")]
    for pod in pods:
        spec = pod["spec"]
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == context["fsGroup"] == 10001
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        for one in spec["containers"]:
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert one["resources"]["requests"]["memory"]
            assert one["resources"]["limits"]["memory"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & {key for pod in pods for key in pod["spec"]}
    account = rendered.the("ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    assert {pod["spec"]["serviceAccountName"] for pod in rendered.pods} == {account["metadata"]["name"]}


@every_set
def test_what_the_listener_writes_is_on_volumes(chart: Chart, name: str) -> None:
    for pod in chart.render(name).pods:
        mounts = {mount["mountPath"]: mount for mount in container(pod)["volumeMounts"]}
        for path in ("/var/lib/sfn", "/tmp"):  # noqa: S108 - the container's
            # SQLite needs its folder as a whole.
            assert mounts[path].keys() == {"name", "mountPath"}
        assert all(mount.get("readOnly") for path, mount in mounts.items() if path.startswith("/etc/sfn/"))


@every_set
def test_mounts_and_volumes_agree_and_secrets_are_for_the_group_alone(chart: Chart, name: str) -> None:
    for pod in chart.render(name).pods:
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in container(pod)["volumeMounts"]} == volumes.keys()
        secrets = [volume["secret"] for volume in volumes.values() if "secret" in volume]
        assert secrets
        assert all(secret["defaultMode"] == 0o440 for secret in secrets)


@every_set
def test_every_file_of_the_configuration_is_mounted(chart: Chart, name: str) -> None:
    rendered = chart.render(name)
    for pod in rendered.pods:
        places = [mount["mountPath"] for mount in container(pod)["volumeMounts"]]
        for path in paths_of_files(rendered.settings):
            assert path.rpartition("/")[0] in places


@every_set
def test_no_secret_is_in_a_config_map_or_in_a_variable(chart: Chart, name: str) -> None:
    rendered = chart.render(name)
    keys = re.findall(r"^(\w+) = ", rendered.settings_text, re.MULTILINE)
    assert not {"token", "credential", "secrets", "metrics_token", "password"}.intersection(keys)
    variables = [variable for pod in rendered.pods for variable in container(pod)["env"]]
    plain = {variable["name"] for variable in variables if "value" in variable}
    assert plain <= {"SFN_CONFIG", "AWS_REGION"}
    assert rendered.every("Secret") == []


@every_set
def test_variable_names_the_file_that_is_mounted(chart: Chart, name: str) -> None:
    for pod in chart.render(name).pods:
        variables = {variable["name"]: variable.get("value") for variable in container(pod)["env"]}
        (mount,) = [one for one in container(pod)["volumeMounts"] if one["name"] == "config"]
        assert variables["SFN_CONFIG"] == f"{mount['mountPath']}/sfn.toml"


@every_set
def test_probes_ask_the_port_of_the_configuration(chart: Chart, name: str) -> None:
    rendered = chart.render(name)
    listener = rendered.settings.get("listener", {"port": 9000})
    scheme = "HTTPS" if "tls_certificate_file" in listener else "HTTP"
    for pod in rendered.pods:
        ports = {port["name"]: port["containerPort"] for port in container(pod)["ports"]}
        for kind, path in (("startup", "/livez"), ("liveness", "/livez"), ("readiness", "/readyz")):
            asked = container(pod)[f"{kind}Probe"]["httpGet"]
            assert asked == {"path": path, "port": "http", "scheme": scheme}
            assert ports[asked["port"]] == listener["port"]
    assert rendered.metrics_service["spec"]["ports"][0]["port"] == listener["port"]


@every_set
def test_services_lead_to_pods_with_their_ports(chart: Chart, name: str) -> None:
    rendered = chart.render(name)
    for service in rendered.every("Service"):
        pods = [pod for pod in rendered.pods if selects(service["spec"]["selector"], pod["metadata"]["labels"])]
        assert pods
        for pod in pods:
            named = {port["name"] for port in container(pod)["ports"]}
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
        assert not selects(service["spec"]["selector"], rendered.the("Pod")["metadata"]["labels"])


@every_set
def test_selectors_match_the_pods_of_one_workload(chart: Chart, name: str) -> None:
    rendered = chart.render(name)
    for workload in rendered.workloads:
        selector = workload["spec"]["selector"]["matchLabels"]
        matched = [pod for pod in rendered.pods if selects(selector, pod["metadata"]["labels"])]
        assert matched == [workload["spec"]["template"]]
        # These cannot change later, so nothing that changes with a version may be among them.
        assert selector.keys() == {f"app.kubernetes.io/{key}" for key in ("name", "instance", "component")}


def test_releases_do_not_select_each_others_pods(chart: Chart) -> None:
    one, other = (chart.render("minimal-sqlite", release=release) for release in ("one", "other"))
    for service in one.every("Service"):
        assert not selects(service["spec"]["selector"], other.pods[0]["metadata"]["labels"])
    assert {name_of(made) for made in one.objects}.isdisjoint(name_of(made) for made in other.objects)


@every_set
def test_each_pod_is_scraped_once_also_while_it_is_not_ready(chart: Chart, name: str) -> None:
    rendered = chart.render(name)
    service = rendered.metrics_service["spec"]
    assert service["publishNotReadyAddresses"] is True
    assert all(selects(service["selector"], pod["metadata"]["labels"]) for pod in rendered.pods)
    for monitor in rendered.every("ServiceMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"]
        chosen = [one for one in rendered.every("Service") if selects(selector, one["metadata"]["labels"])]
        assert chosen == [rendered.metrics_service]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in service["ports"]}


def test_service_monitor_has_the_token_the_tls_and_the_labels(chart: Chart) -> None:
    monitor = chart.render("everything").the("ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert endpoint["authorization"] == {"credentials": {"name": "sfn-metrics", "key": "token"}}
    assert (endpoint["scheme"], endpoint["tlsConfig"]["serverName"]) == ("https", "sfn.example.com")
    named = chart.render("s3-irsa").the("ServiceMonitor")["spec"]["endpoints"][0]
    assert named["authorization"] == {"credentials": {"name": "sfn-metrics", "key": "token"}}


def test_prometheus_rule_has_all_alerts_but_those_that_are_disabled(chart: Chart) -> None:
    groups = [group for path in rule_files() for group in yaml.safe_load(path.read_text())["groups"]]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    rule = chart.render("everything").the("PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    rendered = {one["alert"] for group in rule["spec"]["groups"] for one in group["rules"] if "alert" in one}
    assert alerts - rendered == set(values_of("everything")["prometheusRule"]["disabled"]) != set()
    whole = chart.render("everything", {"prometheusRule.disabled": []}).the("PrometheusRule")
    assert whole["spec"]["groups"] == groups


def copied(chart: Chart, place: Path, name: str, text: str) -> Chart:
    """Return a copy of the chart with one more file."""
    copy = place / "chart"
    shutil.copytree(CHART, copy)
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_text(text)
    return Chart(chart.helm, copy)


def test_links_to_runbooks_get_the_address_of_the_repository(chart: Chart, tmp_path: Path) -> None:
    rules = [
        {"alert": "A", "expr": "up == 0", "annotations": {"runbook_url": "docs/a.md#a"}},
        {"alert": "B", "expr": "up == 0"},
        {"record": "c:d:sum", "expr": "sum(up)"},
    ]
    group = {"name": "more", "interval": "30s", "rules": rules}
    more = copied(chart, tmp_path, "files/prometheus/more.yml", yaml.safe_dump({"groups": [group]}))
    rule = more.render("everything", {"prometheusRule.runbookUrlPrefix": "https://git.example.com/sfn/"}).the(
        "PrometheusRule"
    )
    (found,) = [one for one in rule["spec"]["groups"] if one["name"] == "more"]
    assert found["interval"] == "30s"
    assert found["rules"][0]["annotations"]["runbook_url"] == "https://git.example.com/sfn/docs/a.md#a"
    assert found["rules"][1:] == rules[1:]


def test_dashboard_is_in_a_config_map_that_the_sidecar_finds(chart: Chart, tmp_path: Path) -> None:
    text = '{"title": "{{ instance }}", "panels": []}\n'
    more = copied(chart, tmp_path, "files/grafana/more.json", text)
    (made,) = [one for one in more.render("everything").every("ConfigMap") if "more.json" in one["data"]]
    assert made["data"]["more.json"] == text
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.parametrize(("name", "kind"), ONE_POD)
def test_sqlite_is_one_pod_that_starts_after_the_old_one_ended(chart: Chart, name: str, kind: str) -> None:
    rendered = chart.render(name)
    (workload,) = rendered.workloads
    claim = rendered.the("PersistentVolumeClaim")
    assert (workload["kind"], workload["spec"]["replicas"]) == (kind, 1)
    assert workload["spec"]["podManagementPolicy"] == "Parallel"
    assert workload["spec"]["serviceName"] == name_of(rendered.metrics_service)
    # A template of claims could not be changed later.
    assert "volumeClaimTemplates" not in workload["spec"]
    assert inbox_of(rendered.pods[0]) == {"persistentVolumeClaim": {"claimName": name_of(claim)}}
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    # The only pod must not block the drain of its node.
    assert rendered.every("PodDisruptionBudget") == []


def test_inbox_can_be_a_claim_of_the_user_or_temporary(chart: Chart) -> None:
    own = chart.render("minimal-sqlite", {"persistence.existingClaim": "mine"})
    temporary = chart.render("minimal-sqlite", {"persistence.enabled": False})
    assert inbox_of(own.pods[0]) == {"persistentVolumeClaim": {"claimName": "mine"}}
    assert inbox_of(temporary.pods[0]) == {"emptyDir": {}}
    assert own.every("PersistentVolumeClaim") == temporary.every("PersistentVolumeClaim") == []


@pytest.mark.parametrize("name", SEVERAL_PODS)
def test_replicas_are_deployments_that_always_serve(chart: Chart, name: str) -> None:
    rendered = chart.render(name)
    budgets = rendered.every("PodDisruptionBudget")
    assert {one["kind"] for one in rendered.workloads} == {"Deployment"}
    assert len(budgets) == len(rendered.workloads)
    for workload in rendered.workloads:
        spec = workload["spec"]
        assert spec["replicas"] > 1
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        (budget,) = [one for one in budgets if one["spec"]["selector"] == spec["selector"]]
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"] == spec["selector"]
        assert inbox_of(spec["template"]) == {"emptyDir": {}}


@every_set
def test_pods_have_the_time_that_they_need_to_stop(chart: Chart, name: str) -> None:
    rendered = chart.render(name)
    drain = parse_duration(rendered.settings.get("listener", {}).get("drain", "30s")).total_seconds()
    for pod in rendered.pods:
        sleep = container(pod).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert pod["spec"]["terminationGracePeriodSeconds"] >= drain + 40 + sleep
        assert bool(sleep) == (rendered.workloads[0]["kind"] == "Deployment")


def test_new_configuration_replaces_the_pods_and_nothing_else_does(chart: Chart) -> None:
    def template(values: Mapping[str, Any]) -> Manifest:
        (pod,) = chart.render("minimal-sqlite", values).pods
        return pod

    assert template({"config.sweep.every": "5m"}) != template({})
    assert template({"service.port": 80, "prometheusRule.enabled": True}) == template({})


def test_each_role_has_a_service_with_the_pods_of_that_role(chart: Chart) -> None:
    rendered = chart.render("roles")
    roles = {name_of(service).removeprefix(f"{RELEASE}-iceberg-sfn-"): service for service in rendered.services}
    assert roles.keys() == {"receiver", "gateway", "facade", "admin"}
    for role, service in roles.items():
        chosen = [pod for pod in rendered.pods if selects(service["spec"]["selector"], pod["metadata"]["labels"])]
        assert chosen == [pod for pod in rendered.pods if role in container(pod)["args"][-1].split(",")]
    assert {port["name"] for port in roles["gateway"]["spec"]["ports"]} == {"http", "gateway-8086"}


def test_values_of_a_deployment_win(chart: Chart) -> None:
    pods = {name_of(one): one["spec"]["template"] for one in chart.render("roles").workloads}
    worker, facade = pods[f"{RELEASE}-iceberg-sfn-worker"], pods[f"{RELEASE}-iceberg-sfn-facade"]
    assert container(worker)["resources"]["limits"] == {"memory": "1Gi"}
    assert container(facade)["resources"]["limits"] == {"memory": "512Mi"}
    assert facade["metadata"]["annotations"]["example.com/team"] == "readers"
    assert "example.com/team" not in worker["metadata"]["annotations"]


def test_ingress_and_route_lead_to_services_that_exist(chart: Chart) -> None:
    everything, roles = chart.render("everything"), chart.render("roles")
    (rule,) = everything.the("Ingress")["spec"]["rules"]
    (service,) = everything.services
    assert [path["path"] for path in rule["http"]["paths"]] == ["/v1", "/catalog", "/iceberg", "/ui", "/admin"]
    for path in rule["http"]["paths"]:
        assert path["backend"]["service"] == {"name": name_of(service), "port": {"name": "http"}}
    ports = {name_of(one): [port["port"] for port in one["spec"]["ports"]] for one in roles.services}
    backends = [one for rule in roles.the("HTTPRoute")["spec"]["rules"] for one in rule["backendRefs"]]
    assert len(backends) == 3
    assert all(backend["port"] in ports[backend["name"]] for backend in backends)


def test_neither_metrics_nor_probes_are_reachable_from_outside(chart: Chart) -> None:
    exposed = [path["path"] for path in chart.render("everything").the("Ingress")["spec"]["rules"][0]["http"]["paths"]]
    assert not [path for path in ("/metrics", "/livez", "/readyz", "/") if path in exposed]


def test_network_policy_allows_names_the_release_and_what_the_values_say(chart: Chart) -> None:
    rendered = chart.render("everything")
    policy = rendered.the("NetworkPolicy")["spec"]
    assert all(selects(policy["podSelector"]["matchLabels"], pod["metadata"]["labels"]) for pod in rendered.pods)
    (ingress,) = policy["ingress"]
    assert selects(ingress["from"][0]["podSelector"]["matchLabels"], rendered.the("Pod")["metadata"]["labels"])
    assert ingress["ports"] == [{"port": "http"}]
    names = {(port["port"], port["protocol"]) for port in policy["egress"][0]["ports"]}
    assert names == {(53, "UDP"), (53, "TCP"), (5353, "UDP"), (5353, "TCP")}
    assert len(policy["egress"]) == 2


def test_network_policy_without_rules_restricts_neither_clients_nor_egress(chart: Chart) -> None:
    policy = chart.render("minimal-sqlite", {"networkPolicy.enabled": True}).the("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [{"ports": [{"port": "http"}]}]


@pytest.mark.parametrize("release", ["a", "a" * 53, "iceberg-sfn", "x" * 41 + "-y"])
@pytest.mark.parametrize("name", ["minimal-sqlite", "roles"])
def test_names_and_labels_fit_whatever_the_release_is_called(chart: Chart, name: str, release: str) -> None:
    rendered = chart.render(name, release=release)
    for one in rendered.objects:
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name_of(one))
        assert all(len(value) <= 63 for value in one["metadata"]["labels"].values())
    # A StatefulSet adds a hash to its name for a label.
    assert all(len(name_of(one)) <= 52 for one in rendered.every("StatefulSet"))


def test_names_of_volumes_fit_whatever_secrets_are_called(chart: Chart) -> None:
    secrets = ["sfn-tokens", "with.dots", "a" * 100]
    (pod,) = chart.render("minimal-sqlite", {"secrets": secrets}).pods
    names = [volume["name"] for volume in pod["spec"]["volumes"]]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in names)


def test_image_is_named_by_tag_or_digest(chart: Chart) -> None:
    by_version, by_tag = chart.render("minimal-sqlite"), chart.render("minimal-sqlite", {"image.tag": "1.2"})
    assert container(by_version.pods[0])["image"] == "iceberg-sfn:0.1.0"
    assert container(by_tag.pods[0])["image"] == "iceberg-sfn:1.2"
    assert "@sha256:" in container(chart.render("everything").pods[0])["image"]


@every_set
def test_helm_test_asks_every_service(chart: Chart, name: str) -> None:
    rendered = chart.render(name)
    pod = rendered.the("Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    asked = {one["args"][-1] for one in pod["spec"]["containers"]}
    scheme = rendered.services[0]["spec"]["ports"][0]["appProtocol"]
    assert asked == {f"{scheme}://{name_of(one)}:{one['spec']['ports'][0]['port']}" for one in rendered.services}


@every_set
def test_notes_have_the_next_three_commands(chart: Chart, name: str) -> None:
    rendered = chart.render(name)
    notes = notes_of(chart, name)
    commands = re.findall(r"^\d\. .*\n   ((?:kubectl|helm) .*)$", notes, re.MULTILINE)
    assert len(commands) == 3
    workloads = {f"{one['kind'].lower()}/{name_of(one)}" for one in rendered.workloads}
    named = re.findall(r"(?:rollout status|exec) (\S+)", "\n".join(commands))
    assert len(named) >= 2
    assert set(named) <= workloads


def test_notes_warn_of_an_ingress_without_tls(chart: Chart) -> None:
    warning = "WARNING: ingress.tls is empty"
    certificate = {"alb.ingress.kubernetes.io/certificate-arn": "arn:aws:acm:eu-central-1:123456789012:certificate/x"}
    assert warning in notes_of(chart, "production", **{"ingress.tls": []})
    assert warning not in notes_of(chart, "production")
    assert warning not in notes_of(chart, "production", **{"ingress.tls": [], "ingress.annotations": certificate})
    assert warning not in notes_of(chart, "minimal-sqlite")


def name_of(one: Manifest) -> str:
    """Return the name of an object."""
    name: str = one["metadata"]["name"]
    return name


def values_of(name: str) -> Mapping[str, Any]:
    """Return the values of a set."""
    found: Mapping[str, Any] = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text())
    return found


def inbox_of(pod: Manifest) -> Manifest:
    """Return the source of the volume with the inbox."""
    (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == "inbox"]
    return {key: value for key, value in volume.items() if key != "name"}


def notes_of(chart: Chart, name: str, **values: object) -> str:
    """Return the notes that Helm prints after an installation."""
    file = CHART / "ci" / f"{name}-values.yaml"
    more = [part for path, value in values.items() for part in ("--set-json", f"{path}={json.dumps(value)}")]
    done = chart.run("install", RELEASE, CHART, "--namespace", "data", "--dry-run=client", "--values", file, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:")[2]
