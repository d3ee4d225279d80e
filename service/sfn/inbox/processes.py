"""The processes that share an inbox: each one writes regularly that it lives, and what it sees.

Only in PostgreSQL can there be several. A process that ends removes its row; one that was killed leaves it for an hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sfn.inbox.schema import PROCESS, from_micros, to_micros
from sfn.inbox.transaction import Run, Transaction, Upsert

MAX_AGE: Final = timedelta(hours=1)
"""How long the row of a process that was killed is kept."""


@dataclass(frozen=True, slots=True)
class StoredProcess:
    """The row of a process.

    Attributes:
        id: identifies the process, not the machine: a restart gets another one.
        seen_at: when it wrote the row, by its own clock.
        record: what it wrote.
    """

    id: str
    seen_at: datetime
    record: bytes


async def write_process(transaction: Transaction, process: StoredProcess) -> None:
    """Write the row of a process, and remove rows that are too old."""
    old = to_micros(process.seen_at - MAX_AGE)
    await transaction.write([Run("DELETE FROM sfn.process WHERE seen_at < $1", (old,))])
    await transaction.write([Upsert(PROCESS, [(process.id, to_micros(process.seen_at), process.record)])])


async def remove_process(transaction: Transaction, process_id: str) -> None:
    """Remove the row of a process that ends."""
    await transaction.write([Run("DELETE FROM sfn.process WHERE id = $1", (process_id,))])


async def list_processes(transaction: Transaction) -> Sequence[StoredProcess]:
    """Return the rows of all processes, by id."""
    found = await transaction.fetch("SELECT id, seen_at, record FROM sfn.process ORDER BY id")
    return [StoredProcess(number, from_micros(at), bytes(record)) for number, at, record in found]
