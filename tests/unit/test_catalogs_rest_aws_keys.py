"""Where the keys of AWS's signatures come from: AWS's standard chain, in a thread, renewed in time and when refused."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from traceback import walk_stack

import anyio
import pytest
from aiohttp import web

from sfn.catalogs import Loaded
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.clock import SystemClock
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from tests.support.processes import until
from tests.support.rest_catalog import ORDERS, Open, Server, pass_by, running
from tests.unit.signatures import KEY_ID, SECRET, Aws, alone

SIGNED = {"auth": "sigv4", "signing_region": "eu-central-1", "signing_name": "glue", "config_timeout": 30.0}
ROLE = "arn:aws:iam::123456789012:role/sfn"
STATIC = f"aws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
MANY = 16


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone(monkeypatch, tmp_path)


@pytest.fixture
def aws(server: Server) -> Aws:
    found = Aws(keys={})
    server.config = server.other = found.respond
    return found


class Issuer:
    """Gives the keys ID1, ID2, … to who asks as a role or as a container does, and has the catalog believe the last.

    Attributes:
        asked: how often.
        form: of the last question to STS.
        lasts: how long they are good.
        late: seconds until it answers, unless `released` is set before.
    """

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self.asked, self.late, self.lasts = 0, 0.0, timedelta(hours=1)
        self.released = anyio.Event()
        self.form: dict[str, str] = {}

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        self.form = {key: str(value) for key, value in (await request.post()).items()}
        with anyio.move_on_after(self.late):
            await self.released.wait()
        key, secret, token = (f"{kind}-{self.asked}-of-these" for kind in ("ID", "SECRET", "TOKEN"))
        self._aws.keys = {key: (secret, token)}
        end = (SystemClock().now() + self.lasts).strftime("%Y-%m-%dT%H:%M:%SZ")
        if request.method == "GET":
            made = {"AccessKeyId": key, "SecretAccessKey": secret, "Token": token, "Expiration": end}
            return web.json_response(made)
        action = self.form["Action"]
        made_of = (
            f"<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{end}</Expiration>"
        )
        result = f"<{action}Result><Credentials>{made_of}</Credentials></{action}Result>"
        return web.Response(text=f"<{action}Response>{result}</{action}Response>", content_type="text/xml")


@pytest.fixture
async def issuer(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Issuer]:
    async with running() as server:
        found = Issuer(aws)
        server.other = found.respond
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.uri)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.uri}/keys")
        yield found
        found.released.set()
        await until(lambda: not threads_in_botocore())


def threads_in_botocore() -> int:
    """The threads that look for keys. Those that were given up go on, and log what they meet in a later test."""
    stacks = [walk_stack(frame) for frame in sys._current_frames().values()]  # noqa: SLF001 - CPython's way to see them
    return sum(any("/botocore/" in frame.f_code.co_filename for frame, _ in stack) for stack in stacks)


async def loaded(catalog: RestCatalog) -> bool:
    return isinstance(await catalog.load(ORDERS, None), Loaded)


async def trouble_of(catalog: RestCatalog) -> ExternalError:
    with pytest.raises(ExternalError) as caught:
        await catalog.load(ORDERS, None)
    assert caught.value.scope is ErrorScope.CATALOG
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


async def test_a_profile_of_the_shared_files_is_used(server: Server, opened: Open, aws: Aws, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(f"[default]\naws_access_key_id = x\n[lake]\n{STATIC}")
    aws.keys = {KEY_ID: (SECRET, None)}
    assert await loaded(opened(server, **SIGNED, aws_profile="lake"))


async def test_a_container_is_asked_for_its_keys(server: Server, opened: Open, issuer: Issuer) -> None:
    catalog = opened(server, **SIGNED)
    assert await loaded(catalog)
    assert await loaded(catalog)
    assert issuer.asked == 1


async def test_a_role_is_assumed(
    server: Server, opened: Open, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    (tmp_path / "credentials").write_text(f"[default]\n{STATIC}")
    assert await loaded(opened(server, **SIGNED, role_arn=ROLE, external_id="lake"))
    assert (issuer.form["Action"], issuer.form["RoleArn"], issuer.form["ExternalId"]) == ("AssumeRole", ROLE, "lake")


async def test_a_web_identity_is_exchanged(
    server: Server, opened: Open, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "identity").write_text("a-token-of-kubernetes")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "identity"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert await loaded(opened(server, **SIGNED))
    assert issuer.form["WebIdentityToken"] == "a-token-of-kubernetes"


async def test_many_who_need_keys_at_once_share_one_question_and_the_loop_goes_on(
    server: Server, opened: Open, issuer: Issuer
) -> None:
    issuer.late = 60.0
    catalog = opened(server, **SIGNED)

    async def beat() -> None:
        # A loop that waits for the answer itself goes on only after it.
        for _ in range(11):
            await anyio.sleep(0.01)
        issuer.released.set()

    await catalog.close()
    async with anyio.create_task_group() as asking:
        asking.start_soon(beat)
        for _ in range(MANY):
            asking.start_soon(catalog.load, ORDERS, None)
    assert issuer.asked == 1


async def test_keys_are_renewed_before_they_end(
    server: Server, opened: Open, issuer: Issuer, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.lasts = timedelta(minutes=10)
    catalog = opened(server, **SIGNED)
    assert await loaded(catalog)
    asked = issuer.asked
    assert await loaded(catalog)
    assert issuer.asked == asked
    pass_by(61, monkeypatch)
    assert await loaded(catalog)
    assert (issuer.asked, aws.codes) == (asked + 1, [])


async def test_keys_that_still_hold_are_used_when_no_new_ones_can_be_had(
    server: Server, opened: Open, issuer: Issuer, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.lasts = timedelta(minutes=5)
    catalog = opened(server, **SIGNED | {"config_timeout": 2.0})
    assert await loaded(catalog)
    issuer.late, kept = 4.0, aws.keys
    pass_by(61, monkeypatch)
    assert await loaded(catalog)
    assert aws.keys is kept


async def test_refused_keys_are_looked_for_again(server: Server, opened: Open, aws: Aws, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = OLD\naws_secret_access_key = old\n")
    aws.keys = {"OLD": ("old", None)}
    catalog = opened(server, **SIGNED)
    assert await loaded(catalog)
    (tmp_path / "credentials").write_text(f"[default]\n{STATIC}")
    aws.keys = {KEY_ID: (SECRET, None)}
    assert await loaded(catalog)
    assert aws.codes == ["UnrecognizedClientException"]


async def test_a_session_that_expired_is_renewed(server: Server, opened: Open, issuer: Issuer, aws: Aws) -> None:
    catalog = opened(server, **SIGNED)
    assert await loaded(catalog)
    aws.keys = {key: (secret, "another") for key, (secret, _) in aws.keys.items()}
    assert await loaded(catalog)
    assert (issuer.asked, aws.codes) == (2, ["ExpiredTokenException"])


async def test_the_same_keys_are_not_tried_twice(server: Server, opened: Open, aws: Aws, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(f"[default]\n{STATIC}")
    trouble = await trouble_of(opened(server, **SIGNED))
    assert isinstance(trouble, Permanent)
    assert aws.codes == ["UnrecognizedClientException"]
    assert "UnrecognizedClientException" in trouble.found


@pytest.mark.parametrize(
    ("profile", "found"),
    [
        ("", "none in the environment"),
        ("[default]\ncredential_process = /nowhere/to-be-found\n", "FileNotFoundError"),
        (f"[default]\ncredential_process = {sys.executable} -c \"print('s3cret')\"\n", "JSONDecodeError"),
        (
            f"[default]\ncredential_process = {sys.executable} -c s3cret\n",
            "CredentialRetrievalError from custom-process",
        ),
        ("[default]\naws_access_key_id = AKID\n", "PartialCredentialsError"),
    ],
)
async def test_no_keys_are_the_catalogs_trouble(
    server: Server, opened: Open, aws: Aws, tmp_path: Path, profile: str, found: str
) -> None:
    (tmp_path / "credentials").write_text(profile)
    (tmp_path / "config").write_text(profile)
    trouble = await trouble_of(opened(server, **SIGNED))
    assert "AWS's standard chain of credentials" in trouble.where
    assert found in trouble.found
    assert "aws sts get-caller-identity" in trouble.remedy
    assert "s3cret" not in str(trouble)
    assert (server.requests, aws.codes) == ([], [])


async def test_a_profile_that_is_not_there_is_named(server: Server, opened: Open) -> None:
    trouble = await trouble_of(opened(server, **SIGNED, aws_profile="lake"))
    assert "profile lake" in trouble.where
    assert "ProfileNotFound" in trouble.found


@pytest.mark.slow
async def test_a_metadata_service_that_hangs_is_the_catalogs_trouble_in_time(
    server: Server, opened: Open, issuer: Issuer
) -> None:
    issuer.late = 60.0
    with anyio.fail_after(20):
        trouble = await trouble_of(opened(server, **SIGNED | {"config_timeout": 0.3}))
    assert isinstance(trouble, Transient)
    assert trouble.found == "none within 0.3 s"
