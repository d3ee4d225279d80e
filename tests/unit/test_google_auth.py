"""Access tokens and credentials of Google."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import anyio
import pytest
from aiohttp import web

from sfn.errors import NoCredentials
from sfn.google_auth import RETRY_AFTER, GoogleCredentialChain, GoogleIdentity
from sfn.storage import ErrorKind
from tests.support.google_keys import private_pem, service_account
from tests.support.object_store import PRIVATE, Asked, Server, late, refusal, reply, running
from tests.support.rest_catalog import pass_by
from tests.unit.gcs_server import KEY, asking, found

SCOPES: Final = ("https://www.googleapis.com/auth/one", "https://www.googleapis.com/auth/two")
EARLY: Final = 225.0
"""Seconds before its end at which Google's library takes a token for stale."""
REFUSED: Final = reply({"error": "invalid_grant", "error_description": f"{PRIVATE} was not good"}, 400)


class Mint:
    """Gives the tokens token1, token2, …, each good for so many seconds.

    Attributes:
        lasts: seconds.
        claims: what each was asked for with.
    """

    def __init__(self, lasts: float = 3600.0) -> None:
        self.lasts = lasts
        self.claims: list[dict[str, str]] = []

    async def answer(self, asked: Asked) -> web.StreamResponse:
        claims = parse_qs(asked.body.decode())["assertion"][0].split(".")[1]
        self.claims.append(json.loads(urlsafe_b64decode(claims + "==")))
        token = {"access_token": f"token{len(self.claims)}", "expires_in": self.lasts, "token_type": "Bearer"}
        return await reply(token)(asked)


def account(server: Server, name: str = "publisher") -> str:
    """The key file of a service account."""
    email = f"{name}@lake-1.iam.gserviceaccount.com"
    return json.dumps(service_account(email, f"{server.url}/token", project_id="lake-1"))


def put(file: Path, content: str) -> None:
    file.write_bytes(content.encode(errors="surrogatepass"))


async def none_of(chain: GoogleCredentialChain) -> NoCredentials:
    with pytest.raises(NoCredentials) as none:
        await chain.token()
    return none.value


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running(Server()) as server:
        yield server


@pytest.fixture
def mint(server: Server) -> Mint:
    mint = Mint()
    server.answer = mint.answer
    return mint


