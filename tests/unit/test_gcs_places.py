"""Whether an object is missing or its whole bucket: an answer in JSON is the same for both."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sfn.storage import ErrorKind
from sfn.storage.gcs import GcsClient
from tests.unit.gcs_server import (
    KEY,
    TAG,
    Server,
    asking,
    complaint,
    found,
    refusal,
    reply,
    running,
    xml_complaint,
)

LOOK = "GET /storage/v1/b/lake?fields=name"
NOT_FOUND = complaint(404, "notFound")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running() as server:
        yield server


@pytest.fixture
async def objects(server: Server) -> AsyncIterator[GcsClient]:
    async with asking(server) as objects:
        yield objects


@pytest.mark.parametrize("status", [200, 401, 403])
async def test_the_bucket_is_looked_at_once(server: Server, objects: GcsClient, status: int) -> None:
    server.object, server.bucket = NOT_FOUND, reply(b"{}", status)
    for _ in range(3):
        assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.MISSING
    assert server.asked.count(LOOK) == 1


async def test_a_bucket_that_answered_need_not_be_looked_at(server: Server, objects: GcsClient) -> None:
    server.object = found(b"")
    await objects.get(KEY, 10)
    server.object = NOT_FOUND
    assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.MISSING
    assert LOOK not in server.asked


async def test_a_bucket_that_is_missing_is_looked_at_each_time(server: Server, objects: GcsClient) -> None:
    server.object = server.bucket = NOT_FOUND
    for _ in range(2):
        assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.NO_BUCKET
    assert server.asked.count(LOOK) == 2
    server.bucket = reply({"name": "lake"})
    assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.MISSING


async def test_only_the_bucket_can_be_missing_for_a_creation_and_a_listing(server: Server, objects: GcsClient) -> None:
    server.object = NOT_FOUND
    assert (await refusal(objects.put(KEY, b"", None, "0a-1"))).kind is ErrorKind.NO_BUCKET
    assert (await refusal(objects.list_page(KEY, 10, None))).kind is ErrorKind.NO_BUCKET
    assert LOOK not in server.asked


async def test_a_bucket_that_vanished_is_known_no_more(server: Server, objects: GcsClient) -> None:
    server.object = found(b"")
    await objects.get(KEY, 10)
    server.object = server.bucket = NOT_FOUND
    await refusal(objects.put(KEY, b"", None, "0a-1"))
    assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.NO_BUCKET
    server.object = xml_complaint(404, "NoSuchBucket")
    assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.NO_BUCKET


async def test_where_no_cloud_storage_answers_there_is_no_bucket(server: Server, objects: GcsClient) -> None:
    server.object = server.bucket = reply(b"<h1>404</h1>", 404)
    refused = await refusal(objects.get(KEY, 10))
    assert refused.kind is ErrorKind.NO_BUCKET
    assert "without an error of Cloud Storage" in refused.found


async def test_an_answer_without_a_code_is_an_object_missing_where_the_bucket_is_there(
    server: Server, objects: GcsClient
) -> None:
    """So says fake-gcs-server."""
    server.object = reply(b"Not Found", 404)
    assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.MISSING
    assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.MISSING
    assert server.asked.count(LOOK) == 1


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [(503, "backendError", ErrorKind.NO_ANSWER), (429, "rateLimitExceeded", ErrorKind.THROTTLED)],
)
async def test_a_look_that_fails_tells_nothing(
    server: Server, objects: GcsClient, status: int, reason: str, kind: ErrorKind
) -> None:
    server.object, server.bucket = NOT_FOUND, complaint(status, reason)
    assert (await refusal(objects.delete(KEY, TAG))).kind is kind
    server.bucket = NOT_FOUND
    assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.NO_BUCKET
