"""A REST catalog with a quirk: it serves what lies in memory, and the quirk changes its answers."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, unquote

import anyio
import msgspec
from aiohttp import web

from sfn.catalogs import Loaded
from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import Permanent
from tests.support.rest_catalog import Server, running

NAME: Final = "lake"

BAD: Final = "mm"
TOKEN: Final = "next-page-token"  # noqa: S105 - no password
ABSENT: Final = frozenset(
    {
        "test_renamed_table_is_the_same_under_its_new_name",
        "test_dropped_table_is_missing",
        "test_unknown_table_is_missing_and_not_listed",
    }
)
"""Promises of what a catalog says of a table that is not there."""
UNCHANGED: Final = frozenset({"test_unchanged_table_is_not_sent_again"})


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


class Outcome(StrEnum):
    """What the product makes of a quirk."""

    RIGHT = "right"
    """Every promise of the contract suite holds."""
    GONE_UNSEEN = "right, but a dropped table keeps its file"
    WITHHELD = "that namespace is withheld, all others are right"
    NO_LISTING = "tables are right by events, the sweep fails"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Quirk:
    """One quirk of catalogs.

    Attributes:
        key: names it in tests.
        what: what such a catalog does.
        seen: on which catalogs.
        outcome: what the product makes of it.
        changed: makes the quirk's answer of a plain one.
        how: what the product does to be right, where that is not plain.
        but: promises of the contract suite that no such catalog can keep.
        separator: between the levels of a namespace, decoded.
        root: what stands before `namespaces` in each path.
        path: what stands behind host and port in the configured URI.
        any_case: tables are found by any spelling of their names.
        timeout: seconds that the adapter waits for an answer.
        has_tokens: the catalog is asked with client credentials.
    """

    key: str
    what: str
    seen: str
    outcome: Outcome
    changed: Changed
    how: str = ""
    but: frozenset[str] = field(default_factory=frozenset)
    separator: str = "\x1f"
    root: str = "/v1/"
    path: str = ""
    any_case: bool = False
    timeout: float = 60.0
    has_tokens: bool = False


Quirky = Callable[[QuirkServer, Question, Answer], Answer]


def of_kind(*kinds: str) -> Callable[[Quirky], Changed]:
    """Apply to the answers of some kinds of questions alone."""

    def limited(quirky: Quirky) -> Changed:
        def changed(server: QuirkServer, question: Question, answer: Answer) -> Answer:
            return quirky(server, question, answer) if question.kind in kinds else answer

        return changed

    return limited


def always(answer: Any, *kinds: str, namespace: str | None = None) -> Changed:  # noqa: ANN401 - an answer, or what makes one
    """Give one answer to questions of some kinds, or of one namespace alone."""

    def changed(server: QuirkServer, question: Question, plain: Answer) -> Answer:
        is_there = namespace is None or question.namespace == (namespace,)
        if question.kind not in kinds or not is_there:
            return plain
        made: Answer = answer(server, question, plain) if callable(answer) else answer
        return made

    return changed


HTML: Final = Answer(b"<!doctype html><title>Sign in</title>", 200, {"content-type": "text/html"})


def gone(answer: Answer) -> Any:  # noqa: ANN401 - a quirk
    """Answer so where a table is missing."""
    return always(lambda _, __, plain: answer if plain.status == 404 else plain, "table")


def bad(answer: Any) -> Any:  # noqa: ANN401 - an answer, or what makes one; a quirk
    """Give this answer to a listing of the tables of one namespace."""
    return always(answer, "tables", namespace=BAD)


def config(defaults: Mapping[str, object] | None = None, **more: object) -> Any:  # noqa: ANN401 - a quirk
    """Have such a configuration."""
    return always(Answer({"defaults": defaults, **more}), "config")


async def hang(_: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    await anyio.sleep(30)
    return web.Response(body=answer.content)


async def cut(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(answer.content[: len(answer.content) // 2])
    assert request.transport is not None
    request.transport.close()
    return response


async def chunked(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    response = web.StreamResponse(headers=answer.headers)
    response.enable_chunked_encoding()
    await response.prepare(request)
    for start in range(0, len(answer.content), 7):
        await response.write(answer.content[start : start + 7])
    await response.write_eof()
    return response


async def untyped(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    assert request.transport is not None
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer.content)}\r\nConnection: close\r\n\r\n"
    request.transport.write(head.encode() + answer.content)
    request.transport.close()
    return web.Response()


def encoded(encoding: str) -> Any:  # noqa: ANN401 - a quirk
    def changed(_: QuirkServer, __: Question, answer: Answer) -> Answer:
        content = gzip.compress(answer.content, 1) if encoding == "gzip" else zlib.compress(answer.content)
        return Answer(content, answer.status, {**answer.headers, "content-encoding": encoding})

    return changed


def without_empty(value: object) -> Any:  # noqa: ANN401 - a quirk
    """Leave empty lists out, or give something else for them."""

    @of_kind("namespaces", "tables")
    def changed(_: QuirkServer, __: Question, answer: Answer) -> Answer:
        if answer.status != 200 or any(answer.body.values()):
            return answer
        return replace(answer, body={} if value is None else dict.fromkeys(answer.body, None))

    return changed


@of_kind("namespaces", "tables")
def no_pages(_: QuirkServer, question: Question, answer: Answer) -> Answer:
    return error("BadRequestException", 400) if question.query.get("pageToken") == "" else answer


@of_kind("table")
def no_refs(_: QuirkServer, question: Question, answer: Answer) -> Answer:
    return error("BadRequestException", 400) if "snapshots" in question.query else answer


@of_kind("namespaces", "tables")
def empty_token(_: QuirkServer, __: Question, answer: Answer) -> Answer:
    return replace(answer, body={**answer.body, TOKEN: ""}) if answer.status == 200 else answer


@of_kind("namespaces", "tables")
def empty_pages(_: QuirkServer, question: Question, answer: Answer) -> Answer:
    """Two pages without an entry come before the others."""
    if answer.status != 200:
        return answer
    token = question.query.get("pageToken", "")
    if token in {"", "-2"}:
        return replace(answer, body={**dict.fromkeys(answer.body, ()), TOKEN: "-1" if token else "-2"})
    return paged(replace(question, query={"pageToken": token.removeprefix("-1")}), answer, 2, TOKEN)


@of_kind("namespaces", "tables")
def twice(_: QuirkServer, __: Question, answer: Answer) -> Answer:
    return (
        replace(answer, body={key: value * 2 for key, value in answer.body.items()}) if answer.status == 200 else answer
    )


def with_entry(entry: object) -> Any:  # noqa: ANN401 - a quirk
    return bad(lambda _, __, plain: replace(plain, body={"identifiers": [entry, *plain.body["identifiers"]]}))


def same_token(_: QuirkServer, __: Question, plain: Answer) -> Answer:
    return replace(plain, body={**plain.body, TOKEN: "same"})


def no_end(server: QuirkServer, __: Question, plain: Answer) -> Answer:
    return replace(plain, body={**plain.body, TOKEN: str(next(server.numbers))})


def tagged(tag: str) -> Any:  # noqa: ANN401 - a quirk
    """Give entity tags in another form, and know them again in that form alone."""

    @of_kind("table")
    def changed(_: QuirkServer, question: Question, answer: Answer) -> Answer:
        plain = answer.headers.get("etag", "").strip('"')
        if answer.status == 304 or not plain:
            return answer
        ours = tag.format(plain)
        headers = {**answer.headers, "etag": ours}
        return (
            Answer(b"", 304, headers)
            if question.headers.get("if-none-match") == ours
            else replace(answer, headers=headers)
        )

    return changed


@of_kind("table")
def untagged(_: QuirkServer, __: Question, answer: Answer) -> Answer:
    return replace(answer, headers={"content-type": "application/json"})


@of_kind("table")
def jetty(_: QuirkServer, __: Question, answer: Answer) -> Answer:
    """Compress, and put a suffix into the entity tag, which is not known again with it."""
    if answer.status != 200:
        return answer
    tag = answer.headers["etag"].replace('"', "") + "--gzip"
    headers = {**answer.headers, "etag": f'"{tag}"', "content-encoding": "gzip"}
    return Answer(gzip.compress(answer.content, 1), 200, headers)


@of_kind("table")
def unlocated(_: QuirkServer, question: Question, answer: Answer) -> Answer:
    if answer.status != 200 or question.query.get("snapshots") != "refs":
        return answer
    return replace(answer, body={**answer.body, "metadata-location": None})


@of_kind("table")
def without_uuid(_: QuirkServer, __: Question, answer: Answer) -> Answer:
    if answer.status != 200:
        return answer
    content = {key: value for key, value in answer.body["metadata"].items() if key != "table-uuid"}
    return replace(answer, body={**answer.body, "metadata": content})


def expiring(refusal: Answer, expires_in: object = None) -> Any:  # noqa: ANN401 - a quirk
    """The first token is good for five questions."""

    def changed(server: QuirkServer, question: Question, answer: Answer) -> Answer:
        if question.kind == "token":
            body = answer.body if expires_in is None else {**answer.body, "expires_in": expires_in}
            return replace(answer, body=body)
        token = question.headers.get("authorization", "").removeprefix("Bearer ")
        if token != f"token{server.tokens}":
            return refusal
        server.trusted += 1
        if server.tokens == 1 and server.trusted > 5:
            return refusal
        return answer

    return changed


def needs_header(_: QuirkServer, question: Question, answer: Answer) -> Answer:
    if question.kind == "config":
        return Answer({"overrides": {"header.X-Realm": "ours", "other": 1}})
    return answer if question.headers.get("x-realm") == "ours" else error("ForbiddenException", 403)
