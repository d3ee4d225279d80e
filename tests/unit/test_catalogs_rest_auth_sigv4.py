"""Requests that carry AWS's signatures, verified by a server that makes each anew from what came over the wire."""

from __future__ import annotations

import re
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web

from sfn.catalogs import Loaded
from sfn.catalogs.rest.settings import RestSettings
from sfn.clock import SystemClock
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from tests.support.rest_catalog import ORDERS, PRIVATE, Open, Server, complaint, reply, table
from tests.unit.signatures import KEY_ID, SECRET, Aws, alone, canonical, signature

SIGNED = {"auth": "sigv4", "signing_region": "eu-central-1", "signing_name": "glue"}
ARN = "arn:aws:s3tables:eu-central-1:111122223333:bucket/lake"
TOKEN = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"  # noqa: S105 - of an example
AT = "20150830T123600Z"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of AWS's examples, and nothing of this machine."""
    alone(monkeypatch, tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def aws(server: Server) -> Aws:
    found = Aws()
    server.config = server.other = found.respond
    return found


@pytest.mark.parametrize(
    ("target", "token", "made"),
    [
        ("/", None, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("/", TOKEN, "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"),
        ("/?Param2=value2&Param1=value1", None, "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
        ("/example space/", None, "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"),
        ("/ሴ", None, "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
    ],
)
def test_the_verifying_server_agrees_with_the_examples_that_aws_published(
    target: str, token: str | None, made: str
) -> None:
    headers = {"host": "example.amazonaws.com", "x-amz-date": AT}
    headers |= {"x-amz-security-token": token} if token else {}
    asked = canonical("GET", target, headers, ";".join(headers), b"")
    assert signature(SECRET, "20150830/us-east-1/service/aws4_request", AT, asked) == made


async def test_every_request_is_signed(server: Server, opened: Open, aws: Aws) -> None:
    assert isinstance(await opened(server, **SIGNED, warehouse="s3://b/w h").load(ORDERS, None), Loaded)
    assert [request.path for request in server.requests] == ["/v1/config", "/v1/namespaces/sales/tables/orders"]
    assert aws.codes == []


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        (("sales",), "orders"),
        (("a", "b c"), "t"),
        (("a%2Fb",), "50%"),
        (("ü",), "日本"),
        (("a+b",), "c&d=e?f#g"),
        (("a~b_",), "c:d@e;f"),
        (("a'b",), "(c)*!"),
        (("..",), "."),
    ],
)
async def test_whatever_a_table_is_called_what_is_signed_is_what_is_sent(
    server: Server, opened: Open, aws: Aws, namespace: tuple[str, ...], name: str
) -> None:
    aws.scope = "eu-central-1/s3tables"
    aws.answer = reply({"defaults": {}, "overrides": {"prefix": quote(ARN, safe="")}, **table()})
    catalog = opened(server, **SIGNED | {"signing_name": "s3tables"}, warehouse=ARN)
    assert isinstance(await catalog.load(TableIdentifier("lake", namespace, name), None), Loaded)
    assert server.asked[0].startswith("/v1/arn%3Aaws%3As3tables%3Aeu-central-1%3A111122223333%3Abucket%2Flake/")


async def test_listings_are_signed_page_after_page(server: Server, opened: Open, aws: Aws) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/v1/config":
            return await reply({"overrides": {"prefix": "catalogs/111122223333"}})(request)
        first = request.query["pageToken"] == ""
        page = {"identifiers": [{"namespace": ["sales"], "name": "orders"}]} if not first else {"identifiers": []}
        # Amazon S3 Tables spells it like this.
        return await reply({**page, "nextPageToken": "a/b+c= &" if first else None})(request)

    aws.answer = answer
    assert await opened(server, **SIGNED).is_listed(ORDERS)
    assert server.asked == [
        f"/v1/catalogs/111122223333/namespaces/sales/tables?pageToken={token}" for token in ("", "a%2Fb%2Bc%3D%20%26")
    ]


async def test_nothing_is_signed_that_a_proxy_changes(
    server: Server, opened: Open, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    aws.keys = {KEY_ID: (SECRET, TOKEN)}
    await opened(server, **SIGNED, headers={"x-forwarded-for": "here", "X-Amz-Date": "never"}).load(ORDERS, "tag")
    assert aws.codes == []
    assert aws.signed == {"host", "x-amz-date", "x-amz-security-token"}


@pytest.mark.parametrize("wrong", [{"signing_region": "us-east-1"}, {"signing_name": "s3tables"}])
async def test_a_signature_for_something_else_is_the_catalogs_trouble_and_shows_no_secret(
    server: Server, opened: Open, aws: Aws, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str]
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    aws.keys = {KEY_ID: (SECRET, TOKEN)}
    with pytest.raises(Permanent) as caught:
        await opened(server, **SIGNED | wrong).load(ORDERS, None)
    error = caught.value
    assert error.scope is ErrorScope.CATALOG
    assert "status 403 InvalidSignatureException" in error.found
    assert "x-amz-security-token:***" in error.found
    assert "signing_region" in error.remedy
    assert TOKEN not in str(error)
    assert aws.codes == ["InvalidSignatureException"], "no other keys are looked for"


@pytest.mark.parametrize(
    ("minutes", "said"), [(-7, "7 min( 1 s)? ahead of AWS's"), (9, "(9 min|8 min 59 s) behind AWS's")]
)
async def test_clock_that_is_wrong_is_told_of(server: Server, opened: Open, aws: Aws, minutes: int, said: str) -> None:
    async def respond(_: web.BaseRequest) -> web.StreamResponse:
        response = await aws.refused("InvalidSignatureException", "Signature expired")
        response.headers["Date"] = format_datetime(SystemClock().now() + timedelta(minutes=minutes), usegmt=True)
        return response

    server.config = respond
    with pytest.raises(Permanent) as caught:
        await opened(server, **SIGNED).load(ORDERS, None)
    assert re.fullmatch(f"set this host's clock: it is {said}", caught.value.remedy)


@pytest.mark.parametrize(("status", "in_shape"), [(400, False), (400, True)])
async def test_being_throttled_is_no_fault_of_the_request(
    server: Server, opened: Open, aws: Aws, status: int, in_shape: bool
) -> None:
    catalog = opened(server, **SIGNED)
    await catalog.load(ORDERS, None)
    headers = {"x-amzn-ErrorType": "ThrottlingException"}
    aws.answer = complaint("ThrottlingException", status) if in_shape else reply(b"", status, **headers)
    with pytest.raises(Transient) as caught:
        await catalog.load(ORDERS, None)
    assert caught.value.scope is ErrorScope.CATALOG


async def test_a_refusal_that_is_not_of_the_keys_is_as_everywhere(server: Server, opened: Open, aws: Aws) -> None:
    server.other = complaint("AccessDeniedException", 403, "not authorized to perform: glue:GetTable")
    with pytest.raises(Transient) as caught:
        await opened(server, **SIGNED).load(ORDERS, None)
    assert caught.value.scope is ErrorScope.TABLE
    assert (len(server.asked), server.configured, aws.codes) == (1, 2, [])


@pytest.mark.parametrize(
    ("uri", "signing"),
    [
        ("https://glue.eu-central-1.amazonaws.com/iceberg", ("eu-central-1", "glue")),
        ("https://GLUE.us-gov-west-1.amazonaws.com/iceberg", ("us-gov-west-1", "glue")),
        ("https://glue-fips.us-east-1.amazonaws.com/iceberg", ("us-east-1", "glue")),
        ("https://glue.cn-north-1.amazonaws.com.cn/iceberg", ("cn-north-1", "glue")),
        ("https://glue.eu-west-1.api.aws/iceberg", ("eu-west-1", "glue")),
        ("https://vpce-1-2.glue.eu-west-1.vpce.amazonaws.com/iceberg", ("eu-west-1", "glue")),
        ("https://s3tables.us-east-2.amazonaws.com/iceberg", ("us-east-2", "s3tables")),
        ("https://abc123.execute-api.us-east-2.amazonaws.com/prod", ("us-east-2", "execute-api")),
    ],
)
def test_the_host_tells_what_is_signed_for(uri: str, signing: tuple[str, str]) -> None:
    assert RestSettings(name="lake", uri=uri, auth="sigv4").signing == signing
    told = RestSettings(name="lake", uri=uri, auth="sigv4", signing_region="r", signing_name="n")
    assert told.signing == ("r", "n")


@pytest.mark.parametrize("host", ["catalog.example", "glue.amazonaws.com", "glue.eu-west-1.amazonaws.com.evil.example"])
def test_what_is_signed_for_must_be_told_where_the_host_does_not(host: str) -> None:
    with pytest.raises(ValueError, match=r"catalogs\.lake\.signing_region: needed"):
        RestSettings(name="lake", uri=f"https://{host}", auth="sigv4")
    with pytest.raises(ValueError, match=r"catalogs\.lake\.signing_name: needed"):
        RestSettings(name="lake", uri=f"https://{host}", auth="sigv4", signing_region="eu-west-1")


def test_a_token_and_signatures_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="token and auth exclude each other") as caught:
        RestSettings(name="lake", uri="https://glue.eu-west-1.amazonaws.com", auth="sigv4", token=PRIVATE)
    assert PRIVATE not in str(caught.value)


async def test_no_error_has_a_cause_that_shows_more(server: Server, opened: Open, aws: Aws) -> None:
    aws.keys = {}
    with pytest.raises(ExternalError) as caught:
        await opened(server, **SIGNED).load(ORDERS, None)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
