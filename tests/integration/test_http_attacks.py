"""Requests without a valid token are rejected."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.http.app import build_app
from sfn.http.secrets import PartyTokens
from sfn.http.senders import OPERATORS_PARTY, Keyring, Senders, anonymous_senders
from tests.support.listener import ETL, Office, Reply, Service, answer, assert_problem, connected, listening, request
from tests.support.listener import EVENT as CATALOG_EVENT
from tests.support.processes import until
from tests.support.service import TOKEN, Daemon, Lake, configure, lake, serving

# Requests without a valid token.


OTHER, ON_FILE, OPERATOR = "s3cret-of-the-other", "s3cret-on-file", "s3cret-of-operators"
GUESS, ASKED = "s3cret-gu3ss", "s3cret-in-the-query"
SECRETS = (TOKEN, f"catalog-{TOKEN}", OTHER, ON_FILE, OPERATOR, GUESS, ASKED)
EVENT = b'{"namespace":["sales"],"name":"orders"}'
EVENTS, RELEASE = "/v1/events", "/admin/v1/drop-limits/prod:release"
MORE = f"""
[catalogs.dev]
uri = "http://127.0.0.1:1"
[senders.other]
catalog = "dev"
secrets.main = "{OTHER}"
[senders.filed]
secrets_file = "{{folder}}/tokens"
catalog = "dev"
[admin]
token = "{OPERATOR}"
[sweep]
every = "off"
[telemetry]
level = "debug"
"""


@dataclass(slots=True)
class Site:
    """The process, and everything that it answered."""

    daemon: Daemon
    world: Lake
    told: list[bytes] = field(default_factory=list)

    async def answer(self, *fields: bytes, target: str = EVENTS, body: bytes = EVENT) -> Reply:
        head = [b"POST %b HTTP/1.1" % target.encode(), b"Host: sfn", b"Content-Length: %d" % len(body), *fields]
        async with connected(self.daemon.client.base_url.port or 0) as wire:
            await wire.send(b"\r\n".join([*head, b"", b""]), body)
            reply = await wire.reply()
        self.told.append(f"{reply.headers}".encode() + reply.content)
        return reply

    async def status(self, *fields: bytes, target: str = EVENTS) -> int:
        return (await self.answer(*fields, target=target)).status

    def leaks(self, more: Iterable[str] = ()) -> list[str]:
        """The secrets that are in an answer or in the log."""
        everything = b"\n".join([*self.told, self.daemon.log.read_bytes()])
        return [secret for secret in (*SECRETS, *more) if secret.encode() in everything]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    (tmp_path / "tokens").write_text(f"{ON_FILE}\n")
    async with lake(tmp_path) as world, serving(configure(world, MORE.format(folder=tmp_path))) as daemon:
        yield Site(daemon, world)


def bearer(token: str) -> bytes:
    return b"Authorization: Bearer " + token.encode()


def basic(token: str) -> str:
    return b64encode(f"etl:{token}".encode()).decode()


UNKNOWN: dict[str, tuple[bytes, ...]] = {
    "none": (),
    "an empty one": (b"Authorization:",),
    "no token": (b"Authorization: Bearer",),
    "a wrong one": (bearer(GUESS),),
    "a part of it": (bearer(TOKEN[:-1]),),
    "one with more behind it": (bearer(f"{TOKEN}x"),),
    "one with another case": (bearer(TOKEN.upper()),),
    "one beside another": (bearer(f"{TOKEN} {GUESS}"),),
    "several in one": (bearer(f"{GUESS},{TOKEN}"),),
    "one in quotes": (bearer(f'"{TOKEN}"'),),
    "two, the first of them right": (bearer(TOKEN), bearer(GUESS)),
    "two, the second of them right": (bearer(GUESS), bearer(TOKEN)),
    "the right one twice": (bearer(TOKEN), bearer(TOKEN)),
    "no scheme": (b"Authorization: " + TOKEN.encode(),),
    "another scheme": (b"Authorization: Token " + TOKEN.encode(),),
    "basic": (b"Authorization: Basic " + basic(TOKEN).encode(),),
    "another header": (b"X-Api-Key: " + TOKEN.encode(), b"Proxy-Authorization: Bearer " + TOKEN.encode()),
    "a cookie": (b"Cookie: token=" + TOKEN.encode(),),
    "a very long one": (bearer(GUESS * 5_000),),
    "one that begins right and is very long": (bearer(TOKEN + GUESS * 5_000),),
    "no ASCII": (b"Authorization: Bearer " + f"{GUESS}é".encode("latin-1"),),
    "no UTF-8": (b"Authorization: Bearer \xff\xfe" + GUESS.encode(),),
    "a line feed that is none": (bearer(f"{GUESS}\\r\\nX: y"),),
}


async def test_wrong_token_gets_the_same_401_everywhere_and_is_in_no_log(site: Site) -> None:
    for target in (EVENTS, RELEASE):
        replies = {case: await site.answer(*fields, target=target) for case, fields in UNKNOWN.items()}
        for case, reply in replies.items():
            assert_problem(reply, 401)
            assert (reply.headers["www-authenticate"], reply.content) == ("Bearer", replies["none"].content), case
    assert site.leaks([basic(TOKEN)]) == []
    assert {record["where"] for record in site.daemon.records("request refused", status=401)} == {"events", "admin"}


async def test_no_record_of_any_of_them_tells_what_was_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sfn.telemetry.logs.LOG_INTERVAL", 0.0)
    caplog.set_level(logging.DEBUG)
    keyring = Keyring({"senders.etl": PartyTokens({"main": TOKEN}), OPERATORS_PARTY: PartyTokens({"token": OPERATOR})})
    service = Service(senders=Senders(keyring, {"senders.etl": ETL}))
    operators = Office().router(keyring)
    serves = build_app(
        service.ingest(), service.readiness, version="1", on_fatal=service.broken.append, routers=[operators]
    )
    async with listening(serves) as connect:
        with capture_logs() as logs:
            for target in (EVENTS, RELEASE):
                for fields in UNKNOWN.values():
                    head = [f"POST {target} HTTP/1.1".encode(), b"Host: sfn", b"Content-Length: 0", *fields]
                    assert (await answer(connect, b"\r\n".join([*head, b"", b""]))).status == 401
    assert len(logs) == 2 * len(UNKNOWN)
    told = str(logs) + caplog.text
    assert [secret for secret in (*SECRETS, basic(TOKEN)) if secret in told] == []


async def test_a_token_is_for_what_it_is_for(site: Site) -> None:
    for token, events, release in ((TOKEN, 202, 401), (OTHER, 202, 401), (ON_FILE, 202, 401), (OPERATOR, 401, 200)):
        assert await site.status(bearer(token)) == events
        assert await site.status(bearer(token), target=RELEASE) == release
    assert site.leaks() == []


async def test_a_query_string_opens_nothing_and_is_never_told(site: Site) -> None:
    query = f"?access_token={TOKEN}&token={ASKED}"
    for target, right in ((EVENTS, bearer(TOKEN)), (RELEASE, bearer(OPERATOR))):
        assert await site.status(target=target + query) == 401
        assert await site.status(bearer(GUESS), target=target + query) == 401
        assert await site.status(right, target=target + query) in {200, 202}
    for target in (
        "/",
        f"/v1/events/{ASKED}",
        f"/admin/v1/drop-limits/{ASKED}:release",
        f"http://etl:{ASKED}@sfn{EVENTS}",
    ):
        refused = {405} if target == "/" else {401, 404}
        assert await site.status(bearer(GUESS), target=target + query) in refused
    assert await site.status(bearer(OPERATOR), target=f"/admin/v1/drop-limits/{ASKED}:release{query}") == 404
    assert site.leaks() == []


async def test_no_sender_speaks_for_the_catalog_of_another(site: Site) -> None:
    told = EVENT[:-1] + b',"catalog":"%s"}'
    for token, theirs in ((TOKEN, b"dev"), (OTHER, b"prod"), (ON_FILE, b"prod"), (TOKEN, b"../dev"), (TOKEN, b"DEV")):
        reply = await site.answer(bearer(token), body=told % theirs)
        assert_problem(reply, 422)
        own = "prod" if token == TOKEN else "dev"
        assert reply.json["errors"] == [{"detail": f"expected one of {own}, found another one", "pointer": "#/catalog"}]
    # What was told last is done last.
    assert (await site.answer(bearer(TOKEN), body=told % b"prod")).status == 202
    await site.daemon.until_logged("settled", catalog="prod")
    assert site.daemon.records("settled", catalog="dev") == []


async def test_what_a_body_holds_is_told_to_nobody_but_its_sender(site: Site) -> None:
    for body in (b'{"token":"%s"' % ASKED.encode(), b'{"token":"%s"}' % ASKED.encode(), ASKED.encode(), b"[[]]"):
        assert (await site.answer(bearer(GUESS), body=body)).status == 401
        assert (await site.answer(bearer(TOKEN), body=body)).status in {400, 415}
    await until(lambda: site.daemon.records("events rejected", sender="etl"))
    assert site.leaks() == []


# Requests from web pages.


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:8085", "null"])
@pytest.mark.parametrize("path", ["/v1/events", "/v1/prod/namespaces/sales/tables/orders/notifications"])
async def test_without_senders_no_web_page_may_send_whatever_it_says_of_itself(path: str, origin: str) -> None:
    """It needs no permission to send plain text to whoever listens on its reader's machine."""
    service = Service(senders=anonymous_senders(["prod"]))
    sent = request("Content-Type: text/plain", f"Origin: {origin}", path=path, body=CATALOG_EVENT, token=None)
    async with listening(service.application()) as connect:
        reply = await answer(connect, sent)
    assert reply.status == 403
    assert b"configure [senders.NAME]" in reply.content
    assert not service.inbox.entered.is_set()


async def test_a_token_is_enough_for_a_web_page_too() -> None:
    async with listening(Service().application()) as connect:
        assert (await answer(connect, request("Origin: https://ours.example", body=CATALOG_EVENT))).status == 202
