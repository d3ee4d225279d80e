"""The S3 store: errors, entity tags, and where a bucket is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Forbidden, OutcomeUnknown, Transient
from sfn.storage import Deleted, ErrorKind, FetchedObject, PreconditionFailed, RequestFailed, s3
from sfn.storage.remote_store import HttpReply, RemoteStore, StoreService
from sfn.storage.s3 import IMPOSSIBLE_ETAG, BucketEndpoints, EndpointOptions, S3Client, S3Options
from tests.support.object_store import SIGN_IN_PAGE, ScriptedPool, refusal

CODES: dict[tuple[int, str], tuple[ErrorKind, str]] = {
    (404, "NoSuchKey"): (ErrorKind.MISSING, ""),
    (404, "NoSuchBucket"): (ErrorKind.NO_BUCKET, ""),
    (301, "PermanentRedirect"): (ErrorKind.NO_BUCKET, "region"),
    (307, "TemporaryRedirect"): (ErrorKind.NO_BUCKET, "region"),
    (400, "IllegalLocationConstraintException"): (ErrorKind.NO_BUCKET, "region"),
    (400, "AuthorizationHeaderMalformed"): (ErrorKind.NO_BUCKET, "region"),
    (412, "PreconditionFailed"): (ErrorKind.PRECONDITION_FAILED, ""),
    (409, "ConditionalRequestConflict"): (ErrorKind.PRECONDITION_FAILED, ""),
    (403, "AccessDenied"): (ErrorKind.DENIED, ""),
    (400, "ExpiredToken"): (ErrorKind.UNAUTHENTICATED, ""),
    (403, "ExpiredTokenException"): (ErrorKind.UNAUTHENTICATED, ""),
    (400, "InvalidToken"): (ErrorKind.UNAUTHENTICATED, ""),
    (403, "InvalidTokenId"): (ErrorKind.UNAUTHENTICATED, ""),
    (403, "RequestTimeTooSkewed"): (ErrorKind.UNAUTHENTICATED, "clock"),
    (400, "BadDigest"): (ErrorKind.NO_ANSWER, ""),
    (400, "IncompleteBody"): (ErrorKind.NO_ANSWER, ""),
    (400, "PriorRequestNotComplete"): (ErrorKind.NO_ANSWER, ""),
    (400, "RequestTimeout"): (ErrorKind.NO_ANSWER, ""),
    (400, "RequestTimeoutException"): (ErrorKind.NO_ANSWER, ""),
    (500, "InternalError"): (ErrorKind.NO_ANSWER, ""),
    (503, "ServiceUnavailable"): (ErrorKind.NO_ANSWER, ""),
    (501, "NotImplemented"): (ErrorKind.UNSUPPORTED, ""),
    (400, "KeyTooLongError"): (ErrorKind.INVALID_OBJECT, ""),
    (400, "KMS.DisabledException"): (ErrorKind.DENIED, "KMS"),
    (400, "KMS.NotFoundException"): (ErrorKind.DENIED, "KMS"),
    (302, "NeverHeardOf"): (ErrorKind.NO_BUCKET, ""),
    (400, "NeverHeardOf"): (ErrorKind.REJECTED, ""),
    (401, "NeverHeardOf"): (ErrorKind.UNAUTHENTICATED, ""),
    (403, "NeverHeardOf"): (ErrorKind.DENIED, ""),
    (404, "NeverHeardOf"): (ErrorKind.REJECTED, ""),
    (408, "NeverHeardOf"): (ErrorKind.NO_ANSWER, ""),
    (409, "NeverHeardOf"): (ErrorKind.PRECONDITION_FAILED, ""),
    (412, "NeverHeardOf"): (ErrorKind.PRECONDITION_FAILED, ""),
    (425, "NeverHeardOf"): (ErrorKind.NO_ANSWER, ""),
    (429, "NeverHeardOf"): (ErrorKind.THROTTLED, ""),
    (464, "NeverHeardOf"): (ErrorKind.REJECTED, ""),
    (599, "NeverHeardOf"): (ErrorKind.NO_ANSWER, ""),
}
THROTTLES = (
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "TooManyRequestsException",
    "TransactionInProgressException",
)
WORDLESS = {
    202: ErrorKind.NO_ANSWER,
    301: ErrorKind.NO_BUCKET,
    302: ErrorKind.NO_BUCKET,
    304: ErrorKind.PRECONDITION_FAILED,
    399: ErrorKind.NO_BUCKET,
    400: ErrorKind.REJECTED,
    401: ErrorKind.UNAUTHENTICATED,
    403: ErrorKind.DENIED,
    404: ErrorKind.NO_BUCKET,
    408: ErrorKind.NO_ANSWER,
    409: ErrorKind.REJECTED,
    412: ErrorKind.PRECONDITION_FAILED,
    418: ErrorKind.REJECTED,
    425: ErrorKind.NO_ANSWER,
    429: ErrorKind.THROTTLED,
    464: ErrorKind.REJECTED,
    499: ErrorKind.REJECTED,
    502: ErrorKind.NO_ANSWER,
    599: ErrorKind.NO_ANSWER,
    999: ErrorKind.NO_ANSWER,
}


def error(status: int, code: str, **headers: str) -> HttpReply:
    text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>told so</Message></Error>"
    return HttpReply(status, headers, text.encode())


@pytest.mark.parametrize(("status", "code"), CODES)
def test_a_request_is_refused(status: int, code: str) -> None:
    kind, remedy = CODES[status, code]
    refused = s3.failure_of(error(status, code))
    assert refused.kind is kind
    assert refused.found == f"status {status}, {code}"
    assert remedy in refused.remedy
    assert bool(remedy) is bool(refused.remedy)


@pytest.mark.parametrize("status", [400, 403, 503])
@pytest.mark.parametrize("code", THROTTLES)
def test_a_service_of_which_too_much_is_asked_may_say_so_with_any_status(status: int, code: str) -> None:
    assert s3.failure_of(error(status, code)).kind is ErrorKind.THROTTLED


@pytest.mark.parametrize("status", WORDLESS)
@pytest.mark.parametrize("body", [b"", SIGN_IN_PAGE, b"<html/>", b"<Error/>", b'{"error": 5}'])
def test_what_is_no_error_of_s3_counts_by_its_status(status: int, body: bytes) -> None:
    refused = s3.failure_of(HttpReply(status, {}, body))
    assert refused.kind is WORDLESS[status]
    assert refused.found == f"status {status}, without an error of S3"


def test_the_service_says_how_long_to_wait() -> None:
    assert s3.failure_of(error(503, "SlowDown", **{"Retry-After": "7"})).retry_after == 7.0
    assert s3.failure_of(error(503, "SlowDown", **{"Retry-After": "Sat, 21 Nov 2026 12:01:30 GMT"})).retry_after is None


KEY = "s3://lake/sales/metadata/_sfn/orders.ver"
TAG = '"d41d8cd98f00b204e9800998ecf8427e"'
BOOK = BucketEndpoints()
TAGLESS: list[Mapping[str, str]] = [{}, {"ETag": ""}, {"ETag": "*"}]


class Overheard(ScriptedPool):
    """Connections to nowhere.

    Attributes:
        replies: what each method is answered with.
        listing: what a listing is answered with.
    """

    def __init__(self) -> None:
        super().__init__(lambda method, url: self.listing if "list-type" in url else self.replies[method])
        self.replies: dict[str, HttpReply] = {}
        self.listing = HttpReply(500, {}, b"")


@pytest.fixture
def pool() -> Overheard:
    return Overheard()


@pytest.fixture
def objects(pool: Overheard) -> S3Client:
    terms = S3Options(identity=None, endpoint="http://127.0.0.1:1", region="us-east-1")
    return S3Client(terms, pool, BOOK)


@pytest.fixture
def store(objects: S3Client) -> RemoteStore:
    return RemoteStore(objects, StoreService(IMPOSSIBLE_ETAG, seconds=lambda: 0.0))


async def test_an_object_is_had_with_its_tag_and_its_mark(pool: Overheard, objects: S3Client) -> None:
    pool.replies["GET"] = HttpReply(200, {"ETag": TAG, "x-amz-meta-sfn-write": "0a-1"}, b"{}")
    assert await objects.get(KEY, 100) == FetchedObject(b"{}", TAG, "0a-1")


@pytest.mark.parametrize("tag", [TAG, IMPOSSIBLE_ETAG, '"abc-2"', "unquoted", '"*"', 'W/"1"'])
async def test_every_tag_is_taken_and_asked_for_as_it_is(pool: Overheard, objects: S3Client, tag: str) -> None:
    pool.replies |= {"PUT": HttpReply(200, {"ETag": tag}, b""), "DELETE": HttpReply(204, {}, b"")}
    assert await objects.put(KEY, b"{}", tag, "0a-1") == tag
    await objects.delete(KEY, tag)
    assert [(method, headers["if-match"]) for method, _, headers in pool.asked] == [("PUT", tag), ("DELETE", tag)]


async def test_a_creation_has_the_condition_that_nothing_is_there(pool: Overheard, objects: S3Client) -> None:
    pool.replies["PUT"] = HttpReply(200, {"ETag": TAG}, b"")
    assert await objects.put(KEY, b"{}", None, "0a-1") == TAG
    [(_, _, headers)] = pool.asked
    assert headers["if-none-match"] == "*"
    assert "if-match" not in headers


@pytest.mark.parametrize("headers", TAGLESS)
async def test_an_answer_without_a_tag_is_none(pool: Overheard, objects: S3Client, headers: Mapping[str, str]) -> None:
    pool.replies |= {"GET": HttpReply(200, headers, b"{}"), "PUT": HttpReply(200, headers, b"")}
    verbs = (objects.get(KEY, 100), objects.put(KEY, b"{}", None, "0a-1"), objects.put(KEY, b"{}", TAG, "0a-1"))
    for verb in verbs:
        refused = await refusal(verb)
        assert (refused.kind, refused.found) == (ErrorKind.NO_ETAG, "an answer that has no ETag")


@pytest.mark.parametrize("tag", ["", "*", " ", '"a b"', f"{TAG}\n", '"\xe9"'])
async def test_what_is_no_tag_is_stale_and_nobody_is_asked(pool: Overheard, objects: S3Client, tag: str) -> None:
    assert (await refusal(objects.put(KEY, b"{}", tag, "0a-1"))).kind is ErrorKind.PRECONDITION_FAILED
    assert (await refusal(objects.delete(KEY, tag))).kind is ErrorKind.PRECONDITION_FAILED
    assert pool.asked == []


@pytest.mark.parametrize("headers", TAGLESS)
async def test_nobody_knows_whether_a_write_happened_that_is_answered_without_a_tag(
    pool: Overheard, store: RemoteStore, headers: Mapping[str, str]
) -> None:
    pool.replies["PUT"] = HttpReply(200, headers, b"")
    for replacing in (None, StoredObject(b"1", TAG)):
        with pytest.raises(OutcomeUnknown) as unsure:
            await store.write(KEY, b"2", replacing)
        assert unsure.value.scope is ErrorScope.STORE
        assert "no ETag" in unsure.value.found


async def test_a_read_without_a_tag_is_tried_again(pool: Overheard, store: RemoteStore) -> None:
    pool.replies["GET"] = HttpReply(200, {}, b"1")
    with pytest.raises(Transient) as trouble:
        await store.read(KEY)
    assert (type(trouble.value), trouble.value.scope) == (Transient, ErrorScope.STORE)


@pytest.mark.parametrize("tag", ["", "*"])
async def test_what_was_remembered_without_a_tag_is_stale(pool: Overheard, store: RemoteStore, tag: str) -> None:
    pool.replies["GET"] = HttpReply(200, {"ETag": TAG}, b"2")
    assert await store.write(KEY, b"3", StoredObject(b"1", tag)) == PreconditionFailed()
    assert await store.delete(KEY, StoredObject(b"1", tag)) == PreconditionFailed()
    pool.replies["GET"] = HttpReply(404, {}, b"<Error><Code>NoSuchKey</Code></Error>")
    assert await store.delete(KEY, StoredObject(b"1", tag)) == Deleted()
    assert {method for method, _, _ in pool.asked} == {"GET"}


LISTED = "<ListBucketResult><IsTruncated>{more}</IsTruncated>{names}</ListBucketResult>"


def regional(answer: HttpReply) -> ScriptedPool:
    """Connections to Amazon, where one bucket is in one region; the other regions give an answer."""
    found = HttpReply(200, {"ETag": TAG}, b"{}")
    return ScriptedPool(lambda _, url: found if "af-south-1" in url else answer)


def elsewhere(status: int, code: str, *, region: str = "", header: str = "") -> HttpReply:
    text = f"<Error><Code>{code}</Code>{f'<Region>{region}</Region>' if region else ''}</Error>"
    return HttpReply(status, {"x-amz-bucket-region": header} if header else {}, text.encode())


@pytest.mark.parametrize(
    "answer",
    [
        elsewhere(301, "PermanentRedirect", header="af-south-1"),
        elsewhere(307, "TemporaryRedirect", header="af-south-1"),
        elsewhere(400, "IllegalLocationConstraintException", header="af-south-1"),
        elsewhere(400, "AuthorizationHeaderMalformed", header="af-south-1"),
        elsewhere(400, "AuthorizationHeaderMalformed", region="af-south-1"),
    ],
)
async def test_a_bucket_of_another_region_is_asked_there(answer: HttpReply) -> None:
    pool = regional(answer)
    objects = S3Client(S3Options(identity=None, region="us-west-2"), pool, BOOK)
    assert (await objects.get(KEY, 100)).etag == TAG
    assert (await objects.get(KEY, 100)).etag == TAG
    hosts = ["us-west-2", "af-south-1", "af-south-1"]
    assert pool.urls == [f"https://lake.s3.{region}.amazonaws.com/sales/metadata/_sfn/orders.ver" for region in hosts]


@pytest.mark.parametrize(
    ("answer", "found", "remedy"),
    [
        (elsewhere(307, "TemporaryRedirect", header="us-west-2"), "in the region us-west-2", 'region = "us-west-2"'),
        (elsewhere(301, "PermanentRedirect"), "PermanentRedirect", 'region = "REGION"'),
        (elsewhere(400, "IllegalLocationConstraintException"), "IllegalLocation", 'region = "REGION"'),
        (elsewhere(301, "PermanentRedirect", header="x.evil.example/"), "PermanentRedirect", 'region = "REGION"'),
        (HttpReply(307, {"Location": "http://evil.example/"}, b""), "status 307", ""),
    ],
)
async def test_a_redirect_that_leads_nowhere_names_the_region_and_the_remedy(
    answer: HttpReply, found: str, remedy: str
) -> None:
    pool = regional(answer)
    objects = S3Client(S3Options(identity=None, region="us-west-2"), pool, BOOK)
    refused = await refusal(objects.get(KEY, 100))
    assert refused.kind is ErrorKind.NO_BUCKET
    assert found in refused.found
    assert remedy in refused.remedy
    assert len(pool.urls) == 1


@pytest.mark.parametrize("status", [304, 412, 409])
async def test_a_write_that_changes_nothing_is_a_lost_race(pool: Overheard, store: RemoteStore, status: int) -> None:
    body = b"" if status == 304 else b"<Error><Code>PreconditionFailed</Code></Error>"
    pool.replies |= {"PUT": HttpReply(status, {}, body), "GET": HttpReply(200, {"ETag": TAG}, b"2")}
    assert await store.write(KEY, b"3", None) == PreconditionFailed()
    assert await store.write(KEY, b"3", StoredObject(b"1", TAG)) == PreconditionFailed()


async def test_an_error_is_one_whatever_its_status(pool: Overheard, objects: S3Client) -> None:
    error = HttpReply(200, {"ETag": TAG}, b"<Error><Code>PreconditionFailed</Code></Error>")
    pool.replies |= {"PUT": error, "DELETE": error}
    for verb in (objects.put(KEY, b"{}", None, "0a-1"), objects.delete(KEY, TAG)):
        assert (await refusal(verb)).kind is ErrorKind.PRECONDITION_FAILED


async def test_a_file_of_the_proof_is_deleted_without_a_condition(pool: Overheard, store: RemoteStore) -> None:
    pool.replies["DELETE"] = HttpReply(204, {}, b"")
    await store.discard(KEY)
    [(_, _, headers)] = pool.asked
    assert "if-match" not in headers


async def test_a_missing_part_may_be_denied_to_who_may_list(pool: Overheard, store: RemoteStore) -> None:
    listing = HttpReply(200, {}, LISTED.format(more="false", names="").encode())
    denied = HttpReply(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
    pool.listing, pool.replies["GET"] = listing, denied
    assert await store.read_range(KEY, 0, 10) is None
    pool.listing = denied
    with pytest.raises(Forbidden):
        await store.read_range(KEY, 0, 10)


@pytest.mark.parametrize(("more", "following"), [("true", ""), ("True", ""), ("false", None)])
async def test_a_listing_that_breaks_off_is_told_from_a_whole_one(
    pool: Overheard, objects: S3Client, more: str, following: str | None
) -> None:
    pool.listing = HttpReply(200, {}, LISTED.format(more=more, names="").encode())
    assert (await objects.list_page("s3://lake/sales/", 10, None)).next == following


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of AWS's shared files, which are empty."""
    for name, variable in (("config", "AWS_CONFIG_FILE"), ("credentials", "AWS_SHARED_CREDENTIALS_FILE")):
        (tmp_path / name).write_text("")
        monkeypatch.setenv(variable, str(tmp_path / name))
    return tmp_path


