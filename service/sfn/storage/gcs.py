"""`GcsClient`: objects on Google Cloud Storage."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

import anyio
import msgspec

from sfn.errors import NoCredentials
from sfn.google_auth import GoogleCredentialChain, GoogleIdentity
from sfn.storage import ErrorKind, FetchedObject, ObjectPage, RequestFailed, media_type
from sfn.storage.remote_store import BODY_LIMIT, HttpPool, HttpReply


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsOptions:
    """Address and identity of Cloud Storage.

    Attributes:
        identity: identity that requests carry; None for requests without a token.
        endpoint: URL of a service other than Google's own.
        billing_project: project that pays for the requests; None for the bucket's own.
    """

    identity: GoogleIdentity | None = GoogleIdentity()
    endpoint: str | None = None
    billing_project: str | None = None


_KIND_BY_CODE: Final = {
    "noSuchBucket": ErrorKind.NO_BUCKET,
    "invalidBucketName": ErrorKind.NO_BUCKET,
    "orgPolicyConstraintFailed": ErrorKind.DENIED,
    "objectUnderActiveHold": ErrorKind.DENIED,
    "retentionPolicyNotMet": ErrorKind.DENIED,
    "cloudKmsDecryptionKeyNotFound": ErrorKind.DENIED,
    "cloudKmsDisabledKey": ErrorKind.DENIED,
    "cloudKmsEncryptionKeyNotFound": ErrorKind.DENIED,
    "accessNotConfigured": ErrorKind.UNAUTHENTICATED,
    "accountDisabled": ErrorKind.UNAUTHENTICATED,
    "accountProblem": ErrorKind.UNAUTHENTICATED,
    "expiredToken": ErrorKind.UNAUTHENTICATED,
    "invalidToken": ErrorKind.UNAUTHENTICATED,
    "userProjectAccessDenied": ErrorKind.UNAUTHENTICATED,
    "userProjectAccountProblem": ErrorKind.UNAUTHENTICATED,
    "userProjectInvalid": ErrorKind.UNAUTHENTICATED,
    "userProjectMissing": ErrorKind.UNAUTHENTICATED,
    "quotaExceeded": ErrorKind.THROTTLED,
    "rateLimitExceeded": ErrorKind.THROTTLED,
    "slowDown": ErrorKind.THROTTLED,
    "userRateLimitExceeded": ErrorKind.THROTTLED,
    "notImplemented": ErrorKind.UNSUPPORTED,
    "invalidURI": ErrorKind.INVALID_OBJECT,
    "uploadTooLarge": ErrorKind.INVALID_OBJECT,
}
"""Meaning of codes that differ from their status, or have no useful one."""
_RETAINED: Final = "lift the retention policy or the hold: it forbids to replace and to delete these files"
_KMS_REMEDY: Final = "check the Cloud KMS key of the bucket"
_BILLING_REMEDY: Final = "check the billing account of the bucket's project"
_PROJECT_REMEDY: Final = "set `stores.NAME.billing_project` to a project that pays and that the principal may use"
_REMEDIES: Final = {
    "orgPolicyConstraintFailed": "check the organisation's policies",
    "objectUnderActiveHold": _RETAINED,
    "retentionPolicyNotMet": _RETAINED,
    "cloudKmsDecryptionKeyNotFound": _KMS_REMEDY,
    "cloudKmsDisabledKey": _KMS_REMEDY,
    "cloudKmsEncryptionKeyNotFound": _KMS_REMEDY,
    "accessNotConfigured": "enable the Cloud Storage API in the principal's project",
    "accountDisabled": _BILLING_REMEDY,
    "accountProblem": _BILLING_REMEDY,
    "authenticationRequiredRequesterPays": _PROJECT_REMEDY,
    "userProjectAccessDenied": _PROJECT_REMEDY,
    "userProjectAccountProblem": "check the billing account of the project that pays, and of the bucket's",
    "userProjectInvalid": _PROJECT_REMEDY,
    "userProjectMissing": _PROJECT_REMEDY,
}
_KIND_BY_STATUS: Final = {
    HTTPStatus.NOT_MODIFIED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.UNAUTHORIZED: ErrorKind.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: ErrorKind.DENIED,
    HTTPStatus.NOT_FOUND: ErrorKind.MISSING,
    HTTPStatus.REQUEST_TIMEOUT: ErrorKind.NO_ANSWER,
    HTTPStatus.CONFLICT: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.PRECONDITION_FAILED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorKind.THROTTLED,
}
_CODE: Final = re.compile(r"[A-Za-z]{1,64}")


class _Detail(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct):
    errors: tuple[_Detail, ...] = ()


class _GcsErrorBody(msgspec.Struct):
    error: _Details


class _Item(msgspec.Struct):
    name: str


class _ObjectList(msgspec.Struct, rename="camel"):
    items: tuple[_Item, ...] = ()
    next_page_token: str | None = None


class _WrittenObject(msgspec.Struct):
    generation: str


def failure_of(reply: HttpReply) -> RequestFailed:
    """Return the failure that an answer means; see also `is_ambiguous_missing`."""
    code = error_code(reply)
    kind = _KIND_BY_CODE.get(code) or _kind_of(reply.status)
    found = f"status {reply.status}, {code or 'without an error of Cloud Storage'}"
    return RequestFailed(kind, found, _REMEDIES.get(code, ""), retry_after(reply))


def error_code(reply: HttpReply) -> str:
    """Return the service's error code, with a lower-case first letter; "" if there is no valid one."""
    try:
        errors = msgspec.json.decode(reply.body, type=_GcsErrorBody).error.errors
        code = errors[0].reason if errors else ""
    except (ValueError, RecursionError):
        code = _xml_code(reply.body)
    # The documentation writes some codes with their domain before a dot.
    code = code.rpartition(".")[2]
    return code[:1].lower() + code[1:] if _CODE.fullmatch(code) else ""


