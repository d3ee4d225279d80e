"""The service accepts the configuration that the chart renders, and answers the probes of the rendered pods."""

from __future__ import annotations

import re
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import pytest

from sfn.app import catalogs
from sfn.settings import load
from sfn.settings.root import Settings, check_roles, parse_roles
from tests.kit.chart import VALUE_SETS, Chart, Manifest, Rendered, container
from tests.support.certificates import Authority
from tests.support.pages import ROOT
from tests.support.processes import wait_for
from tests.support.programs import SURROUNDINGS

IN_VALUES: Final = [name for name in VALUE_SETS if name != "s3-irsa"]
"""Value sets with the configuration in the values; the other one has it in a Secret."""
PAGE: Final = ROOT / "docs" / "get-started" / "kubernetes.md"
PATIENCE: Final = 60.0
TLS: Final = {"tls_certificate_file": "/etc/sfn/secrets/tls/tls.crt", "tls_key_file": "/etc/sfn/secrets/tls/tls.key"}


@pytest.fixture
def port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


def loaded(rendered: Rendered, folder: Path) -> Settings:
    """Load the rendered configuration with the service's own code."""
    file = folder / "sfn.toml"
    file.write_text(rendered.settings_text)
    return load(file, {})


@pytest.mark.parametrize("name", IN_VALUES)
def test_service_accepts_the_rendered_configuration(chart: Chart, name: str, tmp_path: Path) -> None:
    rendered = chart.render(name)
    settings = loaded(rendered, tmp_path)
    catalogs.check_adapters(settings)
    assert settings.catalogs["prod"].uri == rendered.settings["catalogs"]["prod"]["uri"]
    assert not settings.lacks_stores
    for pod in rendered.pods:
        match container(pod)["args"]:
            case ["serve", "--roles", roles]:
                check_roles(parse_roles(roles), settings)
            case arguments:
                assert arguments == ["serve"]


@pytest.mark.parametrize("name", IN_VALUES)
def test_pods_have_the_ports_of_the_loaded_settings(chart: Chart, name: str, tmp_path: Path) -> None:
    rendered = chart.render(name)
    settings = loaded(rendered, tmp_path)
    for pod in rendered.pods:
        ports = {one["name"]: one["containerPort"] for one in container(pod)["ports"]}
        assert ports.pop("http") == settings.listener.port
        is_gateway = "gateway" in container(pod)["args"][-1] or len(container(pod)["args"]) == 1
        own = {gateway.port for gateway in settings.gateway.values() if gateway.host is not None}
        assert set(ports.values()) == (own if is_gateway else set())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('a "quoted" text with \\ and é & < >', 'a "quoted" text with \\ and é & < >'),
        (["a", "b.**"], ("a", "b.**")),
        (["x" * 3_000], ("x" * 3_000,)),
    ],
)
def test_any_text_reaches_the_service_unchanged(chart: Chart, text: object, value: object, tmp_path: Path) -> None:
    key = "warehouse" if isinstance(text, str) else "include"
    settings = loaded(chart.render("minimal-sqlite", {f"config.catalogs.prod.{key}": text}), tmp_path)
    assert getattr(settings.catalogs["prod"], key) == value


def test_numbers_and_names_reach_the_service_unchanged(chart: Chart, tmp_path: Path) -> None:
    rendered = chart.render("everything", {"config.listener.queue_limit": 1_000_000})
    settings = loaded(rendered, tmp_path)
    # Helm's `toToml` writes whole numbers as floats, and `toJson` writes `&` as an escape.
    assert "queue_limit = 1000000\n" in rendered.settings_text
    assert "verify-full&sslrootcert" in rendered.settings_text
    assert settings.listener.queue_limit == 1_000_000
    assert settings.worker.concurrency == 16
    assert settings.catalogs_of("lakekeeper") == {"lake": "prod", "lake-eu": "eu.west"}


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_service_answers_the_probes_with_the_rendered_configuration(
    chart: Chart, tmp_path: Path, port: int, tls: bool
) -> None:
    more = {f"config.listener.{key}": path for key, path in TLS.items()} if tls else {}
    # Nothing listens at the catalog's port: the listener waits for the catalog, and is ready all the same.
    closed = {"config.catalogs.prod.uri": "http://127.0.0.1:1"}
    rendered = chart.render(
        "minimal-sqlite", {"config.listener.port": port, "secrets": ["sfn-tokens", "tls"], **more, **closed}
    )
    (pod,) = rendered.pods
    (tmp_path / "inbox").mkdir()
    write_secrets(tmp_path)
    file = tmp_path / "sfn.toml"
    text = rendered.settings_text.replace("/etc/sfn/", f"{tmp_path}/").replace("/var/lib/sfn/", f"{tmp_path}/inbox/")
    file.write_text(text)
    inherited = {name: value for name, value in SURROUNDINGS.items() if not name.startswith("SFN_")}
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "sfn", *container(pod)["args"]],
            env={**inherited, "SFN_CONFIG": str(file)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            url = probe_url(pod, kind)
            wait_for(partial(has_answered, url, process), f"an answer of {url}", PATIENCE, 0.05)
            assert succeeds(url), log.read_text()
        back_up(tmp_path)
        process.terminate()
        assert process.wait(pod["spec"]["terminationGracePeriodSeconds"]) == 0
    finally:
        process.kill()
        process.wait()


def back_up(folder: Path) -> None:
    """Run the command of the page that copies the inbox of a running listener."""
    (code,) = re.findall(r"-- python -c '(import sqlite3.*)'$", PAGE.read_text(), re.MULTILINE)
    code = code.replace("/tmp/", f"{folder}/")  # noqa: S108 - the container's
    code = code.replace("/var/lib/sfn/", f"{folder}/inbox/")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
    with closing(sqlite3.connect(folder / "inbox.db")) as copy:
        assert copy.execute("SELECT count(*) FROM sqlite_master").fetchone() > (0,)


def write_secrets(folder: Path) -> None:
    """Write the files of the Secrets that the values name."""
    pair = Authority().sign()
    for path, content in (
        ("sfn-tokens/etl", b"a-token-of-a-sender"),
        ("tls/tls.crt", pair.chain),
        ("tls/tls.key", pair.key),
    ):
        file = folder / "secrets" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def probe_url(pod: Manifest, kind: str) -> str:
    """Return what the kubelet asks, on this machine."""
    asked = container(pod)[kind]["httpGet"]
    ports = {one["name"]: one["containerPort"] for one in container(pod)["ports"]}
    return f"{asked['scheme'].lower()}://127.0.0.1:{ports[asked['port']]}{asked['path']}"


def has_answered(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Return whether a probe succeeds, or the process ended, so that none can."""
    return succeeds(url) or process.poll() is not None


def succeeds(url: str) -> bool:
    """Return whether a probe succeeds. The kubelet accepts any certificate, too."""
    try:
        return httpx.get(url, timeout=5.0, trust_env=False, verify=False).is_success  # noqa: S501
    except httpx.TransportError:
        return False
