"""A REST catalog that answers at once: a raw ASGI application, for a process of its own.

    GET  /v1/config, /v1/namespaces/bench/tables/NAME     as Iceberg's REST API has them, the latter with an entity tag
    PUT  /commits/NAME                                    a commit: the answer is the table's new pointer
    GET  /loads                                           how often a table was asked for

Every name is a table. `SFN_BENCH_WAREHOUSE` is the directory that they lie in; with `SFN_BENCH_BUSY` set, each look at
a table finds one more commit of somebody else.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from tests.bench.servers import NAMESPACE, uvicorn
from tests.bench.wire import Wire, wire

WAREHOUSE: Final = "SFN_BENCH_WAREHOUSE"
BUSY: Final = "SFN_BENCH_BUSY"
FIRST: Final = 100_000
"""Numbers of versions begin above those that events tell of."""

_LOG_KEPT: Final = 100
"""Entries of a metadata log, which is full from the beginning (Iceberg's `write.metadata.previous-versions-max`)."""

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Tables:
    """What the catalog knows.

    Args:
        warehouse: the directory that tables lie in.
        busy: each look finds one more commit.
    """

    def __init__(self, warehouse: Path, *, busy: bool) -> None:
        self._warehouse, self._busy = warehouse, busy
        self._versions: defaultdict[str, int] = defaultdict(lambda: FIRST)
        self.loads = 0

    def commit(self, name: str) -> str:
        """One more version of a table; its pointer."""
        self._versions[name] += 1
        return self._pointer(name, self._versions[name])

    def load(self, name: str, known: str | None) -> tuple[str, bytes | None]:
        """A table's entity tag and what a load is answered; None where the tag was known."""
        self.loads += 1
        if self._busy:
            self.commit(name)
        version = self._versions[name]
        tag = f'"{version}"'
        return tag, None if known == tag else json.dumps(self._table(name, version)).encode()

    def _table(self, name: str, version: int) -> dict[str, Any]:
        log = range(version - _LOG_KEPT, version)
        return {
            "metadata-location": self._pointer(name, version),
            "metadata": {
                "format-version": 2,
                "table-uuid": str(uuid5(NAMESPACE_URL, name)),
                "location": self._directory(name),
                "last-updated-ms": 1_700_000_000_000 + version,
                "current-snapshot-id": version,
                "snapshots": [{"snapshot-id": version, "timestamp-ms": 1_700_000_000_000 + version}],
                "refs": {"main": {"snapshot-id": version, "type": "branch"}},
                "metadata-log": [
                    {"metadata-file": self._pointer(name, number), "timestamp-ms": 1_700_000_000_000 + number}
                    for number in log
                ],
            },
        }

    def _directory(self, name: str) -> str:
        return (self._warehouse / NAMESPACE / name).as_uri()

    def _pointer(self, name: str, version: int) -> str:
        return f"{self._directory(name)}/metadata/{version:05d}-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json"


@dataclass(frozen=True, slots=True)
class Running:
    """The catalog's process, and one connection to it.

    Attributes:
        uri: where it is.
        wire: asks it.
    """

    uri: str
    wire: Wire

    def commit(self, name: str) -> str:
        """One more version of a table; its pointer."""
        return str(json.loads(self.wire.ask("PUT", f"/commits/{name}").body))

    def loads(self) -> int:
        """How often it was asked for a table."""
        return int(self.wire.ask("GET", "/loads").body)


@contextmanager
def running(folder: Path, warehouse: Path, *, busy: bool = False) -> Iterator[Running]:
    """The catalog as a process; `busy` as of `Tables`."""
    environ = {WAREHOUSE: str(warehouse), **({BUSY: "1"} if busy else {})}
    with uvicorn("tests.bench.catalog:application", folder, environ) as uri, wire(uri) as connected:
        yield Running(uri, connected)


_tables: Final = Tables(Path(os.environ.get(WAREHOUSE, "/")), busy=BUSY in os.environ)  # noqa: TID251 - told by its parent


async def application(scope: MutableMapping[str, Any], _receive: Receive, send: Send) -> None:
    """Answer one request."""
    headers = dict(scope["headers"])
    match scope["method"], scope["path"].strip("/").split("/"):
        case "GET", ["v1", "config"]:
            await _answer(send, 200, b'{"defaults":{},"overrides":{}}')
        case "GET", ["v1", "namespaces", _, "tables", name]:
            known = headers.get(b"if-none-match")
            tag, body = _tables.load(name, None if known is None else known.decode())
            await _answer(send, 304 if body is None else 200, body or b"", tag)
        case "PUT", ["commits", name]:
            await _answer(send, 200, json.dumps(_tables.commit(name)).encode())
        case "GET", ["loads"]:
            await _answer(send, 200, b"%d" % _tables.loads)
        case _:
            await _answer(send, 404, b'{"error":{"message":"no","type":"NoSuchTableException","code":404}}')


async def _answer(send: Send, status: int, body: bytes, tag: str | None = None) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if tag is not None:
        headers.append((b"etag", tag.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
