"""Processes that tests start, as forks that have imported their packages already, and waiting for what processes do.

A fork imports this project's own code anew only where its work says so, see `tests.mutants.mutant`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection
from pathlib import Path

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
    "httptools",
    "httpx",
    "hypothesis.stateful",
    "msgspec",
    "prometheus_client",
    "pyiceberg.catalog.rest",
    "pytest",
    "sfn.cli",
    "sfn.cli.status",
    "sfn.cli.table",
    "sfn.cli.sweep",
    "sfn.reader.verify",
    "sfn.app",
    "structlog",
    "uvloop",
    "xdist.plugin",
]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([*_IMPORTED, __name__, "tests.support.fork_server"])
_ENDS = threading.Lock()
"""How a process ended can be read once, and whoever starts one reads it of all others."""


def into(output: Path, errors: Path) -> None:
    """Have what this process says go to files, which may be the same one."""
    for descriptor, path in ((1, output), (2, errors)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), descriptor)


def status_of(target: Callable[..., None], *arguments: object, within: float) -> int | None:
    """What a fork ends with that does this; None, once it was killed, if it took more seconds."""
    process = _FORKS.Process(target=target, args=arguments)
    with _ENDS:
        process.start()
    connection.wait([process.sentinel], within)
    with _ENDS:
        status = process.exitcode
        process.kill()
        process.join()
        process.close()
    return status


def command(folder: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Be `sfn` with these arguments; what it says goes to the files `out` and `err` in a folder."""
    into(folder / "out", folder / "err")
    own = os.environ  # noqa: TID251 - this process's
    own.clear()
    own.update(environment)
    sys.argv = ["sfn", *arguments]
    from sfn.cli.main import main  # noqa: PLC0415 - a fork that is no command has another one, or none

    main()
