"""The proof of a store's conditions: it accepts the good, names the weak, refuses the false, and loses no file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from sfn.errors import Permanent, Scope, Transient, Unsure
from sfn.store import Gone, Guarantees, Moved
from sfn.store.memory import MemoryStore
from sfn.store.prove import MADE_UP, RESTORES, Proof, Proofs
from sfn.words import Held
from tests.promises.grounds import ADAPTERS, Ground

KEY = "file:///warehouse/orders/metadata/_sfn/sales_orders_main.ver"


Event = Callable[[dict[str, bytes]], None]


class OddStore:
    """A store in memory that ignores conditions, and to which things happen.

    Attributes:
        inner: where the files are.
        asked: the verbs so far: "read", "create", "swap", "delete".
    """

    def __init__(self, *ignored: str, events: Mapping[tuple[str, int], Event] | None = None) -> None:
        """Events are called before the n-th time that a verb is asked for, from 1."""
        self.inner = MemoryStore(conditional_delete="delete" not in ignored)
        self.inner.files[KEY] = b"1"
        self.asked: list[str] = []
        self._ignored = ignored
        self._events = events or {}

    async def read(self, key: str) -> Held | None:
        self._enter("read")
        return await self.inner.read(key)

    async def part(self, key: str, start: int, most: int) -> bytes | None:
        return await self.inner.part(key, start, most)

    async def write(self, key: str, body: bytes, replacing: Held | None) -> Held | Moved:
        verb = "create" if replacing is None else "swap"
        self._enter(verb)
        return await self.inner.write(key, body, await self.inner.read(key) if verb in self._ignored else replacing)

    async def delete(self, key: str, expected: Held) -> Gone | Moved:
        self._enter("delete")
        return await self.inner.delete(key, expected)

    async def list(self, prefix: str, limit: int) -> list[str]:
        return await self.inner.list(prefix, limit)

    async def prove(self, key: str) -> Guarantees:
        return await Proof().of(self, key)

    def _enter(self, verb: str) -> None:
        self.asked.append(verb)
        event = self._events.get((verb, self.asked.count(verb)))
        if event is not None:
            event(self.inner.files)


def vanish(files: dict[str, bytes]) -> None:
    del files[KEY]


def become_another(files: dict[str, bytes]) -> None:
    files[KEY] = b"2"


def lose_request(_: dict[str, bytes]) -> None:
    raise Unsure(KEY, scope=Scope.STORE, expected="an answer", found="none")


def lose_answer(files: dict[str, bytes]) -> None:
    files[KEY] = b"1"
    lose_request(files)


@pytest.fixture(params=list(ADAPTERS))
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    async with ADAPTERS[request.param](request, tmp_path) as ground:
        yield ground


@pytest.mark.parametrize("body", [b"1", b""])
async def test_a_good_store_is_proven_on_a_file_that_stays_as_it_is(ground: Ground, body: bytes) -> None:
    held = await ground.store.write(ground.key, body, None)
    assert await ground.store.prove(ground.key) == Guarantees(swap=True, conditional_delete=True)
    assert await ground.store.read(ground.key) == held
    assert await ground.store.list(ground.folder, 10) == [ground.key]


async def test_a_proof_needs_a_file_and_then_is_for_good(ground: Ground) -> None:
    with pytest.raises(Transient) as unproven:
        await ground.store.prove(ground.key)
    assert unproven.value.scope is Scope.TABLE
    assert await ground.store.list(ground.folder, 10) == []
    await ground.store.write(ground.key, b"1", None)
    proven = await ground.store.prove(ground.key)
    assert await ground.store.prove(f"{ground.folder}never_written.ver") == proven


async def test_no_stored_content_has_the_made_up_tag(ground: Ground) -> None:
    held = await ground.store.write(ground.key, b"1", None)
    assert isinstance(held, Held)
    assert len(held.tag) == len(ground.made_up)
    assert held.tag != ground.made_up


@pytest.mark.parametrize("ignored", ["create", "swap"])
async def test_a_store_that_ignores_a_condition_of_writing_is_refused(ignored: str) -> None:
    store = OddStore(ignored)
    proof = Proof()
    for _ in range(2):
        with pytest.raises(Permanent) as refused:
            await proof.of(store, KEY)
        assert refused.value.scope is Scope.STORE
        assert "unsafe_unconditional_writes" in refused.value.remedy
    assert store.inner.files == {KEY: b"1"}
    assert "delete" not in store.asked


@pytest.mark.parametrize("ignored", ["create", "swap"])
async def test_an_operator_may_accept_such_a_store(ignored: str) -> None:
    store = OddStore(ignored, "delete")
    proven = await Proof(unsafe=True).of(store, KEY)
    assert proven == Guarantees(swap=False, conditional_delete=False)
    assert store.inner.files == {KEY: b"1"}
    assert "delete" not in store.asked


async def test_a_good_store_is_good_for_such_an_operator_too() -> None:
    proven = await Proof(unsafe=True).of(OddStore(), KEY)
    assert proven == Guarantees(swap=True, conditional_delete=True)


async def test_a_store_that_deletes_regardless_gets_its_file_back_and_is_named() -> None:
    store = MemoryStore(conditional_delete=False)
    held = await store.write(KEY, b"1", None)
    assert await store.prove(KEY) == Guarantees(swap=True, conditional_delete=False)
    assert await store.read(KEY) == held
    assert await store.delete(KEY, Held(b"1", "0" * 64)) == Gone()
    assert await store.read(KEY) is None


async def test_a_file_is_put_back_although_requests_are_lost() -> None:
    lost: Mapping[tuple[str, int], Event] = {("create", 2): lose_request, ("create", 3): lose_request}
    store = OddStore("delete", events=lost)
    assert await store.prove(KEY) == Guarantees(swap=True, conditional_delete=False)
    assert store.inner.files == {KEY: b"1"}


async def test_a_file_is_put_back_although_the_answer_is_lost() -> None:
    store = OddStore("delete", events={("create", 2): lose_answer})
    with pytest.raises(Transient):
        await store.prove(KEY)
    assert store.inner.files == {KEY: b"1"}


async def test_a_file_that_cannot_be_put_back_is_told_of() -> None:
    store = OddStore("delete", events={("create", number): lose_request for number in range(2, 9)})
    with pytest.raises(Unsure):
        await store.prove(KEY)
    assert store.asked.count("create") == 1 + RESTORES


@pytest.mark.parametrize("verb", ["read", "create", "swap", "delete"])
async def test_a_file_deleted_meanwhile_stays_deleted_and_accuses_nobody(verb: str) -> None:
    store = OddStore(events={(verb, 1): vanish})
    with pytest.raises(Transient) as unproven:
        await store.prove(KEY)
    assert unproven.value.scope is Scope.TABLE
    assert store.inner.files == {}


@pytest.mark.parametrize("verb", ["create", "swap", "delete"])
async def test_a_file_replaced_meanwhile_is_left_alone(verb: str) -> None:
    store = OddStore(events={(verb, 1): become_another})
    assert await store.prove(KEY) == Guarantees(swap=True, conditional_delete=True)
    assert store.inner.files == {KEY: b"2"}


@pytest.mark.parametrize(("verb", "ignored"), [("create", ""), ("create", "delete"), ("delete", "")])
async def test_a_file_deleted_and_written_meanwhile_is_left_alone(verb: str, ignored: str) -> None:
    store = OddStore(ignored, events={(verb, 1): vanish, (verb, 2): become_another})
    with pytest.raises(Transient):
        await store.prove(KEY)
    assert store.inner.files == {KEY: b"2"}


class Silent(OddStore):
    """A store that does not answer yet."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = anyio.Event()

    @override
    async def read(self, key: str) -> Held | None:
        await self.answers.wait()
        return await super().read(key)


async def test_who_waits_for_the_proof_of_another_can_be_stopped_and_who_proves_cannot() -> None:
    proofs, store, proven = Proofs(made_up=MADE_UP), Silent(), list[Guarantees]()

    async def one() -> None:
        proven.append(await proofs.of(store, KEY))

    async with anyio.create_task_group() as proving:
        proving.start_soon(one)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.01) as waiting:
            await proofs.of(store, KEY)
        assert waiting.cancelled_caught
        proving.cancel_scope.cancel()
        store.answers.set()
    assert proven == [Guarantees(swap=True, conditional_delete=True)]