@pytest.fixture
def file(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    file = tmp_path / "key.json"
    put(file, account(server))
    return file


@pytest.fixture
def chain(file: Path) -> GoogleCredentialChain:
    return GoogleCredentialChain(GoogleIdentity(file=file), SCOPES)


async def test_a_service_account_asks_for_a_token_of_the_scopes(
    mint: Mint, chain: GoogleCredentialChain, server: Server
) -> None:
    assert await chain.token() == "token1"
    assert mint.claims[0]["scope"] == " ".join(SCOPES)
    assert mint.claims[0]["iss"] == "publisher@lake-1.iam.gserviceaccount.com"
    assert [asked.path for asked in server.requests] == ["/token"]


async def test_many_who_ask_at_once_share_a_token(mint: Mint, chain: GoogleCredentialChain) -> None:
    had: list[str] = []

    async def ask() -> None:
        had.append(await chain.token())

    async with anyio.create_task_group() as tasks:
        for _ in range(32):
            tasks.start_soon(ask)
    assert had == ["token1"] * 32
    assert len(mint.claims) == 1
    assert await chain.token() == "token1"
    assert len(mint.claims) == 1


async def test_a_token_is_renewed_before_it_ends(
    mint: Mint, chain: GoogleCredentialChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    mint.lasts = EARLY + 0.3
    assert await chain.token() == "token1"
    await anyio.sleep(0.4)
    mint.lasts = 3600.0
    # Not at once after the last: not all who give tokens out have another yet.
    assert await chain.token() == "token1"
    pass_by(RETRY_AFTER, monkeypatch)
    assert await chain.token() == "token2"
    assert await chain.token() == "token2"


@pytest.mark.slow
async def test_a_token_that_ended_is_never_shown(mint: Mint, chain: GoogleCredentialChain, server: Server) -> None:
    mint.lasts = 0.8
    assert await chain.token() == "token1"
    await anyio.sleep(0.9)
    assert await chain.token() == "token2"
    await anyio.sleep(0.9)
    server.answer = REFUSED
    assert (await none_of(chain)).found == "invalid_grant from Google"


async def test_a_token_that_ends_before_it_comes_is_none(mint: Mint, chain: GoogleCredentialChain) -> None:
    mint.lasts = -10.0
    assert "clock" in (await none_of(chain)).found


async def test_an_old_token_serves_where_no_new_one_is_had_and_nobody_asks_without_end(
    mint: Mint, chain: GoogleCredentialChain, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    mint.lasts = EARLY - 10.0
    assert await chain.token() == "token1"
    server.answer = REFUSED
    for asked in (2, 3):
        pass_by((asked - 1) * (RETRY_AFTER + 1.0), monkeypatch)
        assert [await chain.token() for _ in range(5)] == ["token1"] * 5
        assert len(server.requests) == asked


async def test_only_one_waits_for_the_next_while_the_old_one_holds(
    mint: Mint, chain: GoogleCredentialChain, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    mint.lasts = EARLY - 10.0
    await chain.token()
    server.answer = late(0.5, mint.answer)
    pass_by(RETRY_AFTER, monkeypatch)
    had: list[str] = []

    async def ask() -> None:
        had.append(await chain.token())

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(ask)
    assert had == ["token1", "token1", "token1", "token2"]


async def test_a_failure_is_shared_by_all_who_waited_for_it(chain: GoogleCredentialChain, server: Server) -> None:
    server.answer = late(0.2, REFUSED)
    failed: list[NoCredentials] = []

    async def ask() -> None:
        failed.append(await none_of(chain))

    async with anyio.create_task_group() as tasks:
        for _ in range(16):
            tasks.start_soon(ask)
    assert len(failed) == 16
    assert len(server.requests) == 1
    await none_of(chain)
    assert len(server.requests) == 2


async def test_a_server_that_does_not_answer_is_not_waited_for(file: Path, server: Server) -> None:
    server.answer = late(30.0, REFUSED)
    chain = GoogleCredentialChain(GoogleIdentity(file=file), SCOPES, limit=0.2)
    with anyio.fail_after(10.0):
        assert (await none_of(chain)).found == "none within 0.2 s"


async def test_whoever_gives_up_leaves_the_rest_to_the_next(file: Path, server: Server, mint: Mint) -> None:
    came = anyio.Event()

    async def hold(asked: Asked) -> web.StreamResponse:
        came.set()
        return await late(30.0, REFUSED)(asked)

    server.answer = hold
    chain = GoogleCredentialChain(GoogleIdentity(file=file), SCOPES)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chain.token)
        await came.wait()
        server.answer = mint.answer
        tasks.cancel_scope.cancel()
    with anyio.fail_after(10.0):
        assert await chain.token() == "token1"


async def test_a_key_that_was_replaced_is_seen(
    mint: Mint, chain: GoogleCredentialChain, server: Server, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mint.lasts = EARLY - 10.0
    await chain.token()
    pass_by(RETRY_AFTER, monkeypatch)
    put(file, account(server, "successor"))
    await chain.token()
    assert mint.claims[1]["iss"] == "successor@lake-1.iam.gserviceaccount.com"


async def test_no_message_repeats_what_a_server_or_a_file_says(chain: GoogleCredentialChain, server: Server) -> None:
    for answer in (REFUSED, reply(PRIVATE.encode(), 400), reply({"error": f"{PRIVATE}!"}, 400), reply(b"[]")):
        server.answer = answer
        none = await none_of(chain)
        assert PRIVATE not in str(none)
        assert private_pem().splitlines()[1] not in str(none)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", "no JSON", '{"type": "service_account"}', '{"type": "of_my_own"}', "\ud800"]
)
async def test_a_file_that_makes_no_sense_is_named(file: Path, chain: GoogleCredentialChain, content: str) -> None:
    put(file, content)
    none = await none_of(chain)
    assert (none.where, none.expected) == (str(file), "credentials")
    assert "check that file" in none.remedy


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert (await none_of(GoogleCredentialChain(GoogleIdentity(file=tmp_path / "none.json"), SCOPES))).where == str(
        tmp_path / "none.json"
    )


async def test_the_environment_names_a_file(file: Path, mint: Mint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    assert await GoogleCredentialChain(GoogleIdentity(), SCOPES).token() == "token1"
    assert mint.claims[0]["scope"] == " ".join(SCOPES)


async def test_nothing_to_be_found_is_told_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    none = await none_of(GoogleCredentialChain(GoogleIdentity(), SCOPES))
    assert "application default credentials" in none.where
    assert "GOOGLE_APPLICATION_CREDENTIALS" in none.remedy


async def test_a_fixed_token_is_shown_as_it_is_and_nobody_is_asked(server: Server) -> None:
    assert await GoogleCredentialChain(GoogleIdentity(token=PRIVATE), SCOPES).token() == PRIVATE
    assert server.requests == []


@pytest.mark.parametrize("token", ["", "a b", "a\r\nx-y: z", "é"])
async def test_a_token_that_no_header_can_carry_is_none(token: str) -> None:
    none = await none_of(GoogleCredentialChain(GoogleIdentity(token=token), SCOPES))
    assert "header" in none.found
    assert "x-y" not in str(none)


async def test_a_store_shows_its_token_and_says_when_it_has_none(file: Path, server: Server, mint: Mint) -> None:
    async def both(asked: Asked) -> web.StreamResponse:
        return await (mint.answer if asked.path == "/token" else found(b"{}"))(asked)

    server.answer = both
    async with asking(server, GoogleIdentity(file=file)) as objects:
        await objects.get(KEY, 10)
        assert mint.claims[0]["scope"] == "https://www.googleapis.com/auth/devstorage.read_write"
        assert server.requests[1].headers["authorization"] == "Bearer token1"
    server.answer = REFUSED
    async with asking(server, GoogleIdentity(file=file)) as objects:
        refused = await refusal(objects.get(KEY, 10))
        assert refused.kind is ErrorKind.UNAUTHENTICATED
        assert refused.found == "no credentials: invalid_grant from Google"
        assert "check that file" in refused.remedy
