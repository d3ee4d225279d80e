"""What the gateway costs: commits through it beside direct ones, reads through it beside nginx.

The catalog is Iceberg's own REST server. Its commits write a metadata file and its database; each that passes the
gateway is on our disk before it is forwarded, and its table is published meanwhile, on the same processors. nginx
proxies with one worker, as one process of ours does. Beside the catalog's server it also stands before a second nginx
that answers from memory: then what is measured is the proxy alone, and all that a faster catalog could show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from sfn.demo.environment import RestCatalogServer
from tests.bench.clients import Wire, installed, reads, wire
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import CATALOG, NAMESPACE, Service, Setting, service
from tests.servers.process import NotStarted
from tests.servers.proxies import Nginx
from tests.support.programs import runtime

COMMIT_GOAL: Final = Goal("ratio", "<=", 1.15)
READ_GOAL: Final = Goal("ratio", ">=", 0.2)
COMMITS: Final = 150
WARM_UP: Final = 40
CONNECTIONS: Final = 16
READ: Final = "read"
"""The table that is read."""

_BASE: Final = f"/v1/namespaces/{NAMESPACE}/tables"
_SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}],
}
_NGINX: Final = """\
keepalive_requests 1000000000;
upstream catalog {{ server {upstream}; keepalive 64; keepalive_requests 1000000000; }}
server {{
  listen 8080;
  location / {{ {answer} }}
}}
"""
_PROXYING: Final = 'proxy_pass http://catalog; proxy_http_version 1.1; proxy_set_header Connection "";'


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        runs: how many figures.
        commits: of each kind for each, through the gateway and direct in turn.
        seconds: of each read.
    """

    runs: int = 5
    commits: int = COMMITS
    seconds: int = 10

    @property
    def short(self) -> bool:
        """Less than what the goals are for."""
        whole = Extent()
        return self.runs < whole.runs or self.commits < whole.commits or self.seconds < whole.seconds


def measure(extent: Extent, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Measure commits, then reads, of one catalog."""
    home = folder / "catalog"
    home.mkdir(parents=True)
    with RestCatalogServer(home, runtime()) as server:
        more = f'[gateway.{CATALOG}]\nupstream = "{server.uri}"\n'
        setting = Setting(folder / "sfn", server.uri, home / "warehouse", more=more)
        with service(setting) as served:
            _create(server.uri)
            return [_commits(extent, server.uri, served, say), *_reads(extent, server.uri, served, folder, say)]


def _commits(extent: Extent, direct: str, served: Service, say: Callable[[str], None]) -> Figure:
    runs = []
    with wire(direct) as past, wire(served.url) as through:
        ours, theirs = _Committer(through, f"/catalog/{CATALOG}", "ours"), _Committer(past, "", "theirs")
        for _ in range(WARM_UP):
            ours.commit()
            theirs.commit()
        for number in range(extent.runs):
            pairs = [_pair(ours, theirs, reverse=turn % 2 == 1) for turn in range(extent.commits)]
            runs.append(Run(median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)))
            medians = f"{runs[-1].value:.2f} ms, direct {runs[-1].compared:.2f} ms"
            say(f"gateway: commits {number + 1}/{extent.runs}: {medians}")
    return Figure(
        name="gateway_commit_p50_vs_direct",
        unit="ms",
        runs=runs,
        compared_with="the same commits without the gateway",
        goal=COMMIT_GOAL,
        short=extent.short,
        note="each noted on disk before it is forwarded; published meanwhile, at most once a second as by default",
    )


def _pair(ours: _Committer, theirs: _Committer, *, reverse: bool) -> tuple[float, float]:
    if reverse:
        second = theirs.commit()
        return ours.commit(), second
    return ours.commit(), theirs.commit()


@dataclass(slots=True)
class _Committer:
    """Commits to one table, one after the other."""

    wire: Wire
    root: str
    table: str
    number: int = 0

    def commit(self) -> float:
        """Set a property: milliseconds."""
        self.number += 1
        updates = [{"action": "set-properties", "updates": {"n": str(self.number)}}]
        body = json.dumps({"requirements": [], "updates": updates}).encode()
        began = time.perf_counter()
        reply = self.wire.ask("POST", f"{self.root}{_BASE}/{self.table}", body, {"Content-Type": "application/json"})
        took = 1e3 * (time.perf_counter() - began)
        if b'"metadata-location"' not in reply.body:
            raise Unmeasured(f"a commit was answered with {reply.body[:200]!r}")
        return took


def _reads(extent: Extent, catalog: str, served: Service, folder: Path, say: Callable[[str], None]) -> Iterator[Figure]:
    path = f"{_BASE}/{READ}"
    answer = httpx.get(f"{catalog}{path}", trust_env=False).content
    static = folder / "static"
    static.mkdir()
    (static / "table.json").write_bytes(answer)
    said = f"root {static}; default_type application/json; try_files /table.json =404;"
    with nginx("127.0.0.1:1", said) as memory:
        more = f'[gateway.{CATALOG}]\nupstream = "{memory}"\n'
        with service(Setting(folder / "fast", catalog, folder, more=more)) as fast:
            for name, behind, before, goal in (
                ("gateway_get_vs_nginx", catalog, served, READ_GOAL),
                ("gateway_get_vs_nginx_static", memory, fast, None),
            ):
                with nginx(behind.partition("//")[2], _PROXYING) as beside:
                    urls = (f"{before.url}/catalog/{CATALOG}{path}", f"{beside}{path}")
                    runs = _compared(name, urls, extent, say)
                yield Figure(
                    name=name,
                    unit="reads/s",
                    runs=runs,
                    compared_with="one nginx worker before the same server",
                    goal=goal,
                    short=extent.short,
                    note=f"{CONNECTIONS} connections, {len(answer)} bytes each",
                )


def _compared(name: str, urls: tuple[str, str], extent: Extent, say: Callable[[str], None]) -> list[Run]:
    runs = []
    # The first one warms the catalog's Java up; a short figure is not worth that.
    warm_up = 0 if extent.short else 1
    for number in range(1 - warm_up, extent.runs + 1):
        ours, theirs = (reads(url, extent.seconds, CONNECTIONS) for url in urls)
        rates = f"{ours.rate:.0f} and {theirs.rate:.0f} reads/s"
        say(f"{name} {number}/{extent.runs}: {rates}, {ours.p50:.2f} and {theirs.p50:.2f} ms")
        runs.append(Run(ours.rate, theirs.rate))
    return runs[warm_up:]


@contextmanager
def nginx(upstream: str, answer: str) -> Iterator[str]:
    """Where an nginx answers.

    Args:
        upstream: host and port that `http://catalog` is.
        answer: what its only location does.

    Raises:
        Unmeasured: there is no nginx, or it does not start.
    """
    with ExitStack() as stack:
        server = Nginx(installed("nginx"), _NGINX.format(upstream=upstream, answer=answer))
        try:
            stack.enter_context(server)
        except NotStarted as error:
            raise Unmeasured(str(error)) from error
        yield server.url


def _create(uri: str) -> None:
    with httpx.Client(base_url=uri, trust_env=False) as client:
        client.post("/v1/namespaces", json={"namespace": [NAMESPACE]}).raise_for_status()
        for name in ("ours", "theirs", READ):
            client.post(_BASE, json={"name": name, "schema": _SCHEMA}).raise_for_status()
