"""Publishes to an S3 server beside a bare loop of the same conditional writes by aiobotocore."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from sfn.catalogs.memory import MemoryCatalog
from sfn.clock import SystemClock, SystemRandomSource
from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Done, LeasedJob, Outcome
from sfn.inbox.model import InboxConfig as InboxTerms
from sfn.inbox.model import NewDeadLetter
from sfn.inbox.sqlite import SqliteInbox
from sfn.publish.policy import Policy
from sfn.storage import PrefixRouter
from sfn.storage.remote_store import RemoteStore
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.worker import Worker, WorkerOptions
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.promises.stores import s3_store
from tests.servers.object_stores import REGION, ROOT, S3

T = TypeVar("T")

IN_FLIGHT: Final = 64
ROUNDS: Final = 32
"""Publishes of each table a run, for the goal."""
WARM: Final = 2
_BODY: Final = b"x" * 700
"""As long as an SFN document."""


class Settled:
    """Implements `Journal`: wakes whoever waits for a table.

    Attributes:
        other: outcomes that were no publish.
    """

    def __init__(self) -> None:
        self.other: list[Outcome] = []
        self._waiting: defaultdict[object, anyio.Event] = defaultdict(anyio.Event)

    async def of(self, table: TableIdentifier) -> None:
        await self._waiting[table].wait()
        del self._waiting[table]

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        if not isinstance(outcome, Done):
            self.other.append(outcome)
        self._waiting[claim.subject].set()

    def on_lease_lost(self, claim: LeasedJob) -> None:
        pass

    def on_leases_expired(self, leases: int) -> None:
        pass

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        pass

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        pass


def measure(runs: int, rounds: int, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Publish and write in turn.

    Args:
        rounds: publishes of each table a run.

    Raises:
        Unmeasured: there is no server, or a publish did not do what it is to do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        server = S3()
    except pytest.skip.Exception as error:
        raise Unmeasured(str(error)) from error
    taken: list[Run] = []
    # As `sfn serve` has it.
    run = partial(anyio.run, backend_options={"use_uvloop": True})
    with server:
        for number in range(runs):
            say(f"store: run {number + 1}/{runs}")
            bucket = server.bucket()
            publishes = run(published, server.url, f"s3://{bucket}/wh", folder / f"{number}.db", rounds)
            taken.append(Run(publishes, run(_bare, server.url, bucket, rounds)))
    return [
        Figure(
            name="s3_publish_vs_bare",
            unit="publishes/s",
            runs=taken,
            compared_with="aiobotocore, two conditional PUTs for each",
            goal=Goal("ratio", ">=", 0.8),
            short=rounds < ROUNDS,
            note=f"{IN_FLIGHT} tables at once, {rounds} commits of each; the whole worker, SQLite inbox",
        )
    ]


async def published(url: str, warehouse: str, database: Path, rounds: int) -> float:
    """Publishes a second."""
    clock, catalog, settled = SystemClock(), MemoryCatalog("prod"), Settled()
    catalog.create_namespace("n")
    async with AsyncExitStack() as stack:
        inbox = await stack.enter_async_context(SqliteInbox.opened(database, InboxTerms(), clock))
        store: RemoteStore = await stack.enter_async_context(s3_store(url))
        none = timedelta()
        policy = Policy("c1", replica_lag=none, min_publish_interval=none, is_swept=False)
        worker = Worker(
            inbox,
            _One(ConnectedCatalog(catalog, policy)),
            PrefixRouter({warehouse: store}),
            clock=clock,
            chance=SystemRandomSource(),
            sink=settled,
            options=WorkerOptions(concurrency=IN_FLIGHT + 1),
        )
        names = [TableIdentifier("prod", ("n",), f"t{number}") for number in range(IN_FLIGHT)]
        for name in names:
            catalog.create(name, f"{warehouse}/{name.name}")
        stop = anyio.Event()

        async def line(name: TableIdentifier, commits: int) -> None:
            for _ in range(commits):
                # There is no figure any more, and the next attempt may be far away.
                if settled.other:
                    return
                await inbox.put([Notification(name, min_metadata_location=catalog.commit(name).metadata_location)])
                await settled.of(name)

        async with anyio.create_task_group() as running:
            running.start_soon(partial(worker.run, stop))
            await _all(line, names, WARM)
            began = time.perf_counter()
            await _all(line, names, rounds)
            took = time.perf_counter() - began
            stop.set()
    if settled.other:
        raise Unmeasured(f"a publish that was none: {settled.other[0]}")
    return IN_FLIGHT * rounds / took


async def _bare(url: str, bucket: str, rounds: int) -> float:
    """Pairs of conditional writes a second."""
    keys = {"aws_access_key_id": ROOT.access, "aws_secret_access_key": ROOT.secret}
    config = AioConfig(max_pool_connections=128, s3={"addressing_style": "path"})
    making = get_session().create_client("s3", endpoint_url=url, region_name=REGION, config=config, **keys)
    async with making as client:
        tags: dict[str, str] = {}

        async def line(number: int, commits: int) -> None:
            for _ in range(commits):
                for name in (f"wh/t{number}/file", f"wh/t{number}/hint"):
                    tags[name] = await _put(client, bucket, name, tags.get(name))

        await _all(line, range(IN_FLIGHT), WARM)
        began = time.perf_counter()
        await _all(line, range(IN_FLIGHT), rounds)
        return IN_FLIGHT * rounds / (time.perf_counter() - began)


async def _put(client: Any, bucket: str, key: str, tag: str | None) -> str:  # noqa: ANN401 - botocore makes it
    condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
    # A body of its own each time, as a document has: the tag is of the content.
    body = b"%d" % time.perf_counter_ns() + _BODY
    answer = await client.put_object(Bucket=bucket, Key=key, Body=body, **condition)
    return str(answer["ETag"])


async def _all(line: Callable[[T, int], Coroutine[Any, Any, None]], subjects: Iterable[T], commits: int) -> None:
    async with anyio.create_task_group() as tasks:
        for subject in subjects:
            tasks.start_soon(line, subject, commits)


class _One:
    """Implements `Sources` for one catalog."""

    def __init__(self, source: ConnectedCatalog) -> None:
        self._source = source

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        return self._source

    def is_retired(self, catalog: str) -> bool:
        return False
