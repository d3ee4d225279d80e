"""Cloud Storage's requests for one object.

Changes and listings go by its JSON API, reads by its XML API: only there does one answer hold the content, the
generation and what the object was marked with (https://pkg.go.dev/cloud.google.com/go/storage#Reader.Metadata), and
only there do errors have codes and tell a missing object from a missing bucket. Both APIs take the same tokens at the
same address.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode

import anyio
import msgspec

from sfn.errors import NoCredentials
from sfn.google_auth import GoogleCredentialChain
from sfn.store.content import media_type
from sfn.store.gcs import answers
from sfn.store.gcs.terms import GcsOptions
from sfn.store.objects import ErrorKind, FetchedObject, ObjectPage, RequestFailed
from sfn.store.pool import BODY_LIMIT, HttpPool, HttpReply

IMPOSSIBLE_GENERATION: Final = "1000000000000000"
"""A generation that no object has. They are microseconds since 1970; this one is of 2001, before the service was."""
RETRY_PAUSES: Final = (1.0, 1.5, 2.0)
"""Seconds before a change that came too soon is sent again, each time. An object takes one change a second
(https://cloud.google.com/storage/quotas#objects)."""

_GOOGLE_ENDPOINT: Final = "https://storage.googleapis.com"
_SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
_WRITE_ID: Final = "sfn-write"
_GENERATION: Final = re.compile(r"[1-9][0-9]{0,18}")
_MAX_GENERATION: Final = 2**63 - 1
_AS_STORED: Final = {"accept-encoding": "gzip"}
"""For parts: else an object that is stored compressed is decompressed on the way, and all of it comes for a part."""
_PLAIN: Final = {"accept-encoding": "identity"}


class GcsClient:
    """Implements `ObjectClient`; keys are `gs://bucket/…`, tags are generations.

    Args:
        terms: where, as whom.
        pool: what requests are sent over; shared with others.
        pauses: as `RETRY_PAUSES`.
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
            raise RequestFailed(ErrorKind.INVALID_OBJECT, "the whole object for a part of it")
        return (await self._check_accepted(key, reply)).body

    async def put(self, key: str, body: bytes, replacing: str | None, write_id: str) -> str:
        bucket, path = _bucket_and_path(key)
        condition = "0" if replacing is None else _checked_generation(replacing)
        asked = urlencode({"uploadType": "multipart", "ifGenerationMatch": condition, "fields": "generation"})
        kind = media_type(key)
        properties = {"name": path, "cacheControl": "no-store", "contentType": kind, "metadata": {_WRITE_ID: write_id}}
        boundary = secrets.token_hex(16)
        reply = await self._change(
            "POST",
            f"{self._endpoint}/upload/storage/v1/b/{_quoted(bucket)}/o?{asked}",
            {"content-type": f"multipart/related; boundary={boundary}"},
            _multipart_body(
                boundary, ("application/json; charset=utf-8", msgspec.json.encode(properties)), (kind, body)
            ),
        )
        return answers.parse_generation(await self._check_accepted(key, reply, of_bucket=replacing is None))

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
        asked = urlencode(query, quote_via=quote, safe="")
        reply = await self._send("GET", f"{self._bucket_url(bucket)}/o?{asked}", _PLAIN)
        return answers.parse_page(await self._check_accepted(prefix, reply, of_bucket=True), f"gs://{bucket}/")

    async def close(self) -> None:
        pass

    async def _read(self, key: str, headers: Mapping[str, str], limit: int) -> HttpReply:
        bucket, path = _bucket_and_path(key)
        url = f"{self._endpoint}/{_quoted(bucket)}/{_quoted(path)}"
        return await self._send("GET", url, headers, limit=limit)

    async def _change(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpReply:
        """The answer to a change, sent again where the object was changed a moment ago.

        Raises:
            Refused: it still is too soon after all pauses.
        """
        pauses = iter(self._pauses)
        while True:
            reply = await self._send(method, url, {**_PLAIN, **(headers or {})}, body)
            if not answers.is_rate_limited(reply):
                return reply
            refused = answers.failure_of(reply)
            pause = next(pauses, None)
            if pause is None or pause < (refused.retry_after or 0.0):
                raise RequestFailed(ErrorKind.CHANGED_TOO_OFTEN, refused.found, retry_after=refused.retry_after)
            await anyio.sleep(pause)

    async def _check_accepted(self, key: str, reply: HttpReply, *, of_bucket: bool = False) -> HttpReply:
        """An answer that is what was asked for.

        Args:
            of_bucket: nothing can be missing but the bucket.

        Raises:
            Refused: it is another.
        """
        bucket, _ = _bucket_and_path(key)
        if reply.status in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.NO_CONTENT}:
            self._known_buckets.add(bucket)
            return reply
        refused = answers.failure_of(reply)
        if answers.is_ambiguous_missing(reply) and (of_bucket or not await self._bucket_exists(bucket)):
            refused = RequestFailed(ErrorKind.NO_BUCKET, refused.found)
        if refused.kind is ErrorKind.NO_BUCKET:
            self._known_buckets.discard(bucket)
        raise refused

    async def _bucket_exists(self, bucket: str) -> bool:
        """Whether there is such a bucket, asked once. Whoever may not look at it is told no less."""
        if bucket not in self._known_buckets:
            reply = await self._send("GET", f"{self._bucket_url(bucket)}?fields=name", _PLAIN)
            if reply.status == HTTPStatus.NOT_FOUND:
                return False
            if reply.status not in {HTTPStatus.OK, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise answers.failure_of(reply)
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
    """A tag that may be a condition: 0 would stand for what is not there, and other nonsense for no condition at all.

    Raises:
        Refused: no object has it.
    """
    if _GENERATION.fullmatch(etag) is None or int(etag) > _MAX_GENERATION:
        raise RequestFailed(ErrorKind.PRECONDITION_FAILED, f"a tag that is no generation ({len(etag)} characters)")
    return etag


def _multipart_body(boundary: str, *parts: tuple[str, bytes]) -> bytes:
    """The body of an upload: media types with contents."""
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
