"""A store on S3: through a proxy that does what networks and services do, and with the least permissions."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from sfn.aws_auth import AwsIdentity, AwsKeys
from sfn.cli.check_config import Severity
from sfn.cli.check_config import store_finding as checked
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, ExternalError, Forbidden, OutcomeUnknown, Permanent, Transient, Unauthenticated
from sfn.storage import Deleted, Guarantees, PreconditionFailed, PrefixRouter
from sfn.storage.remote_store import RemoteStore
from tests.faults.proxy import Answer, Asked, Break, Cut, Fault, Instead, Lose, Pass, Proxy
from tests.integration.test_publish_requests import NAME, Line
from tests.promises.stores import s3_store
from tests.servers.object_stores import S3
from tests.servers.object_stores import Keys as User


@pytest.fixture
def proxy(s3: S3) -> Iterator[Proxy]:
    with Proxy(s3.url) as proxy:
        yield proxy


@pytest.fixture
def bucket(s3: S3) -> str:
    return s3.bucket()


@pytest.fixture
def key(bucket: str) -> str:
    return f"s3://{bucket}/orders/metadata/_sfn/sales_orders_main.ver"


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[RemoteStore]:
    async with s3_store(proxy.url) as store:
        yield store


def error(status: int, code: str, **headers: str) -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code></Error>".encode(), headers)


async def written(store: RemoteStore, key: str, body: bytes, replacing: StoredObject | None = None) -> StoredObject:
    held = await store.write(key, body, replacing)
    assert isinstance(held, StoredObject)
    return held


async def test_each_verb_is_one_request(store: RemoteStore, proxy: Proxy, key: str) -> None:
    held = await written(store, key, b"1")
    held = await written(store, key, b"2", held)
    assert await store.read(key) == held
    assert await store.list(key.rpartition("/")[0] + "/", 10) == [key]
    assert await store.delete(key, held) == Deleted()
    assert proxy.asked == ["PUT", "PUT", "GET", "GET", "DELETE"]


async def test_no_cache_keeps_a_file_of_ours(store: RemoteStore, s3: S3, bucket: str, key: str) -> None:
    await written(store, key, b"{}")
    await written(store, f"s3://{bucket}/orders/metadata/version-hint.text", b"3")
    paths = ("orders/metadata/_sfn/sales_orders_main.ver", "orders/metadata/version-hint.text")
    found = [s3.client.head_object(Bucket=bucket, Key=path) for path in paths]
    assert [one["CacheControl"] for one in found] == ["no-store", "no-store"]
    assert [one["ContentType"] for one in found] == ["application/json", "text/plain; charset=utf-8"]


@pytest.fixture
async def unsigned(s3: S3, proxy: Proxy, bucket: str) -> AsyncIterator[RemoteStore]:
    """A store that asks without a signature, which would else show that a condition was taken away."""
    everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:*"}
    places = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    policy = json.dumps({"Version": "2012-10-17", "Statement": [everybody | {"Resource": places}]})
    s3.client.put_bucket_policy(Bucket=bucket, Policy=policy)
    async with s3_store(proxy.url, None) as store:
        yield store


async def test_a_condition_that_is_taken_away_breaks_the_signature(store: RemoteStore, proxy: Proxy, key: str) -> None:
    proxy.rule = lambda _: Pass(frozenset({"if-none-match"}))
    with pytest.raises(Transient) as refused:
        await store.write(key, b"1", None)
    assert "SignatureDoesNotMatch" in refused.value.found


@pytest.mark.parametrize("header", ["if-none-match", "if-match"])
async def test_a_service_that_does_not_see_the_condition_is_refused(
    unsigned: RemoteStore, proxy: Proxy, key: str, header: str
) -> None:
    store = unsigned
    held = await written(store, key, b"1")
    proxy.rule = lambda asked: Pass(frozenset({header}) if asked.method == "PUT" else frozenset())
    with pytest.raises(Permanent) as refused:
        await store.probe(key)
    assert refused.value.scope is ErrorScope.STORE
    assert "unsafe_unconditional_writes" in refused.value.remedy
    assert "older pointer over a newer one" in refused.value.remedy
    proxy.rule = lambda _: Pass()
    assert await store.read(key) == held


async def test_a_service_that_deletes_regardless_is_named_and_its_file_put_back(
    unsigned: RemoteStore, proxy: Proxy, key: str
) -> None:
    store = unsigned
    held = await written(store, key, b"1")
    proxy.rule = lambda asked: Pass(frozenset({"if-match"}) if asked.method == "DELETE" else frozenset())
    assert await store.probe(key) == Guarantees(swap=True, conditional_delete=False)
    assert await store.read(key) == held


async def test_many_who_want_a_proof_share_one(store: RemoteStore, proxy: Proxy, key: str) -> None:
    await written(store, key, b"1")
    proxy.asked.clear()
    async with anyio.create_task_group() as tasks:
        for _ in range(16):
            tasks.start_soon(store.probe, key)
    counted = Counter(proxy.asked)
    assert counted == {"PUT": 6, "GET": 7, "DELETE": 2}
    # The page on stores says so.
    page = (Path(__file__).parents[2] / "docs" / "stores" / "README.md").read_text()
    assert "The proof takes 6 writes, 7 reads and 2 deletes." in page


async def test_a_write_whose_answer_was_lost_is_known_again(store: RemoteStore, proxy: Proxy, key: str) -> None:
    """The connection is one that was used before: then the request is sent once more on the way."""
    held = await written(store, key, b"1")
    lost: list[Asked] = []

    def lose_one(asked: Asked) -> Fault:
        if asked.method == "PUT" and not lost:
            lost.append(asked)
            return Lose()
        return Pass()

    proxy.rule = lose_one
    newer = await store.write(key, b"2", held)
    assert isinstance(newer, StoredObject)
    assert len(lost) == 1
    assert proxy.asked == ["PUT", "PUT", "PUT", "GET"]
    assert await store.read(key) == newer


async def test_the_same_content_by_another_writer_is_not_ours(store: RemoteStore, s3: S3, key: str) -> None:
    held = await written(store, key, b"1")
    async with s3_store(s3.url) as other:
        await written(other, key, b"2", held)
    assert await store.write(key, b"2", held) == PreconditionFailed()


async def test_write_without_an_answer_is_uncertain(store: RemoteStore, proxy: Proxy, key: str) -> None:
    held = await written(store, key, b"1")
    proxy.rule = lambda asked: Lose() if asked.method != "GET" else Pass()
    for change in (lambda: store.write(key, b"2", held), lambda: store.delete(key, held)):
        with pytest.raises(OutcomeUnknown) as unsure:
            await change()
        assert unsure.value.scope is ErrorScope.STORE


async def test_an_answer_that_breaks_off_is_none(store: RemoteStore, proxy: Proxy, key: str) -> None:
    await written(store, key, b"a body of some length")
    proxy.rule = lambda _: Cut()
    with pytest.raises(Transient) as cut:
        await store.read(key)
    assert cut.value.scope is ErrorScope.STORE
    proxy.rule = lambda _: Break()
    with pytest.raises(Transient):
        await store.list(f"{key}/", 10)


@pytest.mark.parametrize(
    ("fault", "kind", "scope", "told"),
    [
        (error(503, "SlowDown", **{"Retry-After": "7"}), Transient, ErrorScope.STORE, "SlowDown"),
        (error(500, "InternalError"), OutcomeUnknown, ErrorScope.STORE, "InternalError"),
        (error(503, "ServiceUnavailable"), OutcomeUnknown, ErrorScope.STORE, "ServiceUnavailable"),
        (Answer(502, b"<html>"), OutcomeUnknown, ErrorScope.STORE, "502"),
        (error(400, "ExpiredToken"), Unauthenticated, ErrorScope.STORE, "ExpiredToken"),
        (error(403, "InvalidAccessKeyId"), Unauthenticated, ErrorScope.STORE, "InvalidAccessKeyId"),
        (error(403, "RequestTimeTooSkewed"), Unauthenticated, ErrorScope.STORE, "clock"),
        (error(404, "NoSuchBucket"), Permanent, ErrorScope.STORE, "NoSuchBucket"),
        (Answer(404, b"nothing here"), Permanent, ErrorScope.STORE, "without an error of S3"),
        (error(301, "PermanentRedirect"), Permanent, ErrorScope.STORE, "region"),
        (error(501, "NotImplemented"), Permanent, ErrorScope.STORE, "another store"),
        (error(400, "KeyTooLongError"), Permanent, ErrorScope.TABLE, "KeyTooLongError"),
        (error(403, "AccessDenied"), Forbidden, ErrorScope.STORE, "permission to write"),
    ],
)
async def test_what_a_service_says_of_a_write(
    store: RemoteStore, proxy: Proxy, key: str, fault: Answer, kind: type[ExternalError], scope: ErrorScope, told: str
) -> None:
    proxy.rule = lambda _: fault
    with pytest.raises(kind) as trouble:
        await store.write(key, b"1", None)
    assert (type(trouble.value), trouble.value.scope) == (kind, scope)
    assert told in str(trouble.value)
    assert trouble.value.retry_after == (7.0 if "Retry-After" in fault.headers else None)


async def test_a_conflict_of_two_conditional_writes_is_a_lost_race(store: RemoteStore, proxy: Proxy, key: str) -> None:
    held = await written(store, key, b"1")
    proxy.rule = lambda asked: error(409, "ConditionalRequestConflict") if asked.method == "PUT" else Pass()
    assert await store.write(key, b"2", held) == PreconditionFailed()


async def test_a_bucket_of_another_region_is_found(store: RemoteStore, proxy: Proxy, key: str) -> None:
    """The server is of us-east-1 and refuses other signatures: only what is signed anew for it passes."""
    held = await written(store, key, b"1")
    async with s3_store(proxy.url, region="eu-central-1") as abroad:
        proxy.rule = told_of_its_region
        assert await abroad.read(key) == held
        proxy.asked.clear()
        assert await abroad.read(key) == held
    assert proxy.asked == ["GET"]


def told_of_its_region(asked: Asked) -> Fault:
    if "eu-central-1" in asked.headers["authorization"]:
        return error(400, "AuthorizationHeaderMalformed", **{"x-amz-bucket-region": "us-east-1"})
    return Pass()


# Least privileges.


PAGE = Path(__file__).parents[2] / "docs" / "stores" / "s3.md"
LAKE = "lake/warehouse"


def policy() -> dict[str, Any]:
    """The page's policy for S3."""
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)]
    (found,) = [block for block in blocks if "Statement" in block]
    return dict(found)


