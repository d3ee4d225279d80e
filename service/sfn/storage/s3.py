"""`S3Client`: objects on S3 and on services with the same protocol."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import md5
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, unquote_plus, urlencode
from xml.etree import ElementTree as ET

import anyio
from anyio import to_thread
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader
from botocore.session import Session

from sfn.aws_auth import AwsCredentialChain, AwsIdentity, sign_request
from sfn.errors import NoCredentials
from sfn.storage import ErrorKind, FetchedObject, ObjectPage, RequestFailed, media_type
from sfn.storage.remote_store import BODY_LIMIT, HttpPool, HttpReply


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """Address and identity of an S3 service.

    Attributes:
        identity: identity that signs requests; None for unsigned requests.
        endpoint: URL of a service other than AWS's own; None for the standard chain's.
        region: None for the standard chain's; a wrong region is corrected by the answer of AWS.
        path_style: True if buckets are part of the path, not of the host; None: only with an `endpoint`.
    """

    identity: AwsIdentity | None = AwsIdentity()
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None


_THROTTLES: Final = (
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
"""Codes of botocore: services with S3's protocol also use the codes of AWS's other services."""
_KIND_BY_CODE: Final = {
    "NoSuchKey": ErrorKind.MISSING,
    "NoSuchBucket": ErrorKind.NO_BUCKET,
    "PreconditionFailed": ErrorKind.PRECONDITION_FAILED,
    "ConditionalRequestConflict": ErrorKind.PRECONDITION_FAILED,
    "OperationAborted": ErrorKind.PRECONDITION_FAILED,
    "AccessDenied": ErrorKind.DENIED,
    "ExpiredToken": ErrorKind.UNAUTHENTICATED,
    "ExpiredTokenException": ErrorKind.UNAUTHENTICATED,
    "InvalidAccessKeyId": ErrorKind.UNAUTHENTICATED,
    "InvalidToken": ErrorKind.UNAUTHENTICATED,
    "InvalidTokenId": ErrorKind.UNAUTHENTICATED,
    "RequestExpired": ErrorKind.UNAUTHENTICATED,
    "RequestTimeTooSkewed": ErrorKind.UNAUTHENTICATED,
    "SignatureDoesNotMatch": ErrorKind.UNAUTHENTICATED,
    "TokenRefreshRequired": ErrorKind.UNAUTHENTICATED,
    "AccountProblem": ErrorKind.UNAUTHENTICATED,
    "AllAccessDisabled": ErrorKind.UNAUTHENTICATED,
    "PermanentRedirect": ErrorKind.NO_BUCKET,
    "TemporaryRedirect": ErrorKind.NO_BUCKET,
    "AuthorizationHeaderMalformed": ErrorKind.NO_BUCKET,
    "IllegalLocationConstraintException": ErrorKind.NO_BUCKET,
    "BadDigest": ErrorKind.NO_ANSWER,
    "IncompleteBody": ErrorKind.NO_ANSWER,
    "PriorRequestNotComplete": ErrorKind.NO_ANSWER,
    "RequestTimeout": ErrorKind.NO_ANSWER,
    "RequestTimeoutException": ErrorKind.NO_ANSWER,
    "NotImplemented": ErrorKind.UNSUPPORTED,
    "EntityTooLarge": ErrorKind.INVALID_OBJECT,
    "KeyTooLongError": ErrorKind.INVALID_OBJECT,
    **dict.fromkeys(_THROTTLES, ErrorKind.THROTTLED),
}
_KMS: Final = "KMS."
"""Prefix of errors of the key that encrypts an object, such as `KMS.DisabledException`."""
_REMEDIES: Final = {
    "RequestTimeTooSkewed": "set this machine's clock: it is more than 15 minutes off",
}
_KMS_REMEDY: Final = "check the KMS key of the bucket: it is disabled or gone, or the principal may not use it"
_OTHER_REGION: Final = (
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "TemporaryRedirect",
)
"""Codes for a bucket in another region, or for a new bucket that AWS does not find everywhere yet."""
_REGION_HEADER: Final = "x-amz-bucket-region"
_REGION: Final = re.compile(r"[a-z0-9-]{1,64}")
_KIND_BY_STATUS: Final = {
    # The answer to a write. RFC 9110 asks for 412 there, but some services and proxies answer 304.
    HTTPStatus.NOT_MODIFIED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.UNAUTHORIZED: ErrorKind.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: ErrorKind.DENIED,
    HTTPStatus.REQUEST_TIMEOUT: ErrorKind.NO_ANSWER,
    HTTPStatus.PRECONDITION_FAILED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.TOO_EARLY: ErrorKind.NO_ANSWER,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorKind.THROTTLED,
}
"""Meaning of an answer with an unknown code, or without one."""
_REDIRECTS: Final = (
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.FOUND,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
)


def failure_of(reply: HttpReply) -> RequestFailed:
    """Return the failure that an answer means."""
    root = _parsed(reply.body)
    code = "" if root is None else _child_text(root, "Code")
    kind = _KIND_BY_CODE.get(code) or _kind_of(reply.status, code)
    found = f"status {reply.status}, {code or 'without an error of S3'}"
    remedy = _REMEDIES.get(code) or (_KMS_REMEDY if code.startswith(_KMS) else "")
    named = _region(reply, root)
    if kind is ErrorKind.NO_BUCKET and (code in _OTHER_REGION or (named is not None and reply.status in _REDIRECTS)):
        if named is not None:
            found += f": the bucket is in the region {named}"
        remedy = (
            f'set `stores.NAME.region = "{named or "REGION"}"`, the region of the bucket; if that is set, enable the '
            "region in the account, or wait: a new bucket is found everywhere after some hours"
        )
    return RequestFailed(kind, found, remedy, _seconds(reply.headers.get("Retry-After")))


def redirect_region(reply: HttpReply) -> str | None:
    """Return the region of the bucket that an answer names because the request went to another, else None."""
    if reply.status not in _REDIRECTS and reply.status != HTTPStatus.BAD_REQUEST:
        return None
    return _region(reply, _parsed(reply.body))


def is_error(reply: HttpReply) -> bool:
    """Return True if the body of an answer is an error, whatever the status."""
    root = _parsed(reply.body) if reply.body else None
    return root is not None and _local_name(root.tag) == "Error"


def parse_page(reply: HttpReply, prefix: str) -> ObjectPage:
    """Return a page of ListObjectsV2. Keys are URL-encoded if the service honours the request for that.

    Args:
        prefix: prepended to each key.

    Raises:
        RequestFailed: the answer is no listing.
    """
    root = _parsed(reply.body)
    if root is None or _local_name(root.tag) != "ListBucketResult":
        raise RequestFailed(ErrorKind.NO_ANSWER, "a listing that cannot be read")
    read = unquote_plus if _child_text(root, "EncodingType") == "url" else str
    names = [read(_child_text(one, "Key")) for one in root if _local_name(one.tag) == "Contents"]
    more = _child_text(root, "NextContinuationToken") if _child_text(root, "IsTruncated").lower() == "true" else None
    return ObjectPage(tuple(prefix + name for name in names), more)


def _kind_of(status: int, code: str) -> ErrorKind:
    if code.startswith(_KMS):
        return ErrorKind.DENIED
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[HTTPStatus(status)]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorKind.NO_ANSWER
    if status == HTTPStatus.CONFLICT and code:
        return ErrorKind.PRECONDITION_FAILED
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return ErrorKind.NO_ANSWER
    # A redirect may lead anywhere, and a 404 without an error code is not S3's.
    if status < HTTPStatus.BAD_REQUEST or (status == HTTPStatus.NOT_FOUND and not code):
        return ErrorKind.NO_BUCKET
    return ErrorKind.REJECTED


def _region(reply: HttpReply, root: ET.Element | None) -> str | None:
    named = reply.headers.get(_REGION_HEADER) or (_child_text(root, "Region") if root is not None else "")
    return named if _REGION.fullmatch(named) else None


def _parsed(body: bytes) -> ET.Element | None:
    try:
        return ET.fromstring(body)  # noqa: S314 - bounded in length, and expat bounds what entities become
    except (ET.ParseError, ValueError, LookupError):  # the last two for unknown encodings
        return None


def _child_text(parent: ET.Element, name: str) -> str:
    return next((child.text or "" for child in parent if _local_name(child.tag) == name), "")


def _local_name(tag: str) -> str:
    return tag.rpartition("}")[2]


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdecimal() else None


_DEFAULT_REGION = "us-east-1"
"""Default region. Services with one region accept it, and AWS then returns the bucket's own."""
_PLACEHOLDER_KEY = "k"


