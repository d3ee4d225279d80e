"""Reads of operators: the files of a table, a store that hangs or fails, and metadata that is large or broken."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from typing_extensions import override

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import PublishedPointer, StoredObject, TableState
from sfn.errors import ErrorScope, Transient
from sfn.inbox.model import Job
from sfn.sfnfile.naming import UUID, FileLayout, Placement
from sfn.storage import PrefixRouter
from sfn.storage.memory import MemoryStore
from sfn.worker.capacity import CircuitBreakerState
from sfn.worker.table_files import (
    MAX_METADATA_BYTES,
    MAX_SNAPSHOTS,
    READ_PAUSE,
    FileNow,
    ShownSnapshot,
    TableFileQueries,
    TableFilesNow,
)
from tests.support.clock import HandClock

ORDERS = TableIdentifier("prod", ("sales",), "orders")
AT = "s3://lake/orders"
FILE, HINT = f"{AT}/metadata/_sfn/sales_orders_main.ver", f"{AT}/metadata/version-hint.text"
METADATA = f"{AT}/metadata/1.metadata.json"
UUID_OF_TABLE = "9c2a6f3e-1b1f-4d7e-8a29-0a1f6b2c3d4e"
SNAPSHOTS = {
    "current-snapshot-id": 2,
    "refs": {"main": {"snapshot-id": 2, "type": "branch"}, "v1": {"snapshot-id": 1, "type": "tag"}},
    "snapshots": [
        {"snapshot-id": 1, "timestamp-ms": 1_000, "summary": {"operation": "append", "added-records": "5"}},
        {"snapshot-id": 2, "timestamp-ms": 2_000},
    ],
}


class HangingStore(MemoryStore):
    """A store that may hang or fail, and that counts the reads."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.reads, self.running = False, 0, 0
        self.error: Transient | None = None

    @override
    async def read(self, key: str) -> StoredObject | None:
        await self._wait()
        return await super().read(key)

    @override
    async def read_range(self, key: str, start: int, length: int) -> bytes | None:
        await self._wait()
        return await super().read_range(key, start, length)

    async def _wait(self) -> None:
        self.reads, self.running = self.reads + 1, self.running + 1
        try:
            assert self.running == 1
            await anyio.lowlevel.checkpoint()
            if self.hangs:
                await anyio.sleep_forever()
            if self.error is not None:
                raise self.error
        finally:
            self.running -= 1


class Situation:
    """A store, its breakers and the reads."""

    def __init__(self) -> None:
        self.clock, self.store = HandClock(), HangingStore()
        self.breakers: Sequence[CircuitBreakerState] = ()
        router = PrefixRouter({"s3://lake": self.store})
        self.queries = TableFileQueries(lambda _: router, ["s3://lake"], lambda: self.breakers, self.clock, 0.05)

    async def load(self, *layouts: FileLayout) -> TableFilesNow:
        live = PublishedPointer(METADATA, UUID_OF_TABLE, AT, self.clock.now())
        locations = frozenset(one.encoded for one in layouts or (FileLayout(AT),))
        job = Job(ORDERS, self.clock.now(), locations=locations, table_state=TableState(live=live))
        return await self.queries.load(ORDERS, job)

    async def metadata_error(self, body: bytes) -> str:
        self.store.files[METADATA] = body
        found = (await self.load()).metadata
        assert found is not None
        return found.error


@pytest.fixture
def situation() -> Situation:
    return Situation()


async def test_files_of_a_table_are_read(situation: Situation) -> None:
    situation.store.files |= {FILE: b"{}", HINT: b"1", METADATA: json.dumps(SNAPSHOTS).encode()}
    found = await situation.load()
    assert (found.sfn_files, found.version_hint) == ((FileNow(FILE, b"{}"),), FileNow(HINT, b"1"))
    assert found.metadata is not None
    assert found.metadata.refs == (("main", "branch", 2), ("v1", "tag", 1))
    assert found.metadata.snapshots == (
        ShownSnapshot(2, datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), "", ("main",), is_current=True),
        ShownSnapshot(1, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "append", ("v1",)),
    )


