"""Clients of a measured server: one connection with as little in between as possible, and the load generator wrk."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.bench.record import Unmeasured
from tests.support import programs

CONNECTIONS: Final = 64
TABLES: Final = 1_000
TOKEN: Final = "a-sender-of-the-benchmarks"  # noqa: S105 - it opens nothing

_PATIENCE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A response.

    Attributes:
        tag: its entity tag.
        body: its content.
    """

    tag: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Wire:
    """A connection that is kept open."""

    connection: http.client.HTTPConnection

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        """One request.

        Raises:
            Unmeasured: it was answered with anything but success.
        """
        self.connection.request(method, path, body, headers or {})
        response = self.connection.getresponse()
        content = response.read()
        if not 200 <= response.status < 300:
            raise Unmeasured(f"{method} {path}: {response.status}: {content[:300]!r}")
        return Reply(response.headers["etag"], content)


@contextmanager
def wire(url: str) -> Iterator[Wire]:
    """A connection to the server of a URL, closed in the end."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        yield Wire(connection)
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Answers:
    """What a run was answered, all of it with success.

    Attributes:
        count: how many answers.
        seconds: how long it took.
        p50, p99: milliseconds from a request to its answer.
    """

    count: int
    seconds: float
    p50: float
    p99: float

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.count / self.seconds


def installed(program: str) -> str:
    """The path of a program of the system's.

    Raises:
        Unmeasured: it is not there.
    """
    path = programs.installed(program)
    if path is None:
        raise Unmeasured(f"{program} is missing: on Debian and Ubuntu, apt-get install {program}")
    return path


def load(server: str, seconds: int, *, series: int, warehouse: Path, size: int = 1) -> Answers:
    """Send events of 1,000 tables over 64 connections.

    Args:
        server: where it listens.
        seconds: for how long.
        series: another one for each run against one server: no event id comes twice.
        warehouse: where the events say that the tables lie.
        size: events of a request.

    Raises:
        Unmeasured: a request was refused or lost, or there is no wrk.
    """
    arguments = ("--", str(series), str(TABLES), TOKEN, str(warehouse), str(size))
    return _counted("events.lua", f"{server}/v1/events", CONNECTIONS, seconds, *arguments)


def reads(url: str, seconds: int, connections: int, *fields: str) -> Answers:
    """Ask for one thing again and again.

    Args:
        url: of it.
        seconds: for how long.
        connections: at once.
        fields: of each request's header, as `Name: value`.

    Raises:
        Unmeasured: as of `load`.
    """
    return _counted("gets.lua", url, connections, seconds, fields=fields)


def _counted(
    script: str, url: str, connections: int, seconds: int, *arguments: str, fields: Sequence[str] = ()
) -> Answers:
    command = [
        installed("wrk"),
        *("--threads", "1"),
        *("--connections", str(connections)),
        *("--timeout", "30s"),
        *("--duration", f"{seconds}s"),
        *("--script", str(Path(__file__).with_name(script))),
        *(word for field in fields for word in ("--header", field)),
        url,
        *arguments,
    ]
    told = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _PATIENCE, check=False)
    if told.returncode != 0:
        raise Unmeasured(f"wrk ended with {told.returncode}: {told.stderr.strip() or told.stdout.strip()}")
    said = json.loads(told.stdout.splitlines()[-1])
    if said["refused"] or said["lost"] or not said["answers"]:
        raise Unmeasured(
            f"{url}: of {said['answers']} answers {said['refused']} were refusals, and {said['lost']} were lost"
        )
    return Answers(said["answers"], said["microseconds"] / 1e6, said["p50"] / 1e3, said["p99"] / 1e3)
