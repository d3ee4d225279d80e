"""Bodies that come compressed although none was asked for: decompressed, within bounds, or refused."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from sfn.aws_auth import AwsIdentity, AwsKeys
from sfn.storage import ErrorKind, RequestFailed
from sfn.storage.remote_store import BODY_LIMIT, HttpPool, HttpReply
from sfn.storage.s3 import BucketEndpoints, S3Client, S3Options
from tests.support.rest_catalog import served

TEXT = b'{"state": "current"}' * 50
BOMB = gzip.compress(bytes(64 * 2**20))
BOOK = BucketEndpoints()


@dataclass
class Answering:
    """A server that always gives the same answer.

    Attributes:
        url: where it listens.
        headers: of the last request.
    """

    body: bytes = b""
    encoding: str | None = None
    status: int = 200
    tag: str = '"0a"'
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.headers = {name.lower(): value for name, value in request.headers.items()}
        told = {} if self.encoding is None else {"Content-Encoding": self.encoding}
        return web.Response(body=self.body, status=self.status, headers={**told, "ETag": self.tag})


@pytest.fixture
async def server() -> AsyncIterator[Answering]:
    answering = Answering()
    async with served(answering.answer) as address:
        answering.url = f"{address}/"
        yield answering


@pytest.fixture
async def pool() -> AsyncIterator[HttpPool]:
    pool = HttpPool(limit=10.0)
    yield pool
    await pool.close()


async def got(pool: HttpPool, server: Answering, most: int = BODY_LIMIT) -> HttpReply:
    return await pool.exchange("GET", server.url, {}, b"", most)


async def test_no_compression_is_asked_for_and_no_signature_covers_that(server: Answering, pool: HttpPool) -> None:
    """Some proxies change this header, and a signature of it would break."""
    terms = S3Options(identity=AwsIdentity(keys=AwsKeys("k", "s")), endpoint=server.url, region="us-east-1")
    await S3Client(terms, pool, BOOK).get("s3://lake/a.ver", 100)
    assert server.headers["accept-encoding"] == "identity"
    assert "host;" in server.headers["authorization"]
    assert "accept-encoding" not in server.headers["authorization"]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        (None, TEXT),
        ("identity", TEXT),
        ("aws-chunked", TEXT),
        ("gzip", gzip.compress(TEXT, mtime=0)),
        ("GZIP", gzip.compress(TEXT, mtime=0)),
        ("x-gzip", gzip.compress(TEXT, mtime=0)),
        ("aws-chunked, gzip", gzip.compress(TEXT, mtime=0)),
        ("gzip", TEXT),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)[2:-4]),
        ("gzip", b""),
    ],
)
async def test_a_body_is_what_it_was_before_it_was_compressed(
    server: Answering, pool: HttpPool, encoding: str | None, body: bytes
) -> None:
    server.body, server.encoding = body, encoding
    assert (await got(pool, server)).body == (TEXT if body else b"")


@pytest.mark.parametrize("most", [1, 2**16])
async def test_a_bomb_is_no_longer_than_what_was_asked_for(server: Answering, pool: HttpPool, most: int) -> None:
    server.body, server.encoding = BOMB, "gzip"
    assert (await got(pool, server, most)).body == bytes(most)
    server.status = 500
    assert len((await got(pool, server, most)).body) == BODY_LIMIT


async def test_the_beginning_of_a_long_body_is_decompressed(server: Answering, pool: HttpPool) -> None:
    """Nothing that can't be compressed is cut short by what compression adds."""
    body = b"".join(zlib.crc32(b"%d" % number).to_bytes(4, "big") for number in range(2**16))
    server.body, server.encoding = gzip.compress(body, mtime=0), "gzip"
    for most in (1000, len(body) - 1, len(body), len(body) + 1):
        assert (await got(pool, server, most)).body == body[:most]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("br", b"\x8b\x00"),
        ("gzip, gzip", gzip.compress(gzip.compress(TEXT, mtime=0), mtime=0)),
        ("gzip", gzip.compress(TEXT, mtime=0)[:-20]),
        ("gzip", b"\x1f\x8bnothing"),
        ("deflate", b"nothing"),
    ],
)
async def test_what_cannot_be_decompressed_is_no_answer(
    server: Answering, pool: HttpPool, encoding: str, body: bytes
) -> None:
    server.body, server.encoding = body, encoding
    with pytest.raises(RequestFailed) as refused:
        await got(pool, server)
    assert refused.value.kind is ErrorKind.NO_ANSWER
    assert repr(encoding) in refused.value.found or f"encoding {encoding}" in refused.value.found
    assert "compression" in refused.value.remedy
    server.status = 403
    assert await got(pool, server) == HttpReply(403, (await got(pool, server)).headers, b"")


async def test_a_part_of_an_object_stays_as_it_is(server: Answering, pool: HttpPool) -> None:
    server.body, server.encoding, server.status = gzip.compress(TEXT, mtime=0)[5:], "gzip", 206
    assert (await got(pool, server)).body == server.body


@pytest.mark.parametrize(
    ("encoding", "tag", "taken"),
    [
        ("gzip", 'W/"0a"', '"0a"'),
        ("gzip", '"0a-gzip"', '"0a"'),
        ("gzip", '"0a;gzip"', '"0a"'),
        ("gzip", '"0a"', '"0a"'),
        ("gzip", "0a", "0a"),
        (None, 'W/"0a"', 'W/"0a"'),
        (None, '"0a-gzip"', '"0a-gzip"'),
        ("identity", 'W/"0a"', 'W/"0a"'),
    ],
)
async def test_the_tag_of_a_compressed_answer_is_the_one_that_the_store_gave(
    server: Answering, pool: HttpPool, encoding: str | None, tag: str, taken: str
) -> None:
    server.body, server.encoding, server.tag = (
        gzip.compress(TEXT, mtime=0) if encoding == "gzip" else TEXT,
        encoding,
        tag,
    )
    objects = S3Client(S3Options(identity=None, endpoint=server.url, region="us-east-1"), pool, BOOK)
    found = await objects.get("s3://lake/a.ver", 10_000)
    assert (found.body, found.etag) == (TEXT, taken)
