"""A facade that is asked without a server, and the directories of tables that it shows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from sfn.facade import Namespace, TablePlace
from sfn.facade.app import FacadeApplication
from sfn.facade.metadata_files import open_tree
from sfn.reader.resolve import Question
from sfn.sfnfile.document import render
from tests.support.table_directory import Directory, replaced

HOME = "/v1/sfn/namespaces"


@dataclass(frozen=True)
class Reply:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    parts: int

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.content)

    @property
    def kind(self) -> str:
        """The exception that a client makes of a refusal."""
        error = self.json["error"]
        assert error["code"] == self.status
        assert error["message"]
        return str(error["type"])


async def ask(facade: FacadeApplication, path: str, query: str = "", **more: Any) -> Reply:  # noqa: ANN401 - as of `reply`
    """What a facade answers; `path` begins behind its own."""
    return await reply(facade, f"/iceberg{path}", query, **more)


async def reply(
    application: FacadeApplication,
    path: str,
    query: str = "",
    *,
    method: str = "GET",
    fields: Mapping[str, str] | None = None,
    body: Sequence[bytes] = (b"",),
) -> Reply:
    """What an application answers."""
    sent: list[MutableMapping[str, Any]] = []
    left = list(body)

    async def receive() -> MutableMapping[str, Any]:
        if not left:
            return {"type": "http.disconnect"}
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = [(name.lower().encode(), value.encode()) for name, value in (fields or {}).items()]
    scope = {"type": "http", "method": method, "raw_path": path.encode(), "headers": headers}
    await application({**scope, "query_string": query.encode()}, receive, send)
    begun, *bodies = sent
    assert not bodies[-1].get("more_body", False)
    content = b"".join(part["body"] for part in bodies)
    told = {name.decode(): value.decode() for name, value in begun["headers"]}
    if begun["status"] not in {204, 304}:
        assert int(told["content-length"]) == len(content)
    return Reply(int(begun["status"]), told, content, len(bodies))


def shown(path: Path, identifier: str = "sales.orders", folder: str = "metadata/_sfn", **more: Any) -> Directory:  # noqa: ANN401 - any attribute
    """A table that a facade can show, at a path."""
    place = Directory(path, folder)
    place.metadata(location=f"file:{path}")
    place.write(identifier, **more)
    return place


def commit(place: Directory, number: int, identifier: str = "sales.orders", **more: Any) -> str:  # noqa: ANN401 - any JSON
    """One more metadata file, and the SFN file that names it; where it lies."""
    file = place.metadata(f"{number:05d}-a.metadata.json", **{"location": f"file:{place.path}", **more})
    doc = place.document(identifier, minutes=number, metadata_file_path=f"file:{file}")
    replaced(place.sfn_file(identifier), render(doc))
    return f"file:{file}"


def placed(root: Path, directory: Path, identifier: str = "sales.orders") -> TablePlace:
    """Where a table below a root is looked up."""
    question = Question(f"file://{directory}", tuple(identifier.split(".")), allowed=(f"file://{root}",))
    return TablePlace(open_tree(f"file://{root}", {}), question)


@dataclass
class Tables:
    """A scan of what a test says.

    Attributes:
        pause: what it waits for before it ends.
    """

    found: list[tuple[Namespace, str, TablePlace]] = field(default_factory=list)
    failure: Exception | None = None
    scans: int = 0
    pause: anyio.Event | None = None

    async def __call__(self) -> AsyncIterator[tuple[Namespace, str, TablePlace]]:
        self.scans += 1
        for one in self.found:
            yield one
        if self.pause is not None:
            await self.pause.wait()
        if self.failure is not None:
            raise self.failure
