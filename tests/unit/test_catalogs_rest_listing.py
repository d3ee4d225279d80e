"""Listings of catalogs that follow the specification, and of those that do not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from itertools import count
from urllib.parse import parse_qs

import anyio
import pytest
from aiohttp import web

from sfn.catalogs import SkipNamespace, UnlistedNamespace
from sfn.catalogs import listing as health_module
from sfn.catalogs.listing import MAX_CONSECUTIVE_FAILURES, MAX_PROBES, REDUCED_TIMEOUT, CatalogHealth
from sfn.catalogs.rest import catalog as listing_module
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.client import REMEMBER_SECONDS
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from tests.support.rest_catalog import ORDERS, Open, Responder, Server, complaint, pass_by, reply

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
        assert isinstance(table, TableIdentifier)
        found.append(table.dotted)
    return found


async def seen(catalog: RestCatalog, skip: SkipNamespace | None = None) -> tuple[list[str], list[UnlistedNamespace]]:
    """The tables, and what is withheld."""
    found = [one async for one in catalog.tables(skip)]
    tables = sorted(one.dotted for one in found if isinstance(one, TableIdentifier))
    return tables, [one for one in found if isinstance(one, UnlistedNamespace)]


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
    assert await catalog.is_listed(TableIdentifier("lake", ("sales",), "t4"))
    path = "/v1/namespaces/sales/tables?pageSize=2&pageToken="
    assert server.asked == [path, f"{path}from%262", f"{path}from%264"]
    assert not await catalog.is_listed(ORDERS)


async def test_a_token_that_comes_again_is_no_end(server: Server, opened: Open) -> None:
    server.other = reply({"identifiers": [], "next-page-token": "same"})
    with pytest.raises(Transient) as caught:
        await opened(server).is_listed(ORDERS)
    assert caught.value.scope is ErrorScope.TABLE
    assert len(server.asked) == 2


async def test_a_namespace_listed_as_one_level_still_lists_its_tables(server: Server, opened: Open) -> None:
    server.other = reply({"identifiers": [{"namespace": ["a.b"], "name": "t"}]})
    catalog = opened(server)
    assert await catalog.is_listed(TableIdentifier("lake", ("a", "b"), "t"))
    assert not await catalog.is_listed(TableIdentifier("lake", ("a", "c"), "t"))


async def test_a_missing_namespace_lists_nothing(server: Server, opened: Open) -> None:
    server.other = complaint("NoSuchNamespaceException", 404)
    assert not await opened(server).is_listed(ORDERS)


@pytest.mark.parametrize(
    "refusal",
    [
        reply(b"<html>", 404, content_type="text/html"),
        complaint("NoSuchTableException", 404),
        complaint("NotFoundException", 404),
        reply({"identifiers": "none"}),
        reply({"hello": "world"}),
        reply({"error": {"message": "", "type": "x", "code": 500}}),
        reply(b"null"),
        reply(b"", 500),
    ],
    ids=["html", "table", "warehouse", "shape", "another API", "an error", "null", "500"],
)
async def test_any_other_answer_is_trouble_and_never_an_empty_listing(
    server: Server, opened: Open, refusal: Responder
) -> None:
    server.other = refusal
    catalog = opened(server)
    with pytest.raises(Transient) as caught:
        await catalog.is_listed(ORDERS)
    assert caught.value.scope is ErrorScope.TABLE
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
    assert "/namespaces/a/tables" in withheld[0].reason
    assert "ForbiddenException" in withheld[0].reason


async def test_a_namespace_whose_children_may_not_be_listed_is_withheld(server: Server, opened: Open) -> None:
    server.other = catalog_of({"": [["a"], ["b"]]}, {"n:a": complaint("ForbiddenException", 403)})
    tables, withheld = await seen(opened(server))
    assert (tables, [one.namespace for one in withheld]) == (["a.t", "b.t"], [("a",)])


async def test_a_walk_fails_when_the_outermost_namespaces_may_not_be_listed(server: Server, opened: Open) -> None:
    server.other = complaint("ForbiddenException", 403)
    with pytest.raises(Permanent) as caught:
        await seen(opened(server))
    assert caught.value.scope is ErrorScope.TABLE


async def test_nothing_is_asked_about_what_nobody_wants(server: Server, opened: Open) -> None:
    forbidden = complaint("ForbiddenException", 403)
    tree = {"": [["a"], ["b"], ["c"]], "a": [["a", "x"], ["a", "y"]]}
    server.other = catalog_of(tree, {"t:b": forbidden, "n:b": forbidden})
    assert await seen(opened(server), {("b",), ("a", "x")}.__contains__) == (["a.t", "a.y.t", "c.t"], [])
    parents, spaces = ("", "parent=a&", "parent=c&", "parent=a%1Fy&"), ("a", "c", "a%1Fy")
    asked = [f"/v1/namespaces?{parent}pageToken=" for parent in parents]
    assert sorted(server.asked) == sorted(asked + [f"/v1/namespaces/{space}/tables?pageToken=" for space in spaces])


FAILURES: dict[str, Responder] = {
    "401": reply(b"", 401),
    "429": reply(b"", 429),
    "500": complaint("InternalServerError", 500),
    "503": reply(b"later", 503),
    "404 of a web server": reply(b"<html>", 404, content_type="text/html"),
    "a page": reply(b"<html>", content_type="text/html"),
    "null": reply(b"null"),
    "half a document": reply(b'{"identifiers": [{"name'),
    "a redirect": reply(b"", 307, location="/elsewhere"),
    "the same token": reply({"identifiers": [], "next-page-token": "same"}),
    "a null entry": reply({"identifiers": [None, {"namespace": ["b"], "name": "u"}]}),
    "an entry without a name": reply({"identifiers": [{"namespace": ["b"]}, {"namespace": ["b"], "name": "u"}]}),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_namespace_that_fails_is_withheld_and_all_others_are_walked(
    server: Server, opened: Open, case: str
) -> None:
    tree = {"": [["a"], ["b"], ["c"]], "b": [["b", "x"]]}
    server.other = catalog_of(tree, {"t:b": FAILURES[case]})
    tables, withheld = await seen(opened(server))
    expected = ["a.t", "b.x.t", "c.t"] if case not in {"401", "429"} else ["a.t", "c.t"]
    assert tables == sorted(expected + (["b.u"] if "entry" in case else []))
    assert [one.namespace for one in withheld] == [("b",)]
    assert "/namespaces/b/tables" in withheld[0].reason
    # A redirect stays until somebody changes something.
    assert withheld[0].is_failure == (case != "a redirect")


@pytest.mark.parametrize("case", ["500", "401"])
async def test_a_first_namespace_that_fails_hides_no_other(server: Server, opened: Open, case: str) -> None:
    server.other = catalog_of({"": [["a"], ["b"]]}, {"t:a": FAILURES[case], "n:a": FAILURES[case]})
    tables, withheld = await seen(opened(server))
    assert (tables, [one.namespace for one in withheld]) == (["b.t"], [("a",)])


async def test_namespaces_whose_children_fail_are_withheld(server: Server, opened: Open) -> None:
    server.other = catalog_of({"": [["a"], ["b"]]}, {"n:a": FAILURES["500"]})
    tables, withheld = await seen(opened(server))
    assert (tables, [one.namespace for one in withheld]) == (["a.t", "b.t"], [("a",)])


@pytest.mark.parametrize("failing", [1, MAX_CONSECUTIVE_FAILURES - 1, 3 * MAX_CONSECUTIVE_FAILURES])
async def test_many_namespaces_that_fail_in_a_row_hide_no_other(server: Server, opened: Open, failing: int) -> None:
    names = ["a", *(f"m{number:02}" for number in range(failing)), "z"]
    special = {f"t:{name}": FAILURES["503"] for name in names[1:-1]}
    server.other = catalog_of({"": [[name] for name in names]}, special)
    tables, withheld = await seen(opened(server))
    assert (tables, len(withheld)) == (["a.t", "z.t"], failing)


@pytest.mark.parametrize("namespaces", [1, 3, 100])
async def test_a_catalog_that_lists_no_namespace_at_all_fails_the_walk_soon(
    server: Server, opened: Open, namespaces: int
) -> None:
    names = [f"m{number:03}" for number in range(namespaces)]
    server.other = catalog_of({"": [[name] for name in names]}, {f"t:{name}": FAILURES["503"] for name in names})
    with pytest.raises(Transient):
        await seen(opened(server))
    assert sum("/tables" in path for path in server.asked) <= MAX_CONSECUTIVE_FAILURES + MAX_PROBES


async def test_a_catalog_that_fails_in_the_middle_of_a_walk_fails_the_walk_soon(server: Server, opened: Open) -> None:
    names = [f"m{number:03}" for number in range(100)]
    listing, asked = catalog_of({"": [[name] for name in names]}), 0

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal asked
        asked += request.path.endswith("/tables")
        return await (listing if asked <= 5 or request.path == "/v1/namespaces" else FAILURES["503"])(request)

    server.other = respond
    with pytest.raises(Transient):
        await seen(opened(server))
    assert asked <= 5 + MAX_CONSECUTIVE_FAILURES + 1


@pytest.mark.parametrize("case", ["503", "401"])
@pytest.mark.parametrize("bad", [MAX_CONSECUTIVE_FAILURES, 5 * MAX_CONSECUTIVE_FAILURES])
async def test_many_first_namespaces_that_fail_hide_no_other(server: Server, opened: Open, bad: int, case: str) -> None:
    names = [*(f"m{number:02}" for number in range(bad)), "x", "y", "z"]
    special = {f"t:{name}": FAILURES[case] for name in names[:bad]}
    server.other = catalog_of({"": [[name] for name in names]}, special)
    tables, withheld = await seen(opened(server))
    assert (tables, len(withheld)) == (["x.t", "y.t", "z.t"], bad)


async def test_few_namespaces_that_hang_are_as_many_that_fail() -> None:
    health = CatalogHealth(lambda _: listing_of(), tuple)
    slow = Transient("there", scope=ErrorScope.TABLE, expected="an answer", found="none")
    assert not await health.is_down(slow, 60.0)
    assert await health.is_down(slow, 60.0), "two that hang, and none that answered"


async def test_after_minutes_of_slow_failures_a_walk_waits_less_for_each_page() -> None:
    health = CatalogHealth(lambda _: listing_of("t"), tuple)
    slow = Transient("there", scope=ErrorScope.TABLE, expected="an answer", found="none")
    health.note_listed(("a",))
    for _ in range(4):
        assert not await health.is_down(slow, 50.0)
    assert health.page_timeout == REDUCED_TIMEOUT


async def listing_of(*entries: object) -> AsyncGenerator[object]:
    """A listing, which fails where there is nothing."""
    for one in entries:
        yield one
    if not entries:
        raise Transient("there", scope=ErrorScope.TABLE, expected="a listing", found="none")


async def test_an_outage_fails_the_walk_at_once(server: Server, opened: Open) -> None:
    listing, listed = catalog_of({"": [["a"], ["b"], ["c"]]}), 0

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal listed
        listed += request.path.endswith("/tables")
        return await (listing if listed < 2 else reply(b"", 401))(request)

    server.other = respond
    found: list[str] = []
    with pytest.raises(ExternalError) as caught:
        await walked(opened(server), found)
    assert found == ["a.t"]
    assert caught.value.scope is ErrorScope.CATALOG


@pytest.mark.parametrize("whole", [False, True])
async def test_namespaces_are_walked_though_the_outermost_are_not_listed_whole(
    server: Server, opened: Open, *, whole: bool
) -> None:
    listing = catalog_of({"": [["a"], ["b"]]})

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        query = parse_qs(request.query_string, keep_blank_values=True)
        if request.path == "/v1/namespaces" and "parent" not in query:
            more = {} if whole else {"next-page-token": "2"}
            first = reply({"namespaces": [["a"], ["b"], *([None] if whole else [])]} | more)
            return await (FAILURES["500"] if query["pageToken"] == ["2"] else first)(request)
        return await listing(request)

    server.other = respond
    found: list[str] = []
    with pytest.raises(Transient):
        await walked(opened(server), found)
    assert found == ["a.t", "b.t"]


@pytest.mark.parametrize("page", [{}, {"identifiers": None}, {"next-page-token": None}, {"nextPageToken": ""}])
async def test_a_list_that_is_left_out_is_empty(server: Server, opened: Open, page: object) -> None:
    listing = catalog_of({"": [["a"], ["b"], ["c"]]}, {"t:b": reply(page), "n:b": reply({})})
    server.other = listing
    assert await seen(opened(server)) == (["a.t", "c.t"], [])
    assert not await opened(server).is_listed(TableIdentifier("lake", ("b",), "t"))


async def test_an_entry_that_comes_twice_is_listed_once(server: Server, opened: Open) -> None:
    twice = [{"namespace": ["a"], "name": "t"}] * 2
    server.other = catalog_of({"": [["a"], ["a"]]}, {"t:a": reply({"identifiers": twice})})
    assert await walked(opened(server)) == ["a.t"]


async def test_tokens_without_end_that_bring_nothing_new_are_no_listing(
    server: Server, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_module, "MAX_PAGES_WITHOUT_NEW", 10)
    numbers = count()

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        body = {"identifiers": [{"namespace": ["sales"], "name": "t"}], "next-page-token": str(next(numbers))}
        return await reply(body)(request)

    server.other = respond
    with pytest.raises(Transient) as caught:
        await opened(server).is_listed(ORDERS)
    assert "10 pages without a new entry" in caught.value.found
    assert len(server.asked) == 12


def refusing(parameter: str, listing: Responder, status: int = 400) -> Responder:
    """Refuses whatever asks by that parameter."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        query = parse_qs(request.query_string, keep_blank_values=True)
        refusal = complaint("BadRequestException", status, f"{parameter} must not be sent")
        return await (refusal if parameter in query else listing)(request)

    return respond