def granted(s3: S3, bucket: str, text: str) -> User:
    """A user who may do what a policy says, of another bucket than the page's."""
    user = s3.user(bucket)
    document = json.loads(text.replace("arn:aws:s3:::lake", f"arn:aws:s3:::{bucket}"))
    for statement in document["Statement"]:
        statement["Principal"] = {"AWS": [user.access]}
    s3.client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(document))
    return user


@asynccontextmanager
async def line(s3: S3, bucket: str, text: str) -> AsyncIterator[Line]:
    """A table below the warehouse, and the store as that user."""
    user = granted(s3, bucket, text)
    async with s3_store(s3.url, AwsIdentity(keys=AwsKeys(user.access, user.secret))) as store:
        made = Line(PrefixRouter({f"s3://{bucket}/warehouse": store}), f"s3://{bucket}/warehouse/orders", [])
        made.catalog.create(NAME, made.at)
        # As its writer has it.
        s3.client.put_object(Bucket=bucket, Key="warehouse/orders/metadata/00000-x.metadata.json", Body=b"{}")
        yield made


async def test_the_least_is_enough(s3: S3) -> None:
    bucket = s3.bucket()
    async with line(s3, bucket, json.dumps(policy())) as table:
        await table.told()
        table.catalog.commit(NAME)
        await table.told()
        await table.looked(hours=9)
        store = table.stores.store_for(table.at)
        finding = await checked("lake", f"s3://{bucket}/warehouse", store, [table.at])
        assert finding.severity is Severity.OK, finding
        assert "deleted with conditional requests" in finding.text
        table.catalog.drop(NAME)
        await table.told(drop=True)
        await table.looked(hours=1)