async def test_a_profile_that_is_not_there_is_named_and_looked_for_again(files: Path) -> None:
    book, place = BucketEndpoints(), EndpointOptions(endpoint=None, region=None, path_style=None, profile="lake")
    with pytest.raises(RequestFailed, match=r"profile lake without them .*could not be found") as refused:
        await book.addresses_for(place)
    assert refused.value.kind is ErrorKind.NO_ENDPOINT
    (files / "config").write_text("[profile lake]\nregion = eu-west-1\n")
    assert (await book.addresses_for(place)).region == "eu-west-1"


@pytest.mark.usefixtures("files")
async def test_so_is_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "lake")
    with pytest.raises(RequestFailed, match=r"AWS's own configuration .*\(lake\)") as refused:
        await BucketEndpoints().addresses_for(
            EndpointOptions(endpoint="http://127.0.0.1:1", region="us-east-1", path_style=True, profile=None)
        )
    assert "AWS_PROFILE" in refused.value.remedy


REGIONS = [
    "eu-central-1",
    "eu-north-1",
    "us-west-2",
    "af-south-1",
    "me-south-1",
    "ap-east-1",
    "eu-south-1",
    "ca-west-1",
]


async def url_of(bucket: str, region: str | None = "eu-central-1", endpoint: str | None = None) -> str:
    place = EndpointOptions(endpoint=endpoint, region=region, path_style=None, profile=None)
    return (await BucketEndpoints().addresses_for(place)).bucket_url(bucket)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("region", REGIONS)
