"""Google's tokens, for which a local server takes the place of Google's."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import parse_qs

import anyio
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from sfn.catalogs import Loaded
from sfn.catalogs.rest.settings import RestSettings
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Transient
from tests.support.google_keys import private_key, service_account
from tests.support.rest_catalog import (
    ORDERS,
    PRIVATE,
    Mint,
    Open,
    Responder,
    Server,
    bearers,
    believing,
    complaint,
    pass_by,
    reply,
    running,
    table,
)

MANY = 16


def key_file(folder: Path, issuer: Server, **changes: object) -> Path:
    """The file of a service account, as Google writes it."""
    content = service_account("sfn@lake.iam.gserviceaccount.com", f"{issuer.uri}/token", **changes)
    file = folder / "key.json"
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return file


def claims(assertion: str) -> dict[str, object]:
    """What a service account says of itself, once its signature was verified."""
    signed, _, signature = assertion.rpartition(".")
    private_key().public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    found: dict[str, object] = json.loads(_decoded(signed.partition(".")[2]))
    return found


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@pytest.fixture
async def issuer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncGenerator[Server]:
    """Google's token server; nothing else of Google's is found on this machine."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    async with running() as server:
        server.other = Mint(3600).respond
        yield server


async def trouble_of(opened: Open, server: Server, **settings: object) -> ExternalError:
    with pytest.raises(ExternalError) as caught:
        await opened(server, auth="google", **settings).load(ORDERS, None)
    assert caught.value.scope is ErrorScope.CATALOG
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert server.requests == []
    return caught.value


async def test_a_service_accounts_key_is_exchanged_for_a_token(
    server: Server, opened: Open, issuer: Server, tmp_path: Path
) -> None:
    mint = Mint(3600)
    issuer.other = mint.respond
    file = key_file(tmp_path, issuer)
    catalog = opened(
        server, auth="google", google_credentials_file=file, scope="a b", headers={"x-goog-user-project": "p"}
    )
    await catalog.load(ORDERS, None)
    await catalog.load(ORDERS, None)
    (form,) = mint.forms
    said = claims(form["assertion"])
    assert (said["iss"], said["scope"]) == ("sfn@lake.iam.gserviceaccount.com", "a b")
    assert bearers(server) == ["Bearer token1"] * 3
    assert {request.headers["x-goog-user-project"] for request in server.requests} == {"p"}


async def test_the_applications_default_credentials_are_found(
    server: Server, opened: Open, issuer: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file(tmp_path, issuer)))
    await opened(server, auth="google").load(ORDERS, None)
    assert bearers(server) == ["Bearer token1"] * 2


async def test_a_workload_identity_is_exchanged(
    server: Server, opened: Open, issuer: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "identity").write_text("a-token-of-kubernetes")
    content = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{issuer.uri}/token",
        "credential_source": {"file": str(tmp_path / "identity")},
    }
    (tmp_path / "workload.json").write_text(json.dumps(content))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "workload.json"))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "lake")  # which Google's library asks for elsewhere
    given: list[dict[str, list[str]]] = []

    async def exchange(request: web.BaseRequest) -> web.StreamResponse:
        given.append(parse_qs((await request.read()).decode()))
        token = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer"}
        return await reply({**token, "access_token": "token1", "expires_in": 3600})(request)

    issuer.other = exchange
    await opened(server, auth="google").load(ORDERS, None)
    assert [form["subject_token"] for form in given] == [["a-token-of-kubernetes"]]
    assert bearers(server) == ["Bearer token1"] * 2


