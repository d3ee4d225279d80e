"""`sfn facade` as a process, on a free port."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from tests.integration.pages import ROOT
from tests.integration.waiting import wait_for

WITHIN = 20.0
COMMAND = (sys.executable, "-m", "sfn", "facade")


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
    process: subprocess.Popen[bytes]
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
    command = [*launcher, *COMMAND, "--port", "0", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=surroundings(), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
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


def refused(*arguments: str | Path) -> tuple[int, str]:
    """The exit code and the output of a process that does not start."""
    done = subprocess.run(
        [*COMMAND, *arguments], env=surroundings(), capture_output=True, text=True, timeout=WITHIN, check=False
    )
    return done.returncode, done.stdout + done.stderr
