"""A store on S3 through a proxy that does to it what networks, services and policies do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, ExternalError, Forbidden, OutcomeUnknown, Permanent, Transient, Unauthenticated
from sfn.storage import Deleted, Guarantees, PreconditionFailed
from sfn.storage.remote_store import RemoteStore
from tests.faults.proxy import Answer, Asked, Break, Cut, Fault, Lose, Pass, Proxy
from tests.promises.grounds import s3_store
from tests.servers.s3 import S3


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


async def test_nobody_knows_whether_a_write_without_an_answer_happened(
    store: RemoteStore, proxy: Proxy, key: str
) -> None:
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
