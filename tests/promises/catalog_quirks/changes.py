"""What quirks make of the answers of a REST catalog."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import anyio
from aiohttp import web

from tests.promises.catalog_quirks.quirk import always, of_kind
from tests.promises.catalog_quirks.server import Answer, Question, QuirkServer, error, paged

BAD: Final = "mm"
HTML: Final = Answer(b"<!doctype html><title>Sign in</title>", 200, {"content-type": "text/html"})
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