async def test_missing_files_are_no_error(situation: Situation) -> None:
    found = await situation.load()
    assert (found.sfn_files, found.version_hint) == ((FileNow(FILE),), FileNow(HINT))
    assert found.metadata is not None
    assert found.metadata.error == "there is no such file, or it is empty"


async def test_files_have_the_names_of_their_layout(situation: Situation) -> None:
    found = await situation.load(FileLayout("s3://lake/sfn/orders", UUID, Placement.ROOT))
    assert [one.key for one in found.sfn_files] == [f"s3://lake/sfn/orders/{UUID_OF_TABLE}_main.ver"]
    assert found.version_hint is None


async def test_newest_snapshots_are_shown_and_all_are_counted(situation: Situation) -> None:
    snapshots = [{"snapshot-id": number, "timestamp-ms": number} for number in range(100)]
    situation.store.files[METADATA] = gzip.compress(json.dumps({"snapshots": snapshots}).encode())
    found = (await situation.load()).metadata
    assert found is not None
    assert found.total == 100
    assert [one.id for one in found.snapshots] == list(range(99, 99 - MAX_SNAPSHOTS, -1))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
async def test_large_metadata_is_not_decoded(situation: Situation, pack: type[bytes]) -> None:
    large = b'{"properties":"' + b"x" * MAX_METADATA_BYTES + b'"}'
    assert (await situation.metadata_error(pack(large))).startswith(
        "the metadata is too large to show: more than 4 MiB"
    )
    assert situation.store.reads < 9


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"\xff", b"[" * 5_000, b'{"snapshots":[{}]}', gzip.compress(b"{}", mtime=0)[:9]]
)
async def test_broken_metadata_is_an_error_without_its_content(situation: Situation, body: bytes) -> None:
    error = await situation.metadata_error(body)
    assert error.startswith(("the file is no Iceberg metadata", "there is no such file"))


async def test_invalid_time_of_a_snapshot_is_unknown(situation: Situation) -> None:
    body = json.dumps({"snapshots": [{"snapshot-id": 1, "timestamp-ms": 2**62}]}).encode()
    assert await situation.metadata_error(body) == ""
    found = (await situation.load()).metadata
    assert found is not None
    assert found.snapshots[0].at is None


async def test_error_of_a_store_is_shown(situation: Situation) -> None:
    situation.store.error = Transient(FILE, scope=ErrorScope.STORE, expected="an answer", found="none")
    found = await situation.load()
    assert found.sfn_files == (FileNow(FILE, error=f"{FILE}: expected an answer, found none"),)


async def test_store_without_configuration_is_an_error(situation: Situation) -> None:
    found = await situation.load(FileLayout("s3://other/orders"))
    assert "expected a location below the prefix of a store" in found.sfn_files[0].error


async def test_store_that_hangs_is_read_once_and_not_again_for_a_while(situation: Situation) -> None:
    situation.store.hangs = True
    with anyio.fail_after(2):
        found = await situation.load()
    assert found.metadata is not None
    assert [found.sfn_files[0].error, found.metadata.error] == ["no answer within 0.05 s"] * 2
    assert situation.store.reads == 1
    situation.store.hangs = False
    situation.clock.turn(5)
    again = (await situation.load()).sfn_files[0].error
    assert again == "not read: the store did not answer a read 5 s ago; reads go on 30 s after that"
    assert situation.store.reads == 1
    situation.clock.turn(READ_PAUSE.total_seconds())
    assert (await situation.load()).sfn_files[0].error == ""


async def test_store_is_read_by_one_operator_at_a_time(situation: Situation) -> None:
    situation.store.hangs = True
    with anyio.fail_after(2):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(situation.load)
    assert situation.store.reads == 1


async def test_store_with_an_open_breaker_is_not_read(situation: Situation) -> None:
    now = situation.clock.now()
    since = now - timedelta(seconds=9)
    situation.breakers = (CircuitBreakerState(ErrorScope.STORE, "s3://lake", now, 0, since, "silent"),)
    found = await situation.load()
    assert found.sfn_files[0].error == "not read: the store has failed for 9 s: silent"
    assert situation.store.reads == 0