@pytest.mark.parametrize("missing", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"])
async def test_what_is_missing_is_found(s3: S3, missing: str) -> None:
    bucket, least = s3.bucket(), policy()
    for statement in least["Statement"]:
        wanted = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        statement["Action"] = [action for action in wanted if action != missing]
    least["Statement"] = [statement for statement in least["Statement"] if statement["Action"]]
    async with line(s3, bucket, json.dumps(least)) as table:
        finding = await checked("lake", f"s3://{bucket}/warehouse", table.stores.store_for(table.at), [table.at])
        assert finding.severity is Severity.ERROR
        verb = {"Get": "read", "Put": "write", "Del": "delete", "Lis": "list"}[missing[3:6]]
        assert f"permission to {verb}" in finding.text


# Narrow policies and versioned buckets.


READS, WRITES, DELETES, LISTS = "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"
DENIED = Answer(403, b"<Error><Code>AccessDenied</Code></Error>")
FOLDER = "orders/metadata/_sfn/"


@pytest.fixture
async def owner(s3: S3) -> AsyncIterator[RemoteStore]:
    """Who may do everything."""
    async with s3_store(s3.url) as store:
        yield store


@pytest.fixture
def aws(s3: S3) -> Iterator[str]:
    """The URL of a service that says 403 for what is not there, as AWS does to whoever may not list the bucket."""
    with Proxy(s3.url, lambda _: Instead(404, DENIED)) as proxy:
        yield proxy.url


def as_user(s3: S3, bucket: str, *may: str, url: str | None = None) -> AbstractAsyncContextManager[RemoteStore]:
    """A store as a new user."""
    on_bucket, on_objects = ([one for one in may if (one == LISTS) is of_bucket] for of_bucket in (True, False))
    keys = s3.user(bucket, on_bucket=on_bucket, on_objects=on_objects)
    return s3_store(url or s3.url, AwsIdentity(keys=AwsKeys(keys.access, keys.secret)))


@pytest.mark.parametrize("may", [(READS, WRITES), (READS, WRITES, LISTS)], ids=["nothing listed", "listed"])
async def test_what_may_not_be_read_is_missing_until_it_is_made(
    s3: S3, aws: str, bucket: str, key: str, may: tuple[str, ...]
) -> None:
    async with as_user(s3, bucket, *may, url=aws) as store:
        assert await store.read(key) is None
        held = await written(store, key, b"1")
        assert await store.read(key) == held


async def test_what_is_there_and_may_not_be_read_is_no_missing_file(
    s3: S3, owner: RemoteStore, bucket: str, key: str
) -> None:
    await written(owner, key, b"1")
    async with as_user(s3, bucket, WRITES, LISTS) as store:
        with pytest.raises(Transient) as denied:
            await store.read(key)
        assert denied.value.scope is ErrorScope.STORE
        assert denied.value.expected == "permission to read here"


async def test_where_nothing_may_be_listed_a_creation_tells_the_difference(
    s3: S3, owner: RemoteStore, bucket: str, key: str
) -> None:
    held = await written(owner, key, b"1")
    async with as_user(s3, bucket, WRITES) as store:
        assert await store.read(key) is None
        with pytest.raises(Transient) as denied:
            await store.write(key, b"2", None)
        assert denied.value.expected == "permission to read here"
        assert "an object that exists and may not be read" in denied.value.found
    assert await owner.read(key) == held


async def test_who_may_read_and_not_write_is_told_so(s3: S3, owner: RemoteStore, bucket: str, key: str) -> None:
    held = await written(owner, key, b"1")
    async with as_user(s3, bucket, READS, LISTS) as store:
        assert await store.read(key) == held
        for change in (store.write(key, b"2", held), store.delete(key, held)):
            with pytest.raises(Transient) as denied:
                await change
            assert denied.value.scope is ErrorScope.STORE
            assert denied.value.remedy == "grant it to the service's principal"
    assert await owner.read(key) == held


def permit(s3: S3, bucket: str, user: str, prefix: str, *may: str) -> None:
    """Have a user do so much below a prefix, and list the bucket."""
    statement = {"Effect": "Allow", "Principal": {"AWS": [user]}}
    listing = statement | {"Action": [LISTS], "Resource": f"arn:aws:s3:::{bucket}"}
    files = statement | {"Action": list(may), "Resource": f"arn:aws:s3:::{bucket}/{prefix}*"}
    s3.client.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": [listing, files]}))


async def test_a_denied_prefix_is_its_tables_trouble_and_a_denied_bucket_the_stores(s3: S3, bucket: str) -> None:
    """The store tries a file of its own where it wrote before: what lies there stays."""
    keys = s3.user(bucket)
    all_of_them = (READS, WRITES, DELETES)
    permit(s3, bucket, keys.access, "open/", *all_of_them)
    served, refused = (f"s3://{bucket}/{place}/metadata/_sfn/a.ver" for place in ("open", "closed"))
    async with s3_store(s3.url, AwsIdentity(keys=AwsKeys(keys.access, keys.secret))) as store:
        held = await written(store, served, b"1")
        await store.probe(served)
        with pytest.raises(Forbidden) as denied:
            await store.write(refused, b"1", None)
        assert denied.value.scope is ErrorScope.TABLE
        permit(s3, bucket, keys.access, "open/", READS)
        for key in (refused, served):
            with pytest.raises(Forbidden) as denied:
                await store.write(key, b"2", None if key == refused else held)
            assert denied.value.scope is ErrorScope.STORE
        permit(s3, bucket, keys.access, "", *all_of_them)
        assert await store.read(served) == held
        await written(store, refused, b"1")


async def test_a_bucket_that_keeps_versions_keeps_every_promise_too(s3: S3) -> None:
    """But that nothing is deleted there: this server compares with the version below a delete marker, unlike AWS."""
    bucket = s3.bucket(versioned=True)
    key = f"s3://{bucket}/{FOLDER}sales_orders_main.ver"
    async with s3_store(s3.url) as store:
        first = await written(store, key, b"1")
        second = await written(store, key, b"2", first)
        assert await store.write(key, b"3", first) == PreconditionFailed()
        assert await store.delete(key, first) == PreconditionFailed()
        guarantees = await store.probe(key)
        assert (guarantees.swap, guarantees.conditional_delete) == (True, False)
        assert await store.read(key) == second
        assert await store.list(f"s3://{bucket}/{FOLDER}", 10) == [key]
        assert await store.delete(key, second) == Deleted()
        assert await store.read(key) is None
        assert await store.list(f"s3://{bucket}/{FOLDER}", 10) == []


async def test_a_bucket_that_is_missing_is_the_stores_trouble(owner: RemoteStore) -> None:
    key = f"s3://no-such-bucket/{FOLDER}sales_orders_main.ver"
    for ask in (owner.read(key), owner.write(key, b"1", None), owner.list(f"s3://no-such-bucket/{FOLDER}", 10)):
        with pytest.raises(Permanent) as missing:
            await ask
        assert missing.value.scope is ErrorScope.STORE
        assert "NoSuchBucket" in missing.value.found


async def test_keys_that_are_unknown_are_the_stores_trouble(s3: S3, key: str) -> None:
    for keys in (AwsKeys("nobody", "secret"), AwsKeys("testkey", "wrong")):
        async with s3_store(s3.url, AwsIdentity(keys=keys)) as store:
            with pytest.raises(Transient) as unknown:
                await store.read(key)
            assert unknown.value.scope is ErrorScope.STORE
            assert "renew" in unknown.value.remedy
            assert "secret" not in str(unknown.value)


async def test_a_server_that_is_gone_is_the_stores_trouble() -> None:
    with S3() as s3:
        key = f"s3://{s3.bucket()}/{FOLDER}sales_orders_main.ver"
        async with s3_store(s3.url) as store:
            held = await written(store, key, b"1")
            await anyio.to_thread.run_sync(s3.stop)
            with pytest.raises(Transient) as gone:
                await store.write(key, b"2", held)
            assert gone.value.scope is ErrorScope.STORE
            await anyio.to_thread.run_sync(s3.start)
            assert await store.read(key) == held
