"""Who may send without a token, and who may not: every web page that somebody opens beside the service could."""

from __future__ import annotations

import pytest

from sfn.http.senders import anonymous_senders
from tests.integration.listening import EVENT, Service, answer, listening, request


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:8085", "null"])
@pytest.mark.parametrize("path", ["/v1/events", "/v1/prod/namespaces/sales/tables/orders/notifications"])
async def test_without_senders_no_web_page_may_send_whatever_it_says_of_itself(path: str, origin: str) -> None:
    """It needs no permission to send plain text to whoever listens on its reader's machine."""
    service = Service(senders=anonymous_senders(["prod"]))
    sent = request("Content-Type: text/plain", f"Origin: {origin}", path=path, body=EVENT, token=None)
    async with listening(service.application()) as connect:
        reply = await answer(connect, sent)
    assert reply.status == 403
    assert b"configure [senders.NAME]" in reply.content
    assert not service.inbox.entered.is_set()


async def test_a_token_is_enough_for_a_web_page_too() -> None:
    async with listening(Service().application()) as connect:
        assert (await answer(connect, request("Origin: https://ours.example", body=EVENT))).status == 202
