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
from sfn.google import Chain
from sfn.store.content import media_type
from sfn.store.gcs import answers
from sfn.store.gcs.terms import GcsTerms
from sfn.store.objects import Found, Kind, Page, Refused
from sfn.store.pool import BODY_LIMIT, Pool, Reply

MADE_UP: Final = "1000000000000000"
"""A generation that no object has. They are microseconds since 1970; this one is of 2001, before the service was."""
PAUSES: Final = (1.0, 1.5, 2.0)
"""Seconds before a change that came too soon is sent again, each time. An object takes one change a second
(https://cloud.google.com/storage/quotas#objects)."""

_GOOGLES: Final = "https://storage.googleapis.com"
_SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
_MARK: Final = "sfn-write"
_GENERATION: Final = re.compile(r"[1-9][0-9]{0,18}")
_LAST: Final = 2**63 - 1
_AS_STORED: Final = {"accept-encoding": "gzip"}
"""For parts: else an object that is stored compressed is decompressed on the way, and all of it comes for a part."""
_PLAIN: Final = {"accept-encoding": "identity"}


class GcsObjects:
    """Implements `Objects`; keys are `gs://bucket/…`, tags are generations.

    Args:
        terms: where, as whom.
        pool: what requests are sent over; shared with others.
        pauses: as `PAUSES`.
    """

    def __init__(self, terms: GcsTerms, pool: Pool, *, pauses: Sequence[float] = PAUSES) -> None:
        self._pool, self._pauses = pool, pauses
        self._home = (terms.endpoint or _GOOGLES).rstrip("/")
        self._chain = Chain(terms.identity, _SCOPES) if terms.identity is not None else None
        self._billed = {} if terms.billing_project is None else {"x-goog-user-project": terms.billing_project}
        self._known: set[str] = set()

    async def get(self, key: str, most: int) -> Found:
        reply = await self._accepted(key, await self._read(key, _PLAIN, most))
        tag = reply.headers.get("x-goog-generation")
        if tag is None:
            raise Refused(Kind.NO_PLACE, "an answer that is not Cloud Storage's: it has no generation")
        return Found(reply.body, tag, reply.headers.get(f"x-goog-meta-{_MARK}"))

    async def part(self, key: str, start: int, most: int) -> bytes:
        reply = await self._read(key, {**_AS_STORED, "range": f"bytes={start}-{start + most - 1}"}, most)
        if reply.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return b""
        if reply.status == HTTPStatus.OK and start:
            raise Refused(Kind.UNFIT, "the whole object for a part of it")
        return (await self._accepted(key, reply)).body

    async def put(self, key: str, body: bytes, replacing: str | None, mark: str) -> str:
        bucket, path = _split(key)
        condition = "0" if replacing is None else _generation(replacing)
        asked = urlencode({"uploadType": "multipart", "ifGenerationMatch": condition, "fields": "generation"})
        kind = media_type(key)
        told = {"name": path, "cacheControl": "no-store", "contentType": kind, "metadata": {_MARK: mark}}
        boundary = secrets.token_hex(16)
        reply = await self._changed(
            "POST",
            f"{self._home}/upload/storage/v1/b/{_quoted(bucket)}/o?{asked}",
            {"content-type": f"multipart/related; boundary={boundary}"},
            _related(boundary, ("application/json; charset=utf-8", msgspec.json.encode(told)), (kind, body)),
        )
        return answers.generation(await self._accepted(key, reply, of_bucket=replacing is None))

    async def delete(self, key: str, expected: str | None) -> None:
        bucket, path = _split(key)
        condition = "" if expected is None else f"?ifGenerationMatch={_generation(expected)}"
        await self._accepted(key, await self._changed("DELETE", f"{self._at(bucket)}/o/{_quoted(path)}{condition}"))

    async def page(self, prefix: str, most: int, begin: str | None) -> Page:
        bucket, path = _split(prefix)
        query = {"prefix": path, "delimiter": "/", "maxResults": str(most), "fields": "items(name),nextPageToken"}
        if begin is not None:
            query["pageToken"] = begin
        asked = urlencode(query, quote_via=quote, safe="")
        reply = await self._sent("GET", f"{self._at(bucket)}/o?{asked}", _PLAIN)
        return answers.page(await self._accepted(prefix, reply, of_bucket=True), f"gs://{bucket}/")

    async def close(self) -> None:
        pass

    async def _read(self, key: str, headers: Mapping[str, str], most: int) -> Reply:
        bucket, path = _split(key)
        url = f"{self._home}/{_quoted(bucket)}/{_quoted(path)}"
        return await self._sent("GET", url, headers, most=most)

    async def _changed(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        """The answer to a change, sent again where the object was changed a moment ago.

        Raises:
            Refused: it still is too soon after all pauses.
        """
        pauses = iter(self._pauses)
        while True:
            reply = await self._sent(method, url, {**_PLAIN, **(headers or {})}, body)
            if not answers.is_too_often(reply):
                return reply
            refused = answers.refused(reply)
            pause = next(pauses, None)
            if pause is None or pause < (refused.retry_after or 0.0):
                raise Refused(Kind.TOO_OFTEN, refused.found, retry_after=refused.retry_after)
            await anyio.sleep(pause)

    async def _accepted(self, key: str, reply: Reply, *, of_bucket: bool = False) -> Reply:
        """An answer that is what was asked for.

        Args:
            of_bucket: nothing can be missing but the bucket.

        Raises:
            Refused: it is another.
        """
        bucket, _ = _split(key)
        if reply.status in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.NO_CONTENT}:
            self._known.add(bucket)
            return reply
        refused = answers.refused(reply)
        if answers.is_vague(reply) and (of_bucket or not await self._is_there(bucket)):
            refused = Refused(Kind.NO_PLACE, refused.found)
        if refused.kind is Kind.NO_PLACE:
            self._known.discard(bucket)
        raise refused

    async def _is_there(self, bucket: str) -> bool:
        """Whether there is such a bucket, asked once. Whoever may not look at it is told no less."""
        if bucket not in self._known:
            reply = await self._sent("GET", f"{self._at(bucket)}?fields=name", _PLAIN)
            if reply.status == HTTPStatus.NOT_FOUND:
                return False
            if reply.status not in {HTTPStatus.OK, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise answers.refused(reply)
            self._known.add(bucket)
        return True

    async def _sent(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", *, most: int = BODY_LIMIT
    ) -> Reply:
        shown = {}
        if self._chain is not None:
            try:
                shown["authorization"] = f"Bearer {await self._chain.token()}"
            except NoCredentials as error:
                raise Refused(Kind.UNKNOWN, f"no credentials: {error.found}", error.remedy) from error
        return await self._pool.exchange(method, url, {**headers, **self._billed, **shown}, body, most)

    def _at(self, bucket: str) -> str:
        return f"{self._home}/storage/v1/b/{_quoted(bucket)}"


def _generation(tag: str) -> str:
    """A tag that may be a condition: 0 would stand for what is not there, and other nonsense for no condition at all.

    Raises:
        Refused: no object has it.
    """
    if _GENERATION.fullmatch(tag) is None or int(tag) > _LAST:
        raise Refused(Kind.MOVED, f"a tag that is no generation ({len(tag)} characters)")
    return tag


def _related(boundary: str, *parts: tuple[str, bytes]) -> bytes:
    """The body of an upload: media types with contents."""
    begun = b"".join(
        b"--%b\r\ncontent-type: %b\r\n\r\n%b\r\n" % (boundary.encode(), kind.encode(), content)
        for kind, content in parts
    )
    return begun + b"--%b--\r\n" % boundary.encode()


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _split(key: str) -> tuple[str, str]:
    bucket, _, path = key.removeprefix("gs://").partition("/")
    return bucket, path
