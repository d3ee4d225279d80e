"""A REST catalog whose tables lie in a folder, on the loopback interface; it can be away, slow or silent."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import anyio
from aiohttp import web

import sfn
from sfn.errors import Unreadable
from tests.integration.waiting import until

_BEGAN = 1_700_000_000_000
_ERROR = {"message": "told so", "type": "NoSuchTableException", "code": 404}


@dataclass(slots=True)
class Lake:
    """The catalog and the folder.

    Attributes:
        folder: where tables lie.
        delay: seconds that each answer about a table takes.
        loads: how often each table was asked for.
        properties: of every table.
        port: where it listens, when it does.
    """

    folder: Path
    delay: float = 0.0
    loads: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    port: int = 0
    _tables: dict[str, list[str]] = field(default_factory=dict)
    _uuids: dict[str, str] = field(default_factory=dict)
    _runner: web.ServerRunner | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def directory(self, name: str) -> Path:
        """Where a table of the namespace `sales` lies."""
        return self.folder / "warehouse" / "sales" / name

    def commit(self, name: str) -> str:
        """One more version of a table; the first creates it. Its pointer."""
        metadata = self.directory(name) / "metadata"
        metadata.mkdir(parents=True, exist_ok=True)
        versions = self._tables.setdefault(name, [])
        uuid = self._uuids.setdefault(name, str(uuid4()))
        file = metadata / f"{len(versions):05d}-{uuid4()}.metadata.json"
        file.write_text(json.dumps({"format-version": 2, "table-uuid": uuid, "location": self.location(name)}))
        versions.append(file.as_uri())
        return file.as_uri()

    def drop(self, name: str) -> None:
        """Forget a table; its files stay."""
        del self._tables[name]

    def published(self, name: str) -> str | None:
        """What a reader of the table's directory is told; None for a refusal."""
        try:
            return sfn.resolve(self.directory(name), ("sales", name)).metadata_location
        except Unreadable:
            return None

    async def until_published(self, *names: str, within: float = 20.0) -> None:
        """Wait until the files of these tables say what the catalog says."""
        await until(lambda: all(self.published(name) == self._tables[name][-1] for name in names), within)

    async def open(self) -> None:
        """Answer; on the same port as before, if there was one."""
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Refuse connections."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.path.strip("/").split("/")[1:]:
            case ["config"]:
                return _reply({"defaults": {}, "overrides": {}})
            case ["namespaces"]:
                parent = "parent" in request.query
                return _reply({"namespaces": [] if parent else [["sales"]]})
            case ["namespaces", "sales", "tables"]:
                return _reply({"identifiers": [{"namespace": ["sales"], "name": name} for name in self._tables]})
            case ["namespaces", "sales", "tables", name]:
                self.loads.append(name)
                await anyio.sleep(self.delay)
                return self._table(name)
            case _:
                return _reply({"error": _ERROR}, 404)

    def location(self, name: str) -> str:
        """Where the catalog says that a table lies."""
        return self.directory(name).as_uri()

    def _table(self, name: str) -> web.StreamResponse:
        versions = self._tables.get(name)
        if not versions:
            return _reply({"error": _ERROR}, 404)
        metadata = {
            "format-version": 2,
            "table-uuid": self._uuids[name],
            "location": self.location(name),
            "last-updated-ms": _BEGAN + len(versions),
            "metadata-log": [
                {"timestamp-ms": _BEGAN + number, "metadata-file": file}
                for number, file in enumerate(versions[:-1], start=1)
            ],
            "properties": self.properties,
        }
        return _reply({"metadata-location": versions[-1], "metadata": metadata})


@asynccontextmanager
async def lake(folder: Path) -> AsyncGenerator[Lake]:
    """A catalog that answers."""
    made = Lake(folder)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


def _reply(body: object, status: int = 200) -> web.StreamResponse:
    return web.json_response(body, status=status)