async def test_a_token_is_renewed_before_its_end(
    server: Server, opened: Open, issuer: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.other = Mint(180).respond
    catalog = opened(server, auth="google", google_credentials_file=key_file(tmp_path, issuer))
    await catalog.load(ORDERS, None)
    assert bearers(server) == ["Bearer token1"] * 2
    pass_by(61, monkeypatch)
    await catalog.load(ORDERS, None)
    assert bearers(server)[-1] == "Bearer token2"


async def test_a_refused_token_is_renewed_once_for_all_who_wait(
    server: Server, opened: Open, issuer: Server, tmp_path: Path
) -> None:
    catalog = opened(server, auth="google", google_credentials_file=key_file(tmp_path, issuer))
    await catalog.load(ORDERS, None)
    server.other = believing("token2")
    answers: list[object] = []

    async def load() -> None:
        answers.append(await catalog.load(ORDERS, None))

    async with anyio.create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(load)
    assert [type(answer) for answer in answers] == [Loaded] * MANY
    assert len(issuer.requests) == 2


async def test_a_late_refusal_of_the_old_token_asks_for_no_other(
    server: Server, opened: Open, issuer: Server, tmp_path: Path
) -> None:
    catalog = opened(server, auth="google", google_credentials_file=key_file(tmp_path, issuer))
    await catalog.load(ORDERS, None)
    renewed, refused = anyio.Event(), reply(b"", 401)

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers["authorization"] == "Bearer token1":
            if request.path.endswith("items"):
                await renewed.wait()
            return await refused(request)
        renewed.set()
        return await reply(table())(request)

    server.other = respond
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            for name in ("items", "orders"):
                group.start_soon(catalog.load, TableIdentifier("lake", ("sales",), name), None)
    assert len(issuer.requests) == 2


async def test_no_token_shows_in_a_message(server: Server, opened: Open, issuer: Server, tmp_path: Path) -> None:
    issuer.other = reply({"access_token": PRIVATE, "expires_in": 3600})
    server.other = complaint("ForbiddenException", 403, f"not with {PRIVATE}")
    with pytest.raises(ExternalError) as caught:
        await opened(server, auth="google", google_credentials_file=key_file(tmp_path, issuer)).load(ORDERS, None)
    assert caught.value.found.endswith("not with ***")


TOKENS: dict[str, tuple[Responder, str]] = {
    "refused": (reply({"error": "invalid_grant", "error_description": f"not {PRIVATE}"}, 400), "invalid_grant"),
    "of two lines": (
        reply({"access_token": "a\r\nb: c", "expires_in": 3600}),
        "a token with characters that a header cannot carry",
    ),
    "none": (reply({"token_type": "bearer"}), "RefreshError"),
}


@pytest.mark.parametrize("case", TOKENS)
async def test_no_token_is_the_catalogs_trouble(
    server: Server, opened: Open, issuer: Server, tmp_path: Path, case: str
) -> None:
    issuer.other, found = TOKENS[case]
    trouble = await trouble_of(opened, server, google_credentials_file=key_file(tmp_path, issuer))
    assert found in trouble.found
    assert "check that file" in trouble.remedy
    assert PRIVATE not in str(trouble)


@pytest.mark.parametrize(
    "changes", [{"private_key": PRIVATE}, {"token_uri": None}, {"type": "external_account", "client_email": None}]
)
async def test_a_key_that_is_none_is_the_catalogs_trouble(
    server: Server, opened: Open, issuer: Server, tmp_path: Path, changes: dict[str, object]
) -> None:
    file = key_file(tmp_path, issuer, **changes)
    trouble = await trouble_of(opened, server, google_credentials_file=file)
    assert str(file) in trouble.where
    assert PRIVATE not in str(trouble)


async def test_a_file_that_is_not_there_is_the_catalogs_trouble(
    server: Server, opened: Open, issuer: Server, tmp_path: Path
) -> None:
    trouble = await trouble_of(opened, server, google_credentials_file=tmp_path / "none.json")
    assert str(tmp_path / "none.json") in trouble.where
    assert issuer.requests == []


async def test_where_nothing_is_found_it_says_how_to_see_so(server: Server, opened: Open, issuer: Server) -> None:
    trouble = await trouble_of(opened, server)
    assert "DefaultCredentialsError" in trouble.found
    assert "gcloud auth application-default print-access-token" in trouble.remedy
    assert issuer.requests == []


async def test_a_token_server_that_hangs_is_the_catalogs_trouble_in_time(
    server: Server, opened: Open, issuer: Server, tmp_path: Path
) -> None:
    released = anyio.Event()

    async def late(request: web.BaseRequest) -> web.StreamResponse:
        await released.wait()
        return await reply(b"", 400)(request)

    issuer.other = late
    try:
        with anyio.fail_after(20):
            trouble = await trouble_of(
                opened, server, google_credentials_file=key_file(tmp_path, issuer), config_timeout=0.3
            )
    finally:
        released.set()
    assert isinstance(trouble, Transient)
    assert trouble.found == "none within 0.3 s"


def test_a_token_and_googles_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="credential and auth exclude each other"):
        RestSettings(name="lake", uri="https://biglake.googleapis.com", auth="google", credential=PRIVATE)