async def test_a_bucket_of_amazon_is_at_its_regions_address(region: str) -> None:
    """The global one refuses the regions that came after March 2019, and redirects while a bucket is new."""
    assert await url_of("lake", region) == f"https://lake.s3.{region}.amazonaws.com/"


@pytest.mark.parametrize(
    ("bucket", "region", "url"),
    [
        ("lake", "cn-north-1", "https://lake.s3.cn-north-1.amazonaws.com.cn/"),
        ("lake", "us-gov-west-1", "https://lake.s3.us-gov-west-1.amazonaws.com/"),
        ("my.dotted.lake", "eu-central-1", "https://s3.eu-central-1.amazonaws.com/my.dotted.lake/"),
        ("ap-abcdefghijk-s3alias", "eu-north-1", "https://ap-abcdefghijk-s3alias.s3.eu-north-1.amazonaws.com/"),
        (
            "arn:aws:s3:eu-north-1:123456789012:accesspoint:lake",
            "eu-north-1",
            "https://lake-123456789012.s3-accesspoint.eu-north-1.amazonaws.com/",
        ),
    ],
)
@pytest.mark.usefixtures("files")
async def test_partitions_and_access_points_have_their_own_addresses(bucket: str, region: str, url: str) -> None:
    assert await url_of(bucket, region) == url


@pytest.mark.parametrize(
    ("variable", "url"),
    [
        ("AWS_USE_DUALSTACK_ENDPOINT", "https://lake.s3.dualstack.us-west-2.amazonaws.com/"),
        ("AWS_USE_FIPS_ENDPOINT", "https://lake.s3-fips.us-west-2.amazonaws.com/"),
    ],
)
@pytest.mark.usefixtures("files")
async def test_amazon_settings_choose_the_address(variable: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "true")
    assert await url_of("lake", "us-west-2") == url


@pytest.mark.usefixtures("files")
async def test_another_service_is_where_the_settings_say() -> None:
    assert await url_of("lake", endpoint="https://minio.example:9000") == "https://minio.example:9000/lake/"
