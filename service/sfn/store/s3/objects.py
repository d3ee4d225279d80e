"""S3's requests for one object, signed and sent over one pool of connections.

Not by botocore's own client, which takes four times as long for each. Its credentials, its signatures and its rules of
endpoints are used all the same.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import md5
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode

from sfn.aws import Chain, signed
from sfn.errors import NoCredentials
from sfn.store.content import media_type
from sfn.store.objects import Found, Kind, Page, Refused
from sfn.store.pool import BODY_LIMIT, Pool, Reply
from sfn.store.s3 import answers
from sfn.store.s3.addresses import AddressBook, Place
from sfn.store.s3.terms import S3Terms

MADE_UP: Final = f'"{"0" * 32}"'
"""An entity tag that no content has."""
_MARK: Final = "x-amz-meta-sfn-write"
_TAG: Final = re.compile(r"(?!\*\Z)[\x21-\x7e]+")
_OF_A_PROXY: Final = re.compile(r'W/(?=")|[-;](?:gzip|deflate)(?="\Z)')
"""What a proxy that compresses adds to an entity tag: nginx makes it weak, Apache names the compression."""


class S3Objects:
    """Implements `Objects`; keys are `s3://bucket/…`.

    Args:
        terms: where, as whom.
        pool, book: what requests are sent over, and where to; shared with others.
    """

    def __init__(self, terms: S3Terms, pool: Pool, book: AddressBook) -> None:
        self._place, self._pool, self._book = Place.of(terms), pool, book
        self._chain = Chain(terms.identity) if terms.identity is not None else None
        self._buckets: dict[str, tuple[str, str]] = {}

    async def get(self, key: str, most: int) -> Found:
        reply = await self._answered("GET", key, most=most)
        return Found(reply.body, _tagged(reply), reply.headers.get(_MARK))

    async def part(self, key: str, start: int, most: int) -> bytes:
        reply = await self._sent("GET", key, {"range": f"bytes={start}-{start + most - 1}"}, most=most)
        if reply.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return b""
        if reply.status == HTTPStatus.OK and start:
            raise Refused(Kind.UNFIT, "the whole object for a part of it")
        return _accepted(reply).body

    async def put(self, key: str, body: bytes, replacing: str | None, mark: str) -> str:
        condition = {"if-none-match": "*"} if replacing is None else _only(replacing)
        headers = {
            "cache-control": "no-store",
            "content-type": media_type(key),
            # Buckets with a retention take no object without a digest.
            "content-md5": b64encode(md5(body, usedforsecurity=False).digest()).decode(),
            _MARK: mark,
        }
        return _tagged(await self._answered("PUT", key, {**headers, **condition}, body))

    async def delete(self, key: str, expected: str | None) -> None:
        await self._answered("DELETE", key, {} if expected is None else _only(expected))

    async def page(self, prefix: str, most: int, begin: str | None) -> Page:
        bucket, path = _split(prefix)
        query = {"list-type": "2", "prefix": path, "delimiter": "/", "max-keys": str(most), "encoding-type": "url"}
        if begin is not None:
            query["continuation-token"] = begin
        # A signature is of the parameters in order.
        asked = urlencode(sorted(query.items()), quote_via=quote, safe="")
        reply = await self._answered("GET", f"s3://{bucket}/", query=f"?{asked}")
        return answers.page(reply, f"s3://{bucket}/")

    async def close(self) -> None:
        pass

    async def _answered(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        query: str = "",
        most: int = BODY_LIMIT,
    ) -> Reply:
        reply = await self._sent(method, key, headers or {}, body, query=query, most=most)
        if method != "GET" and answers.is_error(reply):
            # Some services begin their answer before they know how it ends.
            raise answers.refused(reply)
        return _accepted(reply)

    async def _sent(
        self, method: str, key: str, headers: Mapping[str, str], body: bytes = b"", *, query: str = "", most: int
    ) -> Reply:
        """A request to where its bucket is; once more where AWS tells that it is in another region."""
        bucket, path = _split(key)
        home, region = self._buckets.get(bucket) or await self._found(bucket, None)
        url = f"{{}}{quote(path, safe='/~')}{query}"
        reply = await self._exchanged(method, url.format(home), headers, body, region, most)
        named = answers.region(reply)
        if named not in {None, region}:
            home, region = await self._found(bucket, named)
            reply = await self._exchanged(method, url.format(home), headers, body, region, most)
        return reply

    async def _exchanged(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, region: str, most: int
    ) -> Reply:
        if self._chain is not None:
            try:
                keys = await self._chain.keys()
            except NoCredentials as error:
                raise Refused(Kind.UNKNOWN, f"no credentials: {error.found}", error.remedy) from error
            headers = signed(method, url, headers, body, keys=keys, region=region, service="s3")
        return await self._pool.exchange(method, url, headers, body, most)

    async def _found(self, bucket: str, region: str | None) -> tuple[str, str]:
        """The URL of a bucket and its region; None for the one that was told."""
        addresses = await self._book.at(replace(self._place, region=region) if region is not None else self._place)
        found = self._buckets[bucket] = addresses.of(bucket), addresses.region
        return found


def _accepted(reply: Reply) -> Reply:
    if reply.status not in {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.NO_CONTENT}:
        raise answers.refused(reply)
    return reply


def _only(tag: str) -> Mapping[str, str]:
    """The condition that an object has this tag; a star would be that it has any, and many take nothing for none."""
    if _TAG.fullmatch(tag) is None:
        raise Refused(Kind.MOVED, f"a tag that is no entity tag ({len(tag)} characters)")
    return {"if-match": tag}


def _tagged(reply: Reply) -> str:
    """Return the entity tag of an answer, as the service gave it to a proxy that compressed the answer."""
    tag = reply.headers.get("ETag", "")
    if reply.is_compressed:
        tag = _OF_A_PROXY.sub("", tag)
    if _TAG.fullmatch(tag) is None:
        raise Refused(Kind.TAGLESS, "an answer that has no ETag")
    return tag


def _split(key: str) -> tuple[str, str]:
    bucket, _, path = key.removeprefix("s3://").partition("/")
    return bucket, path
