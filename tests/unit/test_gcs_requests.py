"""What is asked of Cloud Storage, to the letter, and what of its answers is taken."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Mapping
from email import message_from_bytes
from email.message import Message

import pytest
from typing_extensions import override

from sfn.google_auth import GoogleIdentity
from sfn.storage import ErrorKind, FetchedObject, ObjectPage
from sfn.storage.gcs import IMPOSSIBLE_GENERATION, GcsClient, GcsOptions
from sfn.storage.object_store import BODY_LIMIT, HttpPool, HttpReply
from tests.unit.gcs_server import KEY, PRIVATE, TAG, Asked, Server, asking, found, refusal, reply, running

OBJECT = "/storage/v1/b/lake/o/sales%2Fmetadata%2F_sfn%2Forders.ver"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running() as server:
        yield server


@pytest.fixture
async def objects(server: Server) -> AsyncIterator[GcsClient]:
    async with asking(server) as objects:
        yield objects


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
    server: Server, objects: GcsClient
) -> None:
    server.object = found(b"{}", x_goog_meta_sfn_write="0a-1")
    assert await objects.get(KEY, 100) == FetchedObject(b"{}", TAG, "0a-1")
    assert server.asked == ["GET /lake/sales%2Fmetadata%2F_sfn%2Forders.ver"]


async def test_somebody_elses_object_has_no_mark(server: Server, objects: GcsClient) -> None:
    server.object = found(b"3")
    assert await objects.get(KEY, 100) == FetchedObject(b"3", TAG, None)


async def test_no_more_of_an_object_is_taken_than_was_asked_for(server: Server, objects: GcsClient) -> None:
    server.object = found(b"x" * 1000)
    assert len((await objects.get(KEY, 100)).body) == 100


async def test_a_part_of_an_object_that_is_stored_compressed_comes_as_it_is(server: Server, objects: GcsClient) -> None:
    server.object = found(b"\x1f\x8bcompressed", 206, content_encoding="gzip")
    assert await objects.get_range(KEY, 0, 100) == b"\x1f\x8bcompressed"
    assert [asked.headers["accept-encoding"] for asked in server.requests] == ["gzip"]


async def test_a_whole_object_is_asked_for_uncompressed_and_decompressed(server: Server, objects: GcsClient) -> None:
    server.object = found(gzip.compress(b"{}"), content_encoding="gzip")
    assert (await objects.get(KEY, 100)).body == b"{}"
    assert [asked.headers["accept-encoding"] for asked in server.requests] == ["identity"]


async def test_a_part_is_a_range(server: Server, objects: GcsClient) -> None:
    server.object = reply(b"part", 206)
    assert await objects.get_range(KEY, 100, 50) == b"part"
    assert server.requests[0].headers["range"] == "bytes=100-149"
    server.object = reply(b"<Error><Code>InvalidRange</Code></Error>", 416)
    assert await objects.get_range(KEY, 100, 50) == b""
    server.object = reply(b"all of it")
    assert await objects.get_range(KEY, 0, 50) == b"all of it"
    assert (await refusal(objects.get_range(KEY, 100, 50))).kind is ErrorKind.INVALID_OBJECT
    assert len(server.requests) == 4


async def test_a_write_is_one_upload_with_its_condition(server: Server, objects: GcsClient) -> None:
    server.object = reply({"generation": "1700000000000002"})
    assert await objects.put(KEY, b"{}", TAG, "0a-1") == "1700000000000002"
    assert await objects.put(KEY, b"{}", None, "0a-2") == "1700000000000002"
    upload = "POST /upload/storage/v1/b/lake/o?uploadType=multipart&ifGenerationMatch={}&fields=generation"
    assert server.asked == [upload.format(TAG), upload.format(0)]


@pytest.mark.parametrize(
    ("key", "kind"), [(KEY, "application/json"), ("gs://lake/t/metadata/version-hint.text", "text/plain")]
)
@pytest.mark.parametrize("body", [b"", b"{}", b"\r\n--\r\n\r\n", bytes(range(256))])
async def test_no_cache_keeps_what_is_written_and_its_mark_goes_along(
    server: Server, objects: GcsClient, key: str, kind: str, body: bytes
) -> None:
    server.object = reply({"generation": TAG})
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


async def test_a_delete_has_its_condition(server: Server, objects: GcsClient) -> None:
    server.object = reply(b"", 204)
    await objects.delete(KEY, TAG)
    assert server.asked == [f"DELETE {OBJECT}?ifGenerationMatch={TAG}"]


@pytest.mark.parametrize(
    "tag", ["0", "", "-1", "+1", " 1", "1 ", "1\n", "01", "1.5", "1e3", "٣", "*", "f" * 64, "0" * 64, str(2**63)]
)
async def test_what_is_no_generation_is_stale_and_nobody_is_asked(server: Server, objects: GcsClient, tag: str) -> None:
    assert (await refusal(objects.put(KEY, b"{}", tag, "0a-1"))).kind is ErrorKind.PRECONDITION_FAILED
    assert (await refusal(objects.delete(KEY, tag))).kind is ErrorKind.PRECONDITION_FAILED
    assert server.asked == []


@pytest.mark.parametrize("tag", ["1", IMPOSSIBLE_GENERATION, str(2**63 - 1)])
async def test_every_generation_is_asked_for(server: Server, objects: GcsClient, tag: str) -> None:
    server.object = reply(b"", 204)
    await objects.delete(KEY, tag)
    assert server.asked == [f"DELETE {OBJECT}?ifGenerationMatch={tag}"]


async def test_a_listing_is_asked_for_in_pages(server: Server, objects: GcsClient) -> None:
    server.object = reply({"items": [{"name": "t/a.ver"}, {"name": "t/ä%2F.ver"}], "nextPageToken": "on/+="})
    assert await objects.list_page("gs://lake/t/", 2, None) == ObjectPage(
        ("gs://lake/t/a.ver", "gs://lake/t/ä%2F.ver"), "on/+="
    )
    server.object = reply({"kind": "storage#objects"})
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
async def test_a_key_goes_over_the_wire_to_the_letter(
    server: Server, objects: GcsClient, name: str, quoted: str
) -> None:
    key = f"gs://lake/t/{name}"
    server.object = found({"generation": TAG, "items": []})
    await objects.get(key, 10)
    await objects.delete(key, TAG)
    await objects.put(key, b"", TAG, "0a-1")
    await objects.list_page(key, 1, None)
    got, deleted, put, listed = server.requests
    assert got.path == f"/lake/t%2F{quoted}"
    assert deleted.path == f"/storage/v1/b/lake/o/t%2F{quoted}?ifGenerationMatch={TAG}"
    assert uploaded(put)[0]["name"] == f"t/{name}"
    assert listed.path.startswith(f"/storage/v1/b/lake/o?prefix=t%2F{quoted}&")


async def test_a_token_and_who_pays_go_along_with_every_request(server: Server) -> None:
    server.object = found({"generation": TAG})
    async with asking(server, GoogleIdentity(token=PRIVATE), billing_project="payer-1") as objects:
        await objects.get(KEY, 10)
        await objects.get_range(KEY, 0, 10)
        await objects.put(KEY, b"", TAG, "0a-1")
        await objects.delete(KEY, TAG)
        await objects.list_page(KEY, 1, None)
    shown = {(asked.headers["authorization"], asked.headers["x-goog-user-project"]) for asked in server.requests}
    assert shown == {(f"Bearer {PRIVATE}", "payer-1")}
    assert len(server.requests) == 5


async def test_nobody_shows_no_token_and_pays_nothing(server: Server, objects: GcsClient) -> None:
    server.object = found(b"")
    await objects.get(KEY, 10)
    assert {"authorization", "x-goog-user-project"}.isdisjoint(name.lower() for name in server.requests[0].headers)


async def test_what_has_to_be_understood_is_asked_for_uncompressed(server: Server, objects: GcsClient) -> None:
    server.object = reply({"generation": TAG, "items": []})
    await objects.put(KEY, b"", TAG, "0a-1")
    await objects.delete(KEY, TAG)
    await objects.list_page(KEY, 1, None)
    assert [asked.headers["accept-encoding"] for asked in server.requests] == ["identity"] * 3


class Overheard(HttpPool):
    """Connections to nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    @override
    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", most: int = BODY_LIMIT
    ) -> HttpReply:
        self.urls.append(url)
        return HttpReply(200, {"x-goog-generation": TAG}, b'{"generation": "1"}')


async def test_without_an_endpoint_it_is_googles_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    pool = Overheard()
    objects = GcsClient(GcsOptions(identity=None), pool)
    await objects.get(KEY, 10)
    await objects.put(KEY, b"", None, "0a-1")
    await objects.delete(KEY, TAG)
    assert {url.split("/", 3)[2] for url in pool.urls} == {"storage.googleapis.com"}
    assert {url.split(":")[0] for url in pool.urls} == {"https"}


async def test_an_endpoint_may_end_in_a_slash() -> None:
    pool = Overheard()
    await GcsClient(GcsOptions(identity=None, endpoint="http://fake:4443/"), pool).get(KEY, 10)
    assert pool.urls == ["http://fake:4443/lake/sales%2Fmetadata%2F_sfn%2Forders.ver"]


def test_a_token_is_shown_nowhere() -> None:
    terms = GcsOptions(identity=GoogleIdentity(token=PRIVATE))
    assert PRIVATE not in repr(terms)
