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

from sfn.aws_auth import AwsCredentialChain, sign_request
from sfn.errors import NoCredentials
from sfn.store.content import media_type
from sfn.store.objects import ErrorKind, FetchedObject, ObjectPage, RequestFailed
from sfn.store.pool import BODY_LIMIT, HttpPool, HttpReply
from sfn.store.s3 import answers
from sfn.store.s3.addresses import BucketEndpoints, EndpointOptions
from sfn.store.s3.terms import S3Options

IMPOSSIBLE_ETAG: Final = f'"{"0" * 32}"'
"""An entity tag that no content has."""
_WRITE_ID_HEADER: Final = "x-amz-meta-sfn-write"
_ETAG: Final = re.compile(r"(?!\*\Z)[\x21-\x7e]+")
_PROXY_SUFFIX: Final = re.compile(r'W/(?=")|[-;](?:gzip|deflate)(?="\Z)')
"""What a proxy that compresses adds to an entity tag: nginx makes it weak, Apache names the compression."""


class S3Client:
    """Implements `ObjectClient`; keys are `s3://bucket/…`.

    Args:
        terms: where, as whom.
        pool, book: what requests are sent over, and where to; shared with others.
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
            raise RequestFailed(ErrorKind.INVALID_OBJECT, "the whole object for a part of it")
        return _check_accepted(reply).body

    async def put(self, key: str, body: bytes, replacing: str | None, write_id: str) -> str:
        condition = {"if-none-match": "*"} if replacing is None else _if_match(replacing)
        headers = {
            "cache-control": "no-store",
            "content-type": media_type(key),
            # Buckets with a retention take no object without a digest.
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
        # A signature is of the parameters in order.
        asked = urlencode(sorted(query.items()), quote_via=quote, safe="")
        reply = await self._request("GET", f"s3://{bucket}/", query=f"?{asked}")
        return answers.parse_page(reply, f"s3://{bucket}/")

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
        if method != "GET" and answers.is_error(reply):
            # Some services begin their answer before they know how it ends.
            raise answers.failure_of(reply)
        return _check_accepted(reply)

    async def _send(
        self, method: str, key: str, headers: Mapping[str, str], body: bytes = b"", *, query: str = "", limit: int
    ) -> HttpReply:
        """A request to where its bucket is; once more where AWS tells that it is in another region."""
        bucket, path = _bucket_and_path(key)
        home, region = self._buckets.get(bucket) or await self._locate(bucket, None)
        url = f"{{}}{quote(path, safe='/~')}{query}"
        reply = await self._send_signed(method, url.format(home), headers, body, region, limit)
        named = answers.redirect_region(reply)
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
        """The URL of a bucket and its region; None for the one that was told."""
        addresses = await self._endpoints.addresses_for(
            replace(self._endpoint, region=region) if region is not None else self._endpoint
        )
        found = self._buckets[bucket] = addresses.bucket_url(bucket), addresses.region
        return found


def _check_accepted(reply: HttpReply) -> HttpReply:
    if reply.status not in {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.NO_CONTENT}:
        raise answers.failure_of(reply)
    return reply


def _if_match(etag: str) -> Mapping[str, str]:
    """The condition that an object has this tag; a star would be that it has any, and many take nothing for none."""
    if _ETAG.fullmatch(etag) is None:
        raise RequestFailed(ErrorKind.PRECONDITION_FAILED, f"a tag that is no entity tag ({len(etag)} characters)")
    return {"if-match": etag}


def _etag_of(reply: HttpReply) -> str:
    """Return the entity tag of an answer, as the service gave it to a proxy that compressed the answer."""
    etag = reply.headers.get("ETag", "")
    if reply.is_compressed:
        etag = _PROXY_SUFFIX.sub("", etag)
    if _ETAG.fullmatch(etag) is None:
        raise RequestFailed(ErrorKind.NO_ETAG, "an answer that has no ETag")
    return etag


def _bucket_and_path(key: str) -> tuple[str, str]:
    bucket, _, path = key.removeprefix("s3://").partition("/")
    return bucket, path
