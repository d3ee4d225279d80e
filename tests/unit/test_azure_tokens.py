"""Access tokens for Azure: who gives them, where they are shown, and what is said where there is none."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs

import anyio
import msgspec
import pytest

from sfn.storage import ErrorKind, FetchedObject
from sfn.storage.azure import (
    RETRY_AFTER_FAILURE,
    AccessToken,
    AzureIdentity,
    DefaultCredentialChain,
    EntraApplication,
    EntraTokens,
)
from tests.unit.azure_server import (
    KEY,
    TAG,
    Responder,
    Server,
    asking,
    complaint,
    found,
    never,
    refusal,
    reply,
    running,
)
from tests.unit.certificates import Authority
from tests.unit.rest_server import pass_by

SCOPE = "https://storage.azure.com/.default"


def given() -> Responder:
    """What a managed identity's endpoint answers."""
    body = {
        "access_token": "token1",
        "expires_on": "4000000000",
        "resource": "https://storage.azure.com",
        "token_type": "Bearer",
    }
    return reply(msgspec.json.encode(body), content_type="application/json")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority()
    (tmp_path / "ca.pem").write_bytes(made.pem)
    return made


@pytest.fixture
async def server(authority: Authority, tmp_path: Path) -> AsyncIterator[Server]:
    """Blobs, over TLS."""
    pair = authority.sign()
    (tmp_path / "chain.pem").write_bytes(pair.chain + pair.key)
    certificate = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.load_cert_chain(tmp_path / "chain.pem")
    async with running(certificate) as server:
        server.answer = found(b"{}")
        yield server


@pytest.fixture
async def issuer(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """Gives tokens, as App Service does to what runs there."""
    async with running() as server:
        server.answer = given()
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header")
        # Else Azure's command line and its like are asked too.
        monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "prod")
        yield server


def shown(server: Server) -> list[str | None]:
    return [asked.headers.get("authorization") for asked in server.requests]


async def test_a_token_that_somebody_else_renews_is_shown(server: Server, tmp_path: Path) -> None:
    async with asking(server, AccessToken("theirs"), ca_file=tmp_path / "ca.pem") as objects:
        assert await objects.get(KEY, 10) == FetchedObject(b"{}", TAG, None)
        await objects.get_range(KEY, 0, 10)
    assert shown(server) == ["Bearer theirs"] * 2


@pytest.mark.parametrize(
    "identity", [AccessToken("theirs"), DefaultCredentialChain(), EntraApplication("t", "c", "s3cret")]
)
async def test_no_token_is_shown_without_tls(identity: AzureIdentity) -> None:
    async with running() as plain, asking(plain, identity) as objects:
        refused = await refusal(objects.get(KEY, 10))
    assert (refused.kind, plain.asked) == (ErrorKind.UNAUTHENTICATED, [])
    assert "https:" in refused.remedy


async def test_a_token_that_is_not_accepted_is_told_of(server: Server, tmp_path: Path) -> None:
    server.answer = complaint(401, "InvalidAuthenticationInfo", www_authenticate="Bearer realm=here")
    async with asking(server, AccessToken("theirs"), ca_file=tmp_path / "ca.pem") as objects:
        for verb in (objects.get(KEY, 10), objects.put(KEY, b"", None, "0a-1"), objects.list_page(KEY, 10, None)):
            refused = await refusal(verb)
            assert (refused.kind, "theirs" in repr(refused)) == (ErrorKind.UNAUTHENTICATED, False)


async def test_the_workloads_own_identity_is_found_and_asked_once(
    server: Server, issuer: Server, tmp_path: Path
) -> None:
    async with (
        asking(server, DefaultCredentialChain("client-1"), ca_file=tmp_path / "ca.pem") as objects,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(8):
            tasks.start_soon(objects.get, KEY, 10)
    assert shown(server) == ["Bearer token1"] * 8
    (asked,) = issuer.requests
    query = parse_qs(asked.path.partition("?")[2])
    assert (query["resource"], query["client_id"]) == (["https://storage.azure.com"], ["client-1"])


async def test_what_a_service_wants_tokens_to_be_good_for_is_not_asked_for(
    server: Server, issuer: Server, tmp_path: Path
) -> None:
    challenge = "Bearer authorization_uri=https://login.example/t/oauth2/authorize resource_id=https://else.example"
    server.answer = complaint(401, "InvalidAuthenticationInfo", www_authenticate=challenge)
    async with asking(server, DefaultCredentialChain(), ca_file=tmp_path / "ca.pem") as objects:
        assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.UNAUTHENTICATED
    assert {parse_qs(asked.path.partition("?")[2])["resource"][0] for asked in issuer.requests} == {
        "https://storage.azure.com"
    }


async def test_no_token_is_no_credentials_and_whoever_waits_is_told_the_same(
    server: Server, issuer: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.answer = reply(b'{"error": "invalid_client", "error_description": "AADSTS700016: s3cret"}', 400)
    async with asking(server, DefaultCredentialChain(), ca_file=tmp_path / "ca.pem") as objects:
        refused = await refusal(objects.put(KEY, b"", None, "0a-1"))
        assert (refused.kind, "no access token" in refused.found) == (ErrorKind.UNAUTHENTICATED, True)
        assert "s3cret" not in repr(refused)
        assert "az account get-access-token" in refused.remedy
        times = len(issuer.requests)
        assert (await refusal(objects.get(KEY, 10))).args == refused.args
        assert len(issuer.requests) == times
        issuer.answer = given()
        pass_by(RETRY_AFTER_FAILURE, monkeypatch)
        assert (await objects.get(KEY, 10)).body == b"{}"
    assert len(server.requests) == 1


async def test_nobody_waits_for_a_token_for_ever(issuer: Server) -> None:
    issuer.answer = never
    tokens = EntraTokens(DefaultCredentialChain(), limit=0.5)
    refused = await refusal(tokens.get_token(SCOPE))
    assert (refused.kind, "within 0.5 s" in refused.found) == (ErrorKind.UNAUTHENTICATED, True)
    await tokens.close()


async def test_no_answer_of_entra_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://127.0.0.1:1")
    tokens = EntraTokens(EntraApplication("t", "c", "s3cret"))
    refused = await refusal(tokens.get_token(SCOPE))
    assert refused.kind is ErrorKind.UNREACHABLE
    assert "s3cret" not in repr(refused) + repr(tokens)
    await tokens.close()