@pytest.mark.parametrize("status", [400, 406, 422, 501])
async def test_catalog_that_refuses_pages_is_asked_once_more_for_all(server: Server, opened: Open, status: int) -> None:
    tree = {"": [["a"], ["b"]], "a": [["a", "x"]]}
    server.other = refusing("pageToken", catalog_of(tree), status)
    catalog = opened(server, page_size=100)
    assert sorted(await walked(catalog)) == ["a.t", "a.x.t", "b.t"]
    assert sum("pageToken" in path for path in server.asked) == 2, "once of namespaces and once of tables"
    assert "/v1/namespaces?parent=a%1Fx" in server.asked


async def test_a_stray_refusal_of_pages_does_not_switch_them_off(
    server: Server, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = catalog_of({"": [["a"]]})
    server.other = refusing("pageToken", listing)
    catalog = opened(server)
    assert await walked(catalog) == ["a.t"]
    server.other = listing
    server.requests.clear()
    assert await walked(catalog) == ["a.t"]
    assert not any("pageToken" in path for path in server.asked)
    pass_by(REMEMBER_SECONDS + 1, monkeypatch)
    assert await walked(catalog) == ["a.t"]
    assert server.asked[-1] == "/v1/namespaces?parent=a&pageToken="


async def test_a_refusal_that_has_nothing_to_do_with_pages_stays_one(server: Server, opened: Open) -> None:
    refusal = complaint("BadRequestException", 400)
    server.other = catalog_of({"": [["a"], ["b"]]}, {"t:a": refusal})
    tables, withheld = await seen(opened(server))
    assert (tables, [one.namespace for one in withheld]) == (["b.t"], [("a",)])
    assert not withheld[0].is_failure


async def test_a_catalog_that_wants_pages_again_is_asked_for_them(server: Server, opened: Open) -> None:
    listing = catalog_of({"": [["a"]]})
    server.other = refusing("pageToken", listing)
    catalog = opened(server)
    assert await walked(catalog) == ["a.t"]

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        query = parse_qs(request.query_string, keep_blank_values=True)
        return await (listing if "pageToken" in query else complaint("BadRequestException", 400))(request)

    server.other = respond
    assert await walked(catalog) == ["a.t"]


@pytest.mark.parametrize("levels", [("a",), ("a", "x"), ("a", "x", "y")])
async def test_a_namespace_that_is_missing_by_another_type_of_error_must_not_be_listed_above(
    server: Server, opened: Open, levels: tuple[str, ...]
) -> None:
    gone = complaint("BaseException", 404)
    space = "|".join(levels)
    special = {f"t:{space}": gone, f"n:{space}": gone}
    server.other = catalog_of({"": [["b"]]}, special)
    assert not await opened(server).is_listed(TableIdentifier("lake", levels, "t"))
    server.other = catalog_of({"|".join(levels[:-1]): [list(levels)]}, special)
    with pytest.raises(Transient):
        await opened(server).is_listed(TableIdentifier("lake", levels, "t"))


async def test_a_namespace_that_hangs_after_slow_failures_is_not_waited_for(
    server: Server, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_module, "MAX_SLOW_SECONDS", 0.0)
    monkeypatch.setattr(health_module, "REDUCED_TIMEOUT", 1.5)
    let_go = anyio.Event()

    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        await let_go.wait()
        return await reply({})(request)

    server.other = catalog_of({"": [["a"], ["b"], ["c"]]}, {"t:b": hang})
    with anyio.fail_after(20):
        tables, withheld = await seen(opened(server))
        let_go.set()
    assert (tables, [one.namespace for one in withheld]) == (["a.t", "c.t"], [("b",)])
    assert "within 1.5 s, as other namespaces took long" in withheld[0].reason
