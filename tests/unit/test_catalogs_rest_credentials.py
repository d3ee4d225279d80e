"""Credentials that a REST catalog vends."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import anyio
import hypothesis
import msgspec
import pytest
from aiohttp import web
from hypothesis import strategies as st
from structlog.testing import capture_logs

from sfn.catalogs import CredentialVendor, Loaded, NoSuchTable, VendedCredential
from sfn.catalogs.metadata import UnreadableDocument
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.credentials import extract_credentials, read_credentials, secrets_in
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from tests.support.rest_catalog import (
    CREDENTIALS,
    GONE,
    LOAD,
    ORDERS,
    PATH,
    PRIVATE,
    Open,
    Responder,
    Server,
    Vending,
    complaint,
    listing,
    pass_by,
    reply,
    table,
)

MANY = 16
ITEMS = TableIdentifier("lake", ("sales",), "items")


@pytest.fixture
def vending(server: Server) -> Vending:
    found = Vending()
    server.other = found.respond
    server.config = listing(LOAD, CREDENTIALS)
    return found


async def key_of(catalog: RestCatalog, table: TableIdentifier = ORDERS) -> str:
    return key_in(await catalog.vended_credentials(table))


def key_in(grants: tuple[VendedCredential, ...] | NoSuchTable) -> str:
    assert not isinstance(grants, NoSuchTable)
    (grant,) = grants
    return grant.config["s3.access-key-id"].removeprefix("access-key-id-number-")


async def given(catalog: RestCatalog, table: TableIdentifier = ORDERS) -> tuple[VendedCredential, ...]:
    grants = await catalog.vended_credentials(table)
    assert not isinstance(grants, NoSuchTable)
    return grants


def delegating(server: Server) -> list[str | None]:
    return [request.headers.get("x-iceberg-access-delegation") for request in server.requests]


@pytest.mark.usefixtures("vending")
async def test_an_endpoint_that_is_listed_is_asked(server: Server, opened: Open) -> None:
    catalog = opened(server)
    assert isinstance(catalog, CredentialVendor)
    (grant,) = await given(catalog)
    assert grant.prefix == "s3://lake/orders"
    assert grant.expires_at is not None
    assert server.asked == [f"{PATH}/credentials"]
    assert delegating(server) == [None, None]


async def test_a_load_is_asked_where_the_endpoint_is_not_listed(server: Server, opened: Open, vending: Vending) -> None:
    server.config = listing(LOAD)
    vending.shape = lambda config: {"config": {**config, "token": "x"}}
    (grant,) = await given(opened(server, headers={"X-Iceberg-Access-Delegation": "remote-signing"}))
    assert (grant.prefix, "token" in grant.config) == ("", False)
    assert server.asked == [f"{PATH}?snapshots=refs"]
    assert delegating(server)[1:] == ["vended-credentials"]


@pytest.mark.usefixtures("vending")
async def test_ordinary_loads_and_listings_delegate_nothing(server: Server, opened: Open) -> None:
    server.config = listing(LOAD)
    catalog = opened(server)
    await catalog.vended_credentials(ORDERS)
    assert isinstance(await catalog.load(ORDERS, None), Loaded)
    server.other = reply({"identifiers": [], "namespaces": []})
    assert not await catalog.is_listed(ORDERS)
    assert [one async for one in catalog.tables()] == []
    assert delegating(server).count("vended-credentials") == 1


NO_ENDPOINT: dict[str, Responder] = {
    "400": complaint("BadRequestException", 400, "No route for request"),
    "404 of a web server": reply(b"<UnknownOperationException/>", 404, content_type="application/xml"),
    "404 of another kind": complaint("NotFoundException", 404),
    "405": reply(b"", 405),
    "501": reply(b"", 501),
    "no credentials": reply({"storage-credentials": []}),
    "another answer": reply({}),
}


@pytest.mark.parametrize("case", NO_ENDPOINT)
async def test_a_catalog_without_the_endpoint_is_asked_for_it_once(
    server: Server, opened: Open, vending: Vending, case: str
) -> None:
    server.config = reply({"defaults": {}, "overrides": {}})
    vending.endpoint = NO_ENDPOINT[case]
    catalog = opened(server)
    assert [await key_of(catalog, table) for table in (ORDERS, ITEMS)] == ["1", "2"]
    load = f"{PATH}?snapshots=refs"
    assert server.asked == [f"{PATH}/credentials", load, load.replace("orders", "items")]


async def test_a_missing_table_says_nothing_of_the_endpoint(server: Server, opened: Open, vending: Vending) -> None:
    server.config = reply({"defaults": {}, "overrides": {}})
    vending.endpoint = GONE
    catalog = opened(server)
    assert await catalog.vended_credentials(ORDERS) == NoSuchTable()
    vending.endpoint = None
    assert await key_of(catalog, ITEMS) == "1"
    assert server.asked == [f"{PATH}/credentials", "/v1/namespaces/sales/tables/items/credentials"]


async def test_a_catalog_that_vends_nothing_is_not_asked_each_time(
    server: Server, opened: Open, vending: Vending, monkeypatch: pytest.MonkeyPatch
) -> None:
    vending.endpoint, vending.load = reply({"storage-credentials": []}), reply({"config": {"s3.region": "x"}})
    catalog = opened(server)
    assert [await catalog.vended_credentials(ORDERS) for _ in range(3)] == [()] * 3
    assert len(server.asked) == 2
    pass_by(301, monkeypatch)
    assert await catalog.vended_credentials(ORDERS) == ()
    assert len(server.asked) == 3


@pytest.mark.parametrize("ahead", [-3, 0, 3])
async def test_grants_are_kept_until_a_little_before_their_end_whatever_our_clock_says(
    server: Server, opened: Open, vending: Vending, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vending.ahead = timedelta(hours=ahead)
    catalog = opened(server)
    assert [await key_of(catalog) for _ in range(3)] == ["1"] * 3
    pass_by(3600 - 60 - 5, monkeypatch)
    assert await key_of(catalog) == "1"
    pass_by(3600 - 60 + 5, monkeypatch)
    assert await key_of(catalog) == "2"


async def test_grants_that_do_not_say_when_they_end_are_had_anew_after_a_while(
    server: Server, opened: Open, vending: Vending, monkeypatch: pytest.MonkeyPatch
) -> None:
    vending.lasts = None
    catalog = opened(server)
    assert await key_of(catalog) == "1"
    pass_by(295, monkeypatch)
    assert await key_of(catalog) == "1"
    pass_by(305, monkeypatch)
    assert await key_of(catalog) == "2"


async def test_many_who_need_grants_at_once_share_one_question_for_each_table(
    server: Server, opened: Open, vending: Vending
) -> None:
    vending.late = 0.1
    catalog, found = opened(server), list[str]()

    async def ask(table: TableIdentifier) -> None:
        found.append(await key_of(catalog, table))

    async with anyio.create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(ask, ORDERS)
            group.start_soon(ask, ITEMS)
    assert sorted(found) == ["1"] * MANY + ["2"] * MANY
    assert len(server.asked) == 2


async def test_refused_grants_are_renewed_once_for_all(server: Server, opened: Open, vending: Vending) -> None:
    catalog, found = opened(server), list[str]()
    refused = await given(catalog)
    vending.late = 0.1

    async def renew() -> None:
        found.append(key_in(await catalog.renew_credentials(ORDERS, list(refused))))

    async with anyio.create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(renew)
    await renew()
    assert found == ["2"] * (MANY + 1)
    assert await key_of(catalog) == "2"


@pytest.mark.usefixtures("vending")
async def test_the_least_recently_used_go(server: Server, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.catalogs.rest.credentials.MAX_TABLES", 2)
    catalog = opened(server)
    asked = [ORDERS, ITEMS, ORDERS, TableIdentifier("lake", ("sales",), "more"), ORDERS, ITEMS]
    assert [await key_of(catalog, table) for table in asked] == ["1", "2", "1", "3", "1", "4"]


async def test_a_table_that_is_not_there_is_missing(server: Server, opened: Open, vending: Vending) -> None:
    vending.endpoint = vending.load = GONE
    for endpoints in ([LOAD], [LOAD, CREDENTIALS]):
        server.config = listing(*endpoints)
        catalog = opened(server)
        assert await catalog.vended_credentials(ORDERS) == NoSuchTable()
        assert await catalog.renew_credentials(ORDERS, ()) == NoSuchTable()


async def test_a_table_that_was_dropped_keeps_its_grants_until_they_end(
    server: Server, opened: Open, vending: Vending, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened(server)
    assert await key_of(catalog) == "1"
    vending.endpoint = GONE
    for passed in (0, 3600 - 50, 3600 - 40):
        pass_by(passed, monkeypatch)
        assert await key_of(catalog) == "1"
    pass_by(3601, monkeypatch)
    assert await catalog.vended_credentials(ORDERS) == NoSuchTable()


async def test_a_refused_grant_of_a_dropped_table_is_not_given_again(
    server: Server, opened: Open, vending: Vending
) -> None:
    catalog = opened(server)
    refused = await given(catalog)
    vending.endpoint = GONE
    assert await catalog.renew_credentials(ORDERS, refused) == NoSuchTable()
    assert await catalog.vended_credentials(ORDERS) == NoSuchTable()


async def test_a_table_that_comes_again_has_grants_again(server: Server, opened: Open, vending: Vending) -> None:
    catalog, vending.endpoint = opened(server), GONE
    assert await catalog.vended_credentials(ORDERS) == NoSuchTable()
    vending.endpoint = None
    assert await key_of(catalog) == "1"


THEIRS = "secret-access-key-number-1"


async def trouble_of(catalog: RestCatalog, asked: TableIdentifier = ORDERS) -> ExternalError:
    with pytest.raises(ExternalError) as caught:
        await catalog.vended_credentials(asked)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


TROUBLES: dict[str, tuple[Responder, type[ExternalError], ErrorScope]] = {
    "401": (reply(b"", 401), Permanent, ErrorScope.CATALOG),
    "403": (complaint("ForbiddenException", 403), Transient, ErrorScope.TABLE),
    "409": (reply(b"", 409), Permanent, ErrorScope.TABLE),
    "429": (reply(b"", 429), Transient, ErrorScope.CATALOG),
    "503": (reply(b"", 503), Transient, ErrorScope.TABLE),
    "no JSON": (reply(b"<html>"), Transient, ErrorScope.TABLE),
    "another shape": (reply({"storage-credentials": {"prefix": "x"}}), Transient, ErrorScope.TABLE),
}


@pytest.mark.parametrize("by_load", [False, True])
@pytest.mark.parametrize("case", TROUBLES)
async def test_trouble_is_that_of_a_load(
    server: Server, opened: Open, vending: Vending, case: str, by_load: bool
) -> None:
    answer, kind, scope = TROUBLES[case]
    vending.endpoint, vending.load = (None, answer) if by_load else (answer, None)
    server.config = listing(LOAD, *([] if by_load else [CREDENTIALS]))
    trouble = await trouble_of(opened(server))
    assert (type(trouble), trouble.scope) == (kind, scope)
    assert vending.given == 0


@pytest.mark.parametrize("status", [400, 404, 405, 501])
async def test_an_endpoint_that_is_listed_is_believed_to_be_there(
    server: Server, opened: Open, vending: Vending, status: int
) -> None:
    vending.endpoint = reply(b"", status)
    await trouble_of(opened(server))
    assert vending.given == 0


@pytest.mark.usefixtures("vending")
async def test_a_name_that_cannot_be_said_is_not_asked_for(server: Server, opened: Open) -> None:
    trouble = await trouble_of(opened(server), TableIdentifier("lake", (), "t"))
    assert (type(trouble), trouble.scope) == (Permanent, ErrorScope.TABLE)


async def test_good_grants_are_given_while_the_catalog_has_trouble(
    server: Server, opened: Open, vending: Vending, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened(server)
    kept = await catalog.vended_credentials(ORDERS)
    assert not isinstance(kept, NoSuchTable)
    vending.endpoint = reply(b"", 503)
    pass_by(3600 - 50, monkeypatch)
    assert await catalog.vended_credentials(ORDERS) == kept
    asked = len(server.asked)
    assert await catalog.vended_credentials(ORDERS) == kept
    assert len(server.asked) == asked, "it is not asked each time"
    with pytest.raises(Transient):
        await catalog.renew_credentials(ORDERS, kept)
    pass_by(3601, monkeypatch)
    await trouble_of(catalog)


WITH_SECRETS: dict[str, Responder] = {
    "an error": complaint("ForbiddenException", 403, f"not with {THEIRS} and {PRIVATE}"),
    "another status": reply({"storage-credentials": [{"prefix": "", "config": {"s3.secret-access-key": THEIRS}}]}, 207),
    "a status of an error": reply({"config": {"s3.secret-access-key": THEIRS}}, 500),
    "another shape": reply({"storage-credentials": [{"config": {"s3.secret-access-key": THEIRS}}]}),
    "half of it": reply(f'{{"config": {{"s3.secret-access-key": "{THEIRS}'.encode()),
}


@pytest.mark.parametrize("by_load", [False, True])
@pytest.mark.parametrize("case", WITH_SECRETS)
async def test_no_secret_shows_in_any_message_or_log(
    server: Server, opened: Open, vending: Vending, case: str, by_load: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server.config = listing(LOAD, *([] if by_load else [CREDENTIALS]))
    catalog, errors = opened(server, token=PRIVATE), list[ExternalError]()
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        kept = await catalog.vended_credentials(ORDERS)
        assert not isinstance(kept, NoSuchTable)
        assert kept[0].config["s3.secret-access-key"] == THEIRS
        vending.endpoint = vending.load = WITH_SECRETS[case]
        with pytest.raises(ExternalError) as renewing:
            await catalog.renew_credentials(ORDERS, kept)
        errors.append(renewing.value)
        errors.append(
            await trouble_of(catalog, TableIdentifier("lake", ("sales",), "another"))
            if case != "an error"
            else renewing.value
        )
    shown = [str(logs), caplog.text, repr(kept), repr(catalog), str(vars(catalog))]
    shown += [text for error in errors for text in (str(error), repr(error), *traceback.format_exception(error))]
    for text in shown:
        assert THEIRS not in text
        assert PRIVATE not in text


async def test_a_load_of_a_large_table_gives_its_grants_alone(server: Server, opened: Open, vending: Vending) -> None:
    server.config = listing(LOAD)
    snapshots = [{"snapshot-id": number, "summary": {"x": "y" * 1000}} for number in range(12_000)]
    vending.load = reply({**table(snapshots=snapshots), **vending.shape(vending.keys())})
    grants = await opened(server).vended_credentials(ORDERS)
    assert not isinstance(grants, NoSuchTable)
    assert [grant.prefix for grant in grants] == ["s3://lake/orders"]


@pytest.mark.parametrize("is_listed", [False, True])
async def test_a_table_that_is_gone_by_another_type_of_error_gives_no_grants_once_nothing_lists_it(
    server: Server, opened: Open, is_listed: bool
) -> None:
    names = [{"namespace": ["sales"], "name": "orders"}] if is_listed else []
    gone = complaint("BaseException", 404)

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        return await (reply({"identifiers": names}) if request.path.endswith("/tables") else gone)(request)

    server.other = respond
    server.config = listing(LOAD)
    catalog = opened(server)
    if is_listed:
        assert (await trouble_of(catalog)).scope is ErrorScope.TABLE
    else:
        assert await catalog.vended_credentials(ORDERS) == NoSuchTable()


async def test_grants_are_asked_for_without_a_query_that_the_catalog_refuses(
    server: Server, opened: Open, vending: Vending
) -> None:
    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        refusal = complaint("BadRequestException", 400)
        return await (refusal if "snapshots" in request.query_string else vending.respond)(request)

    server.other = respond
    server.config = listing(LOAD)
    assert await opened(server).vended_credentials(ORDERS)


KEYS = {"s3.access-key-id": "ASIA1", "s3.secret-access-key": "s3cret-of-theirs", "s3.session-token": "t0ken-of-theirs"}
END = {"s3.session-token-expires-at-ms": "1900000000000"}
AT = datetime(2030, 3, 17, 17, 46, 40, tzinfo=UTC)

NAMES = st.sampled_from(
    [
        "storage-credentials",
        "config",
        "prefix",
        "metadata",
        *KEYS,
        *END,
        "adls.sas-token",
        "adls.sas-token.account",
        "adls.sas-token-expires-at-ms.account",
        "gcs.oauth2.token",
        "gcs.oauth2.token-expires-at",
        "expiration-time",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(), inner, max_size=8),
    max_leaves=20,
)
CONFIGS = st.dictionaries(NAMES | st.text(), JSON, max_size=6)
ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "config": CONFIGS | JSON,
        "storage-credentials": st.lists(st.fixed_dictionaries({"prefix": st.text(), "config": CONFIGS}), max_size=3),
    },
)


def read(**body: object) -> tuple[VendedCredential, ...]:
    return read_credentials(msgspec.json.encode({key.replace("_", "-"): value for key, value in body.items()}))


def credential(prefix: str, **more: object) -> dict[str, object]:
    return {"prefix": prefix, "config": {**KEYS, **more}}


@pytest.mark.slow
@hypothesis.given(st.binary() | (ANSWERS | JSON).map(msgspec.json.encode))
def test_no_body_raises_anything_but_unintelligible_and_each_grant_opens_something(body: bytes) -> None:
    try:
        grants = read_credentials(body)
    except UnreadableDocument as error:
        assert str(error)  # noqa: PT017 - it need not be raised
        return
    for grant in grants:
        assert secrets_in((grant,))
        assert all(isinstance(value, str) for value in grant.config.values())
        assert grant.expires_at is None or grant.expires_at.tzinfo is UTC


def test_storage_credentials_come_before_the_configuration() -> None:
    found = read(storage_credentials=[credential("s3a://lake/t/", **END)], config={"gcs.oauth2.token": "x"})
    assert found == (VendedCredential("s3://lake/t", {**KEYS, **END}, AT),)


def test_without_them_the_storage_keys_of_the_configuration_are_for_wherever_the_table_lies() -> None:
    others = {"token": "for the catalog", "scan-planning-mode": "client", "io-impl": "x"}
    ours = {**KEYS, **END, "client.region": "eu-central-1", "s3.path-style-access": True}
    kept = {**KEYS, **END, "client.region": "eu-central-1"}
    assert read(**table(), config={**others, **ours}) == (VendedCredential("", kept, AT),)


@pytest.mark.parametrize("value", [None, [], {}, "s3cret"])
def test_what_opens_nothing_is_no_grant(value: object) -> None:
    # Lakekeeper once sent entries that only say where the store is.
    entry = {"prefix": "s3://lake/t", "config": {"s3.region": "eu-central-1", "s3.access-key-id": ""}}
    assert read(storage_credentials=[entry], config={"client.region": "eu-central-1", "other": value}) == ()
    assert read(storage_credentials=[entry, credential("s3://lake/u")]) == (VendedCredential("s3://lake/u", KEYS),)
    assert read() == ()


@pytest.mark.parametrize(
    ("said", "prefix"),
    [
        ("s3://lake/t", "s3://lake/t"),
        ("s3n://lake/", "s3://lake"),
        ("s3", "s3://"),
        ("gs", "gs://"),
        ("abfs://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
        ("", ""),
    ],
)
def test_a_prefix_has_one_spelling(said: str, prefix: str) -> None:
    (grant,) = read(storage_credentials=[credential(said)])
    assert grant.prefix == prefix


@pytest.mark.parametrize(
    ("config", "end"),
    [
        ({"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "1900000000000"}, AT),
        ({"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": 1_900_000_000_000}, AT),
        ({"adls.sas-token.a.dfs.core.windows.net": "sig=x", "adls.sas-token-expires-at-ms.a": "1900000000000"}, AT),
        ({"adls.sas-token": "sig=x", "adls.sas-token-expires-at-ms": "1900000000000"}, AT),
        ({**KEYS, "expiration-time": "1900000000000"}, AT),
        ({**KEYS, "expiration-time": "1999999999999", **END}, AT),
        (KEYS, None),
        ({**KEYS, "s3.session-token-expires-at-ms": "0"}, None),
        ({**KEYS, "s3.session-token-expires-at-ms": "-1"}, None),
        ({**KEYS, "s3.session-token-expires-at-ms": "soon"}, None),
        ({**KEYS, "s3.session-token-expires-at-ms": "999999999999999"}, None),
        ({**KEYS, "s3.session-token-expires-at-ms": "9" * 5000}, None),
    ],
    ids=str,
)
def test_a_grant_ends_when_the_first_of_its_parts_does(config: dict[str, object], end: datetime | None) -> None:
    (grant,) = read(storage_credentials=[{"prefix": "x://y", "config": config}])
    assert grant.expires_at == end


def test_no_value_shows_in_a_repr_or_an_error() -> None:
    grants = read(storage_credentials=[credential("s3://lake/t")])
    for secret in KEYS.values():
        assert secret not in repr(grants)
        assert secret not in str(grants)
    for body in ({"storage-credentials": [{"prefix": 1, "config": KEYS}]}, {"config": [KEYS]}):
        with pytest.raises(UnreadableDocument) as caught:
            read(**body)
        assert not any(secret in str(caught.value) for secret in KEYS.values())


@pytest.mark.slow
@hypothesis.given(ANSWERS)
async def test_what_is_cut_out_of_a_large_body_says_the_same(answer: dict[str, object]) -> None:
    body = msgspec.json.encode({**table(properties={"config": "{[\"'}"}), **answer})

    async def parts() -> AsyncIterator[bytes]:
        for start in range(10, len(body), 7):
            yield body[start : start + 7]

    cut = await extract_credentials(body[:10], parts())
    assert msgspec.json.decode(cut, type=dict).keys() <= {"config", "storage-credentials"}
    try:
        whole = read_credentials(body)
    except UnreadableDocument:
        with pytest.raises(UnreadableDocument):
            read_credentials(cut)
    else:
        assert read_credentials(cut) == whole
