"""The pages of dead letters: groups, lists, one letter, and orders after a question."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import anyio
import pytest

from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.jobs import DeadLettered, DeadLetterReason
from sfn.inbox.model import DeadLetterFilter, DeadLetterStatus
from sfn.ui import dead_letters
from tests.promises.inboxes import table
from tests.support.listener import Office
from tests.support.operators_page import Browser, browsing

DENIED, FULL = "expected permission to write, found 403", "expected room for a file, found <b>ENOSPC</b>"
PATH = "/ui/dead-letters"
ODD = UndecodableRequest("<i>etl", "/v1/events", "application/json", b"{<script>", 9, "#: expected JSON, found {")


async def die(office: Office, name: str, cause: str) -> None:
    detail = f"s3://lake/{name}: {cause}; repair it"
    await office.ground.settled(table(name), DeadLettered(DeadLetterReason.PERMANENT, detail))


@pytest.fixture(name="office")
async def fixture_office() -> Office:
    """Letters 1 to 5 of two causes, in turn, and an undecodable request, letter 6."""
    office = Office()
    for number in range(5):
        await die(office, "<script>" if number == 0 else f"t{number}", FULL if number % 2 else DENIED)
        office.clock.turn(60)
    await office.inbox.put([ODD])
    office.clock.turn(60)
    return office


@pytest.fixture(name="browser")
async def fixture_browser(office: Office) -> AsyncIterator[Browser]:
    async with browsing(office) as browser:
        yield browser


async def open_ids(office: Office) -> list[int]:
    return [letter.id for letter in await office.inbox.list_after(DeadLetterFilter(), 0, 100)]


async def test_letters_are_grouped_by_cause_with_their_remedy(browser: Browser) -> None:
    page = await browser.get(PATH)
    assert "By cause: 6 letters" in page.text
    assert page.text.index(DENIED) < page.text.index(FULL)
    assert f"3 permanent {DENIED} 6 min ago 2 min ago letter 1 sales.<script>" in page.text
    assert "Replay these 3 Discard these 3" in page.text
    assert "fix the problem in the detail, then sfn dead-letters replay 1" in page.text
    assert "<code>sfn dead-letters replay 1</code>" in page.html


async def test_texts_of_others_are_escaped(browser: Browser) -> None:
    paths = [
        "",
        "?view=list",
        "/1",
        "/2",
        "/6",
        "/replay?id=1",
        "/discard?like=2",
        "?cause_contains=<script>",
        "?like=6",
    ]
    for path in paths:
        page = await browser.get(f"{PATH}{path}")
        assert page.status == 200, path
        tags = {tag for tag, _ in page.elements}
        assert not tags & {"b", "i"}, path
        assert [attributes["src"][:11] for tag, attributes in page.elements if tag == "script"] == ["/ui/assets/"], path


async def test_pages_have_no_inline_scripts_and_styles(browser: Browser) -> None:
    for path in ["", "?view=list", "/1", "/replay?like=1"]:
        page = await browser.get(f"{PATH}{path}")
        for _, attributes in page.elements:
            assert not [name for name in attributes if name == "style" or name.startswith("on")]
        assert "script-src 'self'" in page.reply.headers["content-security-policy"]


async def test_letters_of_one_cause_are_listed_in_pages(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "PAGE", 2)
    first = await browser.get(PATH, like=1)
    assert "sales.t2" in first.text
    assert "sales.t4" not in first.text
    (following,) = [one["href"] for tag, one in first.elements if tag == "a" and one.get("rel") == "next"]
    second = await browser.get(following)
    assert ("sales.t4" in second.text, "sales.t2" in second.text, "Next page" in second.text) == (True, False, False)


async def test_letters_are_filtered(browser: Browser) -> None:
    assert "By cause: 3 letters" in (await browser.get(PATH, cause_contains="PERMISSION")).text
    assert "By cause: 1 letter " in (await browser.get(PATH, reason="undecodable")).text
    assert "By cause: 1 letter " in (await browser.get(PATH, sender="<i>etl")).text
    assert "By cause: 5 letters" in (await browser.get(PATH, catalog="prod")).text
    assert "By cause: 1 letter " in (await browser.get(PATH, catalog="prod", table="sales.t4")).text
    assert "By cause: 2 letters" in (await browser.get(PATH, since="2026-01-01T00:04")).text
    assert "By cause: 4 letters" in (await browser.get(PATH, before="2026-01-01T00:04")).text
    assert "No dead letter matches." in (await browser.get(PATH, status="discarded")).text


@pytest.mark.parametrize(
    ("query", "status"),
    [("since=then", 422), ("like=x", 422), ("like=77", 404), ("reason=odd", 422), ("catalog=none", 404)],
)
async def test_wrong_filters_are_a_page_with_the_reason(browser: Browser, query: str, status: int) -> None:
    page = await browser.get(f"{PATH}?{query}")
    assert page.status == status
    assert "problem" in page.html


async def test_a_replay_of_held_drops_says_that_readers_lose_the_tables(browser: Browser, office: Office) -> None:
    lost = "1 held drop will pass: if the catalog still does not have the table, readers stop finding it."
    assert lost not in (await browser.get(f"{PATH}/replay", like=1)).text
    await office.ground.settled(table("held"), DeadLettered(DeadLetterReason.HELD_DROP, "why"))
    office.clock.turn(1)
    number = max(await open_ids(office))
    for asked in ({"id": number}, {"like": number}):
        assert lost in (await browser.get(f"{PATH}/replay", **asked)).text


async def test_a_letter_is_shown_in_full(browser: Browser) -> None:
    page = await browser.get(f"{PATH}/6")
    assert "Dead letter 6: undecodable, open" in page.text
    assert "POST /v1/events , application/json, 9 bytes {<script>" in page.text
    assert (await browser.get(f"{PATH}/77")).status == 404
    assert (await browser.get(f"{PATH}/x")).status == 422


async def test_a_long_body_is_cut(browser: Browser, office: Office) -> None:
    await office.inbox.put(
        [UndecodableRequest("etl", "/v1/events", None, b"x" * 65_536, 70_000, "#: expected a, found b")]
    )
    page = await browser.get(f"{PATH}/7")
    assert "x" * dead_letters.MAX_BODY in page.text
    assert "x" * (dead_letters.MAX_BODY + 1) not in page.text
    assert "it cannot be replayed" in page.text


async def test_a_group_is_replayed_after_a_question(browser: Browser, office: Office) -> None:
    question = await browser.get(f"{PATH}/replay", like=1)
    assert "Replay 3 dead letters?" in question.text
    assert await open_ids(office) == [1, 2, 3, 4, 5, 6]
    answer = await browser.submit(question, f"{PATH}/replay")
    assert "3 dead letters replayed. The tables are in the queue" in answer.text
    assert await open_ids(office) == [2, 4, 6]
    (entry,) = await office.inbox.audit_log(None, 10)
    assert (entry.actor, entry.action, entry.count) == ("main", "replay", 3)
    assert DENIED in entry.target


async def test_letters_that_are_opened_after_the_question_stay_open(browser: Browser, office: Office) -> None:
    question = await browser.get(f"{PATH}/discard", like=1)
    office.clock.turn(1)
    await die(office, "late", DENIED)
    await browser.submit(question, f"{PATH}/discard")
    assert await open_ids(office) == [2, 4, 6, 7]


async def test_a_letter_is_discarded_after_a_question(browser: Browser) -> None:
    question = await browser.get(f"{PATH}/discard", id=2)
    assert "Discard 1 dead letter?" in question.text
    answer = await browser.submit(question, f"{PATH}/discard")
    assert "1 dead letter discarded." in answer.text
    assert "Dead letter 2: permanent, discarded" in answer.text
    again = await browser.submit(question, f"{PATH}/discard")
    assert "No dead letter was discarded: none of them was open any more." in again.text
    assert "This letter is not open: it was discarded." in (await browser.get(f"{PATH}/replay", id=2)).text


async def test_a_request_that_still_cannot_be_decoded_is_reported(browser: Browser, office: Office) -> None:
    answer = await browser.submit(await browser.get(f"{PATH}/replay", reason="undecodable"), f"{PATH}/replay")
    assert "1 request still cannot be decoded, so the letters stay open." in answer.text
    office.understood = [Notification(table("t1"), "etl")]
    answer = await browser.submit(await browser.get(f"{PATH}/replay", id=6), f"{PATH}/replay")
    assert "1 dead letter replayed." in answer.text


async def test_an_order_needs_as_many_batches_as_there_are(
    browser: Browser, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_BATCH", 1)
    answer = await browser.submit(await browser.get(f"{PATH}/discard", catalog="prod"), f"{PATH}/discard")
    assert "5 dead letters discarded." in answer.text
    assert await open_ids(office) == [6]


async def test_an_order_that_takes_too_long_says_so(
    browser: Browser, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_BATCH", 1)
    discard = office.inbox.discard

    async def slowly(*args: object) -> int:
        await anyio.sleep(0.02)
        return await discard(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(office.inbox, "discard", slowly)
    monkeypatch.setattr(dead_letters, "ORDER_SECONDS", 0.01)
    answer = await browser.submit(await browser.get(f"{PATH}/discard"), f"{PATH}/discard")
    assert "1 dead letter discarded. Not all letters were reached" in answer.text
    assert await open_ids(office) == [2, 3, 4, 5, 6]


async def test_ten_thousand_letters_are_discarded(browser: Browser, office: Office) -> None:
    requests = [
        UndecodableRequest(f"s{number % 11}", "/", None, b"{", 1, "#: expected a, found b") for number in range(10_000)
    ]
    await office.inbox.put(requests)
    office.clock.turn(1)
    question = await browser.get(f"{PATH}/discard", cause_contains="expected a")
    assert "Discard 10,000 dead letters?" in question.text
    answer = await browser.submit(question, f"{PATH}/discard")
    assert "10,000 dead letters discarded." in answer.text
    assert len(await open_ids(office)) == 6


async def test_an_order_without_a_form_token_is_403(browser: Browser, office: Office) -> None:
    question = await browser.get(f"{PATH}/discard")
    fields = {**question.fields, "form_token": "wrong.token"}
    for sent in (fields, {}):
        assert (await browser.client.post(f"{PATH}/discard", data=sent)).status_code == 403
    assert len(await open_ids(office)) == 6


async def test_a_form_that_names_no_letters_is_refused(browser: Browser, office: Office) -> None:
    question = await browser.get(f"{PATH}/discard")
    answer = await browser.submit(question, f"{PATH}/discard", before="")
    assert (answer.status, len(await open_ids(office))) == (422, 6)


async def test_without_a_session_the_login_is_shown(office: Office) -> None:
    async with browsing(office, signs_in=False) as browser:
        for path in (PATH, f"{PATH}/1", f"{PATH}/replay?id=1"):
            page = await browser.get(path)
            assert (page.status, page.reply.headers["location"][:20]) == (303, "/ui/login?next=%2Fui")
        assert (await browser.client.post(f"{PATH}/discard", data={"before": "2027-01-01T00:00Z"})).status_code == 303
    assert len(await open_ids(office)) == 6


async def test_the_result_of_an_order_never_shows_text_of_the_address(browser: Browser) -> None:
    assert "odd" not in (await browser.get(PATH, done="odd", count=1)).text
    page = await browser.get(PATH, done="replayed", count="1 odd", failed="9" * 30)
    assert "No dead letter was replayed" in page.text
    assert "odd" not in page.text


async def test_closed_letters_are_listed_with_the_operator(browser: Browser, office: Office) -> None:
    await browser.submit(await browser.get(f"{PATH}/discard", id=2), f"{PATH}/discard")
    page = await browser.get(PATH, status="discarded", view="list")
    assert "discarded by main" in page.text
    letters = await office.inbox.list_after(DeadLetterFilter(DeadLetterStatus.DISCARDED), 0, 9)
    assert [letter.id for letter in letters] == [2]
    assert letters[0].changed_at - letters[0].opened_at > timedelta(0)