def is_ambiguous_missing(reply: HttpReply) -> bool:
    """Return True if the object or the bucket is missing, and the answer does not say which: JSON answers never do."""
    return reply.status == HTTPStatus.NOT_FOUND and error_code(reply) not in {"noSuchKey", "noSuchBucket"}


def is_rate_limited(reply: HttpReply) -> bool:
    """Return True if a change is refused because the object was changed a moment ago.

    Other limits have the same code, and waiting helps there, too.
    """
    return reply.status == HTTPStatus.TOO_MANY_REQUESTS and error_code(reply) == "rateLimitExceeded"


def retry_after(reply: HttpReply) -> float | None:
    """Return the seconds that the service asks us to wait."""
    value = reply.headers.get("Retry-After")
    return float(value) if value is not None and value.isdecimal() else None


def parse_page(reply: HttpReply, prefix: str) -> ObjectPage:
    """Return a page of a listing.

    Args:
        prefix: prepended to each name.

    Raises:
        RequestFailed: the answer is no listing.
    """
    try:
        listing = msgspec.json.decode(reply.body, type=_ObjectList)
    except (ValueError, RecursionError) as error:
        raise RequestFailed(ErrorKind.NO_ANSWER, "a listing that cannot be read") from error
    return ObjectPage(tuple(prefix + item.name for item in listing.items), listing.next_page_token or None)


def parse_generation(reply: HttpReply) -> str:
    """Return the generation of a written object.

    Raises:
        RequestFailed: the answer has none.
    """
    try:
        return msgspec.json.decode(reply.body, type=_WrittenObject).generation
    except (ValueError, RecursionError) as error:
        raise RequestFailed(ErrorKind.NO_ANSWER, "an answer to a write that cannot be read") from error


def _kind_of(status: int) -> ErrorKind:
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[HTTPStatus(status)]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorKind.NO_ANSWER
    # A lower status is a redirect, which may lead anywhere.
    return ErrorKind.REJECTED if status >= HTTPStatus.BAD_REQUEST else ErrorKind.NO_BUCKET


def _xml_code(body: bytes) -> str:
    try:
        root = ET.fromstring(body)  # noqa: S314 - bounded in length, and expat bounds what entities become
    except (ET.ParseError, ValueError, LookupError):
        # The last two come from an encoding that the parser does not support.
        return ""
    return root.findtext("{*}Code", "")


