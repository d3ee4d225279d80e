"""A real service in which everything happens once that its metrics count, and what it exports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from anyio.from_thread import start_blocking_portal
from prometheus_client.parser import text_string_to_metric_families

from tests.servers.process import free_port
from tests.support.processes import wait_for
from tests.support.service import TOKEN, configure, lake, serving

PATIENCE: Final = 30.0
TABLES: Final = ("orders", "customers")
READERS_TOKEN: Final = "a-token-of-readers"  # noqa: S105 - it opens nothing
EVERYTHING: Final = """
[gateway.prod]
upstream = "{uri}/v1"
[facade]
token = "{token}"
[pull.events]
servers = ["nats://127.0.0.1:{nowhere}"]
subject = "events"
catalog = "prod"
"""


@dataclass(frozen=True)
class Exported:
    """The series of a page of metrics.

    Attributes:
        values: values of each label, by metric.
        types: `counter`, `gauge` or `histogram`, by metric.
    """

    values: Mapping[str, Mapping[str, set[str]]]
    types: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Exported:
        """Read a page of metrics."""
        values: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        types: dict[str, str] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                types[sample.name] = family.type
                known = values[sample.name]
                for label, value in sample.labels.items():
                    known[label].add(value)
        return cls(values, types)


@dataclass(frozen=True)
class Observed:
    """A running service.

    Attributes:
        url: where it answers.
        commit: commits to a table, reports it with an event, and waits for its SFN file.
    """

    url: str
    commit: Callable[[str], None]

    def metrics(self) -> str:
        """Return its page of metrics."""
        return self.request("GET", "/metrics").raise_for_status().text

    def request(self, method: str, path: str, content: str = "", token: str = "") -> httpx.Response:
        """Send a request.

        Args:
            method: the HTTP method.
            path: path below the address.
            content: JSON; empty for no body.
            token: bearer token; empty for none.
        """
        headers = {"Content-Type": "application/json"} if content else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return httpx.request(
            method, f"{self.url}{path}", content=content, headers=headers, trust_env=False, timeout=PATIENCE
        )

    def send_requests(self) -> None:
        """Commit, send events, also wrong ones, and requests through the gateway and to the facade."""
        self.commit(TABLES[0])
        event = '{"namespace": ["sales"], "name": "orders"}'
        assert self.request("POST", "/v1/events", event, TOKEN).status_code == httpx.codes.ACCEPTED
        assert self.request("POST", "/v1/events", event, "another").status_code == httpx.codes.UNAUTHORIZED
        assert self.request("POST", "/v1/events", "{", TOKEN).status_code == httpx.codes.BAD_REQUEST
        table = "/catalog/prod/v1/namespaces/sales/tables/none"
        assert self.request("GET", table).status_code == httpx.codes.NOT_FOUND
        assert self.request("POST", table, '{"requirements": [], "updates": []}').status_code == httpx.codes.NOT_FOUND
        self.request("GET", "/iceberg/v1/config", token=READERS_TOKEN).raise_for_status()


@contextmanager
def observed(folder: Path) -> Iterator[Observed]:
    """Run a service with a catalog, a gateway, a facade and a pull source that does not answer.

    Two tables are published twice each, and a sweep has ended.

    Args:
        folder: for everything of it.
    """
    with start_blocking_portal("asyncio") as portal, portal.wrap_async_context_manager(lake(folder)) as world:
        more = EVERYTHING.format(uri=world.uri, token=READERS_TOKEN, nowhere=free_port())
        for name in TABLES:
            world.commit(name)
        with portal.wrap_async_context_manager(serving(configure(world, more))) as daemon:

            def commit(name: str) -> None:
                world.commit(name)
                portal.call(daemon.tell, name)
                portal.call(world.until_published, name)

            portal.call(world.until_published, *TABLES)
            for name in TABLES:
                commit(name)
            wait_for(lambda: daemon.records("settled", outcome="swept"), "a sweep", PATIENCE, 0.05)
            yield Observed(str(daemon.client.base_url).rstrip("/"), commit)
