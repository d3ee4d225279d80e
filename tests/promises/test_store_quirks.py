"""A store with a quirk is right in every promise, or it is refused before a table's file is written."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import anyio
import pytest

from sfn.cli.check_config import Severity
from sfn.cli.check_config import store_finding as checked
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Permanent, Transient
from sfn.storage import Deleted, Guarantees
from sfn.storage.probe import PROBE_PREFIX
from sfn.storage.remote_store import RemoteStore
from tests.promises import test_store
from tests.promises.store_quirks import FOLDER, OTHERS, QUIRKS, S3, Verdict, azure_with, gcs_with, named, page, s3_with
from tests.promises.stores import Ground
from tests.servers.object_stores import ACCOUNT, GCS, Azure

KEY = f"{FOLDER}sales_orders_main.ver"
ANEW = "write it down: python -m tests.promises.store_quirks"
UNSAFE = [quirk.name for quirk in S3 if quirk.unsafe]
LISTINGS = [quirk.name for quirk in S3 if "listing" in quirk.name or quirk.name in {"none", "short pages"}]
OF_TASKS = "test_concurrent_tasks_lose_no_update"
"""What the server's own atomicity is for."""
Promise: TypeAlias = Callable[[Ground], Awaitable[None]]


def promises(quirk: str) -> Iterator[tuple[str, Promise]]:
    """The promises of a store that one with a quirk must keep. Odd keys are for the quirks of listings alone."""
    for name, test in vars(test_store).items():
        deletes = name.startswith("test_") and ".delete(" in inspect.getsource(test)
        left_out = deletes and QUIRKS[quirk].verdict is Verdict.KEEPS
        if not name.startswith("test_") or left_out or name in {OF_TASKS, QUIRKS[quirk].lacks}:
            continue
        if "name" not in inspect.signature(test).parameters:
            yield name, test
        elif quirk in LISTINGS:
            (names,) = (mark.args[1] for mark in test.pytestmark if mark.name == "parametrize")
            yield from ((f"{name}[{odd}]", partial(test, name=odd)) for odd in names)


@pytest.mark.parametrize("quirk", named(Verdict.RIGHT, Verdict.KEEPS))
async def test_contracts_hold_on_a_store_with_a_quirk(quirk: str) -> None:
    async with s3_with(quirk) as (ground, _):
        await ground.store.probe(ground.key)
        for number, (name, promise) in enumerate(promises(quirk)):
            try:
                await promise(replace(ground, folder=f"s3://lake/{number}/metadata/_sfn/"))
            except BaseException as error:
                error.add_note(f"This is {name}.")
                raise


@pytest.mark.parametrize("quirk", named(Verdict.RIGHT, Verdict.KEEPS))
async def test_accepted_store_has_no_probe_file_left(quirk: str) -> None:
    async with s3_with(quirk) as (ground, server):
        proven = await ground.store.probe(ground.key)
        assert proven == Guarantees(swap=True, conditional_delete=QUIRKS[quirk].verdict is Verdict.RIGHT)
        assert server.objects == {}
        found = await checked("lake", "s3://lake", ground.store, [])
        assert found.severity is (Severity.OK if proven.conditional_delete else Severity.WARNING)
        assert server.objects == {}


@pytest.mark.parametrize("quirk", named(Verdict.REFUSED))
async def test_refused_store_has_a_reason_and_no_probe_file_left(quirk: str) -> None:
    async with s3_with(quirk) as (ground, server):
        server.plant(KEY.removeprefix("s3://lake/"), b"live")
        live = dict(server.objects)
        for _ in range(2):
            with pytest.raises(Permanent) as refused:
                await ground.store.probe(KEY)
            assert refused.value.scope is ErrorScope.STORE
            assert QUIRKS[quirk].said in refused.value.found
            assert refused.value.remedy
            assert ("unsafe_unconditional_writes" in refused.value.remedy) is QUIRKS[quirk].unsafe
        assert server.objects == live
        assert not [asked for asked in server.asked if asked[0] != "GET" and PROBE_PREFIX not in asked[1]]
        found = await checked("lake", "s3://lake", ground.store, [])
        assert found.severity is Severity.ERROR
        assert QUIRKS[quirk].said in found.text
        assert server.objects == live