IMPOSSIBLE_GENERATION: Final = "1000000000000000"
"""A generation that no object has. Generations are microseconds since 1970; this is a time in 2001, before GCS."""
RETRY_PAUSES: Final = (1.0, 1.5, 2.0)
"""Seconds before each repetition of a change that came too soon. An object takes one change per second
(https://cloud.google.com/storage/quotas#objects)."""

_GOOGLE_ENDPOINT: Final = "https://storage.googleapis.com"
_SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
_WRITE_ID: Final = "sfn-write"
_GENERATION: Final = re.compile(r"[1-9][0-9]{0,18}")
_MAX_GENERATION: Final = 2**63 - 1
_AS_STORED: Final = {"accept-encoding": "gzip"}
"""Header for parts: without it, a compressed object is decompressed on the way, and sent whole instead of a part."""
_PLAIN: Final = {"accept-encoding": "identity"}


class GcsClient:
    """An `ObjectClient` for keys `gs://bucket/…`. Etags are generations.

    Args:
        options: address and identity.
        pool: connections, shared with other clients.
        pauses: see `RETRY_PAUSES`.
    """

    def __init__(self, options: GcsOptions, pool: HttpPool, *, pauses: Sequence[float] = RETRY_PAUSES) -> None:
        self._pool, self._pauses = pool, pauses
        self._endpoint = (options.endpoint or _GOOGLE_ENDPOINT).rstrip("/")
        self._chain = GoogleCredentialChain(options.identity, _SCOPES) if options.identity is not None else None
        self._billing_headers = (
            {} if options.billing_project is None else {"x-goog-user-project": options.billing_project}
        )
        self._known_buckets: set[str] = set()

    async def get(self, key: str, limit: int) -> FetchedObject:
        reply = await self._check_accepted(key, await self._read(key, _PLAIN, limit))
        etag = reply.headers.get("x-goog-generation")
        if etag is None:
            raise RequestFailed(ErrorKind.NO_BUCKET, "an answer that is not Cloud Storage's: it has no generation")
        return FetchedObject(reply.body, etag, reply.headers.get(f"x-goog-meta-{_WRITE_ID}"))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        reply = await self._read(key, {**_AS_STORED, "range": f"bytes={start}-{start + length - 1}"}, length)
        if reply.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return b""
        if reply.status == HTTPStatus.OK and start:
            raise RequestFailed(ErrorKind.INVALID_OBJECT, "the whole object instead of a part")
        return (await self._check_accepted(key, reply)).body

    async def put(self, key: str, body: bytes, replacing: str | None, write_id: str) -> str:
        bucket, path = _bucket_and_path(key)
        condition = "0" if replacing is None else _checked_generation(replacing)
        query = urlencode({"uploadType": "multipart", "ifGenerationMatch": condition, "fields": "generation"})
        kind = media_type(key)
        properties = {"name": path, "cacheControl": "no-store", "contentType": kind, "metadata": {_WRITE_ID: write_id}}
        boundary = secrets.token_hex(16)
        reply = await self._change(
            "POST",
            f"{self._endpoint}/upload/storage/v1/b/{_quoted(bucket)}/o?{query}",
            {"content-type": f"multipart/related; boundary={boundary}"},
            _multipart_body(
                boundary, ("application/json; charset=utf-8", msgspec.json.encode(properties)), (kind, body)
            ),
        )
        return parse_generation(await self._check_accepted(key, reply, of_bucket=replacing is None))

    async def delete(self, key: str, expected: str | None) -> None:
        bucket, path = _bucket_and_path(key)
        condition = "" if expected is None else f"?ifGenerationMatch={_checked_generation(expected)}"
        await self._check_accepted(
            key, await self._change("DELETE", f"{self._bucket_url(bucket)}/o/{_quoted(path)}{condition}")
        )

    async def list_page(self, prefix: str, limit: int, continuation: str | None) -> ObjectPage:
        bucket, path = _bucket_and_path(prefix)
        query = {"prefix": path, "delimiter": "/", "maxResults": str(limit), "fields": "items(name),nextPageToken"}
        if continuation is not None:
            query["pageToken"] = continuation
        parameters = urlencode(query, quote_via=quote, safe="")
        reply = await self._send("GET", f"{self._bucket_url(bucket)}/o?{parameters}", _PLAIN)
        return parse_page(await self._check_accepted(prefix, reply, of_bucket=True), f"gs://{bucket}/")

    async def close(self) -> None:
        pass

    async def _read(self, key: str, headers: Mapping[str, str], limit: int) -> HttpReply:
        bucket, path = _bucket_and_path(key)
        url = f"{self._endpoint}/{_quoted(bucket)}/{_quoted(path)}"
        return await self._send("GET", url, headers, limit=limit)

    async def _change(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpReply:
        """Send a change and return the answer; repeat it after a pause if the object was changed a moment ago.

        Raises:
            RequestFailed: it is still too soon after all pauses.
        """
        pauses = iter(self._pauses)
        while True:
            reply = await self._send(method, url, {**_PLAIN, **(headers or {})}, body)
            if not is_rate_limited(reply):
                return reply
            refused = failure_of(reply)
            pause = next(pauses, None)
            if pause is None or pause < (refused.retry_after or 0.0):
                raise RequestFailed(ErrorKind.CHANGED_TOO_OFTEN, refused.found, retry_after=refused.retry_after)
            await anyio.sleep(pause)

    async def _check_accepted(self, key: str, reply: HttpReply, *, of_bucket: bool = False) -> HttpReply:
        """Return an answer if it is a success.

        Args:
            of_bucket: True if nothing but the bucket can be missing.

        Raises:
            RequestFailed: the answer is a failure.
        """
        bucket, _ = _bucket_and_path(key)
        if reply.status in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.NO_CONTENT}:
            self._known_buckets.add(bucket)
            return reply
        refused = failure_of(reply)
        if is_ambiguous_missing(reply) and (of_bucket or not await self._bucket_exists(bucket)):
            refused = RequestFailed(ErrorKind.NO_BUCKET, refused.found)
        if refused.kind is ErrorKind.NO_BUCKET:
            self._known_buckets.discard(bucket)
        raise refused

    async def _bucket_exists(self, bucket: str) -> bool:
        """Return True if the bucket exists; a positive answer is cached. A 404 needs no permission."""
        if bucket not in self._known_buckets:
            reply = await self._send("GET", f"{self._bucket_url(bucket)}?fields=name", _PLAIN)
            if reply.status == HTTPStatus.NOT_FOUND:
                return False
            if reply.status not in {HTTPStatus.OK, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise failure_of(reply)
            self._known_buckets.add(bucket)
        return True

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", *, limit: int = BODY_LIMIT
    ) -> HttpReply:
        shown = {}
        if self._chain is not None:
            try:
                shown["authorization"] = f"Bearer {await self._chain.token()}"
            except NoCredentials as error:
                raise RequestFailed(
                    ErrorKind.UNAUTHENTICATED, f"no credentials: {error.found}", error.remedy
                ) from error
        return await self._pool.exchange(method, url, {**headers, **self._billing_headers, **shown}, body, limit)

    def _bucket_url(self, bucket: str) -> str:
        return f"{self._endpoint}/storage/v1/b/{_quoted(bucket)}"


def _checked_generation(etag: str) -> str:
    """Return an etag if it is valid as a condition. 0 would stand for a missing object, and GCS ignores invalid ones.

    Raises:
        RequestFailed: no object has this etag.
    """
    if _GENERATION.fullmatch(etag) is None or int(etag) > _MAX_GENERATION:
        raise RequestFailed(ErrorKind.PRECONDITION_FAILED, f"an etag that is no generation ({len(etag)} characters)")
    return etag


def _multipart_body(boundary: str, *parts: tuple[str, bytes]) -> bytes:
    """Return the body of an upload from parts, each a media type and a content."""
    begun = b"".join(
        b"--%b\r\ncontent-type: %b\r\n\r\n%b\r\n" % (boundary.encode(), kind.encode(), content)
        for kind, content in parts
    )
    return begun + b"--%b--\r\n" % boundary.encode()


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _bucket_and_path(key: str) -> tuple[str, str]:
    bucket, _, path = key.removeprefix("gs://").partition("/")
    return bucket, path
