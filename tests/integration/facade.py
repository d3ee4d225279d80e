"""`sfn facade` as a process on a free port, and attacks on it: known are its opened files, and what its roots lack."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psutil

import sfn
from tests.support.facade import shown
from tests.support.pages import ROOT
from tests.support.processes import Running, launched, wait_for
from tests.support.table_directory import Directory

WITHIN = 20.0
SFN = (sys.executable, "-m", "sfn")


@dataclass(frozen=True)
class Facing:
    """One process.

    Attributes:
        uri: the catalog's.
        process: as it was started, or what launched it.
        log: its output.
        client: asks it.
    """

    uri: str
    process: Running
    log: Path
    client: httpx.Client

    def table(self, name: str, namespace: str = "sales", query: str = "", **more: Any) -> httpx.Response:  # noqa: ANN401 - httpx's
        """Ask for a table."""
        path = f"/v1/sfn/namespaces/{quote(namespace, safe='')}/tables/{quote(name, safe='')}{query}"
        return self.client.request(more.pop("method", "GET"), self.uri + path, **more)

    def records(self, event: str) -> list[dict[str, Any]]:
        return records(self.log, event)

    def end(self) -> int:
        """Its exit code, after it was told to end."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WITHIN)


def surroundings() -> dict[str, str]:
    """Of a process: nothing of the user's that would configure it."""
    names = ("PATH", "PYTHONPATH", "HOME", "TMPDIR", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
    inherited = {name: value for name in names if (value := os.environ.get(name))}  # noqa: TID251 - a child's
    return {**inherited, "PYTHONPATH": os.pathsep.join([inherited.get("PYTHONPATH", ""), str(ROOT)]).strip(os.pathsep)}


def records(log: Path, event: str) -> list[dict[str, Any]]:
    lines = log.read_text(errors="replace").splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    return [record for record in found if record["event"] == event]


@contextmanager
def facing(
    folder: Path,
    *arguments: str | Path,
    launcher: Sequence[str | Path] = (),
    trust: ssl.SSLContext | None = None,
    token: str | None = None,
) -> Iterator[Facing]:
    """A process that answers; killed in the end if it still runs.

    Args:
        folder: for its log.
        arguments: roots and options.
        launcher: a command that starts the command that follows it.
        trust: for TLS.
        token: shown by the client.
    """
    log = folder / f"facade{len(list(folder.glob('facade*.log')))}.log"
    command = ["facade", "--port", "0", *arguments]
    process = launched(command, surroundings(), log, [*launcher, *SFN], is_fork=not launcher)
    try:
        wait_for(lambda: records(log, "listening") or process.poll() is not None, "a facade", WITHIN, 0.02)
        assert process.poll() is None, log.read_text()
        fields = {"Authorization": f"Bearer {token}"} if token else {}
        verify: ssl.SSLContext | bool = True if trust is None else trust
        with httpx.Client(headers=fields, timeout=WITHIN, trust_env=False, verify=verify) as client:
            uri = records(log, "listening")[0]["url"].replace("127.0.0.1", "localhost" if trust else "127.0.0.1")
            yield Facing(uri, process, log, client)
    finally:
        process.kill()
        process.wait()


MIB = 1 << 20
OPENED = re.compile(r"= \d+<(/[^>]*)>$")
"""What a call that succeeded led to, by the system's own word."""


@dataclass(frozen=True)
class World:
    """A facade, its two roots, and what lies outside of them.

    Attributes:
        ours: the root that the attacker may write below.
        other: a root that somebody else writes below.
        outside: no root.
    """

    ours: Path
    other: Path
    outside: Path
    facade: Facing

    def ask(self, directory: Path | str, **more: Any) -> httpx.Response:  # noqa: ANN401 - httpx's
        return self.facade.table(str(directory), "dir", **more)

    def refuses(self, directory: Path | str, *statuses: int) -> None:
        """See that a directory is refused, at once and each time, and nothing of the outside told."""
        for query in ("", "?snapshots=refs"):
            answer = self.ask(directory, query=query)
            assert answer.status_code in (statuses or (403,)), answer.text
            assert answer.json()["error"]["code"] == answer.status_code
            assert "canary" not in answer.text


def opens(log: Path) -> list[Path]:
    """The files that were opened, of a log of strace's."""
    found = (OPENED.search(line.rstrip()) for line in log.read_text(errors="replace").splitlines())
    return [Path(match[1]) for match in found if match is not None]


def interpreter() -> list[Path]:
    """Where modules lie that may be imported at any time."""
    paths = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), str(Path(sfn.__file__).parent), str(ROOT)}
    return [Path(path).resolve() for path in paths] + [Path(path) for path in paths]


def planted(world: World, name: str, **more: Any) -> Directory:  # noqa: ANN401 - any attribute
    """A table of the attacker's."""
    path = world.ours / name
    return shown(path, f"evil.{name}", **{"metadata_file_path": f"file:{path}/metadata/00001-a.metadata.json", **more})


def weigh(world: World, ask: Callable[[], None]) -> int:
    """By how many bytes the process grows at most."""
    process = psutil.Process(world.facade.process.pid)
    before = most = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.005):
            most = max(most, process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        ask()
    finally:
        done.set()
        thread.join()
    return most - before
