"""Notifications to the service manager that started this process: systemd with `Type=notify`, or Podman.

    ready       the listener accepts connections, and the inbox is open
    keep alive  the event loop runs: without this sign the manager restarts the service
    stopping    the drain has begun, and how long it may take

Each notification is one datagram of lines `NAME=value`, see sd_notify(3). No library is used: those on PyPI have no
wheels, or need libsystemd, which the image lacks.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Final

import anyio
import structlog

from sfn.settings.environment import ServiceManagerAddress

_PINGS: Final = 3
"""Signs of life within the time limit of the watchdog: one or two may be late or lost."""

_log = structlog.stdlib.get_logger(__name__)


class ServiceManager:
    """The notification socket of the service manager.

    A lost notification must not end the service, so an error of the socket is logged once and then ignored.

    Args:
        address: the manager; None if none waits for notifications. All methods do nothing then.
    """

    def __init__(self, address: ServiceManagerAddress | None) -> None:
        self._address = address
        self._has_failed = False

    def starting(self, status: str) -> None:
        """Report a step of the start, for `systemctl status`."""
        self._notify(f"STATUS={status}")

    def ready(self, status: str) -> None:
        """Report that the service does its work."""
        self._notify("READY=1", f"STATUS={status}")

    def stopping(self, status: str, longest: timedelta) -> None:
        """Report that the service ends.

        Args:
            status: one line for `systemctl status`.
            longest: time that the end may take, also if it is more than `TimeoutStopSec=`.
        """
        self._notify("STOPPING=1", f"EXTEND_TIMEOUT_USEC={longest // timedelta(microseconds=1)}", f"STATUS={status}")

    async def keep_alive(self) -> None:
        """Send signs of life, forever; return at once if the manager expects none.

        The caller's event loop sends them, so they stop if it hangs. A slow disk or database does not stop them,
        because no call of the inbox or of a store blocks the loop.
        """
        if self._address is None or self._address.watchdog is None:
            return
        seconds = self._address.watchdog.total_seconds() / _PINGS
        while True:
            self._notify("WATCHDOG=1")
            await anyio.sleep(seconds)

    def _notify(self, *lines: str) -> None:
        if self._address is None:
            return
        name = self._address.socket
        # A name in the abstract namespace begins with a zero byte, which no environment variable can contain.
        target = f"\0{name[1:]}" if name.startswith("@") else name
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
                # A full queue must not block the event loop.
                notifier.setblocking(False)
                notifier.sendto("\n".join(lines).encode(), target)
        except OSError as error:
            if not self._has_failed:
                _log.warning("service manager not notified", socket=name, error=error.strerror)
            self._has_failed = True


NO_MANAGER: Final = ServiceManager(None)
