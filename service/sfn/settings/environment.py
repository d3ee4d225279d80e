"""The environment of this process: the container that it runs in, and the service manager that started it.

    isolated_container()   "/.dockerenv" in a container of Docker with a network of its own; else None
    service_manager()      the notification socket and the watchdog of systemd
    names_trace_collector()  whether OpenTelemetry's standard variables switch traces on

The functions take the environment variables and the root directory as arguments, so that tests need no container.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from sfn.settings.root import Role, Settings
from sfn.settings.sections import is_loopback

UNREACHABLE: Final = "loopback address in a container: a published port does not reach this address"
"""Message about an address that only processes in the same container or pod reach."""

_MARKERS: Final = (".dockerenv", "run/.containerenv")
"""Files that Docker and Podman create in each container."""
_VARIABLES: Final = ("KUBERNETES_SERVICE_HOST", "ECS_CONTAINER_METADATA_URI_V4")
"""Variables that Kubernetes and Amazon ECS set in each container."""
_CGROUP: Final = Path("proc/self/cgroup")
_CONTAINER_GROUP: Final = re.compile(
    r"/(docker|kubepods|ecs|garden)/|/(kubepods[-.]|docker-|libpod-|crio-|cri-containerd[-:]|nerdctl-)"
)
"""Control groups of container engines. Neither a service such as `/system.slice/docker.service` nor a container with a
whole system, such as one of LXC, is meant: a proxy may run beside the listener there."""
_HARDWARE: Final = "sys/class/net/*/device"
"""Network devices with hardware. A container with its own network has virtual ones alone."""


def isolated_container(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> str | None:
    """Return the sign of a container with a network of its own, where nothing outside reaches a loopback address.

    In the host's network, as with Docker's `--network host`, a process sees the network devices of the machine.

    Args:
        environ: the environment variables; None for those of the process.
        root: the root directory.

    Returns:
        The path or the variable that shows the container, for messages; None outside a container and in the host's
        network.
    """
    sign = _container_sign(os.environ if environ is None else environ, root)
    return None if sign is None or any(root.glob(_HARDWARE)) else sign


def _container_sign(environ: Mapping[str, str], root: Path) -> str | None:
    for marker in _MARKERS:
        if (root / marker).exists():
            return f"/{marker}"
    for name in _VARIABLES:
        if environ.get(name):
            return name
    try:
        groups = (root / _CGROUP).read_text(errors="replace")
    except OSError:
        return None
    return f"/{_CGROUP}" if _CONTAINER_GROUP.search(groups) else None


def loopback_hosts(settings: Settings, roles: AbstractSet[Role]) -> Iterator[str]:
    """Yield the settings that name a loopback address on which a process with some roles listens."""
    if settings.listener.is_loopback:
        yield "listener.host"
    for name, gateway in settings.gateway.items() if Role.GATEWAY in roles else ():
        if gateway.host is not None and is_loopback(gateway.host):
            yield f"gateway.{name}.host"


def reachable_remedy(option: str) -> str:
    """Return the remedy for `UNREACHABLE`.

    Args:
        option: the setting or the option of a command with the address.
    """
    return f'set {option} to "0.0.0.0", unless a proxy in the same container or pod forwards requests'


@dataclass(frozen=True, slots=True)
class ServiceManagerAddress:
    """The service manager that started this process, such as systemd: see sd_notify(3) and sd_watchdog_enabled(3).

    Attributes:
        socket: address of its notification socket: a path, or a name after `@` in the abstract namespace.
        watchdog: time within which it expects a sign of life; None if it expects none.
    """

    socket: str
    watchdog: timedelta | None = None


def service_manager(environ: Mapping[str, str] | None = None, pid: int | None = None) -> ServiceManagerAddress | None:
    """Return the service manager that waits for notifications; None without one.

    Args:
        environ: the environment variables; None for those of the process.
        pid: the process; None for this one. A watchdog of another process is ignored.
    """
    variables = os.environ if environ is None else environ
    address = variables.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return None
    watched, microseconds = variables.get("WATCHDOG_PID"), variables.get("WATCHDOG_USEC", "")
    is_watched = watched is None or watched == str(os.getpid() if pid is None else pid)
    if not is_watched or not microseconds.isdecimal() or int(microseconds) == 0:
        return ServiceManagerAddress(address)
    return ServiceManagerAddress(address, timedelta(microseconds=int(microseconds)))


_TRACE_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def names_trace_collector(environ: Mapping[str, str] | None = None) -> bool:
    """Return True if OpenTelemetry's standard variables name a collector, and do not switch traces off."""
    environ = os.environ if environ is None else environ
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    return not is_off and any(environ.get(name) for name in _TRACE_ENDPOINTS)
