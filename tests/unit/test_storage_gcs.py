"""The Google Cloud Storage store: errors, requests and rate limits."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from email import message_from_bytes
from email.message import Message
from urllib.parse import unquote

import anyio
import pytest
from aiohttp import web

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Transient
from sfn.google_auth import GoogleIdentity
from sfn.storage import Deleted, ErrorKind, FetchedObject, Guarantees, ObjectPage, PreconditionFailed
from sfn.storage.gcs import IMPOSSIBLE_GENERATION, RETRY_PAUSES, GcsClient, GcsOptions
from sfn.storage.remote_store import HttpReply, RemoteStore, StoreService
from tests.support.object_store import PRIVATE, SIGN_IN_PAGE, Asked, Responder, ScriptedPool, refusal, reply, running
from tests.unit.gcs_server import KEY, TAG, GcsServer, asking, complaint, found, xml_complaint

WRITES: dict[tuple[int, str], tuple[ErrorKind, str]] = {
    (412, "conditionNotMet"): (ErrorKind.PRECONDITION_FAILED, ""),
    (409, "conflict"): (ErrorKind.PRECONDITION_FAILED, ""),
    (401, "authError"): (ErrorKind.UNAUTHENTICATED, ""),
    (401, "required"): (ErrorKind.UNAUTHENTICATED, ""),
    (401, "AuthenticationRequiredRequesterPays"): (ErrorKind.UNAUTHENTICATED, "billing_project"),
    (403, "forbidden"): (ErrorKind.DENIED, ""),
    (403, "insufficientPermissions"): (ErrorKind.DENIED, ""),
    (403, "accountDisabled"): (ErrorKind.UNAUTHENTICATED, "billing account"),
    (403, "usageLimits.accessNotConfigured"): (ErrorKind.UNAUTHENTICATED, "enable"),
    (400, "userProjectMissing"): (ErrorKind.UNAUTHENTICATED, "billing_project"),
    (400, "userProjectInvalid"): (ErrorKind.UNAUTHENTICATED, "billing_project"),
    (403, "UserProjectAccessDenied"): (ErrorKind.UNAUTHENTICATED, "billing_project"),
    (403, "UserProjectAccountProblem"): (ErrorKind.UNAUTHENTICATED, "billing account"),
    (403, "objectUnderActiveHold"): (ErrorKind.DENIED, "hold"),
    (403, "retentionPolicyNotMet"): (ErrorKind.DENIED, "retention"),
    (412, "orgPolicyConstraintFailed"): (ErrorKind.DENIED, "organisation"),
    (400, "cloudKmsDisabledKey"): (ErrorKind.DENIED, "KMS"),
    (403, "rateLimitExceeded"): (ErrorKind.THROTTLED, ""),
    (403, "userRateLimitExceeded"): (ErrorKind.THROTTLED, ""),
    (429, "userRateLimitExceeded"): (ErrorKind.THROTTLED, ""),
    (429, "quotaExceeded"): (ErrorKind.THROTTLED, ""),
    (400, "invalidArgument"): (ErrorKind.REJECTED, ""),
    (400, "required"): (ErrorKind.REJECTED, ""),
    (413, "uploadTooLarge"): (ErrorKind.INVALID_OBJECT, ""),
    (408, "uploadBrokenConnection"): (ErrorKind.NO_ANSWER, ""),
    (500, "internalError"): (ErrorKind.NO_ANSWER, ""),
    (503, "backendError"): (ErrorKind.NO_ANSWER, ""),
    (504, "gatewayTimeout"): (ErrorKind.NO_ANSWER, ""),
    (501, "notImplemented"): (ErrorKind.UNSUPPORTED, ""),
    (403, "neverHeardOf"): (ErrorKind.DENIED, ""),
    (418, "neverHeardOf"): (ErrorKind.REJECTED, ""),
}
READS: dict[tuple[int, str], tuple[ErrorKind, str]] = {
    (404, "NoSuchKey"): (ErrorKind.MISSING, ""),
    (404, "NoSuchBucket"): (ErrorKind.NO_BUCKET, ""),
    (400, "InvalidBucketName"): (ErrorKind.NO_BUCKET, ""),
    (403, "AccessDenied"): (ErrorKind.DENIED, ""),
    (401, "AuthenticationRequired"): (ErrorKind.UNAUTHENTICATED, ""),
    (400, "ExpiredToken"): (ErrorKind.UNAUTHENTICATED, ""),
    (400, "UserProjectMissing"): (ErrorKind.UNAUTHENTICATED, "billing_project"),
    (403, "UserProjectAccountProblem"): (ErrorKind.UNAUTHENTICATED, "billing account"),
    (403, "AccountProblem"): (ErrorKind.UNAUTHENTICATED, "billing account"),
    (429, "TooManyRequests"): (ErrorKind.THROTTLED, ""),
    (503, "SlowDown"): (ErrorKind.THROTTLED, ""),
    (500, "InternalError"): (ErrorKind.NO_ANSWER, ""),
    (503, "ServiceUnavailable"): (ErrorKind.NO_ANSWER, ""),
    (400, "InvalidURI"): (ErrorKind.INVALID_OBJECT, ""),
}
ODD: dict[str, tuple[Responder, ErrorKind]] = {
    "a page": (reply(SIGN_IN_PAGE, 403), ErrorKind.DENIED),
    "a proxy's trouble": (reply(SIGN_IN_PAGE, 502), ErrorKind.NO_ANSWER),
    "a redirect": (reply(b"", 302, location="https://login.example/?once=1"), ErrorKind.NO_BUCKET),
    "nothing": (reply(b"", 400), ErrorKind.REJECTED),
    "an error of OAuth's shape": (reply({"error": "invalid_request"}, 401), ErrorKind.UNAUTHENTICATED),
    "an error without reasons": (reply({"error": {"code": 403, "status": "PERMISSION_DENIED"}}, 403), ErrorKind.DENIED),
    "an error with no reason at all": (reply({"error": {"errors": []}}, 403), ErrorKind.DENIED),
    "a reason that is none": (reply({"error": {"errors": [{"reason": "for\na log"}]}}, 403), ErrorKind.DENIED),
    "JSON nested too deeply": (reply(b'{"x":' + b"[" * 100_000, 403), ErrorKind.DENIED),
    "no UTF-8": (reply(b'{"error": {"errors": [{"reason": "\xff"}]}}', 403), ErrorKind.DENIED),
    "XML of an encoding that nobody reads": (
        reply(b'<?xml version="1.0" encoding="utf-32"?><a/>', 403),
        ErrorKind.DENIED,
    ),
    "XML of an encoding that nobody knows": (reply(b'<?xml version="1.0" encoding="x-y"?><a/>', 403), ErrorKind.DENIED),
    "gzip that is none": (reply(b"hello", 403, content_encoding="gzip"), ErrorKind.DENIED),
}


@pytest.fixture
async def server() -> AsyncIterator[GcsServer]:
    async with running(GcsServer()) as server:
        yield server


@pytest.fixture
async def objects(server: GcsServer) -> AsyncIterator[GcsClient]:
    async with asking(server) as objects:
        yield objects


@pytest.mark.parametrize(("status", "reason"), WRITES)
async def test_a_change_is_refused(server: GcsServer, objects: GcsClient, status: int, reason: str) -> None:
    kind, remedy = WRITES[status, reason]
    server.answer = complaint(status, reason)
    for refused in (await refusal(objects.put(KEY, b"", TAG, "0a-1")), await refusal(objects.delete(KEY, TAG))):
        assert refused.kind is kind
        assert f"status {status}, " in refused.found
        assert reason.rpartition(".")[2][1:] in refused.found
        assert "told so" not in refused.found
        assert remedy in refused.remedy
        assert bool(remedy) is bool(refused.remedy)
    assert len(server.requests) == 2


@pytest.mark.parametrize(("status", "code"), READS)
@pytest.mark.parametrize("compressed", [False, True])
async def test_read_is_refused(server: GcsServer, objects: GcsClient, status: int, code: str, compressed: bool) -> None:
    kind, remedy = READS[status, code]
    plain = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code></Error>".encode()
    server.answer = reply(gzip.compress(plain), status, content_encoding="gzip") if compressed else reply(plain, status)
    for refused in (await refusal(objects.get(KEY, 10)), await refusal(objects.get_range(KEY, 0, 10))):
        assert refused.kind is kind
        assert code[1:] in refused.found
        assert remedy in refused.remedy
    assert len(server.requests) == 2


@pytest.mark.parametrize("case", ODD)
async def test_what_is_no_error_of_the_service_counts_by_its_status(
    server: GcsServer, objects: GcsClient, case: str
) -> None:
    server.answer, kind = ODD[case]
    for verb in (objects.get(KEY, 10), objects.put(KEY, b"", TAG, "0a-1"), objects.list_page(KEY, 10, None)):
        refused = await refusal(verb)
        assert refused.kind is kind
        assert refused.found.endswith("without an error of Cloud Storage")
    assert len(server.requests) == 3


async def test_the_service_says_how_long_to_wait(server: GcsServer, objects: GcsClient) -> None:
    server.answer = complaint(503, "backendError", retry_after="7")
    assert (await refusal(objects.get(KEY, 10))).retry_after == 7.0
    server.answer = complaint(503, "backendError", retry_after="Sat, 21 Nov 2026 12:01:30 GMT")
    assert (await refusal(objects.get(KEY, 10))).retry_after is None


async def test_a_page_that_is_no_object_is_not_taken_for_one(server: GcsServer, objects: GcsClient) -> None:
    server.answer = reply(SIGN_IN_PAGE)
    assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.NO_BUCKET


@pytest.mark.parametrize("body", [SIGN_IN_PAGE, b"", b"[]", b'{"generation": 5}', b'{"items": 5}', b"[" * 100_000])
async def test_an_answer_that_makes_no_sense_is_none(server: GcsServer, objects: GcsClient, body: bytes) -> None:
    server.answer = found(body)
    assert (await refusal(objects.put(KEY, b"", TAG, "0a-1"))).kind is ErrorKind.NO_ANSWER
    if b"generation" not in body:
        assert (await refusal(objects.list_page(KEY, 10, None))).kind is ErrorKind.NO_ANSWER


async def test_no_connection_is_none() -> None:
    async with running(GcsServer()) as gone:
        pass
    async with asking(gone) as nowhere:
        assert (await refusal(nowhere.put(KEY, b"", None, "0a-1"))).kind is ErrorKind.UNREACHABLE


async def test_a_missing_object_is_missing_to_every_verb(server: GcsServer, objects: GcsClient) -> None:
    server.answer = xml_complaint(404, "NoSuchKey")
    assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.MISSING
    server.answer = complaint(404, "notFound")
    assert (await refusal(objects.put(KEY, b"", TAG, "0a-1"))).kind is ErrorKind.MISSING
    assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.MISSING


LOOK = "GET /storage/v1/b/lake?fields=name"
NOT_FOUND = complaint(404, "notFound")


@pytest.mark.parametrize("status", [200, 401, 403])
async def test_the_bucket_is_looked_at_once(server: GcsServer, objects: GcsClient, status: int) -> None:
    server.answer, server.bucket = NOT_FOUND, reply(b"{}", status)
    for _ in range(3):
        assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.MISSING
    assert server.asked.count(LOOK) == 1


async def test_a_bucket_that_answered_need_not_be_looked_at(server: GcsServer, objects: GcsClient) -> None:
    server.answer = found(b"")
    await objects.get(KEY, 10)
    server.answer = NOT_FOUND
    assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.MISSING
    assert LOOK not in server.asked


async def test_a_bucket_that_is_missing_is_looked_at_each_time(server: GcsServer, objects: GcsClient) -> None:
    server.answer = server.bucket = NOT_FOUND
    for _ in range(2):
        assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.NO_BUCKET
    assert server.asked.count(LOOK) == 2
    server.bucket = reply({"name": "lake"})
    assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.MISSING


async def test_only_the_bucket_can_be_missing_for_creation_and_listing(server: GcsServer, objects: GcsClient) -> None:
    server.answer = NOT_FOUND
    assert (await refusal(objects.put(KEY, b"", None, "0a-1"))).kind is ErrorKind.NO_BUCKET
    assert (await refusal(objects.list_page(KEY, 10, None))).kind is ErrorKind.NO_BUCKET
    assert LOOK not in server.asked


async def test_a_bucket_that_vanished_is_known_no_more(server: GcsServer, objects: GcsClient) -> None:
    server.answer = found(b"")
    await objects.get(KEY, 10)
    server.answer = server.bucket = NOT_FOUND
    await refusal(objects.put(KEY, b"", None, "0a-1"))
    assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.NO_BUCKET
    server.answer = xml_complaint(404, "NoSuchBucket")
    assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.NO_BUCKET


async def test_where_no_cloud_storage_answers_there_is_no_bucket(server: GcsServer, objects: GcsClient) -> None:
    server.answer = server.bucket = reply(b"<h1>404</h1>", 404)
    refused = await refusal(objects.get(KEY, 10))
    assert refused.kind is ErrorKind.NO_BUCKET
    assert "without an error of Cloud Storage" in refused.found


async def test_an_answer_without_a_code_is_an_object_missing_where_the_bucket_is_there(
    server: GcsServer, objects: GcsClient
) -> None:
    """So says fake-gcs-server."""
    server.answer = reply(b"Not Found", 404)
    assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.MISSING
    assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.MISSING
    assert server.asked.count(LOOK) == 1


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [(503, "backendError", ErrorKind.NO_ANSWER), (429, "rateLimitExceeded", ErrorKind.THROTTLED)],
)
async def test_a_look_that_fails_tells_nothing(
    server: GcsServer, objects: GcsClient, status: int, reason: str, kind: ErrorKind
) -> None:
    server.answer, server.bucket = NOT_FOUND, complaint(status, reason)
    assert (await refusal(objects.delete(KEY, TAG))).kind is kind
    server.bucket = NOT_FOUND
    assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.NO_BUCKET


QUICK = (0.01, 0.02)


class Strict:
    """One object, which takes a change only so many seconds after the one before; its condition is looked at later.

    Attributes:
        slow: how many changes came too soon.
    """

    def __init__(self, seconds: float = 1.0) -> None:
        self.slow = 0
        self._seconds, self._changed = seconds, -1000.0
        self._body, self._mark, self._generation, self._last = b"", "", 0, 1_700_000_000_000_000

    async def answer(self, asked: Asked) -> web.StreamResponse:
        if asked.method == "GET":
            return await self._read(asked)
        if anyio.current_time() < self._changed + self._seconds:
            self.slow += 1
            return await complaint(429, "rateLimitExceeded")(asked)
        condition = re.search("ifGenerationMatch=([0-9]+)", asked.path)
        assert condition is not None
        if int(condition[1]) != self._generation:
            return await complaint(412, "conditionNotMet")(asked)
        self._changed = anyio.current_time()
        self._last += 1
        self._generation = 0 if asked.method == "DELETE" else self._last
        if asked.method == "DELETE":
            return await reply(b"", 204)(asked)
        head = f"content-type: {asked.headers['content-type']}\r\n\r\n".encode()
        content = message_from_bytes(head + asked.body).get_payload(1)
        self._body = str(content).encode().rpartition(b"\n\n")[2]
        return await reply({"generation": str(self._generation)})(asked)

    async def _read(self, asked: Asked) -> web.StreamResponse:
        if not self._generation:
            return await xml_complaint(404, "NoSuchKey")(asked)
        return await reply(self._body, x_goog_generation=str(self._generation))(asked)


class Bucket:
    """Objects of that kind, by name."""

    def __init__(self) -> None:
        self.objects: defaultdict[str, Strict] = defaultdict(Strict)

    async def answer(self, asked: Asked) -> web.StreamResponse:
        name = unquote(asked.path.partition("?")[0].rpartition("/")[2])
        if asked.method == "POST":
            head = f"content-type: {asked.headers['content-type']}\r\n\r\n".encode()
            told = message_from_bytes(head + asked.body).get_payload(0)
            name = json.loads(str(told).rpartition("\n\n")[2])["name"]
        return await self.objects[name].answer(asked)


async def written(store: RemoteStore, body: bytes, replacing: StoredObject | None) -> StoredObject:
    held = await store.write(KEY, body, replacing)
    assert isinstance(held, StoredObject)
    return held


@pytest.mark.slow
async def test_a_version_hint_of_two_steps_is_written_and_the_store_is_proven(server: GcsServer) -> None:
    bucket = Bucket()
    server.answer = bucket.answer
    async with asking(server, pauses=RETRY_PAUSES) as objects:
        store = RemoteStore(objects, StoreService(IMPOSSIBLE_GENERATION))
        begun = anyio.current_time()
        assert await store.probe(KEY) == Guarantees(swap=True, conditional_delete=True)
        first = await written(store, b"1", None)
        second = await written(store, b"2", first)
        assert await store.read(KEY) == second
        assert await store.write(KEY, b"3", first) == PreconditionFailed()
        assert await store.delete(KEY, second) == Deleted()
        assert anyio.current_time() - begun > 2.0
    assert sum(one.slow for one in bucket.objects.values()) >= 2


async def test_many_who_swap_at_once_lose_nothing(server: GcsServer) -> None:
    server.answer = Strict(0.02).answer
    async with asking(server, pauses=(0.03, 0.05, 0.1, 0.2, 0.4)) as objects:
        store = RemoteStore(objects, StoreService(IMPOSSIBLE_GENERATION))
        await written(store, b"0", None)

        async def count_up() -> None:
            turns = 3
            while turns:
                held = await store.read(KEY)
                assert held is not None
                turns -= isinstance(await store.write(KEY, b"%d" % (int(held.body) + 1), held), StoredObject)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(count_up)
        held = await store.read(KEY)
    assert held is not None
    assert held.body == b"12"


async def test_an_object_that_is_never_free_is_given_up_as_one_tables_trouble(server: GcsServer) -> None:
    server.answer = complaint(429, "rateLimitExceeded")
    async with asking(server, pauses=QUICK) as objects:
        assert (await refusal(objects.put(KEY, b"", TAG, "0a-1"))).kind is ErrorKind.CHANGED_TOO_OFTEN
        assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.CHANGED_TOO_OFTEN
        assert len(server.requests) == 2 * (1 + len(QUICK))
        with pytest.raises(Transient) as often:
            await RemoteStore(objects, StoreService(IMPOSSIBLE_GENERATION)).write(KEY, b"", None)
        assert often.value.scope is ErrorScope.TABLE
        assert "min_publish_interval" in often.value.remedy


def test_nobody_waits_for_more_than_a_few_seconds() -> None:
    assert sum(RETRY_PAUSES) <= 5.0
    assert min(RETRY_PAUSES) >= 1.0


async def test_whoever_is_asked_to_wait_longer_comes_back_later(server: GcsServer) -> None:
    server.answer = complaint(429, "rateLimitExceeded", retry_after="30")
    async with asking(server, pauses=RETRY_PAUSES) as objects:
        refused = await refusal(objects.put(KEY, b"", TAG, "0a-1"))
    assert (refused.kind, refused.retry_after) == (ErrorKind.CHANGED_TOO_OFTEN, 30.0)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "reason"), [(403, "rateLimitExceeded"), (429, "userRateLimitExceeded")])
async def test_a_service_that_is_asked_too_much_is_asked_no_more(server: GcsServer, status: int, reason: str) -> None:
    server.answer = complaint(status, reason)
    async with asking(server, pauses=RETRY_PAUSES) as objects:
        assert (await refusal(objects.put(KEY, b"", TAG, "0a-1"))).kind is ErrorKind.THROTTLED
    assert len(server.requests) == 1


async def test_what_is_read_too_often_is_the_whole_services_trouble(server: GcsServer) -> None:
    server.answer = complaint(429, "rateLimitExceeded")
    async with asking(server, pauses=RETRY_PAUSES) as objects:
        for verb in (objects.get(KEY, 10), objects.get_range(KEY, 0, 10), objects.list_page(KEY, 10, None)):
            assert (await refusal(verb)).kind is ErrorKind.THROTTLED
    assert len(server.requests) == 3


async def test_a_change_that_waits_can_be_given_up(server: GcsServer) -> None:
    server.answer = complaint(429, "rateLimitExceeded")
    async with asking(server, pauses=(60.0,)) as objects:
        with anyio.move_on_after(0.2) as given_up:
            await objects.put(KEY, b"", TAG, "0a-1")
    assert given_up.cancelled_caught
    assert len(server.requests) == 1


OBJECT = "/storage/v1/b/lake/o/sales%2Fmetadata%2F_sfn%2Forders.ver"


def uploaded(asked: Asked) -> tuple[Mapping[str, object], Message]:
    """The two parts of an upload: what is told of the object, and its content with its media type."""
    head = f"content-type: {asked.headers['content-type']}\r\n\r\n".encode()
    parts = message_from_bytes(head + asked.body).get_payload()
    assert isinstance(parts, list)
    told, content = (part for part in parts if isinstance(part, Message))
    assert told.get_content_type() == "application/json"
    payload = told.get_payload(decode=True)
    assert isinstance(payload, bytes)
    metadata: Mapping[str, object] = json.loads(payload)
    return metadata, content


async def test_an_object_is_had_with_its_generation_and_its_mark_in_one_request(
    server: GcsServer, objects: GcsClient
) -> None:
    server.answer = found(b"{}", x_goog_meta_sfn_write="0a-1")
    assert await objects.get(KEY, 100) == FetchedObject(b"{}", TAG, "0a-1")
    assert server.asked == ["GET /lake/sales%2Fmetadata%2F_sfn%2Forders.ver"]


async def test_somebody_elses_object_has_no_mark(server: GcsServer, objects: GcsClient) -> None:
    server.answer = found(b"3")
    assert await objects.get(KEY, 100) == FetchedObject(b"3", TAG, None)


async def test_no_more_of_an_object_is_taken_than_was_asked_for(server: GcsServer, objects: GcsClient) -> None:
    server.answer = found(b"x" * 1000)
    assert len((await objects.get(KEY, 100)).body) == 100


async def test_a_part_of_an_object_that_is_stored_compressed_comes_as_it_is(
    server: GcsServer, objects: GcsClient
) -> None:
    server.answer = found(b"\x1f\x8bcompressed", 206, content_encoding="gzip")
    assert await objects.get_range(KEY, 0, 100) == b"\x1f\x8bcompressed"
    assert [asked.headers["accept-encoding"] for asked in server.requests] == ["gzip"]


async def test_a_whole_object_is_asked_for_uncompressed_and_decompressed(server: GcsServer, objects: GcsClient) -> None:
    server.answer = found(gzip.compress(b"{}"), content_encoding="gzip")
    assert (await objects.get(KEY, 100)).body == b"{}"
    assert [asked.headers["accept-encoding"] for asked in server.requests] == ["identity"]


async def test_a_part_is_a_range(server: GcsServer, objects: GcsClient) -> None:
    server.answer = reply(b"part", 206)
    assert await objects.get_range(KEY, 100, 50) == b"part"
    assert server.requests[0].headers["range"] == "bytes=100-149"
    server.answer = reply(b"<Error><Code>InvalidRange</Code></Error>", 416)
    assert await objects.get_range(KEY, 100, 50) == b""
    server.answer = reply(b"all of it")
    assert await objects.get_range(KEY, 0, 50) == b"all of it"
    assert (await refusal(objects.get_range(KEY, 100, 50))).kind is ErrorKind.INVALID_OBJECT
    assert len(server.requests) == 4


async def test_a_write_is_one_upload_with_its_condition(server: GcsServer, objects: GcsClient) -> None:
    server.answer = reply({"generation": "1700000000000002"})
    assert await objects.put(KEY, b"{}", TAG, "0a-1") == "1700000000000002"
    assert await objects.put(KEY, b"{}", None, "0a-2") == "1700000000000002"
    upload = "POST /upload/storage/v1/b/lake/o?uploadType=multipart&ifGenerationMatch={}&fields=generation"
    assert server.asked == [upload.format(TAG), upload.format(0)]


@pytest.mark.parametrize(
    ("key", "kind"), [(KEY, "application/json"), ("gs://lake/t/metadata/version-hint.text", "text/plain")]
)
@pytest.mark.parametrize("body", [b"", b"{}", b"\r\n--\r\n\r\n", bytes(range(256))])
async def test_no_cache_keeps_what_is_written_and_its_mark_goes_along(
    server: GcsServer, objects: GcsClient, key: str, kind: str, body: bytes
) -> None:
    server.answer = reply({"generation": TAG})
    await objects.put(key, body, None, "0a-1")
    metadata, content = uploaded(server.requests[0])
    full = kind if kind == "application/json" else "text/plain; charset=utf-8"
    assert metadata == {
        "name": key.removeprefix("gs://lake/"),
        "cacheControl": "no-store",
        "contentType": full,
        "metadata": {"sfn-write": "0a-1"},
    }
    assert content["content-type"] == full
    # The parser of mails takes line ends for what it likes; over the wire it is to the letter.
    assert b"\r\n\r\n" + body + b"\r\n--" in server.requests[0].body


async def test_a_delete_has_its_condition(server: GcsServer, objects: GcsClient) -> None:
    server.answer = reply(b"", 204)
    await objects.delete(KEY, TAG)
    assert server.asked == [f"DELETE {OBJECT}?ifGenerationMatch={TAG}"]


@pytest.mark.parametrize(
    "tag", ["0", "", "-1", "+1", " 1", "1 ", "1\n", "01", "1.5", "1e3", "٣", "*", "f" * 64, "0" * 64, str(2**63)]
)
async def test_what_is_no_generation_is_stale_and_nobody_is_asked(
    server: GcsServer, objects: GcsClient, tag: str
) -> None:
    assert (await refusal(objects.put(KEY, b"{}", tag, "0a-1"))).kind is ErrorKind.PRECONDITION_FAILED
    assert (await refusal(objects.delete(KEY, tag))).kind is ErrorKind.PRECONDITION_FAILED
    assert server.asked == []


@pytest.mark.parametrize("tag", ["1", IMPOSSIBLE_GENERATION, str(2**63 - 1)])
async def test_every_generation_is_asked_for(server: GcsServer, objects: GcsClient, tag: str) -> None:
    server.answer = reply(b"", 204)
    await objects.delete(KEY, tag)
    assert server.asked == [f"DELETE {OBJECT}?ifGenerationMatch={tag}"]


async def test_a_listing_is_asked_for_in_pages(server: GcsServer, objects: GcsClient) -> None:
    server.answer = reply({"items": [{"name": "t/a.ver"}, {"name": "t/ä%2F.ver"}], "nextPageToken": "on/+="})
    assert await objects.list_page("gs://lake/t/", 2, None) == ObjectPage(
        ("gs://lake/t/a.ver", "gs://lake/t/ä%2F.ver"), "on/+="
    )
    server.answer = reply({"kind": "storage#objects"})
    assert await objects.list_page("gs://lake/t/", 2, "on/+=") == ObjectPage((), None)
    listing = "GET /storage/v1/b/lake/o?prefix=t%2F&delimiter=%2F&maxResults=2&fields=items%28name%29%2CnextPageToken"
    assert server.asked == [listing, f"{listing}&pageToken=on%2F%2B%3D"]


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a%5Fb.ver", "a%255Fb.ver"),
        ("a#b?c&d=e.ver", "a%23b%3Fc%26d%3De.ver"),
        ("größe 🧊+.ver", "gr%C3%B6%C3%9Fe%20%F0%9F%A7%8A%2B.ver"),
        ("~-_.ver", "~-_.ver"),
    ],
)
async def test_key_goes_over_the_wire_unchanged(server: GcsServer, objects: GcsClient, name: str, quoted: str) -> None:
    key = f"gs://lake/t/{name}"
    server.answer = found({"generation": TAG, "items": []})
    await objects.get(key, 10)
    await objects.delete(key, TAG)
    await objects.put(key, b"", TAG, "0a-1")
    await objects.list_page(key, 1, None)
    got, deleted, put, listed = server.requests
    assert got.path == f"/lake/t%2F{quoted}"
    assert deleted.path == f"/storage/v1/b/lake/o/t%2F{quoted}?ifGenerationMatch={TAG}"
    assert uploaded(put)[0]["name"] == f"t/{name}"
    assert listed.path.startswith(f"/storage/v1/b/lake/o?prefix=t%2F{quoted}&")


async def test_a_token_and_who_pays_go_along_with_every_request(server: GcsServer) -> None:
    server.answer = found({"generation": TAG})
    async with asking(server, GoogleIdentity(token=PRIVATE), billing_project="payer-1") as objects:
        await objects.get(KEY, 10)
        await objects.get_range(KEY, 0, 10)
        await objects.put(KEY, b"", TAG, "0a-1")
        await objects.delete(KEY, TAG)
        await objects.list_page(KEY, 1, None)
    shown = {(asked.headers["authorization"], asked.headers["x-goog-user-project"]) for asked in server.requests}
    assert shown == {(f"Bearer {PRIVATE}", "payer-1")}
    assert len(server.requests) == 5


async def test_nobody_shows_no_token_and_pays_nothing(server: GcsServer, objects: GcsClient) -> None:
    server.answer = found(b"")
    await objects.get(KEY, 10)
    assert {"authorization", "x-goog-user-project"}.isdisjoint(name.lower() for name in server.requests[0].headers)


async def test_what_has_to_be_understood_is_asked_for_uncompressed(server: GcsServer, objects: GcsClient) -> None:
    server.answer = reply({"generation": TAG, "items": []})
    await objects.put(KEY, b"", TAG, "0a-1")
    await objects.delete(KEY, TAG)
    await objects.list_page(KEY, 1, None)
    assert [asked.headers["accept-encoding"] for asked in server.requests] == ["identity"] * 3


def pool() -> ScriptedPool:
    return ScriptedPool(lambda *_: HttpReply(200, {"x-goog-generation": TAG}, b'{"generation": "1"}'))


async def test_without_an_endpoint_it_is_googles_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    nowhere = pool()
    objects = GcsClient(GcsOptions(identity=None), nowhere)
    await objects.get(KEY, 10)
    await objects.put(KEY, b"", None, "0a-1")
    await objects.delete(KEY, TAG)
    assert {url.split("/", 3)[2] for url in nowhere.urls} == {"storage.googleapis.com"}
    assert {url.split(":")[0] for url in nowhere.urls} == {"https"}


async def test_an_endpoint_may_end_in_a_slash() -> None:
    nowhere = pool()
    await GcsClient(GcsOptions(identity=None, endpoint="http://fake:4443/"), nowhere).get(KEY, 10)
    assert nowhere.urls == ["http://fake:4443/lake/sales%2Fmetadata%2F_sfn%2Forders.ver"]


def test_a_token_is_shown_nowhere() -> None:
    terms = GcsOptions(identity=GoogleIdentity(token=PRIVATE))
    assert PRIVATE not in repr(terms)
