"""An inbox that knows many tables, of which a few wait, fail or were given up: written at once, without any event."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio
from msgspec.structs import replace

from sfn.clock import SystemClock
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLetterReason, Priority, PublishedPointer, TableState
from sfn.inbox.jobs import schedule_columns, table_columns
from sfn.inbox.model import InboxConfig, Job
from sfn.inbox.schema import JOB, encode_job, encode_key
from sfn.inbox.sqlite import SqliteInbox

NAMESPACES: Final = 97
WAITS_EVERY: Final = 500
"""One table of so many waits for a publish."""
GIVEN_UP_EVERY: Final = 2_000


def fill(file: Path, catalog: str, count: int) -> None:
    """Make an inbox; the files that it knows are nowhere."""
    file.parent.mkdir(parents=True, exist_ok=True)

    async def make() -> None:
        async with SqliteInbox.opened(file, InboxConfig(), SystemClock()):
            pass

    anyio.run(make)
    with closing(sqlite3.connect(file)) as database:
        rows = (
            (encode_key(one.subject), catalog, *schedule_columns(one, 1), *table_columns(one), encode_job(one))
            for one in _jobs(catalog, count)
        )
        marks = ",".join("?" * len(JOB.columns))
        database.executemany(f"INSERT INTO job({','.join(JOB.columns)}) VALUES({marks})", rows)
        group = "INSERT INTO concurrency_group(id,catalog,store,priority) VALUES(1,?,'',?)"
        database.execute(group, (catalog, Priority.LIVE.value))
        database.commit()


def _jobs(catalog: str, count: int) -> Iterator[Job]:
    now, chance = SystemClock().now(), random.Random(7)
    for number in range(count):
        table = TableIdentifier(catalog, (f"ns{number % NAMESPACES}",), f"table_{number}")
        location = f"s3://lake/{table.namespace[0]}/{table.name}"
        file = f"{location}/metadata/{number % 90:05d}-{chance.randbytes(16).hex()}.metadata.json"
        live = PublishedPointer(file, f"u{number}", location, now)
        state = TableState(live=live, has_settled=True)
        job = Job(table, now + timedelta(hours=8), table_state=state, version=1, processed_version=1)
        if number % WAITS_EVERY == 0:
            since, due = now - timedelta(seconds=100 + number % 777), now + timedelta(hours=1)
            job = replace(job, version=2, attempt=3, pending_since=since, due_at=due)
        elif number % GIVEN_UP_EVERY == 1:
            job = replace(job, reason=DeadLetterReason.PERMANENT, pending_since=now - timedelta(hours=1))
        yield job
