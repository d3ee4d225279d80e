"""A REST catalog of very many tables that answers at once: `python -m tests.bench.many PORT WAREHOUSE TABLES [ODD]`.

    GET  /v1/config, /v1/namespaces, /v1/namespaces/NS/tables      as Iceberg's REST API has them, the last one in pages
    GET  /v1/namespaces/NS/tables/NAME                             some 7 KB, with an entity tag
    GET  /asked                                                    how many tables were loaded: {"loads", "unchanged"}

All answers are of the same form, so that the processor's time is left to whoever asks.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast
from urllib.parse import parse_qs, urlsplit
from uuid import NAMESPACE_URL, uuid5

import uvloop
from typing_extensions import override

from sfn.sfnfile import document, version_hint
from sfn.sfnfile.document import Document
from tests.bench.clients import wire
from tests.bench.servers import launched, started_at
from tests.servers.process import free_port

IN_NAMESPACE: Final = 1_000
"""Tables of a namespace."""
VERSION: Final = 25
"""Of every table: so many commits came before it."""
BEGAN: Final = 1_760_000_000_000
"""Unix milliseconds of the commit 0 of every table."""
WRITTEN: Final = datetime(2025, 11, 1, tzinfo=UTC)
"""When SFN files say that they were written."""
EACH: Final = 3_600_000
"""Milliseconds from a commit to the next."""

FORBIDDEN: Final = "forbidden"
"""A namespace that may not be listed."""
GARBLED: Final = "garbled"
"""A namespace whose only table, `garbage`, answers nothing that makes sense."""

_COLUMNS: Final = 48
_NO_TABLE: Final = b'{"error":{"message":"no such table","type":"NoSuchTableException","code":404}}'
_NOT_ALLOWED: Final = b'{"error":{"message":"not for you","type":"ForbiddenException","code":403}}'
_STATUS: Final = {403: b"403 Forbidden", 200: b"200 OK", 304: b"304 Not Modified", 404: b"404 Not Found"}


@dataclass(frozen=True, slots=True)
class Many:
    """What the tables are.

    Attributes:
        warehouse: the folder that they lie in.
        tables: how many there are.
        is_odd: there are also a namespace that nobody may list, and a table that answers garbage.
    """

    warehouse: Path
    tables: int
    is_odd: bool = False

    def all(self) -> Iterator[tuple[str, str]]:
        """Namespace and name of each table that answers."""
        for namespace in self.namespaces:
            if namespace not in {FORBIDDEN, GARBLED}:
                yield from ((namespace, name) for name in self.names(namespace))

    def document(self, namespace: str, name: str, catalog_id: str) -> Document:
        """The SFN file's content that a table should have."""
        return Document(
            catalog_id=catalog_id,
            namespace=(namespace,),
            name=name,
            guid=self.uuid(namespace, name),
            metadata_file_path=self.pointer(namespace, name),
            ordinal=BEGAN + VERSION * EACH,
            written_at=WRITTEN,
            snapshot_id=VERSION,
        )

    def publish(self, namespace: str, name: str, doc: Document | None) -> Path:
        """Write it, and the hint beside it, as a service would have; None for no file. Where it is."""
        metadata = self.warehouse / namespace / name / "metadata"
        file = metadata / "_sfn" / f"{namespace}_{name}_main.ver"
        file.parent.mkdir(parents=True, exist_ok=True)
        if doc is not None:
            file.write_bytes(document.render(doc))
            (metadata / "version-hint.text").write_text(version_hint.text_for(doc.metadata_file_path) or "")
        return file

    @property
    def namespaces(self) -> list[str]:
        """Their names, each of one level."""
        named = [f"ns{number:04d}" for number in range(-(-self.tables // IN_NAMESPACE))]
        return [*named, FORBIDDEN, GARBLED] if self.is_odd else named

    def names(self, namespace: str) -> list[str]:
        """The tables of a namespace."""
        if namespace == GARBLED:
            return ["garbage"]
        first = int(namespace.removeprefix("ns")) * IN_NAMESPACE
        return [f"t{number:07d}" for number in range(first, min(first + IN_NAMESPACE, self.tables))]

    def location(self, namespace: str, name: str) -> str:
        """A table's location."""
        return f"file://{self.warehouse}/{namespace}/{name}"

    def uuid(self, namespace: str, name: str) -> str:
        """A table's uuid."""
        return str(uuid5(NAMESPACE_URL, f"{namespace}.{name}"))

    def pointer(self, namespace: str, name: str, version: int = VERSION) -> str:
        """A table's metadata file of some version."""
        return f"{self.location(namespace, name)}/metadata/{version:05d}-{self.uuid(namespace, name)}.metadata.json"

    def answer(self, namespace: str, name: str) -> bytes:
        """What a load is answered."""
        log = [
            {"metadata-file": self.pointer(namespace, name, version), "timestamp-ms": BEGAN + version * EACH}
            for version in range(VERSION - 10, VERSION)
        ]
        fields = [
            {"id": at, "name": f"column_{at}", "required": False, "type": "string", "doc": "as it came"}
            for at in range(_COLUMNS)
        ]
        metadata = {
            "format-version": 2,
            "table-uuid": self.uuid(namespace, name),
            "location": self.location(namespace, name),
            "last-sequence-number": VERSION,
            "last-updated-ms": BEGAN + VERSION * EACH,
            "last-column-id": _COLUMNS,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {"owner": "somebody", "write.metadata.previous-versions-max": "10"},
            "current-snapshot-id": VERSION,
            "refs": {"main": {"snapshot-id": VERSION, "type": "branch"}},
            "snapshots": [
                {
                    "snapshot-id": VERSION,
                    "sequence-number": VERSION,
                    "timestamp-ms": BEGAN + VERSION * EACH,
                    "manifest-list": f"{self.location(namespace, name)}/metadata/snap-{VERSION}.avro",
                    "summary": {"operation": "append"},
                    "schema-id": 0,
                }
            ],
            "statistics": [],
            "partition-statistics": [],
            "snapshot-log": [{"snapshot-id": VERSION, "timestamp-ms": BEGAN + VERSION * EACH}],
            "metadata-log": log,
        }
        return json.dumps({"metadata-location": self.pointer(namespace, name), "metadata": metadata}).encode()


class _Connection(asyncio.Protocol):
    """One client's, whose requests are answered as they come, in as few steps as can be."""

    def __init__(self, many: Many, counts: dict[str, int]) -> None:
        self._many, self._counts, self._begun = many, counts, b""
        self._transport: asyncio.Transport | None = None
        # Of all answers only this differs from one table to the next.
        self._form = many.answer("ns0000", "t0000000")

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no base of asyncio's

    @override
    def data_received(self, data: bytes) -> None:
        *requests, self._begun = (self._begun + data).split(b"\r\n\r\n")
        for request in requests:
            line, _, headers = request.partition(b"\r\n")
            known = headers.lower().partition(b"if-none-match: ")[2].partition(b"\r\n")[0]
            assert self._transport is not None
            self._transport.write(b"".join(self._answered(line.split(b" ")[1].decode(), known)))

    def _answered(self, target: str, known: bytes) -> Iterator[bytes]:
        path, query = urlsplit(target)[2:4]
        tag = b""
        match path.split("/")[2:]:
            case ["namespaces", namespace, "tables", name]:
                tag = b'"%b-%d"' % (name.encode(), VERSION)
                status, body = self._table(namespace, name, unchanged=known == tag)
            case ["namespaces", namespace, "tables"] if namespace == FORBIDDEN:
                status, body = 403, _NOT_ALLOWED
            case ["namespaces", namespace, "tables"]:
                status, body = 200, self._listed(namespace, parse_qs(query))
            case ["namespaces"]:
                levels = [] if "parent=" in query else [[one] for one in self._many.namespaces]
                status, body = 200, json.dumps({"namespaces": levels}).encode()
            case ["config"]:
                status, body = 200, b'{"defaults":{},"overrides":{}}'
            case []:
                status, body = 200, json.dumps(self._counts).encode()
            case _:
                status, body = 404, _NO_TABLE
        yield b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n" % _STATUS[status]
        yield b"etag: %b\r\n" % tag if tag else b""
        yield b"content-length: %d\r\n\r\n" % len(body)
        yield body

    def _table(self, namespace: str, name: str, *, unchanged: bool) -> tuple[int, bytes]:
        if namespace == GARBLED:
            return 200, b'{"metadata-location": 1, "metadata": []}'
        if not name.startswith("t") or int(name[1:]) >= self._many.tables:
            return 404, _NO_TABLE
        self._counts["loads"] += 1
        if unchanged:
            self._counts["unchanged"] += 1
            return 304, b""
        many, first = self._many, ("ns0000", "t0000000")
        body = self._form.replace(many.uuid(*first).encode(), many.uuid(namespace, name).encode())
        return 200, body.replace(b"ns0000/t0000000", f"{namespace}/{name}".encode())

    def _listed(self, namespace: str, query: dict[str, list[str]]) -> bytes:
        names = self._many.names(namespace)
        size, begin = int(query.get("pageSize", ["100"])[0]), int(query.get("pageToken", ["0"])[0] or 0)
        page = {"identifiers": [{"namespace": [namespace], "name": name} for name in names[begin : begin + size]]}
        more = {"next-page-token": str(begin + size)} if begin + size < len(names) else {}
        return json.dumps(page | more).encode()


@dataclass(frozen=True, slots=True)
class Running:
    """The catalog's process.

    Attributes:
        uri: where it is.
        many: what it has.
    """

    uri: str
    many: Many

    def asked(self) -> dict[str, int]:
        """How many tables were loaded, and how many of these were unchanged."""
        with wire(self.uri) as connected:
            found: dict[str, int] = json.loads(connected.ask("GET", "/asked").body)
        return found


@contextmanager
def running(folder: Path, many: Many) -> Iterator[Running]:
    """The catalog as a process."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "tests.bench.many", str(port), str(many.warehouse), str(many.tables)]
    command += ["odd"] if many.is_odd else []
    with launched(command, folder / "many.log") as one:
        started_at(port, one, folder / "many.log")
        yield Running(f"http://127.0.0.1:{port}", many)


async def _serve(port: int, many: Many) -> None:
    counts = {"loads": 0, "unchanged": 0}
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(many, counts), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), Many(Path(sys.argv[2]), int(sys.argv[3]), "odd" in sys.argv)))
