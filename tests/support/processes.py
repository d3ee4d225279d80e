"""Processes that tests start, as forks that have imported their packages already, and waiting for what processes do.

A fork imports this project's own code anew only where its work says so, see `tests.mutants.mutant`.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import TypeAlias

import anyio


async def until(holds: Callable[[], object], within: float = 20.0) -> None:
    """Look again and again until something holds.

    Raises:
        TimeoutError: it did not within so many seconds.
    """
    with anyio.fail_after(within):
        while not holds():  # noqa: ASYNC110 - no event crosses processes
            await anyio.sleep(0.01)


def wait_for(holds: Callable[[], object], what: str, within: float, every: float) -> None:
    """As `until`, in a thread that has nothing else to do.

    Args:
        what: is waited for.
        within: seconds that there are for it.
        every: seconds from one look to the next.

    Raises:
        TimeoutError: it did not come about.
    """
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {what} within {within:g} s")
        time.sleep(every)


_IMPORTED = [
    "_pytest.unraisableexception",
    "aiohttp.web",
    "anyio._backends._asyncio",
    "anyio.pytest_plugin",
    "asyncpg",
    "h11",
    "httpcore",
    "httptools",
    "httpx",
    "hypothesis.stateful",
    "msgspec",
    "prometheus_client",
    "pydantic.v1",
    "pyiceberg.catalog.rest",
    "pytest",
    "sfn.cli",
    "sfn.cli.client",
    "sfn.cli.run_checks",
    "sfn.cli.status",
    "sfn.cli.table",
    "sfn.cli.sweep",
    "sfn.cli.main",
    "sfn.reader.verify",
    "sfn.app.service",
    "sfn.storage.azure",
    "sfn.storage.gcs",
    "sfn.storage.s3",
    "structlog",
    "uvloop",
    "xdist.plugin",
]
_FORKS = multiprocessing.get_context("forkserver")
# There is one server for all, and one list: nothing else may set it.
_FORKS.set_forkserver_preload([*_IMPORTED, __name__, "tests.support.fork_server"])
_ENDS = threading.Lock()
"""How a process ended can be read once, and whoever starts one reads it of all others."""


class Fork:
    """A fork of the process that has imported everything, with what tests use of `subprocess.Popen`."""

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        self._process = _FORKS.Process(target=target, args=arguments)
        with _ENDS:
            self._process.start()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the signal that killed the fork, or None while the fork runs."""
        with _ENDS:
            return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code.

        Raises:
            TimeoutExpired: the fork still runs after `timeout` seconds.
        """
        connection.wait([self._process.sentinel], timeout)
        status = self.returncode
        if status is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Running: TypeAlias = subprocess.Popen[bytes] | Fork


def is_measured(environment: Mapping[str, str]) -> bool:
    """Return whether processes measure their coverage. That begins with a real start: a fork would not do it."""
    return any(name.startswith("COVERAGE_") for name in environment)


def launched(
    arguments: Sequence[str | Path],
    environment: Mapping[str, str],
    log: Path,
    prefix: Sequence[str | Path],
    *,
    is_fork: bool = True,
) -> Running:
    """Start `sfn`; its output goes to a file.

    Args:
        prefix: the command of a real start.
        is_fork: fork a process that has imported everything, unless coverage is measured. That saves the imports.
    """
    with log.open("wb") as output:
        if is_fork and not is_measured(environment):
            return Fork(command, log, log, [str(argument) for argument in arguments], dict(environment))
        line = [*prefix, *arguments]
        return subprocess.Popen(line, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def into(output: Path, errors: Path) -> None:
    """Have what this process says go to files, which may be the same one."""
    for descriptor, path in ((1, output), (2, errors)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), descriptor)


def status_of(target: Callable[..., None], *arguments: object, within: float) -> int | None:
    """What a fork ends with that does this; None, once it was killed, if it took more seconds."""
    fork = Fork(target, *arguments)
    try:
        return fork.wait(within)
    except subprocess.TimeoutExpired:
        fork.kill()
        fork.wait()
        return None


def command(
    output: Path,
    errors: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None = None,
    source: str = os.devnull,
) -> None:
    """Be `sfn` with these arguments, which reads from `source`; what it says goes to files, or to a terminal."""
    if folder:
        os.chdir(folder)
    into(output, errors)
    _be(["sfn", *arguments], environment)
    os.dup2(os.open(source, os.O_RDONLY), 0)
    # A fork's own has been replaced by one that is always empty.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it lives as long as the process
    from sfn.cli.main import main  # noqa: PLC0415 - a fork that is no command has another one, or none

    main()


def module(log: Path, line: Sequence[str], environment: Mapping[str, str], source: Path | None) -> None:
    """Be `python -m` with a module of `sfn` or of the tests, its arguments, and nothing to read.

    Args:
        log: file for the output, which is appended.
        line: the module and its arguments.
        source: where `sfn` is imported from; None for the installed one.
    """
    into(log, log)
    _be(line, environment)
    if source:
        sys.path.insert(0, str(source))
        for name in [name for name in sys.modules if name.partition(".")[0] in {"sfn", "tests"}]:
            del sys.modules[name]
    runpy.run_module(line[0], run_name="__main__")


class ForkedModule:
    """A fork in place of `python -m`, with what tests use of `GuardedProcess`.

    Args:
        line: as of `module`, like the other ones.
    """

    def __init__(self, line: Sequence[str], *, env: Mapping[str, str], log: Path, source: Path | None = None) -> None:
        self._fork = Fork(module, log, list(line), dict(env), source)
        self.pid = self._fork.pid

    def status(self) -> int | None:
        """Return the exit status, None while it runs."""
        return self._fork.poll()

    def terminate(self, patience: float) -> int:
        """Terminate it. Return its exit status, or -1 if it had to be killed after `patience` seconds."""
        self._fork.terminate()
        try:
            return self._fork.wait(patience)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        self._fork.kill()
        self._fork.wait()


def _be(line: Sequence[str], environment: Mapping[str, str]) -> None:
    """Have nothing to read, these arguments, and this environment."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    own = os.environ  # noqa: TID251 - this process's
    own.clear()
    own.update(environment)
    sys.argv = list(line)
