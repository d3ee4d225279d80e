"""The proof of a store's conditions: it accepts the good, names the weak, refuses the false."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Forbidden, OutcomeUnknown, Transient
from sfn.storage import Deleted, ErrorKind, Guarantees, PreconditionFailed, RequestFailed, media_type, probe
from sfn.storage.memory import MemoryStore
from sfn.storage.probe import PROBE_PREFIX, StoreProbes, StoreUnfit, as_strong, without_quotes
from tests.promises.stores import ADAPTERS, MADE_UP, Ground

FOLDER = "s3://lake/orders/metadata/_sfn"
KEY = f"{FOLDER}/sales_orders_main.ver"
GOOD = Guarantees(swap=True, conditional_delete=True)
Event = Callable[[str, dict[str, bytes]], None]


class OddStore(MemoryStore):
    """A store in memory to which things happen.

    Attributes:
        asked: the verbs so far, each with its key.
        events: called before the n-th time that a verb is asked for, from 1, with the key and the files.
    """

    def __init__(self, **events: tuple[int, Event]) -> None:
        super().__init__()
        self.files[KEY] = b"live"
        self.asked: list[tuple[str, str]] = []
        self.events = events

    @override
    async def read(self, key: str) -> StoredObject | None:
        self._enter("read", key)
        return await super().read(key)

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        self._enter("create" if replacing is None else "swap", key)
        return await super().write(key, body, replacing)

    @override
    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        self._enter("delete", key)
        return await super().delete(key, expected)

    async def discard(self, key: str) -> None:
        self._enter("discard", key)
        self.files.pop(key, None)

    def _enter(self, verb: str, key: str) -> None:
        self.asked.append((verb, key))
        when, event = self.events.get(verb, (0, fail))
        if when == [asked for asked, _ in self.asked].count(verb):
            event(key, self.files)


def fail(_: str, __: dict[str, bytes]) -> None:
    raise OutcomeUnknown(KEY, scope=ErrorScope.STORE, expected="an answer", found="none")


def be_denied(_: str, __: dict[str, bytes]) -> None:
    raise Forbidden(KEY, scope=ErrorScope.STORE, expected="permission", found="403")


def lose_tag(_: str, __: dict[str, bytes]) -> None:
    raise OutcomeUnknown(KEY, scope=ErrorScope.STORE, expected="a tag", found="none") from RequestFailed(
        ErrorKind.NO_ETAG, "none"
    )


def proofs(*, unsafe: bool = False) -> StoreProbes:
    return StoreProbes(impossible_etag=MADE_UP, unsafe=unsafe)


@pytest.fixture(params=list(ADAPTERS))
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    async with ADAPTERS[request.param](request, tmp_path) as ground:
        yield ground


async def test_probe_of_a_good_store_changes_no_file(ground: Ground) -> None:
    held = await ground.store.write(ground.key, b"1", None)
    assert await ground.store.probe(ground.key) == GOOD
    assert await ground.store.read(ground.key) == held
    assert await ground.store.list(ground.folder, 10) == [ground.key]


async def test_probe_needs_no_file_and_stays_valid(ground: Ground) -> None:
    proven = await ground.store.probe(ground.key)
    assert await ground.store.list(ground.folder, 10) == []
    assert await ground.store.probe(f"{ground.folder}never_written.ver") == proven == GOOD


async def test_no_stored_content_has_the_unknown_etag(ground: Ground) -> None:
    held = await ground.store.write(ground.key, b"1", None)
    assert isinstance(held, StoredObject)
    assert len(held.etag) == len(ground.made_up)
    assert held.etag != ground.made_up


async def test_probe_file_resembles_a_document_but_is_none() -> None:
    store = OddStore()
    assert await proofs().guarantees(store, KEY) == GOOD
    assert store.files == {KEY: b"live"}
    (probe,) = {key for _, key in store.asked}
    assert probe.startswith(f"{FOLDER}/{PROBE_PREFIX}")
    assert not probe.endswith(".ver")
    assert media_type(probe) == media_type(KEY)


async def test_each_bucket_is_probed_once() -> None:
    store, known = OddStore(), proofs()
    await known.guarantees(store, KEY)
    once = len(store.asked)
    await known.guarantees(store, f"{FOLDER}/another.ver")
    assert len(store.asked) == once
    await known.guarantees(store, "s3://pond/orders/metadata/_sfn/x.ver")
    assert len(store.asked) == 2 * once


@pytest.mark.parametrize("verb", ["read", "create", "swap", "delete"])
@pytest.mark.parametrize("when", [1, 2])
async def test_failed_probe_leaves_no_file_and_is_repeated(verb: str, when: int) -> None:
    store, known = OddStore(**{verb: (when, fail)}), proofs()
    with pytest.raises(OutcomeUnknown):
        await known.guarantees(store, KEY)
    assert store.files == {KEY: b"live"}
    known.check_not_refused(KEY)
    assert await known.guarantees(store, KEY) == GOOD


async def test_failed_cleanup_does_not_hide_the_error() -> None:
    store = OddStore(create=(2, be_denied), discard=(1, fail))
    with pytest.raises(Forbidden):
        await proofs().guarantees(store, KEY)


@pytest.mark.parametrize(("event", "cleans"), [(be_denied, False), (fail, True)])
async def test_unwritten_probe_file_is_not_deleted(event: Event, *, cleans: bool) -> None:
    store = OddStore(create=(1, event))
    with pytest.raises(Transient):
        await proofs().guarantees(store, KEY)
    assert ("discard" in {verb for verb, _ in store.asked}) is cleans


async def test_hanging_cleanup_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "CLEANUP_TIMEOUT", 0.01)

    class Hanging(OddStore):
        @override
        async def discard(self, key: str) -> None:
            await anyio.sleep_forever()

    with pytest.raises(OutcomeUnknown):
        await proofs().guarantees(Hanging(create=(1, fail)), KEY)


async def test_create_with_a_lost_answer_is_recognized_by_its_content() -> None:
    """A request is sent once more on the way, and what it wrote at first then stands in its way."""

    class Repeating(OddStore):
        @override
        async def write(
            self, key: str, body: bytes, replacing: StoredObject | None
        ) -> StoredObject | PreconditionFailed:
            written = await super().write(key, body, replacing)
            is_first = [verb for verb, _ in self.asked] == ["create"]
            return await super().write(key, body, replacing) if is_first else written

    assert await proofs().guarantees(Repeating(), KEY) == GOOD


async def test_denied_replace_of_a_missing_key_is_not_a_create() -> None:
    """Without the permission to list, some services deny what is missing."""
    store = OddStore(swap=(3, be_denied))
    assert await proofs().guarantees(store, KEY) == GOOD


async def test_store_without_etags_is_refused_until_a_probe_succeeds() -> None:
    known = proofs(unsafe=True)
    with pytest.raises(StoreUnfit, match="without an entity tag"):
        await known.guarantees(OddStore(create=(1, lose_tag)), KEY)
    with pytest.raises(StoreUnfit, match="without an entity tag"):
        known.check_not_refused(KEY)
    assert await known.guarantees(OddStore(), KEY) == GOOD
    known.check_not_refused(KEY)


class Bare(OddStore):
    """A store that takes a tag in one form alone, and gives it in another."""

    def __init__(self, known: StoreProbes, form: str) -> None:
        super().__init__()
        self._known, self._form = known, form

    @override
    async def read(self, key: str) -> StoredObject | None:
        held = await super().read(key)
        return None if held is None else StoredObject(held.body, self._form % held.etag)

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        held = await super().write(key, body, self._taken(key, replacing))
        return StoredObject(held.body, self._form % held.etag) if isinstance(held, StoredObject) else held

    @override
    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        return await super().delete(key, self._taken(key, expected) or expected)

    def _taken(self, key: str, held: StoredObject | None) -> StoredObject | None:
        return None if held is None else StoredObject(held.body, self._known.etag_condition(key, held.etag))


@pytest.mark.parametrize("form", ["%s", '"%s"', 'W/"%s"'])
async def test_etags_are_sent_in_the_form_that_the_store_accepts(form: str) -> None:
    known = proofs()
    assert known.etag_condition(KEY, form % "0a") == form % "0a"
    assert await known.guarantees(Bare(known, form), KEY) == GOOD
    assert known.etag_condition(KEY, form % "0a") == "0a"
    assert known.etag_condition("s3://pond/x.ver", form % "0a") == form % "0a"


async def test_unaccepted_etag_form_is_not_stored() -> None:
    known = proofs()
    with pytest.raises(StoreUnfit, match="refuses to replace"):
        await known.guarantees(Bare(known, '"!%s"'), KEY)
    assert known.etag_condition(KEY, '"0a"') == '"0a"'


def test_forms_of_an_etag() -> None:
    tags = ['"0a"', 'W/"0a"', "0a"]
    assert [without_quotes(tag) for tag in tags] == ["0a", "0a", "0a"]
    assert [as_strong(tag) for tag in tags] == ['"0a"', '"0a"', "0a"]


class Silent(OddStore):
    """A store that does not answer yet."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = anyio.Event()

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        await self.answers.wait()
        return await super().write(key, body, replacing)


async def test_waiting_for_a_probe_is_cancellable_but_the_probe_is_not() -> None:
    known, store, proven = proofs(), Silent(), list[Guarantees]()

    async def one() -> None:
        proven.append(await known.guarantees(store, KEY))

    async with anyio.create_task_group() as proving:
        proving.start_soon(one)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.01) as waiting:
            await known.guarantees(store, KEY)
        assert waiting.cancelled_caught
        proving.cancel_scope.cancel()
        store.answers.set()
    assert proven == [GOOD]


async def test_failed_probe_is_repeated_by_the_next_caller() -> None:
    store, known = OddStore(create=(1, fail)), proofs()
    failed: list[Exception] = []

    async def one() -> None:
        try:
            await known.guarantees(store, KEY)
        except Transient as error:
            failed.append(error)

    async with anyio.create_task_group() as proving:
        for _ in range(3):
            proving.start_soon(one)
    assert len(failed) == 1
