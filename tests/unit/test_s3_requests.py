"""The entity tags of S3: which are believed, which are asked for, and what a write is without one."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

import pytest
from typing_extensions import override

from sfn.errors import Scope, Transient, Unsure
from sfn.store import Gone, Moved
from sfn.store.objects import Found, Kind, Refused
from sfn.store.pool import BODY_LIMIT, Pool, Reply
from sfn.store.remote import RemoteStore, Service
from sfn.store.s3 import MADE_UP, AddressBook, S3Objects, S3Terms
from sfn.words import Held

KEY = "s3://lake/sales/metadata/_sfn/orders.ver"
TAG = '"d41d8cd98f00b204e9800998ecf8427e"'
BOOK = AddressBook()
TAGLESS: list[Mapping[str, str]] = [{}, {"ETag": ""}, {"ETag": "*"}]


class Overheard(Pool):
    """Connections to nowhere.

    Attributes:
        replies: what each method is answered with.
        asked: methods and what they were asked with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.replies: dict[str, Reply] = {}
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    @override
    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", most: int = BODY_LIMIT
    ) -> Reply:
        self.asked.append((method, headers))
        return self.replies[method]


@pytest.fixture
def pool() -> Overheard:
    return Overheard()


@pytest.fixture
def objects(pool: Overheard) -> S3Objects:
    terms = S3Terms(identity=None, endpoint="http://127.0.0.1:1", region="us-east-1")
    return S3Objects(terms, pool, BOOK)


@pytest.fixture
def store(objects: S3Objects) -> RemoteStore:
    return RemoteStore(objects, Service(MADE_UP, seconds=lambda: 0.0))


async def refusal(verb: Awaitable[object]) -> Refused:
    with pytest.raises(Refused) as refused:
        await verb
    return refused.value


async def test_an_object_is_had_with_its_tag_and_its_mark(pool: Overheard, objects: S3Objects) -> None:
    pool.replies["GET"] = Reply(200, {"ETag": TAG, "x-amz-meta-sfn-write": "0a-1"}, b"{}")
    assert await objects.get(KEY, 100) == Found(b"{}", TAG, "0a-1")


@pytest.mark.parametrize("tag", [TAG, MADE_UP, '"abc-2"', "unquoted", '"*"', 'W/"1"'])
async def test_every_tag_is_taken_and_asked_for_as_it_is(pool: Overheard, objects: S3Objects, tag: str) -> None:
    pool.replies |= {"PUT": Reply(200, {"ETag": tag}, b""), "DELETE": Reply(204, {}, b"")}
    assert await objects.put(KEY, b"{}", tag, "0a-1") == tag
    await objects.delete(KEY, tag)
    assert [(method, headers["if-match"]) for method, headers in pool.asked] == [("PUT", tag), ("DELETE", tag)]


async def test_a_creation_has_the_condition_that_nothing_is_there(pool: Overheard, objects: S3Objects) -> None:
    pool.replies["PUT"] = Reply(200, {"ETag": TAG}, b"")
    assert await objects.put(KEY, b"{}", None, "0a-1") == TAG
    [(_, headers)] = pool.asked
    assert headers["if-none-match"] == "*"
    assert "if-match" not in headers


@pytest.mark.parametrize("headers", TAGLESS)
async def test_an_answer_without_a_tag_is_none(pool: Overheard, objects: S3Objects, headers: Mapping[str, str]) -> None:
    pool.replies |= {"GET": Reply(200, headers, b"{}"), "PUT": Reply(200, headers, b"")}
    verbs = (objects.get(KEY, 100), objects.put(KEY, b"{}", None, "0a-1"), objects.put(KEY, b"{}", TAG, "0a-1"))
    for verb in verbs:
        refused = await refusal(verb)
        assert (refused.kind, refused.found) == (Kind.TAGLESS, "an answer that has no ETag")


@pytest.mark.parametrize("tag", ["", "*", " ", '"a b"', f"{TAG}\n", '"\xe9"'])
async def test_what_is_no_tag_is_stale_and_nobody_is_asked(pool: Overheard, objects: S3Objects, tag: str) -> None:
    assert (await refusal(objects.put(KEY, b"{}", tag, "0a-1"))).kind is Kind.MOVED
    assert (await refusal(objects.delete(KEY, tag))).kind is Kind.MOVED
    assert pool.asked == []


@pytest.mark.parametrize("headers", TAGLESS)
async def test_nobody_knows_whether_a_write_happened_that_is_answered_without_a_tag(
    pool: Overheard, store: RemoteStore, headers: Mapping[str, str]
) -> None:
    pool.replies["PUT"] = Reply(200, headers, b"")
    for replacing in (None, Held(b"1", TAG)):
        with pytest.raises(Unsure) as unsure:
            await store.write(KEY, b"2", replacing)
        assert unsure.value.scope is Scope.STORE
        assert "no ETag" in unsure.value.found


async def test_a_read_without_a_tag_is_tried_again(pool: Overheard, store: RemoteStore) -> None:
    pool.replies["GET"] = Reply(200, {}, b"1")
    with pytest.raises(Transient) as trouble:
        await store.read(KEY)
    assert (type(trouble.value), trouble.value.scope) == (Transient, Scope.STORE)


@pytest.mark.parametrize("tag", ["", "*"])
async def test_what_was_remembered_without_a_tag_is_stale(pool: Overheard, store: RemoteStore, tag: str) -> None:
    pool.replies["GET"] = Reply(200, {"ETag": TAG}, b"2")
    assert await store.write(KEY, b"3", Held(b"1", tag)) == Moved()
    assert await store.delete(KEY, Held(b"1", tag)) == Moved()
    pool.replies["GET"] = Reply(404, {}, b"<Error><Code>NoSuchKey</Code></Error>")
    assert await store.delete(KEY, Held(b"1", tag)) == Gone()
    assert {method for method, _ in pool.asked} == {"GET"}
