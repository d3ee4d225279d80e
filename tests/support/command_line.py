"""The real command line as a process of its own, beside a service and a catalog that live in the test's own loop."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread

from tests.support.processes import Fork, Running, command, is_measured, status_of, until
from tests.support.service import Daemon, Lake, configure, lake, serving

SFN = Path(sys.executable).with_name("sfn")
_OPTION = re.compile("-{0,2}[a-z][a-z-]*")
_MEASURED: set[tuple[str, ...]] = set()
PATIENCE = 60.0
"""Seconds."""
ADMIN = '[admin]\ntoken = "a-token-of-operators"\n'


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON
        assert self.status in {0, 1}, self.err
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Place:
    """A running service, its catalog and its configuration."""

    lake: Lake
    daemon: Daemon
    configuration: Path

    @property
    def url(self) -> str:
        return str(self.daemon.client.base_url).rstrip("/")

    async def sfn(self, *arguments: str) -> Done:
        """Run a command that asks this service."""
        return await sfn(*arguments, "--config", str(self.configuration), "--url", self.url)

    async def publish(self, name: str) -> str:
        """Commit a table and tell of it with the command line; its pointer, once the file beside it says so."""
        pointer = self.lake.commit(name)
        assert (await self.sfn("notify", f"sales.{name}")).status == 0
        await until(lambda: self.lake.published(name) == pointer)
        await self.daemon.until_logged("settled", table=f"prod:sales.{name}", outcome="done")
        return pointer

    def block(self, name: str) -> Path:
        """Put a file where a new table's file belongs that is not ours; the table is committed."""
        self.lake.commit(name)
        file = self.lake.directory(name) / "metadata" / "_sfn" / f"sales_{name}_main.ver"
        file.parent.mkdir()
        file.write_text("no document of ours")
        return file

    async def letter(self, name: str) -> int:
        """The id of the dead letter that such a table becomes."""
        await self.daemon.tell(name)
        await self.daemon.until_logged("settled", table=f"prod:sales.{name}", outcome="dead")
        (letter,) = (await self.sfn("dead-letters", "list", "--table", f"sales.{name}", "--json")).json["dead_letters"]
        return int(letter["id"])


@asynccontextmanager
async def place(folder: Path, catalog: str = "", more: str = "", lag: str = "0") -> AsyncGenerator[Place]:
    """A service with operators.

    Args:
        catalog: settings of its catalog.
        more: other sections.
        lag: the catalog's `replica_lag`.
    """
    async with lake(folder) as made:
        configuration = configure(made, ADMIN + more)
        text = configuration.read_text().replace('replica_lag = "0"', f'replica_lag = "{lag}"')
        configuration.write_text(text.replace("[catalogs.prod]", f"[catalogs.prod]\n{catalog}"))
        async with serving(configuration) as daemon:
            yield Place(made, daemon, configuration)


def forked(
    *arguments: str, environ: Mapping[str, str] | None = None, folder: Path | None = None, source: str = os.devnull
) -> Done:
    """Run a command in a fork of a process that has imported everything: most of its time is saved.

    Args:
        folder: the working directory.
        source: what the command reads from.
    """
    surroundings = _surroundings(arguments, environ or {})
    if is_measured(surroundings):
        return _ran(arguments, surroundings, source, folder)
    with tempfile.TemporaryDirectory() as name:
        out, err = Path(name, "out"), Path(name, "err")
        status = status_of(command, out, err, arguments, surroundings, folder, source, within=PATIENCE)
        assert status is not None, f"it takes longer than {PATIENCE:g} s: {arguments}"
        return Done(status, out.read_text(), err.read_text())


def executed(*arguments: str, environ: Mapping[str, str] | None = None) -> Done:
    """Run the installed command, as users do, without a terminal."""
    return _ran(arguments, _surroundings(arguments, environ or {}))


async def sfn(*arguments: str, environ: Mapping[str, str] | None = None) -> Done:
    """See `forked`."""
    return await anyio.to_thread.run_sync(lambda: forked(*arguments, environ=environ))


async def interrupted(said: str, *arguments: str) -> Done:
    """Run a command and press Ctrl-C once its standard output or standard error has said something."""

    def run() -> Done:
        environment, pipe, same = _surroundings(arguments, {}), subprocess.PIPE, subprocess.STDOUT
        with subprocess.Popen([SFN, *arguments], env=environment, stdout=pipe, stderr=same, text=True) as process:
            shown = ""
            while said not in shown and process.stdout is not None and (line := process.stdout.readline()):
                shown += line
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
            return Done(process.returncode, shown + rest, "")

    return await anyio.to_thread.run_sync(run)


async def answered(said: str, *arguments: str) -> Done:
    """Run a command with a terminal for its standard input, where somebody types."""

    def run() -> Done:
        ours, theirs = pty.openpty()
        try:
            os.write(ours, f"{said}\n".encode())
            return forked(*arguments, source=os.ttyname(theirs))
        finally:
            os.close(ours)
            os.close(theirs)

    return await anyio.to_thread.run_sync(run)


async def on_terminal(*arguments: str, environ: Mapping[str, str] | None = None) -> str:
    """What a command shows on a terminal of 100 columns, standard output and standard error together."""

    def run() -> str:
        ours, theirs = pty.openpty()
        surroundings = _surroundings(arguments, {"COLUMNS": "100", "TERM": "xterm-256color", **(environ or {})})
        process: Running
        if is_measured(surroundings):
            process = subprocess.Popen([SFN, *arguments], env=surroundings, stdin=theirs, stdout=theirs, stderr=theirs)
        else:
            terminal = os.ttyname(theirs)
            process = Fork(command, Path(terminal), Path(terminal), arguments, surroundings, None, terminal)

        def close() -> None:
            process.wait()
            os.close(theirs)

        # The terminal ends once no process has it open. The fork opens it late.
        watcher = threading.Thread(target=close)
        watcher.start()
        shown = bytearray()
        while part := _read(ours):
            shown += part
        watcher.join()
        os.close(ours)
        return shown.decode()

    return await anyio.to_thread.run_sync(run)


def _ran(
    arguments: tuple[str, ...], surroundings: Mapping[str, str], source: str = os.devnull, folder: Path | None = None
) -> Done:
    with Path(source).open("rb", buffering=0) as stdin:
        how: dict[str, Any] = {"env": surroundings, "cwd": folder, "stdin": stdin, "timeout": PATIENCE}
        done = subprocess.run([SFN, *arguments], capture_output=True, text=True, check=False, **how)
    return Done(done.returncode, done.stdout, done.stderr)


def _surroundings(arguments: tuple[str, ...], more: Mapping[str, str]) -> dict[str, str]:
    """Of a command; the coverage of each is measured once with the same options: it takes as long as the command."""
    kind = tuple(word for word in arguments if _OPTION.fullmatch(word))
    unwanted = ("SFN_", "COVERAGE_") if kind in _MEASURED else ("SFN_",)
    _MEASURED.add(kind)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}  # noqa: TID251 - a child's
    return {**inherited, **more}


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4_096)
    except OSError:
        # Linux: the last writer is gone.
        return b""