@cache
def _loader() -> Loader:
    """Return the loader of service descriptions; it caches them, as they are slow to read."""
    return create_loader()


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """The options that determine an endpoint; see `S3Options`, and `sfn.aws_auth.AwsIdentity` for `profile`."""

    endpoint: str | None
    region: str | None
    path_style: bool | None
    profile: str | None

    @classmethod
    def from_options(cls, options: S3Options) -> EndpointOptions:
        """Return the part of options that determines the endpoint."""
        profile = options.identity.profile if options.identity is not None else None
        return cls(options.endpoint, options.region, options.path_style, profile)


class BucketEndpoints:
    """The addresses of all endpoints. Each is built once, on a thread, as that takes a tenth of a second."""

    def __init__(self) -> None:
        self._making = anyio.Lock()
        self._made: dict[EndpointOptions, BucketAddresses] = {}

    async def addresses_for(self, endpoint: EndpointOptions) -> BucketAddresses:
        """Return the addresses at an endpoint.

        Raises:
            RequestFailed: there is no such profile, or AWS's own configuration cannot be read.
        """
        async with self._making:
            if endpoint not in self._made:
                self._made[endpoint] = await to_thread.run_sync(_build_addresses, endpoint)
        return self._made[endpoint]


class BucketAddresses:
    """The base URLs of buckets at one endpoint.

    Attributes:
        region: region for which requests are signed.
    """

    def __init__(self, endpoint: EndpointOptions) -> None:
        session = Session(profile=endpoint.profile)
        session.register_component("data_loader", _loader())
        self.region: str = endpoint.region or session.get_config_variable("region") or _DEFAULT_REGION
        style = (
            endpoint.path_style
            if endpoint.path_style is not None
            else (True if endpoint.endpoint is not None else None)
        )
        styled = {} if style is None else {"addressing_style": "path" if style else "virtual"}
        self._client = session.create_client(
            "s3",
            region_name=self.region,
            endpoint_url=endpoint.endpoint,
            config=Config(signature_version=UNSIGNED, s3=styled),
        )
        # botocore gives presigned URLs the global address, which does not lead to the regions that came after March
        # 2019, nor for some hours to new buckets.
        self._client.meta.events.register("provide-client-params.s3.GetObject", _regional)

    def bucket_url(self, bucket: str) -> str:
        """Return the URL of a bucket, with a slash at its end.

        Raises:
            RequestFailed: the name is not valid for a bucket.
        """
        try:
            url: str = self._client.generate_presigned_url(
                "get_object", Params={"Bucket": bucket, "Key": _PLACEHOLDER_KEY}
            )
        except BotoCoreError as error:
            raise RequestFailed(ErrorKind.NO_BUCKET, f"the bucket name {bucket!r} ({type(error).__name__})") from error
        return url.partition("?")[0].removesuffix(_PLACEHOLDER_KEY)


