"""Listings of catalogs that follow the specification, and of those that do not."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

import pytest
from aiohttp import web

from sfn.catalog import Skip, Withheld
from sfn.catalog.rest import RestCatalog
from sfn.errors import Scope, Transient, Trouble
from sfn.words import TableName
from tests.unit.rest_server import ORDERS, Open, Responder, Server, complaint, reply

Namespaces = Mapping[str, list[list[str]]]
"""By parent, levels joined by `|`."""


def catalog_of(namespaces: Namespaces, special: Mapping[str, Responder] | None = None) -> Responder:
    """Lists these namespaces, and one table `t` in each; `special` by what is listed: `t:a|b` or `n:a|b`."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/v1/namespaces":
            parent = parse_qs(request.query_string).get("parent", [""])[0].replace("\x1f", "|")
            answer = reply({"namespaces": namespaces.get(parent, [])})
            key = f"n:{parent}"
        else:
            levels = request.path.split("/")[3].split("\x1f")
            answer = reply({"identifiers": [{"namespace": levels, "name": "t"}]})
            key = f"t:{'|'.join(levels)}"
        return await (special or {}).get(key, answer)(request)

    return respond


async def walked(catalog: RestCatalog, into: list[str] | None = None) -> list[str]:
    """The tables; what is withheld fails."""
    found = [] if into is None else into
    async for table in catalog.tables():
        assert isinstance(table, TableName)
        found.append(table.identifier)
    return found


async def seen(catalog: RestCatalog, skip: Skip | None = None) -> tuple[list[str], list[Withheld]]:
    """The tables, and what is withheld."""
    found = [one async for one in catalog.tables(skip)]
    tables = sorted(one.identifier for one in found if isinstance(one, TableName))
    return tables, [one for one in found if isinstance(one, Withheld)]


async def test_namespaces_are_walked_level_by_level(server: Server, opened: Open) -> None:
    server.other = catalog_of({"": [["a"], ["b"]], "a": [["a", "x"]], "a|x": [["a", "x", "y"]]})
    assert sorted(await walked(opened(server))) == ["a.t", "a.x.t", "a.x.y.t", "b.t"]
    assert server.asked[0] == "/v1/namespaces?pageToken="
    assert "/v1/namespaces?parent=a%1Fx&pageToken=" in server.asked


@pytest.mark.parametrize("everywhere", [[["a"], ["b"]], [["a"], ["a", "x"], ["b"]]], ids=["outermost", "all"])
async def test_a_catalog_that_ignores_the_parent_is_walked_once(
    server: Server, opened: Open, everywhere: list[list[str]]
) -> None:
    server.other = catalog_of(dict.fromkeys(("", "a", "b", "a|x"), everywhere))
    found = await walked(opened(server))
    assert sorted(found) == [".".join((*levels, "t")) for levels in everywhere]


@pytest.mark.parametrize("status", [400, 406])
async def test_a_catalog_without_nesting_is_walked(server: Server, opened: Open, status: int) -> None:
    refusal = complaint("UnsupportedOperationException", status)
    server.other = catalog_of({"": [["a"], ["b"]]}, {"n:a": refusal, "n:b": refusal})
    assert await walked(opened(server)) == ["a.t", "b.t"]


async def test_pages_are_followed(server: Server, opened: Open) -> None:
    names = [f"t{number}" for number in range(5)]

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        query = parse_qs(request.query_string, keep_blank_values=True)
        start = int(query["pageToken"][0].removeprefix("from&") or 0)
        page = names[start : start + int(query["pageSize"][0])]
        following = f"from&{start + len(page)}" if start + len(page) < len(names) else None
        identifiers = [{"namespace": ["sales"], "name": name} for name in page]
        return await reply({"identifiers": identifiers, "next-page-token": following})(request)

    server.other = respond
    catalog = opened(server, page_size=2)
    assert await catalog.listed(TableName("lake", ("sales",), "t4"))
    path = "/v1/namespaces/sales/tables?pageSize=2&pageToken="
    assert server.asked == [path, f"{path}from%262", f"{path}from%264"]
    assert not await catalog.listed(ORDERS)


async def test_a_token_that_comes_again_is_no_end(server: Server, opened: Open) -> None:
    server.other = reply({"identifiers": [], "next-page-token": "same"})
    with pytest.raises(Transient) as caught:
        await opened(server).listed(ORDERS)
    assert caught.value.scope is Scope.TABLE
    assert len(server.asked) == 2