@pytest.mark.parametrize("quirk", named(Verdict.AWAY))
async def test_failing_conditional_write_is_a_store_outage(quirk: str) -> None:
    async with s3_with(quirk) as (ground, server):
        with pytest.raises(Transient) as away:
            await ground.store.probe(KEY)
        assert away.value.scope is ErrorScope.STORE
        assert QUIRKS[quirk].said in away.value.found
        assert server.objects == {}


@pytest.mark.parametrize("quirk", named(Verdict.LISTING))
async def test_incomplete_listing_is_an_error(quirk: str) -> None:
    async with s3_with(quirk) as (ground, _):
        for number in range(3):
            await ground.plant(f"{FOLDER}{number}.ver", b"1")
        assert len(await ground.store.list(FOLDER, 1)) == 1
        with pytest.raises(Transient) as broken:
            await ground.store.list(FOLDER, 10)
        assert QUIRKS[quirk].said in broken.value.found


@pytest.mark.parametrize("quirk", UNSAFE)
async def test_unsafe_store_is_accepted_if_configured(quirk: str) -> None:
    async with s3_with(quirk, unsafe=True) as (ground, server):
        assert await ground.store.probe(KEY) == Guarantees(swap=False, conditional_delete=False)
        held = await ground.store.write(KEY, b"1", None)
        assert isinstance(held, StoredObject)
        assert isinstance(await ground.store.write(KEY, b"2", held), StoredObject)
        assert list(server.objects) == [KEY.removeprefix("s3://lake/")]


@pytest.mark.parametrize("quirk", [name for name in named(Verdict.REFUSED) if name not in UNSAFE])
async def test_store_that_refuses_valid_writes_is_never_accepted(quirk: str) -> None:
    async with s3_with(quirk, unsafe=True) as (ground, server):
        with pytest.raises(Permanent):
            await ground.store.probe(KEY)
        assert server.objects == {}


async def test_refused_store_is_not_written_to() -> None:
    async with s3_with("If-Match creates") as (ground, server):
        held = await ground.store.write(KEY, b"1", None)
        assert isinstance(held, StoredObject)
        with pytest.raises(Permanent):
            await ground.store.probe(KEY)
        for change in (ground.store.write(KEY, b"2", held), ground.store.delete(KEY, held)):
            with pytest.raises(Permanent, match="may only replace one") as refused:
                await change
            assert refused.value.scope is ErrorScope.STORE
        assert await ground.store.read(KEY) == held
        server.quirks = frozenset()
        await ground.store.probe(KEY)
        assert await ground.store.delete(KEY, held) == Deleted()


async def test_probe_touches_only_probe_files() -> None:
    async with s3_with("none") as (ground, server):
        await ground.plant(KEY, b"live")
        server.asked.clear()
        await ground.store.probe(KEY)
        assert {PROBE_PREFIX in key for _, key in server.asked} == {True}


def other(
    quirk: str, request: pytest.FixtureRequest, *, unsafe: bool
) -> tuple[AbstractAsyncContextManager[RemoteStore], str]:
    """A store on another service, and the folder of a table there."""
    if quirk.startswith("GCS"):
        gcs: GCS = request.getfixturevalue("gcs")
        return gcs_with(quirk, gcs.url, unsafe=unsafe), f"gs://{gcs.bucket()}/orders/metadata/_sfn/"
    azure: Azure = request.getfixturevalue("azure")
    home = f"abfss://{azure.container()}@{ACCOUNT}.dfs.core.windows.net"
    return azure_with(quirk, azure.endpoint, unsafe=unsafe), f"{home}/orders/metadata/_sfn/"


@pytest.mark.parametrize("quirk", [quirk.name for quirk in OTHERS])
async def test_gcs_and_azure_with_a_quirk_are_refused_or_correct(quirk: str, request: pytest.FixtureRequest) -> None:
    opened, folder = await anyio.to_thread.run_sync(lambda: other(quirk, request, unsafe=False))
    async with opened as store:
        if QUIRKS[quirk].verdict is Verdict.REFUSED:
            with pytest.raises(Permanent) as refused:
                await store.probe(folder)
            assert (refused.value.scope, QUIRKS[quirk].said in refused.value.found) == (ErrorScope.STORE, True)
        else:
            assert await store.probe(folder) == Guarantees(swap=True, conditional_delete=False)
        assert await store.list(folder, 10) == []


def test_page_matches_the_outcome_of_each_quirk() -> None:
    shown = page()
    assert shown.path.read_text() == shown.brought_up_to_date(), ANEW
