"""A server as a process that lives no longer than ours, on a port of the loopback interface.

A server that refuses to run as root runs as another user.
"""

from __future__ import annotations

import os
import pwd
import random
import shutil
import socket
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import httpx
import psutil

from sfn.demo.environment import GuardedProcess

PATIENCE = 60.0
"""Seconds that a server has to answer: far more than it takes where nothing else goes on."""


class NotStarted(Exception):
    """A server ended or did not answer; the message has the end of its log."""


class Server(ABC):
    """One server, its folder and its port, which stay the same when it is stopped and started again.

    Attributes:
        folder: what it keeps, removed at the end.
        log: what it says.
        port: where it listens.
    """

    title: ClassVar[str]

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="sfn-server-")
        self.folder = Path(self._temporary.name)
        self.log = self.folder / "log"
        self.port = free_port()
        self._process: GuardedProcess | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._temporary.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._temporary.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            NotStarted: it did not.
        """
        surroundings = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}  # noqa: TID251 - a child's
        self._process = GuardedProcess(self._command(), env={**surroundings, **self._environment()}, log=self.log)
        try:
            self._wait(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill it, as a power cut would. Does nothing where it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """What to run, the program first."""

    def _environment(self) -> Mapping[str, str]:
        return {}

    def _answers(self) -> bool:
        """Whether it answers, with whatever status, to a request for its root."""
        try:
            httpx.get(self.url, timeout=5.0, trust_env=False)
        except httpx.TransportError:
            return False
        return True

    def _wait(self, process: GuardedProcess) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if (status := process.status()) is not None:
                raise self._trouble(f"it ended with status {status}")
            if time.monotonic() > deadline:
                raise self._trouble(f"no answer on port {self.port} in {PATIENCE:g} s")
            time.sleep(0.02)

    def _trouble(self, found: str) -> NotStarted:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.is_file() else []
        return NotStarted("\n".join([f"{self.title}: {found}", *lines[-20:]]))


def child_with(argument: str) -> psutil.Process:
    """The one living child of ours that an argument was given to, such as the file of its configuration."""
    living = (child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE)
    (process,) = [child for child in living if argument in child.cmdline()]
    return process


def free_port() -> int:
    """A port that nobody listens on, and that no outgoing connection will be given while the server is down."""
    while True:
        port = random.randrange(20_000, 32_000)  # Linux hands out those from 32768
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


def _lesser() -> pwd.struct_passwd | None:
    """A user who is not root; none where we are not root ourselves."""
    if os.geteuid() != 0:
        return None
    users = {user.pw_name: user for user in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]


_LESSER = _lesser()

AS_LESSER: tuple[str, ...] = (
    ("setpriv", f"--reuid={_LESSER.pw_uid}", f"--regid={_LESSER.pw_gid}", "--clear-groups") if _LESSER else ()
)
"""What comes before a command, for it to run as that user."""


def give(path: Path) -> None:
    """Make a file or folder that user's."""
    if _LESSER:
        shutil.chown(path, _LESSER.pw_uid, _LESSER.pw_gid)
