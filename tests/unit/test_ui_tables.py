"""The list of tables and the page of one table: filters, pages, errors, foreign names, and orders."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from urllib.parse import quote

import pytest

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Retry
from sfn.inbox import table_list
from sfn.inbox.model import Job
from sfn.ui import tables
from sfn.ui.rendering import table_path
from sfn.worker.catalog_now import CatalogNow, CatalogNowState
from sfn.worker.table_files import MAX_METADATA_BYTES, FileNow, MetadataNow, ShownSnapshot, TableFilesNow
from tests.promises.inboxes import pointer, table
from tests.support.listener import Office
from tests.support.operators_page import Browser, browsing

LIST = "/ui/tables"
ORDERS, STOCK = table("orders"), table("stock")
FAR = TableIdentifier("dev.eu", ("sales", "eu"), "orders")
PAGE = "/ui/tables/prod/sales/orders"
NAMES = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a.b",
    "a/b",
    "100%",
    "%2F",
    "größe 表",
    "x:check",
    "'onmouseover='alert(1)",
    "{{ 7919 + 7919 }}",
    "javascript:alert(1)",
]
DASH = "\N{EN DASH}"
_ROW = re.compile(r'<th scope="row"><a id="[^"]+" href="([^"]+)">([^<]+)</a>')


@pytest.fixture(name="office")
def fixture_office() -> Office:
    return Office()


@pytest.fixture(name="browser")
async def fixture_browser(office: Office) -> AsyncIterator[Browser]:
    async with browsing(office) as browser:
        yield browser


def listed(html: str) -> list[str]:
    """The names in a list, as a browser shows them."""
    return [unescape(name) for _, name in _ROW.findall(html)]


def link(html: str, text: str) -> str:
    """The address of a link."""
    found = re.search(rf'href="([^"]+)"[^>]*>{text}</a>', html)
    assert found is not None, text
    return unescape(found[1])


async def fill(office: Office) -> None:
    """A table that is late, one that was given up, and one of another catalog."""
    ground = office.ground
    await ground.settled(ORDERS, Retry(ground.after(900), "the <store> hangs"))
    ground.clock.turn(1)
    await ground.settled(STOCK, DeadLettered(DeadLetterReason.PERMANENT, "why"))
    ground.clock.turn(100)
    await ground.hint(FAR)


# The list.


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["sales.eu.orders", "sales.orders", "sales.stock"]),
        ({"catalog": "", "namespace": "", "table": "", "state": "", "sort": ""}, None),
        ({"catalog": "prod"}, ["sales.orders", "sales.stock"]),
        ({"namespace": "sales.*"}, ["sales.eu.orders"]),
        ({"namespace": "sales", "table": "st*"}, ["sales.stock"]),
        ({"table": "orders"}, ["sales.eu.orders", "sales.orders"]),
        ({"table": "**ders"}, ["sales.eu.orders", "sales.orders"]),
        ({"table": "prod:sales.*"}, ["sales.orders", "sales.stock"]),
        ({"state": "dead"}, ["sales.stock"]),
        ({"late": "true"}, ["sales.orders", "sales.stock"]),
        ({"sort": "lag"}, ["sales.orders", "sales.stock", "sales.eu.orders"]),
        ({"state": "dead", "table": "sales.stock"}, ["sales.stock"]),
    ],
)
async def test_list_is_filtered_and_sorted(
    browser: Browser, office: Office, query: dict[str, str], found: list[str] | None
) -> None:
    await fill(office)
    html = await browser.page(LIST, query)
    assert listed(html) == (["sales.eu.orders", "sales.orders", "sales.stock"] if found is None else found)


async def test_row_has_state_wait_cause_and_file(browser: Browser, office: Office) -> None:
    await office.ground.published(table("done"))
    await fill(office)
    html = await browser.page(LIST)
    assert "the &lt;store&gt; hangs" in html
    assert '<span class="wait">retrying, late</span>' in html
    assert "00:00:00 UTC" in html
    assert '<span class="mono file" title="s3://lake/orders/metadata/00001-u1.metadata.json">' in html


@pytest.mark.parametrize(
    ("query", "to"),
    [
        ({"table": "sales.stock"}, table_path("prod", ("sales",), "stock")),
        ({"table": "prod:sales.orders"}, PAGE),
        ({"table": "dev.eu:sales.eu.orders"}, table_path("dev.eu", ("sales", "eu"), "orders")),
        ({"table": "stock", "namespace": "sales"}, table_path("prod", ("sales",), "stock")),
    ],
)
async def test_complete_name_leads_to_its_table(
    browser: Browser, office: Office, query: dict[str, str], to: str
) -> None:
    await fill(office)
    reply = await browser.client.get(LIST, params=query)
    assert (reply.status_code, reply.headers["location"]) == (303, to)


async def test_a_list_by_wait_without_a_table_that_waits_says_so(browser: Browser, office: Office) -> None:
    await office.ground.published(ORDERS)
    assert "No table waits for a publish." in await browser.page(LIST, {"sort": "lag"})
    html = await browser.page(LIST, {"sort": "lag", "catalog": "prod"})
    assert "No table that fits the filters waits for a publish." in html


@pytest.mark.parametrize(
    "query",
    [{"table": "sales.nothing"}, {"table": "sales.stock", "late": "true", "catalog": "dev.eu"}, {"table": "a:b.c"}],
)
async def test_name_that_is_not_known_is_an_empty_list_with_advice(
    browser: Browser, office: Office, query: dict[str, str]
) -> None:
    await fill(office)
    html = await browser.page(LIST, query)
    assert listed(html) == []
    assert "No table fits the filters." in html


async def test_name_of_two_catalogs_is_a_list(browser: Browser, office: Office) -> None:
    await office.ground.hint(ORDERS, table("orders", "dev.eu"))
    assert listed(await browser.page(LIST, {"table": "sales.orders"})) == ["sales.orders", "sales.orders"]


@pytest.mark.parametrize(
    ("query", "said"),
    [({}, "sfn reconcile"), ({"late": "true"}, "No table is late"), ({"state": "held"}, "Remove the filters")],
)
async def test_empty_list_says_what_to_do(browser: Browser, query: dict[str, str], said: str) -> None:
    assert said in await browser.page(LIST, query)


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ({"catalog": "prot"}, 404, "did you mean prod?"),
        ({"state": "<b>"}, 422, "state"),
        ({"sort": "size"}, 422, "sort"),
        ({"late": "perhaps"}, 422, "late"),
        ({"after": "5"}, 422, "after: expected `next` of the page before"),
        ({"table": "a..b"}, 422, "found an empty part"),
        ({"namespace": "%ff"}, 422, "expected levels and a name"),
        ({"table": "*a" * 9}, 422, "at most 5 wildcards"),
    ],
)
async def test_invalid_filter_is_a_message_in_the_page(
    browser: Browser, query: dict[str, str], status: int, said: str
) -> None:
    html = await browser.page(LIST, query, status)
    assert said in unescape(html)
    assert 'role="alert"' in html
    assert "<b>" not in html
    for name in query.keys() & {"table", "namespace"}:
        assert f'name="{name}" value="{query[name]}"' in html


@pytest.mark.parametrize("value", ['"><script>alert(1)</script>', "' onfocus='alert(1)"])
@pytest.mark.parametrize("name", ["table", "namespace", "catalog", "state", "sort", "after", "done", "paused"])
async def test_text_of_the_address_is_escaped(browser: Browser, office: Office, name: str, value: str) -> None:
    await office.ground.hint(ORDERS)
    for path in (LIST, PAGE):
        html = (await browser.client.get(path, params={name: value})).text
        assert value not in html
        assert "<script>" not in html


async def test_pages_follow_each_other(browser: Browser, office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PAGE_SIZE", 2)
    await office.ground.hint(*(table(f"t{number}") for number in range(5)))
    html = await browser.page(LIST, {"catalog": "prod"})
    found = listed(html)
    assert "First page" not in html
    for _ in range(2):
        html = await browser.page(link(html, "Next page"))
        found += listed(html)
    assert (found, "Next page" in html) == ([f"sales.t{number}" for number in range(5)], False)
    assert link(html, "First page") == f"{LIST}?catalog=prod"


async def test_search_goes_on_where_a_page_of_the_inbox_is_empty(
    browser: Browser, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_list, "SCAN_SIZE", 5)
    await office.ground.hint(*(table(f"t{number:02}") for number in range(60)))
    assert listed(await browser.page(LIST, {"table": "t13"})) == ["sales.t13"]
    html = await browser.page(LIST, {"table": "t45*"})
    found = listed(html)
    assert (found, "Searched about 20,000 tables so far" in html) == ([], True)
    assert 'hx-trigger="every' not in html
    while not found:
        html = await browser.page(link(html, "Go on"))
        found = listed(html)
    assert found == ["sales.t45"]
    assert "60,000" in html or "Go on" not in html


async def test_list_updates_itself_unless_it_is_paused(browser: Browser, office: Office) -> None:
    await office.ground.hint(ORDERS)
    html = await browser.page(LIST, {"catalog": "prod"})
    assert f'hx-get="{LIST}?catalog=prod"' in html
    assert 'hx-trigger="every' not in await browser.page(link(html, "Pause"))


async def test_list_of_a_hundred_tables_is_small(browser: Browser, office: Office) -> None:
    for number in range(100):
        await office.ground.published(table(f"t{number:03}"), f"s3://lake/t{number}", f"u{number}")
    replies = [await browser.client.get(LIST)]
    assets = re.findall(r'(?:src|href)="(/ui/assets/[^"]+)"', replies[0].text)
    replies += [await browser.client.get(unescape(one)) for one in set(assets)]
    assert len(listed(replies[0].text)) == 100
    assert sum(int(one.headers["content-length"]) for one in replies) < 60_000
    assert all(one.headers["content-encoding"] == "gzip" for one in replies)


# Foreign names.


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_has_a_page_and_is_only_text(browser: Browser, office: Office, name: str) -> None:
    one = TableIdentifier("prod", ("a.b", name), name)
    await office.ground.settled(one, Retry(office.ground.after(9), f"{name} failed"))
    html = await browser.page(LIST)
    ((address, shown),) = _ROW.findall(html)
    assert unescape(address) == f"{LIST}/prod/a.b%1F{quote(name, safe='')}/{quote(name, safe='')}"
    page = await browser.page(unescape(address))
    assert f"<h1>{shown}</h1>" in page
    for each in (html, page):
        assert "<script>alert" not in each
        assert "<img src=x" not in each
        assert "15838" not in each
    exact = await browser.client.get(LIST, params={"table": unescape(shown)})
    assert exact.headers["location"] == unescape(address)
    reply = await browser.send(unescape(address), f"{unescape(address)}:check")
    assert reply.headers["location"] == f"{unescape(address)}?done=checked"
    (entry,) = await office.inbox.audit_log(None, 9)
    assert entry.target == str(one)


async def test_table_without_a_namespace_has_a_page(browser: Browser, office: Office) -> None:
    await office.ground.hint(TableIdentifier("prod", (), "orders"))
    assert "<h1>orders</h1>" in await browser.page(f"{LIST}/prod/%1F/orders")
    reply = await browser.send(f"{LIST}/prod/%1F/orders", f"{LIST}/prod/%1F/orders:check")
    assert reply.headers["location"] == f"{LIST}/prod/%1F/orders?done=checked"


# One table.


async def test_page_begins_with_the_verdict(browser: Browser, office: Office) -> None:
    await fill(office)
    html = await browser.page(PAGE)
    verdict = html.partition('<section class="verdict warning"')[2].partition("</section>")[0]
    assert "late since 00:00:00 UTC (1 min 41 s): the &lt;store&gt; hangs; next attempt in 13 min 19 s" in verdict
    dead = await browser.page(table_path("prod", ("sales",), "stock"))
    verdict = dead.partition('<section class="verdict bad"')[2].partition("</section>")[0]
    assert "<code>sfn dead-letters replay 1</code>" in verdict
    assert "fix the problem in the detail, then <code>sfn dead-letters replay 1</code>" in dead


async def test_timeline_has_events_attempts_and_writes(browser: Browser, office: Office) -> None:
    ground = office.ground
    await ground.hint(ORDERS)
    claim = await ground.claim()
    ground.clock.turn(2)
    await ground.settle(claim, Retry(ground.after(1), "the <store> hangs"))
    ground.clock.turn(1)
    await ground.settle(await ground.claim(), ground.done())
    html = await browser.page(PAGE)
    timeline = html.partition('id="timeline"')[2].partition("</table>")[0]
    found = re.findall(r'<td class="short(?: bad)?">([a-z ]+)</td><td class="short">([^<]+)</td>', timeline)
    assert found == [("done", "0 s"), ("catalog answered", DASH), ("failed", "2 s"), ("event received", DASH)]
    assert 'aria-label="how long each of the last 2 attempts took, the oldest first; 1 failed"' in timeline
    assert timeline.count("<rect") == 2


async def test_both_pointers_are_compared_on_request(browser: Browser, office: Office) -> None:
    await office.ground.published(ORDERS)
    html = await browser.page(PAGE)
    assert f'hx-get="{PAGE}?catalog=now" hx-trigger="load"' in html
    office.answer = CatalogNow(CatalogNowState.FOUND, pointer(2), None, office.clock.now())
    whole = await browser.page(link(html, "Ask the catalog now"))
    assert "differs from what is published" in whole
    part = (await browser.client.get(f"{PAGE}?catalog=now", headers={"HX-Request": "true"})).text
    assert part.lstrip().startswith('<div id="catalog">')
    assert pointer(2) in part
    office.answer = CatalogNow(CatalogNowState.UNANSWERED, error="no <answer> within 3 s")
    assert "no &lt;answer&gt; within 3 s" in await browser.page(PAGE, {"catalog": "now"})


def read_files(*files: FileNow, metadata: MetadataNow | None = None) -> object:
    async def load(_: TableIdentifier, __: Job) -> TableFilesNow:
        return TableFilesNow(files[:1], files[1] if files[1:] else None, metadata)

    return load


async def test_files_and_snapshots_are_read_on_request(office: Office) -> None:
    await office.ground.published(ORDERS)
    at = office.clock.now()
    snapshots = (ShownSnapshot(7, at, "append", ("main",), is_current=True), ShownSnapshot(6, None, "", ()))
    metadata = MetadataNow("s3://lake/1.json", snapshots, 30, (("<b>", "tag", 7),))
    sfn_file = FileNow("s3://lake/f.ver", b"{<script>" + b"x" * 70_000)
    object.__setattr__(
        office.process, "table_files", read_files(sfn_file, FileNow("s3://lake/hint"), metadata=metadata)
    )
    async with browsing(office) as browser:
        html = await browser.page(PAGE)
        assert f'hx-get="{PAGE}?files=now" hx-trigger="load"' in html
        assert "{&lt;script&gt;" not in html
        part = (await browser.client.get(f"{PAGE}?files=now", headers={"HX-Request": "true"})).text
        whole = await browser.page(link(html, "Read the SFN file, the version hint and the snapshots now"))
    assert part.strip() in whole
    assert "{&lt;script&gt;" in part
    assert "only its beginning is shown" in part
    assert "There is no such file." in part
    assert "30 snapshots, the newest 2 are shown" in part
    assert "&lt;b&gt;" in part
    assert len(part) < 25_000


async def test_file_that_cannot_be_read_is_an_error(office: Office) -> None:
    await office.ground.published(ORDERS)
    large = MetadataNow("s3://lake/1.json", error=f"the metadata is too large to show: {MAX_METADATA_BYTES}")
    load = read_files(FileNow("s3://lake/f.ver", error="no <answer>"), metadata=large)
    object.__setattr__(office.process, "table_files", load)
    async with browsing(office) as browser:
        html = await browser.page(PAGE, {"files": "now"})
    assert '<p class="problem">no &lt;answer&gt;</p>' in html
    assert "the metadata is too large to show" in html


@pytest.mark.parametrize(
    ("path", "said"),
    [("prod/sales/ordersx", "did you mean sales.orders?"), ("prot/sales/orders", "did you mean prod?")],
)
async def test_unknown_table_is_an_error_with_similar_names(
    browser: Browser, office: Office, path: str, said: str
) -> None:
    await office.ground.hint(ORDERS)
    assert said in await browser.page(f"{LIST}/{path}", status=404)


# Orders.


async def test_check_is_audited_with_the_name_of_the_token(browser: Browser, office: Office) -> None:
    await fill(office)
    reply = await browser.send(PAGE, f"{PAGE}:check")
    assert (reply.status_code, reply.headers["location"]) == (303, f"{PAGE}?done=checked")
    assert "The check is queued." in await browser.page(reply.headers["location"])
    assert "The check is queued." not in await browser.page(PAGE, {"done": "The check is queued."})
    (entry,) = await office.inbox.audit_log(None, 9)
    assert (entry.action, entry.target, entry.actor) == ("check", "prod:sales.orders", "main")
    assert ORDERS in [claim.subject for claim in await office.ground.claims()]


async def test_dead_letter_is_replayed_once(browser: Browser, office: Office) -> None:
    await fill(office)
    page = table_path("prod", ("sales",), "stock")
    html = await browser.page(page)
    assert "Replay dead letter 1</button>" in html
    assert "Replay dead letter" not in await browser.page(PAGE)
    reply = await browser.send(page, f"{page}:replay", letter="1")
    assert reply.headers["location"] == f"{page}?done=replayed"
    assert (await browser.send(page, f"{page}:replay", letter="1")).headers["location"] == f"{page}?done=not-open"
    (entry,) = await office.inbox.audit_log(None, 9)
    assert (entry.action, entry.actor) == ("replay", "main")


@pytest.mark.parametrize(("name", "letter"), [("orders", "1"), ("stock", "2"), ("stock", "x"), ("stock", "")])
async def test_replay_of_another_letter_changes_nothing(
    browser: Browser, office: Office, name: str, letter: str
) -> None:
    await fill(office)
    page = table_path("prod", ("sales",), name)
    reply = await browser.send(page, f"{page}:replay", letter=letter)
    assert reply.headers["location"] == f"{page}?done=not-open"
    assert await office.inbox.audit_log(None, 9) == []


async def test_held_drop_is_replayed_after_a_confirmation(browser: Browser, office: Office) -> None:
    await office.ground.settled(ORDERS, DeadLettered(DeadLetterReason.HELD_DROP, "the <catalog> lost it"))
    asked = await browser.send(PAGE, f"{PAGE}:replay", letter="1")
    assert (asked.status_code, "the &lt;catalog&gt; lost it" in asked.text) == (200, True)
    assert await office.inbox.audit_log(None, 9) == []
    form_token = re.search(r'name="form_token" value="([^"]+)"', asked.text)
    assert form_token is not None
    fields = {"form_token": form_token[1], "letter": "1", "confirmed": "yes"}
    reply = await browser.client.post(f"{PAGE}:replay", data=fields)
    assert reply.headers["location"] == f"{PAGE}?done=replayed"


@pytest.mark.parametrize("order", ["check", "replay"])
async def test_order_needs_the_form_token_of_its_session(office: Office, order: str) -> None:
    await office.ground.settled(ORDERS, DeadLettered(DeadLetterReason.PERMANENT, "why"))
    tokens = {"main": "an-operators-token", "ann": "another-operators-token"}
    async with browsing(office, tokens) as browser:
        stolen = await browser.form_token(PAGE)
        await browser.client.post("/ui/login", data={"token": tokens["ann"]})
        for fields in ({}, {"form_token": ""}, {"form_token": "x.y"}, {"form_token": stolen}):
            reply = await browser.client.post(f"{PAGE}:{order}", data={"letter": "1", **fields})
            assert (reply.status_code, "open its page again" in reply.text) == (403, True)
    assert await office.inbox.audit_log(None, 9) == []
    assert await office.ground.claims() == []


@pytest.mark.parametrize("path", [LIST, f"{LIST}?state=dead", PAGE, f"{PAGE}?catalog=now"])
async def test_page_without_a_session_leads_to_the_login(office: Office, path: str) -> None:
    async with browsing(office, signs_in=False) as browser:
        reply = await browser.client.get(path)
        order = await browser.client.post(f"{PAGE}:check")
    assert (reply.status_code, reply.headers["location"]) == (303, f"/ui/login?next={quote(path, safe='')}")
    assert (order.status_code, order.headers["location"]) == (303, "/ui/login?next=%2Fui")


async def test_pages_have_no_inline_script_and_no_inline_style(browser: Browser, office: Office) -> None:
    await fill(office)
    for path in (LIST, PAGE, table_path("prod", ("sales",), "stock"), f"{PAGE}?catalog=now"):
        html = await browser.page(path)
        assert re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=", html) is None
        ids = re.findall(r'\sid="([^"]+)"', html)
        assert len(ids) == len(set(ids))
        assert all('scope="' in head for head in re.findall(r"<th[^e][^>]*>", html))