def _regional(context: dict[str, object], **_: object) -> None:
    context["use_global_endpoint"] = False


def _build_addresses(endpoint: EndpointOptions) -> BucketAddresses:
    try:
        return BucketAddresses(endpoint)
    except BotoCoreError as error:
        named = f"profile {endpoint.profile}" if endpoint.profile else "AWS's own configuration"
        remedy = "correct `profile`, AWS_PROFILE or the shared files (`aws configure list` shows what they say)"
        raise RequestFailed(ErrorKind.NO_ENDPOINT, f"{named} without them ({error})", remedy) from error


IMPOSSIBLE_ETAG: Final = f'"{"0" * 32}"'
"""An etag that no content has."""
_WRITE_ID_HEADER: Final = "x-amz-meta-sfn-write"
_ETAG: Final = re.compile(r"(?!\*\Z)[\x21-\x7e]+")
_PROXY_SUFFIX: Final = re.compile(r'W/(?=")|[-;](?:gzip|deflate)(?="\Z)')
"""Additions of a compressing proxy to an etag: nginx makes it weak, Apache appends the compression."""


class S3Client:
    """An `ObjectClient` for keys `s3://bucket/…`.

    Args:
        options: address and identity.
        pool, endpoints: connections and addresses, shared with other clients.
    """

    def __init__(self, options: S3Options, pool: HttpPool, endpoints: BucketEndpoints) -> None:
        self._endpoint, self._pool, self._endpoints = EndpointOptions.from_options(options), pool, endpoints
        self._chain = AwsCredentialChain(options.identity) if options.identity is not None else None
        self._buckets: dict[str, tuple[str, str]] = {}

    async def get(self, key: str, limit: int) -> FetchedObject:
        reply = await self._request("GET", key, limit=limit)
        return FetchedObject(reply.body, _etag_of(reply), reply.headers.get(_WRITE_ID_HEADER))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        reply = await self._send("GET", key, {"range": f"bytes={start}-{start + length - 1}"}, limit=length)
        if reply.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return b""
        if reply.status == HTTPStatus.OK and start:
            raise RequestFailed(ErrorKind.INVALID_OBJECT, "the whole object instead of a part")
        return _check_accepted(reply).body

    async def put(self, key: str, body: bytes, replacing: str | None, write_id: str) -> str:
        condition = {"if-none-match": "*"} if replacing is None else _if_match(replacing)
        headers = {
            "cache-control": "no-store",
            "content-type": media_type(key),
            # Buckets with a retention policy require a digest.
            "content-md5": b64encode(md5(body, usedforsecurity=False).digest()).decode(),
            _WRITE_ID_HEADER: write_id,
        }
        return _etag_of(await self._request("PUT", key, {**headers, **condition}, body))

    async def delete(self, key: str, expected: str | None) -> None:
        await self._request("DELETE", key, {} if expected is None else _if_match(expected))

    async def list_page(self, prefix: str, limit: int, continuation: str | None) -> ObjectPage:
        bucket, path = _bucket_and_path(prefix)
        query = {"list-type": "2", "prefix": path, "delimiter": "/", "max-keys": str(limit), "encoding-type": "url"}
        if continuation is not None:
            query["continuation-token"] = continuation
        # The signature covers the parameters in sorted order.
        parameters = urlencode(sorted(query.items()), quote_via=quote, safe="")
        reply = await self._request("GET", f"s3://{bucket}/", query=f"?{parameters}")
        return parse_page(reply, f"s3://{bucket}/")

    async def close(self) -> None:
        pass

    async def _request(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        query: str = "",
        limit: int = BODY_LIMIT,
    ) -> HttpReply:
        reply = await self._send(method, key, headers or {}, body, query=query, limit=limit)
        if method != "GET" and is_error(reply):
            # Some services send status 200 before they know the outcome.
            raise failure_of(reply)
        return _check_accepted(reply)

    async def _send(
        self, method: str, key: str, headers: Mapping[str, str], body: bytes = b"", *, query: str = "", limit: int
    ) -> HttpReply:
        """Send a request to its bucket; send it again if AWS answers that the bucket is in another region."""
        bucket, path = _bucket_and_path(key)
        home, region = self._buckets.get(bucket) or await self._locate(bucket, None)
        url = f"{{}}{quote(path, safe='/~')}{query}"
        reply = await self._send_signed(method, url.format(home), headers, body, region, limit)
        named = redirect_region(reply)
        if named not in {None, region}:
            home, region = await self._locate(bucket, named)
            reply = await self._send_signed(method, url.format(home), headers, body, region, limit)
        return reply

    async def _send_signed(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, region: str, limit: int
    ) -> HttpReply:
        if self._chain is not None:
            try:
                keys = await self._chain.keys()
            except NoCredentials as error:
                raise RequestFailed(
                    ErrorKind.UNAUTHENTICATED, f"no credentials: {error.found}", error.remedy
                ) from error
            headers = sign_request(method, url, headers, body, keys=keys, region=region, service="s3")
        return await self._pool.exchange(method, url, headers, body, limit)

    async def _locate(self, bucket: str, region: str | None) -> tuple[str, str]:
        """Return the URL of a bucket and its region; with None for `region`, the configured one."""
        addresses = await self._endpoints.addresses_for(
            replace(self._endpoint, region=region) if region is not None else self._endpoint
        )
        found = self._buckets[bucket] = addresses.bucket_url(bucket), addresses.region
        return found


def _check_accepted(reply: HttpReply) -> HttpReply:
    if reply.status not in {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.NO_CONTENT}:
        raise failure_of(reply)
    return reply


def _if_match(etag: str) -> Mapping[str, str]:
    """Return the condition for an etag. `*` would match any version, and many services ignore an empty one."""
    if _ETAG.fullmatch(etag) is None:
        raise RequestFailed(ErrorKind.PRECONDITION_FAILED, f"an invalid etag ({len(etag)} characters)")
    return {"if-match": etag}


def _etag_of(reply: HttpReply) -> str:
    """Return the etag of an answer, without the additions of a proxy that compressed it."""
    etag = reply.headers.get("ETag", "")
    if reply.is_compressed:
        etag = _PROXY_SUFFIX.sub("", etag)
    if _ETAG.fullmatch(etag) is None:
        raise RequestFailed(ErrorKind.NO_ETAG, "an answer that has no ETag")
    return etag


def _bucket_and_path(key: str) -> tuple[str, str]:
    bucket, _, path = key.removeprefix("s3://").partition("/")
    return bucket, path
