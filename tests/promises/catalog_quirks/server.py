"""A REST catalog with a quirk: it serves what lies in memory, and a quirk changes its answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, unquote

import msgspec
from aiohttp import web

from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.catalog_answer import Loaded
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import Permanent
from tests.support.rest_catalog import Server, running

NAME: Final = "lake"


@dataclass(frozen=True, slots=True)
class Question:
    """A request.

    Attributes:
        kind: `config`, `token`, `namespaces`, `tables` or `table`.
        namespace: the namespace of the tables, or the parent of the namespaces.
        name: the table's.
        query: by name.
        headers: by name in lower case.
    """

    kind: str
    namespace: tuple[str, ...]
    name: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def is_first_page(self) -> bool:
        """Whether a listing is asked for from its beginning."""
        return not self.query.get("pageToken")


@dataclass(frozen=True, slots=True)
class Answer:
    """A response.

    Attributes:
        body: bytes as they are, anything else as JSON.
        status: HTTP status.
        headers: of the response.
        send: sends it in another way than whole.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    send: Callable[[web.BaseRequest, Answer], Awaitable[web.StreamResponse]] | None = None

    @property
    def content(self) -> bytes:
        """The body as it is sent."""
        return self.body if isinstance(self.body, bytes) else msgspec.json.encode(self.body)


Changed: TypeAlias = Callable[["QuirkServer", Question, Answer], Answer]
"""What a quirk makes of an answer."""


def error(kind: str | None, status: int, code: object = None) -> Answer:
    """An error in Iceberg's shape; the type may be missing."""
    said = {"message": "no", "type": kind, "code": status if code is None else code}
    return Answer({"error": {key: value for key, value in said.items() if value is not None}}, status)


class QuirkServer:
    """One catalog.

    Args:
        changed: what the quirk makes of each answer.
        separator: between the levels of a namespace, decoded.
        root: what stands before `namespaces` in each path.
        any_case: tables are found by any spelling of their names.

    Attributes:
        truth: what there is.
        server: where it listens.
        tokens: how many were asked for.
        trusted: how many questions came with the first of them.
        numbers: never the same one twice.
    """

    def __init__(self, changed: Changed, separator: str, root: str, *, any_case: bool = False) -> None:
        self.truth = MemoryCatalog(NAME)
        self.tokens = self.trusted = 0
        self.numbers = count(1)
        self._changed, self._separator, self._root, self._any_case = changed, separator, root, any_case
        self.server = Server()

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        """Serve; gives the catalog's URI."""
        async with running() as server:
            server.config = server.token = server.other = self._respond
            self.server = server
            yield server.uri

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        question = self._question(request)
        answer = self._changed(self, question, await self._plain(question))
        if answer.send is not None:
            return await answer.send(request, answer)
        return web.Response(body=answer.content, status=answer.status, headers=answer.headers)

    def _question(self, request: web.BaseRequest) -> Question:
        path, _, query = request.raw_path.partition("?")
        asked = {key: values[-1] for key, values in parse_qs(query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in request.headers.items()}
        if path.endswith("/v1/config"):
            return Question("config", (), "", asked, headers)
        if path.endswith("/oauth/tokens"):
            return Question("token", (), "", asked, headers)
        assert path.startswith(f"{self._root}namespaces"), path
        parts = path.removeprefix(f"{self._root}namespaces").split("/")[1:]
        if not parts:
            parent = asked.get("parent")
            return Question("namespaces", self._levels(parent) if parent else (), "", asked, headers)
        levels = self._levels(unquote(parts[0]))
        return Question("tables" if len(parts) == 2 else "table", levels, unquote(parts[-1]), asked, headers)

    def _levels(self, text: str) -> tuple[str, ...]:
        return tuple(text.split(self._separator))

    async def _plain(self, question: Question) -> Answer:
        match question.kind:
            case "config":
                return Answer({"defaults": {}, "overrides": {}})
            case "token":
                self.tokens += 1
                return Answer({"access_token": f"token{self.tokens}", "token_type": "bearer"})
            case "table":
                return await self._table(question)
            case _:
                return await self._listing(question)

    async def _listing(self, question: Question) -> Answer:
        space = question.namespace
        try:
            if space and space not in [one async for one in self.truth.namespaces(space[:-1])]:
                return error("NoSuchNamespaceException", 404)
            if question.kind == "namespaces":
                return Answer({"namespaces": [one async for one in self.truth.namespaces(space)]})
            tables = [table async for table in self.truth.tables_in(space)]
        except Permanent:
            return error("ForbiddenException", 403)
        return Answer({"identifiers": [{"namespace": table.namespace, "name": table.name} for table in tables]})

    async def _table(self, question: Question) -> Answer:
        name = TableIdentifier(NAME, question.namespace, question.name)
        if self._any_case:
            spellings = {
                one.dotted.lower(): one async for one in self.truth.tables() if isinstance(one, TableIdentifier)
            }
            name = spellings.get(name.dotted.lower(), name)
        found = await self.truth.load(name, None)
        if not isinstance(found, Loaded):
            return error("NoSuchTableException", 404)
        headers = {"content-type": "application/json", "etag": found.etag or ""}
        if question.headers.get("if-none-match") == found.etag:
            return Answer(b"", 304, headers)
        return Answer(
            {"metadata-location": found.table.metadata_location, "metadata": metadata(found.table)}, 200, headers
        )


def metadata(table: Table) -> dict[str, Any]:
    """The metadata of a table, as far as the adapter reads it."""
    times = zip(table.metadata_log, table.log_times, strict=True)
    return {
        "format-version": 2,
        "table-uuid": table.uuid,
        "location": table.location,
        "last-updated-ms": table.last_updated_ms,
        "current-snapshot-id": -1 if table.snapshot_id is None else table.snapshot_id,
        "metadata-log": [{"metadata-file": file, "timestamp-ms": at} for file, at in times],
        "properties": {"sfn.enabled": "false"} if table.skip_reason else {},
    }


def paged(question: Question, answer: Answer, size: int, token: str) -> Answer:
    """Return a page of a listing.

    Args:
        question: asks for the page.
        answer: the whole listing.
        size: entries a page.
        token: the key of the token of the next page.
    """
    if question.kind not in {"namespaces", "tables"} or answer.status != 200:
        return answer
    ((key, entries),) = answer.body.items()
    start = int(question.query.get("pageToken") or 0)
    end = start + size
    more = {token: str(end)} if end < len(entries) else {}
    return replace(answer, body={key: entries[start:end], **more})
