"""What local files do on a file system that does not answer: they say so in time, and nothing else stands still."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from sfn.concurrency import unfinished_calls
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, ExternalError, OutcomeUnknown, Transient
from sfn.storage import PreconditionFailed
from sfn.storage.local import FILE_SYSTEM_TIMEOUT, BlockingLocalStore, LocalStore
from tests.promises.processes import Hang, Step, hanging, names_in, refused

LIMIT = 0.5
PATIENT = 2.0
"""Seconds for calls that must be answered, too."""
SOON = 5.0
"""Seconds: what would otherwise never come."""
READ = Step("openat2")
"""As a file is opened by its path, and a folder: for what is changed there, and once more when it is locked."""
PREPARE = Step("openat", argument=(2, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC))
FOLDER = READ
LOCK = Step("flock")
"""Of the folder, and once more of the file in it."""


@pytest.fixture(name="key")
def fixture_key(tmp_path: Path) -> str:
    """A file that says 1, in a folder of its own."""
    key = f"file://{tmp_path}/_sfn/a.ver"
    assert isinstance(BlockingLocalStore().write(key, b"1", None), StoredObject)
    return key


def held_at(key: str) -> StoredObject:
    held = BlockingLocalStore().read(key)
    assert held is not None
    return held


def store(threads: int = 8, limit: float = LIMIT) -> LocalStore:
    return LocalStore(threads=threads, limit=limit)


async def troubled(call: Callable[[], Awaitable[object]], kind: type[ExternalError]) -> ExternalError:
    """What a call raises, which is the store's trouble and comes in time."""
    with anyio.fail_after(SOON):
        with pytest.raises(ExternalError) as trouble:
            await call()
    assert type(trouble.value) is kind
    assert trouble.value.scope is ErrorScope.STORE
    return trouble.value


async def all_finished() -> None:
    with anyio.fail_after(SOON):
        while unfinished_calls(0):  # noqa: ASYNC110 - no thread tells a test
            await anyio.sleep(0.001)


def test_a_file_system_has_half_a_minute_to_answer() -> None:
    assert FILE_SYSTEM_TIMEOUT == 30


@pytest.mark.parametrize("step", [READ, Step("getdents64")], ids=["read", "list"])
def test_a_look_that_is_not_answered_may_be_tried_again(key: str, step: Step) -> None:
    async def act(_: Hang) -> None:
        local = store()
        look = partial(local.read, key) if step is READ else partial(local.list, key.removesuffix("a.ver"), 10)
        trouble = await troubled(look, Transient)
        assert "file system" in trouble.expected
        assert key.removesuffix("a.ver") in str(trouble)

    hanging(step, act)


CHANGES = [
    ("create", FOLDER),
    ("create", LOCK),
    ("create", Step("write")),
    ("create", Step("linkat")),
    ("replace", Step("renameat")),
    ("replace", Step("fsync")),
    ("delete", Step("unlinkat")),
]


def change(verb: str, key: str, held: StoredObject) -> Callable[[], Awaitable[object]]:
    """Make a second file, replace the first one, or delete it."""
    local = store()
    if verb == "delete":
        return partial(local.delete, key, held)
    return partial(local.write, key, b"2", held) if verb == "replace" else partial(local.write, f"{key}2", b"2", None)


@pytest.mark.parametrize(("verb", "step"), CHANGES)
def test_a_change_that_is_not_answered_may_have_been_made(key: str, verb: str, step: Step) -> None:
    held = held_at(key)

    async def act(_: Hang) -> None:
        await troubled(change(verb, key, held), OutcomeUnknown)

    hanging(step, act)


@pytest.mark.slow
def test_a_hung_file_system_gets_no_more_threads_than_it_may_have(key: str) -> None:
    async def act(_hang: Hang) -> None:
        local = store(threads=2)
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(troubled, partial(local.read, key), Transient)
        for _ in range(3):
            await troubled(partial(local.read, key), Transient)
            # Nothing was begun, so nothing is unsure.
            await troubled(partial(local.write, key, b"2", None), Transient)
        assert unfinished_calls(0) == [f"read {key}"] * 2

    hanging(READ, act)
    assert unfinished_calls(SOON) == []


@pytest.mark.slow
def test_a_file_system_that_answers_again_is_used_again(key: str) -> None:
    async def act(hang: Hang) -> None:
        local = store(threads=1, limit=PATIENT)
        await troubled(partial(local.read, key), Transient)
        hang.let_go()
        await all_finished()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, hang.let_go)
            assert await local.read(key) == held_there

    held_there = held_at(key)
    hanging(READ, act)


@asynccontextmanager
async def one_given_up(hang: Hang, change: Callable[[], Awaitable[object]]) -> AsyncGenerator[None]:
    """A change that was given up; afterwards its file system answers, and it ends."""
    await troubled(change, OutcomeUnknown)
    yield
    hang.let_go()
    await all_finished()