async def test_a_namespace_listed_as_one_level_still_lists_its_tables(server: Server, opened: Open) -> None:
    server.other = reply({"identifiers": [{"namespace": ["a.b"], "name": "t"}]})
    catalog = opened(server)
    assert await catalog.listed(TableName("lake", ("a", "b"), "t"))
    assert not await catalog.listed(TableName("lake", ("a", "c"), "t"))


async def test_a_missing_namespace_lists_nothing(server: Server, opened: Open) -> None:
    server.other = complaint("NoSuchNamespaceException", 404)
    assert not await opened(server).listed(ORDERS)


@pytest.mark.parametrize(
    "refusal",
    [
        reply(b"<html>", 404, content_type="text/html"),
        complaint("NoSuchTableException", 404),
        complaint("NotFoundException", 404),
        reply({"identifiers": None}),
        reply(b"", 500),
    ],
    ids=["html", "table", "warehouse", "shape", "500"],
)
async def test_any_other_answer_is_trouble_and_never_an_empty_listing(
    server: Server, opened: Open, refusal: Responder
) -> None:
    server.other = refusal
    catalog = opened(server)
    with pytest.raises(Transient) as caught:
        await catalog.listed(ORDERS)
    assert caught.value.scope is Scope.TABLE
    with pytest.raises(Transient):
        await walked(catalog)


async def test_a_namespace_that_vanishes_lists_nothing(server: Server, opened: Open) -> None:
    gone = complaint("NoSuchNamespaceException", 404)
    server.other = catalog_of({"": [["a"], ["b"]]}, {"t:a": gone, "n:a": gone})
    assert await walked(opened(server)) == ["b.t"]


async def test_the_outermost_namespaces_cannot_vanish(server: Server, opened: Open) -> None:
    server.other = complaint("NoSuchNamespaceException", 404)
    with pytest.raises(Transient):
        await walked(opened(server))


async def test_a_closed_namespace_is_withheld_and_all_others_are_walked(server: Server, opened: Open) -> None:
    forbidden = complaint("ForbiddenException", 403)
    tree = {"": [["a"], ["b"], ["c"]], "a": [["a", "x"]]}
    server.other = catalog_of(tree, {"t:a": forbidden, "t:b": forbidden, "n:b": forbidden})
    tables, withheld = await seen(opened(server))
    assert tables == ["a.x.t", "c.t"]
    assert [one.namespace for one in withheld] == [("a",), ("b",)]
    assert "/namespaces/a/tables" in withheld[0].why
    assert "ForbiddenException" in withheld[0].why


async def test_a_namespace_whose_children_may_not_be_listed_is_withheld(server: Server, opened: Open) -> None:
    server.other = catalog_of({"": [["a"], ["b"]]}, {"n:a": complaint("ForbiddenException", 403)})
    tables, withheld = await seen(opened(server))
    assert (tables, [one.namespace for one in withheld]) == (["a.t", "b.t"], [("a",)])


async def test_a_catalog_whose_namespaces_may_not_be_listed_is_withheld_as_a_whole(
    server: Server, opened: Open
) -> None:
    server.other = complaint("ForbiddenException", 403)
    tables, withheld = await seen(opened(server))
    assert (tables, [one.namespace for one in withheld]) == ([], [()])


async def test_nothing_is_asked_about_what_nobody_wants(server: Server, opened: Open) -> None:
    forbidden = complaint("ForbiddenException", 403)
    tree = {"": [["a"], ["b"], ["c"]], "a": [["a", "x"], ["a", "y"]]}
    server.other = catalog_of(tree, {"t:b": forbidden, "n:b": forbidden})
    assert await seen(opened(server), {("b",), ("a", "x")}.__contains__) == (["a.t", "a.y.t", "c.t"], [])
    parents, spaces = ("", "parent=a&", "parent=c&", "parent=a%1Fy&"), ("a", "c", "a%1Fy")
    asked = [f"/v1/namespaces?{parent}pageToken=" for parent in parents]
    assert sorted(server.asked) == sorted(asked + [f"/v1/namespaces/{space}/tables?pageToken=" for space in spaces])


@pytest.mark.parametrize("status", [401, 429, 500])
async def test_other_trouble_fails_the_walk_at_once(server: Server, opened: Open, status: int) -> None:
    server.other = catalog_of({"": [["a"], ["b"], ["c"]]}, {"t:b": reply(b"", status)})
    found: list[str] = []
    with pytest.raises(Trouble) as caught:
        await walked(opened(server), found)
    assert found == ["a.t"]
    assert caught.value.scope is (Scope.TABLE if status == 500 else Scope.CATALOG)
