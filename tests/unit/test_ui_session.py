"""Sessions of operators in a browser: their end, forged cookies, rotated tokens, and the tokens of forms."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import timedelta

import httpx
import pytest

from sfn.ui.session import COOKIE, MAX_AGE, Session, Sessions
from tests.support.clock import HandClock
from tests.support.listener import Office
from tests.support.operators_page import OPERATOR_TOKEN, Browser, browsing, operator_tokens


def signed_in(sessions: Sessions, token: str = OPERATOR_TOKEN) -> Session:
    session = sessions.sign_in(token, "127.0.0.1")
    assert session is not None
    return session


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def sessions(clock: HandClock) -> Sessions:
    return Sessions(operator_tokens({"main": OPERATOR_TOKEN, "ann": "another-operators-token"}), clock)


def test_session_is_found_by_its_cookie(sessions: Sessions) -> None:
    session = signed_in(sessions)
    other = signed_in(sessions, " another-operators-token ")
    assert (session.token_name, sessions.find(session.cookie)) == ("main", session)
    assert [other.token_name, sessions.find(other.cookie)] == ["ann", other]
    assert OPERATOR_TOKEN not in session.cookie
    assert session.cookie not in repr(session)


@pytest.mark.parametrize("token", ["", "wrong", "größe", OPERATOR_TOKEN + "x", "a\nb"])
def test_wrong_token_makes_no_session(sessions: Sessions, token: str) -> None:
    assert sessions.sign_in(token, None) is None


@pytest.mark.parametrize(("after", "is_valid"), [(MAX_AGE - timedelta(seconds=1), True), (MAX_AGE, False)])
def test_session_ends(sessions: Sessions, clock: HandClock, after: timedelta, *, is_valid: bool) -> None:
    cookie = signed_in(sessions).cookie
    clock.turn(after.total_seconds())
    assert (sessions.find(cookie) is not None) is is_valid


def test_session_of_the_future_is_not_valid(sessions: Sessions, clock: HandClock) -> None:
    cookie = signed_in(sessions).cookie
    clock.turn(-60)
    assert sessions.find(cookie) is None


@pytest.mark.parametrize(
    "text",
    [
        # Another name, another time, and signatures that are cut, missing, or not ASCII.
        f"{urlsafe_b64encode(b'ann').decode()}.{{at}}.{{nonce}}.{{signature}}",
        "{name}.1767225599.{nonce}.{signature}",
        "{name}.{at}.other.{signature}",
        "{name}.{at}.{nonce}.{signature:.20}",
        "{name}.{at}.{nonce}.",
        "{name}.{at}.{nonce}.{signature}é",
        "",
        "...",
        "bm9ib2R5.1.x.y",
        f"bWFpbg==.{'9' * 40}.x.y",
        "/w==.1.x.y",
        "bWFpbg==.nan.x.y",
    ],
)
def test_forged_cookie_is_no_session(sessions: Sessions, text: str) -> None:
    name, at, nonce, signature = signed_in(sessions).cookie.split(".")
    assert sessions.find(text.format(name=name, at=at, nonce=nonce, signature=signature)) is None


def test_missing_cookie_is_no_session(sessions: Sessions) -> None:
    assert sessions.find(None) is None


@pytest.mark.parametrize("tokens", [{"main": "a-rotated-operators-token"}, {"ann": OPERATOR_TOKEN}])
def test_rotated_or_removed_token_ends_its_sessions(
    clock: HandClock, sessions: Sessions, tokens: dict[str, str]
) -> None:
    session = signed_in(sessions)
    form_token = sessions.form_token(session)
    after = Sessions(operator_tokens(tokens), clock)
    assert after.find(session.cookie) is None
    assert not after.is_form_token(session, form_token)


def test_session_is_valid_in_every_process(clock: HandClock, sessions: Sessions) -> None:
    other = Sessions(operator_tokens({"main": OPERATOR_TOKEN}), clock)
    session = signed_in(sessions)
    assert other.find(session.cookie) == session
    assert other.is_form_token(session, sessions.form_token(session))


def test_form_token_is_of_one_session_and_differs_each_time(sessions: Sessions) -> None:
    one, other = signed_in(sessions), signed_in(sessions)
    form_token = sessions.form_token(one)
    assert sessions.is_form_token(one, form_token)
    assert form_token != sessions.form_token(one)
    assert not sessions.is_form_token(other, form_token)


@pytest.mark.parametrize("form_token", ["", ".", "x.y", "é.é"])
def test_other_text_is_no_form_token(sessions: Sessions, form_token: str) -> None:
    assert not sessions.is_form_token(signed_in(sessions), form_token)


def test_cookie_is_no_form_token_and_a_form_token_no_cookie(sessions: Sessions) -> None:
    session = signed_in(sessions)
    assert not sessions.is_form_token(session, session.cookie)
    assert sessions.find(sessions.form_token(session)) is None


# In a browser.


async def test_request_without_a_session_leads_to_the_login_and_back() -> None:
    async with browsing(Office(), signs_in=False) as browser:
        reply = await browser.client.get("/ui/tables?state=dead")
        assert (reply.status_code, reply.headers["location"]) == (303, "/ui/login?next=%2Fui%2Ftables%3Fstate%3Ddead")
        fields = {"token": OPERATOR_TOKEN, "next": "/ui/tables?state=dead"}
        back = await browser.client.post("/ui/login", data=fields)
    assert (back.status_code, back.headers["location"]) == (303, "/ui/tables?state=dead")
    cookie = back.headers["set-cookie"].lower()
    assert cookie.startswith(f"{COOKIE}=")
    assert all(part in cookie for part in ("httponly", "samesite=lax", "path=/ui", "max-age=43200"))


@pytest.mark.parametrize("following", ["//evil.example", "https://evil.example", "/uievil", "/ui/\\evil", "/admin/v1"])
async def test_login_leads_to_no_other_site(following: str) -> None:
    async with browsing(Office(), signs_in=False) as browser:
        reply = await browser.client.post("/ui/login", data={"token": OPERATOR_TOKEN, "next": following})
    assert reply.headers["location"] == "/ui"


async def test_part_of_a_page_without_a_session_leads_the_whole_page_to_the_login() -> None:
    async with browsing(Office(), signs_in=False) as browser:
        reply = await browser.client.get("/ui/tables", headers={"HX-Request": "true"})
    assert (reply.status_code, reply.headers["hx-redirect"]) == (401, "/ui/login")


async def test_session_that_ended_leads_to_the_login() -> None:
    office = Office()
    async with browsing(office) as browser:
        await browser.page("/ui/tables")
        office.clock.turn(MAX_AGE.total_seconds())
        reply = await browser.client.get("/ui/tables")
    assert reply.status_code == 303


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://sfn", "Sec-Fetch-Site": "same-origin"}, 303),
    ],
)
async def test_form_of_another_site_is_refused(headers: dict[str, str], status: int) -> None:
    async with browsing(Office()) as browser:
        for path in ("/ui/login", "/ui/logout"):
            reply = await browser.client.post(path, data={"token": OPERATOR_TOKEN}, headers=headers)
            assert reply.status_code == status


async def test_pages_have_strict_headers() -> None:
    async with browsing(Office()) as browser:
        reply = await browser.client.get("/ui/tables")
    assert "script-src 'self';" in reply.headers["content-security-policy"]
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert reply.headers["cache-control"] == "no-store"


async def test_session_of_a_browser_ends_with_its_sign_out() -> None:
    async with browsing(Office()) as browser:
        assert (await _sign_out(browser)).status_code == 303
        assert (await browser.client.get("/ui/tables")).status_code == 303


async def _sign_out(browser: Browser) -> httpx.Response:
    return await browser.client.post("/ui/logout")