EARLY = [(verb, step) for verb in ("create", "replace", "delete") for step in (FOLDER, LOCK)]
EARLY += [(verb, step) for verb in ("create", "replace") for step in (PREPARE, Step("write"), Step("fsync"))]


@pytest.mark.parametrize(("verb", "step"), EARLY)
def test_a_change_that_was_given_up_before_it_was_made_is_not_made_later(key: str, verb: str, step: Step) -> None:
    held = held_at(key)

    async def act(hang: Hang) -> None:
        async with one_given_up(hang, change(verb, key, held)):
            if step in {FOLDER, LOCK}:
                # It is made twice.
                hang.let_go()

    hanging(step, act)
    assert held_at(key) == held
    assert names_in(Path(key.removeprefix("file://")).parent) == ["a.ver"]


@pytest.mark.slow
def test_a_change_that_was_on_its_way_when_it_was_given_up_is_made(key: str) -> None:
    held = held_at(key)

    async def act(hang: Hang) -> None:
        local = store(limit=PATIENT)
        async with one_given_up(hang, partial(local.write, key, b"2", held)):
            assert await local.read(key) == held

    hanging(Step("renameat"), act)
    assert held_at(key).body == b"2"


@pytest.mark.slow
def test_a_change_that_hangs_before_it_is_durable_is_not_taken_for_done(key: str) -> None:
    held = held_at(key)

    async def act(hang: Hang) -> None:
        local = store(limit=PATIENT)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(troubled, partial(local.write, key, b"2", held), OutcomeUnknown)
            await anyio.to_thread.run_sync(hang.let_go)
        assert held_at(key).body == b"2"
        await troubled(partial(local.read, key), Transient)
        hang.let_go()
        hang.let_go()
        await all_finished()
        assert await local.read(key) == held_at(key)

    hanging(Step("fsync"), act)


@pytest.mark.slow
def test_a_change_that_was_given_up_keeps_its_lock_until_it_ends(key: str) -> None:
    """Why none that comes late undoes what others did since: they could not."""
    held = held_at(key)

    async def act(hang: Hang) -> None:
        local = LocalStore(limit=PATIENT, lock_timeout=0.01)
        async with one_given_up(hang, partial(local.write, key, b"2", held)):
            with pytest.raises(Transient) as busy:
                await local.write(key, b"3", held)
            assert busy.value.scope is ErrorScope.TABLE
        assert await local.write(key, b"3", held) == PreconditionFailed()

    hanging(Step("renameat"), act)


def test_a_cancelled_look_is_left_alone_at_once(key: str) -> None:
    async def act(_: Hang) -> None:
        local = LocalStore()
        with anyio.fail_after(SOON), anyio.move_on_after(0.05) as scope:
            await local.read(key)
        assert scope.cancelled_caught

    hanging(READ, act)


def test_a_cancelled_change_is_carried_through(key: str) -> None:
    held = held_at(key)

    async def act(hang: Hang) -> None:
        scope, ended = anyio.CancelScope(), anyio.Event()

        async def write() -> None:
            with scope:
                await LocalStore().write(key, b"2", held)
            ended.set()

        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write)
                await anyio.sleep(0.05)
                scope.cancel()
                await anyio.sleep(0.05)
                assert not ended.is_set()
                await anyio.to_thread.run_sync(hang.let_go)
        assert unfinished_calls(0) == []

    hanging(Step("renameat"), act)
    assert held_at(key).body == b"2"


def test_a_cancelled_change_that_is_not_answered_is_not_waited_for_any_longer(key: str) -> None:
    held = held_at(key)

    async def act(_: Hang) -> None:
        with anyio.move_on_after(LIMIT / 4):
            await troubled(partial(store().write, key, b"2", held), OutcomeUnknown)

    hanging(Step("renameat"), act)


def test_a_system_without_a_thread_left_is_the_stores_trouble(key: str) -> None:
    async def act() -> None:
        local = store(threads=1)
        for _ in range(3):
            trouble = await troubled(partial(local.write, key, b"2", None), Transient)
            assert "thread" in trouble.expected

    refused(Step("clone3"), errno.EAGAIN, partial(anyio.run, act))


@pytest.mark.slow
async def test_a_store_uses_its_threads_again_and_takes_them_with_it(key: str) -> None:
    before = set(threading.enumerate())
    local = LocalStore(threads=2)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(local.read, key)
    for _ in range(20):
        await local.read(key)
    used = set(threading.enumerate()) - before
    assert 1 <= len(used) <= 2
    await local.read_all([key])
    # What the tasks were may refer to itself; the store does not, and waits for no collection of garbage.
    del tasks
    gc.collect()
    gc.disable()
    try:
        del local
        with anyio.fail_after(SOON):
            while any(thread.is_alive() for thread in used):  # noqa: ASYNC110 - no thread tells a test
                await anyio.sleep(0.001)
    finally:
        gc.enable()
