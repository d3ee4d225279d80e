"""Signs of a container, and the address of a service manager, from the environment of a process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from sfn.settings.environment import (
    ServiceManagerAddress,
    isolated_container,
    loopback_hosts,
    service_manager,
)
from sfn.settings.root import ALL_ROLES, Role
from tests.support.settings_file import CATALOG, Ground

CGROUP = "proc/self/cgroup"
HARDWARE = "sys/class/net/eth0/device"


def root(folder: Path, *files: str, **contents: str) -> Path:
    """A root directory with empty files, and with a file of control groups."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    if "groups" in contents:
        (folder / CGROUP).parent.mkdir(parents=True)
        (folder / CGROUP).write_text(contents["groups"])
    return folder


@pytest.mark.parametrize("marker", [".dockerenv", "run/.containerenv"])
def test_docker_and_podman_leave_a_file(tmp_path: Path, marker: str) -> None:
    assert isolated_container({}, root(tmp_path, marker)) == f"/{marker}"


@pytest.mark.parametrize("name", ["KUBERNETES_SERVICE_HOST", "ECS_CONTAINER_METADATA_URI_V4"])
def test_kubernetes_and_ecs_set_a_variable(tmp_path: Path, name: str) -> None:
    assert isolated_container({name: "10.0.0.1"}, tmp_path) == name
    assert isolated_container({name: ""}, tmp_path) is None


@pytest.mark.parametrize(
    "groups",
    [
        "4:memory:/docker/4f0c2b0bf4b8\n",
        "0::/system.slice/docker-4f0c2b0bf4b8.scope\n",
        "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-4f0c2b0bf4b8.scope\n",
        "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-4f0c2b0bf4b8.scope/container\n",
        "1:name=systemd:/kubepods/besteffort/pod1/4f0c\n0::/\n",
    ],
)
def test_control_groups_of_engines_are_recognised(tmp_path: Path, groups: str) -> None:
    assert isolated_container({}, root(tmp_path, groups=groups)) == f"/{CGROUP}"


@pytest.mark.parametrize(
    "groups",
    [
        "0::/system.slice/iceberg-sfn.service\n",
        "0::/system.slice/docker.service\n",
        "0::/user.slice/user-1000.slice/session-2.scope\n",
        "0::/lxc.payload.web/system.slice/iceberg-sfn.service\n",
    ],
)
def test_services_of_a_machine_are_no_containers(tmp_path: Path, groups: str) -> None:
    assert isolated_container({"PATH": "/bin"}, root(tmp_path, groups=groups)) is None


def test_a_machine_without_control_groups_is_no_container(tmp_path: Path) -> None:
    assert isolated_container({}, tmp_path) is None


@pytest.mark.parametrize("files", [(".dockerenv", HARDWARE), (".dockerenv", HARDWARE, "sys/class/net/docker0/bridge")])
def test_the_network_of_the_host_is_no_network_of_a_container(tmp_path: Path, files: tuple[str, ...]) -> None:
    assert isolated_container({}, root(tmp_path, *files)) is None


def test_virtual_devices_are_those_of_a_container(tmp_path: Path) -> None:
    devices = ("sys/class/net/lo/address", "sys/class/net/eth0/address")
    assert isolated_container({}, root(tmp_path, ".dockerenv", *devices)) == "/.dockerenv"


def test_loopback_hosts_are_named_by_their_settings(ground: Ground) -> None:
    gateways = "".join(
        f"[gateway.{name}]\ncatalog = 'prod'\nupstream = 'http://catalog'\nhost = '{host}'\nport = {port}\n"
        for name, host, port in (("here", "::1", 9001), ("there", "192.0.2.1", 9002))
    )
    settings = ground.load(f"{CATALOG}{gateways}[senders.a]\nsecrets = {{ m = 'sixteen-of-these' }}\n")
    assert list(loopback_hosts(settings, ALL_ROLES)) == ["listener.host", "gateway.here.host"]
    assert list(loopback_hosts(settings, {Role.WORKER})) == ["listener.host"]


@pytest.mark.parametrize("text", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - what is asked for
def test_other_addresses_are_no_loopback_hosts(ground: Ground, text: str) -> None:
    listener = f"[listener]\nhost = '{text}'\n[senders.a]\nsecrets = {{ m = 'sixteen-of-these' }}\n"
    assert list(loopback_hosts(ground.load(f"{CATALOG}{listener}"), ALL_ROLES)) == []


SOCKET = "/run/systemd/notify"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"NOTIFY_SOCKET": ""}, None),
        # Of a virtual machine's host, which no Unix socket reaches.
        ({"NOTIFY_SOCKET": "vsock:2:1234"}, None),
        ({"NOTIFY_SOCKET": SOCKET}, ServiceManagerAddress(SOCKET)),
        ({"NOTIFY_SOCKET": "@notify"}, ServiceManagerAddress("@notify")),
        (
            {"NOTIFY_SOCKET": SOCKET, "WATCHDOG_USEC": "60000000"},
            ServiceManagerAddress(SOCKET, timedelta(minutes=1)),
        ),
        (
            {"NOTIFY_SOCKET": SOCKET, "WATCHDOG_USEC": "500000", "WATCHDOG_PID": "7"},
            ServiceManagerAddress(SOCKET, timedelta(milliseconds=500)),
        ),
        ({"NOTIFY_SOCKET": SOCKET, "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "8"}, ServiceManagerAddress(SOCKET)),
        ({"NOTIFY_SOCKET": SOCKET, "WATCHDOG_USEC": "0"}, ServiceManagerAddress(SOCKET)),
        ({"NOTIFY_SOCKET": SOCKET, "WATCHDOG_USEC": "soon"}, ServiceManagerAddress(SOCKET)),
        ({"WATCHDOG_USEC": "60000000"}, None),
    ],
)
def test_a_service_manager_is_found_by_its_variables(
    environ: Mapping[str, str], expected: ServiceManagerAddress | None
) -> None:
    assert service_manager(environ, pid=7) == expected
