"""The pages of held drops, events and the operators' log, the page of links, and the viewer of the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from sfn.domain.events import Notification, PutResult, UndecodableRequest
from sfn.domain.jobs import DeadLettered, DeadLetterReason
from sfn.http import recent_requests
from sfn.http.app import build_app
from sfn.http.ingest import Readiness
from sfn.http.recent_requests import RecentRequests
from sfn.ui import held_drops, operators_log
from sfn.ui.home import home_router
from tests.promises.inboxes import table
from tests.support.clock import HandClock
from tests.support.listener import EVENT, TOKEN, Office, got
from tests.support.operators_page import Browser, browsing

HELD, EVENTS, LOG = "/ui/held-drops", "/ui/events", "/ui/log"


@pytest.fixture(name="office")
async def fixture_office() -> Office:
    return Office()


@pytest.fixture(name="browser")
async def fixture_browser(office: Office) -> AsyncIterator[Browser]:
    async with browsing(office) as browser:
        yield browser


async def hold(office: Office, *names: str) -> None:
    for name in names:
        await office.ground.settled(table(name), DeadLettered(DeadLetterReason.HELD_DROP, "why"))


# ── Held drops


async def test_held_tables_are_shown_with_what_to_do(browser: Browser, office: Office) -> None:
    await hold(office, "<script>", "t1")
    office.clock.turn(90)
    page = await browser.get(HELD)
    assert "prod 2 tables held since 00:00:00 UTC (1 min 30 s)." in page.text
    assert "restore them there, also those that passed, then sweep it" in page.text
    assert "sales.<script>" in page.text
    assert [one["src"][:11] for tag, one in page.elements if tag == "script"] == ["/ui/assets/"]
    assert "dev.eu Nothing is held." in page.text
    assert "Sweep mute now" not in page.text


async def test_held_tables_are_paged(browser: Browser, office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_drops, "PAGE", 2)
    await hold(office, "t1", "t2", "t3")
    first = await browser.get(HELD, catalog="prod")
    (following,) = [one["href"] for tag, one in first.elements if tag == "a" and one.get("rel") == "next"]
    second = await browser.get(following)
    assert ("sales.t2" in first.text, "sales.t3" in first.text) == (True, False)
    assert ("sales.t2" in second.text, "sales.t3" in second.text) == (False, True)
    assert (await browser.get(HELD, catalog="none")).status == 404


async def test_held_tables_are_released_by_the_typed_name_only(browser: Browser, office: Office) -> None:
    await hold(office, "t1", "t2")
    question = await browser.get(f"{HELD}/release", catalog="prod")
    assert "Release 2 held tables of prod?" in question.text
    for typed, found in (("Prod", "you typed “Prod”"), ("<b>", "you typed “<b>”"), ("", "the field was empty")):
        wrong = await browser.submit(question, f"{HELD}/release", typed=typed)
        assert wrong.status == 422
        assert f"Nothing was released: type the name of the catalog, “prod”; {found}." in wrong.text
        assert "b" not in {tag for tag, _ in wrong.elements}
    assert len(await office.ground.open_letters()) == 2
    answer = await browser.submit(question, f"{HELD}/release", typed="prod")
    assert "2 tables released" in answer.text
    assert await office.ground.open_letters() == []
    (entry,) = await office.inbox.audit_log(None, 9)
    assert (entry.actor, entry.action, entry.target) == ("main", "release", "prod")


async def test_a_release_without_a_form_token_is_403(browser: Browser, office: Office) -> None:
    await hold(office, "t1")
    reply = await browser.client.post(f"{HELD}/release", data={"catalog": "prod", "typed": "prod"})
    assert (reply.status_code, len(await office.ground.open_letters())) == (403, 1)


async def test_a_catalog_is_swept(browser: Browser, office: Office) -> None:
    page = await browser.get(HELD, catalog="prod")
    answer = await browser.submit(page, f"{HELD}/sweep")
    assert "The sweep is requested." in answer.text
    (entry,) = await office.inbox.audit_log(None, 9)
    assert (entry.actor, entry.action, entry.target) == ("main", "reconcile", "prod")


# ── Events


async def post(browser: Browser, content: bytes = EVENT, token: str = TOKEN) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return await browser.client.post("/v1/events", content=content, headers=headers)


async def test_accepted_and_refused_requests_are_shown(browser: Browser) -> None:
    await post(browser)
    await post(browser)
    await post(browser, b"{")
    await post(browser, token="a-rotated-secret")  # noqa: S106 - it opens nothing
    page = await browser.get(EVENTS)
    assert "etl 127.0.0.1 own prod:sales.orders 1 1 accepted" in page.text
    assert "0 accepted, 1 duplicate" in page.text
    assert "refused: 400 Bad Request expected JSON in UTF-8, found Input data was truncated" in page.text
    assert "refused: 401 Unauthorized the bearer token is none of the active ones" in page.text
    assert "unidentified 127.0.0.1" in page.text
    assert "a-rotated-secret" not in page.html
    assert page.text.index("401") < page.text.index("1 accepted")


async def test_requests_are_filtered(browser: Browser) -> None:
    await post(browser)
    await post(browser, token="wrong")  # noqa: S106 - it opens nothing
    refused = await browser.get(EVENTS, refused="true")
    assert ("1 accepted" in refused.text, "401" in refused.text) == (False, True)
    assert "/ui/events?refused=true" in refused.html
    of_etl = await browser.get(EVENTS, sender="etl")
    assert ("1 accepted" in of_etl.text, "401 Unauthorized" in of_etl.text) == (True, False)
    unidentified = await browser.get(EVENTS, sender="(unidentified)")
    assert ("1 accepted" in unidentified.text, "401 Unauthorized" in unidentified.text) == (False, True)


async def test_senders_have_their_last_request_and_refusal(browser: Browser, office: Office) -> None:
    assert "etl none since the start of the process" in (await browser.get(EVENTS)).text
    await post(browser)
    office.clock.turn(60)
    await post(browser, b"{<b>")
    office.clock.turn(60)
    page = await browser.get(EVENTS)
    assert "etl 2 min ago 127.0.0.1 1 min ago 400 Bad Request, expected JSON in UTF-8" in page.text
    (etl,) = (await got_as_operator(browser))["senders"]
    assert (etl["name"], etl["client"], etl["status"]) == ("etl", "127.0.0.1", 400)


async def test_text_of_senders_is_escaped(browser: Browser, office: Office) -> None:
    recent = office.process.recent
    recent.record_accepted("<b>", "<i>", "<u>", [Notification(table("<s>"), drop=True)], PutResult(1, 0), 0)
    recent.record_refused(422, "<em>", "<b>", "<i>")
    page = await browser.get(EVENTS)
    assert not {tag for tag, _ in page.elements} & {"b", "i", "u", "s", "em"}
    assert ".<s> drop 1" in page.text


def test_both_rings_are_bounded_and_merged() -> None:
    clock = HandClock()
    recent = RecentRequests(clock, ["etl"])
    recent.record_refused(401, "no", None, "10.0.0.1")
    for _ in range(2 * recent_requests.MAX_REQUESTS):
        clock.turn(1)
        recent.record_accepted("etl", None, "native", [], PutResult(1, 0), 0)
    clock.turn(1)
    recent.record_refused(503, "x" * 5_000, "etl", None)
    found = recent.latest(10_000)
    assert len(found) == recent_requests.MAX_REQUESTS + 2
    assert [one.status for one in (found[0], found[1], found[-1])] == [503, 202, 401]
    assert len(found[0].reason) == 300


def test_addresses_are_bounded_and_the_longest_silent_one_is_forgotten() -> None:
    recent = RecentRequests(HandClock())
    for number in range(150):
        for _ in range(3):
            recent.record_refused(401, "no", None, f"10.0.0.{number}")
    assert {one.client for one in recent.unauthorized()} == {f"10.0.0.{number}" for number in range(50, 150)}


async def got_as_operator(browser: Browser) -> Any:  # noqa: ANN401 - JSON
    browser.client.headers["Authorization"] = "Bearer an-operators-token"
    status = await got(browser.client, "/admin/v1/status")
    del browser.client.headers["Authorization"]
    return status


async def problems(browser: Browser) -> list[dict[str, str]]:
    return [one for one in (await got_as_operator(browser))["verdict"]["problems"] if one["kind"] == "unauthorized"]


async def test_repeated_refusals_are_one_problem_that_fades(browser: Browser, office: Office) -> None:
    await post(browser)
    for _ in range(2):
        await post(browser, token="wrong")  # noqa: S106 - it opens nothing
    assert await problems(browser) == []
    office.clock.turn(300)
    await post(browser, token="wrong")  # noqa: S106 - it opens nothing
    for number in range(4):
        for _ in range(5):
            office.process.recent.record_refused(401, "no", None, f"10.0.0.{number}")
    (problem,) = await problems(browser)
    assert problem["what"] == "23 requests with events were refused with 401"
    assert problem["since"] == "2026-01-01T00:00:00Z"
    assert problem["cause"] == (
        "no valid token or signature from 10.0.0.0, 10.0.0.1, 10.0.0.2 and 2 more (last at 00:05:00 UTC): no; "
        "the last accepted request of etl came from there"
    )
    assert "[senders.etl]" in problem["advice"]
    assert "The last reason: no." in (await browser.get("/ui/events")).text
    assert "23 requests with events were refused with 401" in (await browser.get("/ui")).text
    office.clock.turn(601)
    assert await problems(browser) == []
    assert "refused with 401" not in (await browser.get("/ui")).text
    await post(browser, token="wrong")  # noqa: S106 - it opens nothing
    assert await problems(browser) == []


async def test_refusals_without_a_known_sender_name_no_sender(browser: Browser) -> None:
    for _ in range(3):
        await post(browser, token="wrong")  # noqa: S106 - it opens nothing
    (problem,) = await problems(browser)
    assert problem["cause"] == (
        "no valid token or signature from 127.0.0.1 (last at 00:00:00 UTC): "
        "the bearer token is none of the active ones, or two parties have it"
    )
    assert "[senders.NAME]" in problem["advice"]


# ── Operators' log


async def test_the_log_has_pages_newest_first(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, office: Office
) -> None:
    assert "No order yet." in (await browser.get(LOG)).text
    monkeypatch.setattr(operators_log, "PAGE", 2)
    for _ in range(3):
        await browser.submit(await browser.get(HELD, catalog="prod"), f"{HELD}/sweep")
        office.clock.turn(1)
    first = await browser.get(LOG)
    assert first.text.index("00:00:02") < first.text.index("00:00:01")
    assert "00:00:00" not in first.text
    (following,) = [one["href"] for tag, one in first.elements if tag == "a" and one.get("rel") == "next"]
    second = await browser.get(following)
    assert ("00:00:00" in second.text, "00:00:01" in second.text) == (True, False)
    assert "main" in second.text


async def test_names_in_the_log_are_escaped(browser: Browser, office: Office) -> None:
    await office.inbox.put([UndecodableRequest("etl", "/", None, b"", 0, "#: expected a, found <b>x</b>")])
    browser.client.headers.update({"Authorization": "Bearer an-operators-token", "From": "<i>ann</i>"})
    reply = await browser.client.post("/admin/v1/dead-letters:discard", json={"filter": {"cause_contains": "<b>"}})
    assert reply.json()["discarded"] == 1
    page = await browser.get(LOG)
    assert "<i>ann</i> (main)" in page.text
    assert not {tag for tag, _ in page.elements} & {"b", "i"}


# ── Without sign-in


@pytest.mark.parametrize("path", [HELD, EVENTS, LOG, f"{HELD}/release?catalog=prod"])
async def test_pages_need_a_session(office: Office, path: str) -> None:
    async with browsing(office, signs_in=False) as browser:
        page = await browser.get(path)
        assert (page.status, page.reply.headers["location"].startswith("/ui/login?next=")) == (303, True)


@pytest.mark.parametrize("has_operators", [True, False])
async def test_links_are_shown_without_sign_in(has_operators: bool) -> None:
    router = home_router(HandClock(), "1.2.3", has_operators=has_operators)
    app = build_app(None, Readiness(), version="1.2.3", on_fatal=lambda _: None, routers=[router])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sfn") as client:
        page = await client.get("/", headers={"Accept": "text/html,*/*"})
        assert (page.status_code, 'href="/ui"' in page.text) == (200, has_operators)
        for link in ("/docs", "/openapi.json", "/metrics", "/livez"):
            assert f'href="{link}"' in page.text
        for accepted in ("application/json", "*/*"):
            problem = await client.get("/", headers={"Accept": accepted})
            assert (problem.status_code, problem.json()["status"]) == (404, 404)
        viewer = await client.get("/docs")
        assert "style-src 'self';" in viewer.headers["content-security-policy"]
        for name in ("swagger-ui.css", "swagger-ui-bundle.js", "api-viewer.js", "icon.svg"):
            assert f"/ui/assets/{name}?v=" in viewer.text
            assert (await client.get(f"/ui/assets/{name}")).status_code == 200
        assert "/docs" not in (await client.get("/openapi.json")).json()["paths"]
