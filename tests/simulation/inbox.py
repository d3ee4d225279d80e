"""The inbox that the processes of a service share: the world looks into it, and acts on it as an operator does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Protocol

from sfn.clock import Clock
from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.inbox import DropLimit, InboxWriter, JobQueue, TableIndex
from sfn.inbox.codec import decode_key, encode_key
from sfn.inbox.model import AdminCommand, DeadLetter, DeadLetterFilter, Job
from sfn.inbox.sqlite.jobs import SqliteJobs
from sfn.inbox.sqlite.operations import SqliteOperations
from tests.simulation.ports import SimulatedInbox

if TYPE_CHECKING:
    from tests.simulation.node import Node, Service

FOREIGN = "foreign"
"""How the reasons begin for which a place is taken by somebody else's file."""
SEEN = 9
"""Dead letters that an operator looks at."""


class InboxPorts(InboxWriter, JobQueue, TableIndex, DropLimit, Protocol):
    """What a process has of the inbox."""


class SharedInbox(Protocol):
    """One inbox."""

    def opened(self, node: Node) -> InboxPorts:
        """What a new process has of it."""
        ...

    def clock(self) -> Clock:
        """What a new process takes for the time."""
        ...

    def context(self, node: Node) -> Context:
        """What all that a new process does runs in."""
        ...

    def abandoned(self, node: Node) -> None:
        """A process died."""
        ...

    async def closed(self, node: Node) -> None:
        """A process ended as it should."""
        ...

    def row(self, subject: JobKey) -> Job | None:
        """A row."""
        ...

    def tables(self) -> Mapping[tuple[str, str], int]:
        """See `Figures.tables`."""
        ...

    def events(self) -> set[str]:
        """Ids of the world's events that are logged."""
        ...

    def intents(self) -> list[tuple[str, JobKey]]:
        """The intents that are open, each with a subject."""
        ...

    def refused(self) -> set[JobKey]:
        """Whose place is taken by somebody else's file."""
        ...

    def carrying(self, catalog: str, uuid: str) -> set[TableIdentifier]:
        """Rows whose live file carries the uuid."""
        ...

    def wrong(self) -> list[tuple[str, str]]:
        """What is wrong in it when nothing happens: (kind, what)."""
        ...

    def sweeping(self, node: Node) -> None:
        """A process begins to list its catalog."""
        ...

    def look(self) -> None:
        """Nothing befalls anybody any more: see that nobody waits for the dead."""
        ...

    def letters(self) -> list[DeadLetter]:
        """Some open dead letters."""
        ...

    async def put(self, hint: Notification) -> None:
        """Take a hint in, whichever process lives."""
        ...

    async def replay(self, numbers: Sequence[int], order: AdminCommand) -> int:
        """Replay letters; how many were open."""
        ...

    async def release(self, catalog: str, order: AdminCommand) -> None:
        """Release what the brake holds."""
        ...


class SharedSqliteInbox:
    """Implements `SharedInbox` with the real SQL of the embedded inbox.

    Args:
        service: whose.
        ledger: the inbox.
    """

    def __init__(self, service: Service, ledger: SqliteOperations) -> None:
        self._service, self._ledger = service, ledger

    def opened(self, node: Node) -> InboxPorts:
        return SimulatedInbox(node, self._ledger)

    def clock(self) -> Clock:
        return self._service.loop

    def context(self, node: Node) -> Context:
        return Context()

    def abandoned(self, node: Node) -> None:
        pass

    async def closed(self, node: Node) -> None:
        pass

    def row(self, subject: JobKey) -> Job | None:
        return self._ledger._rows.load(encode_key(subject))

    def tables(self) -> Mapping[tuple[str, str], int]:
        return self._ledger.admin.stats(self._service.loop.now()).tables

    def events(self) -> set[str]:
        found = self._ledger._db.execute("SELECT event_id FROM event WHERE sender = 'test'")
        return {event for (event,) in found}

    def intents(self) -> list[tuple[str, JobKey]]:
        found = self._ledger._db.execute("SELECT id, key FROM intent")
        return [(number, decode_key(key)) for number, key in found]

    def refused(self) -> set[JobKey]:
        query = f"SELECT key FROM dead_letter WHERE status = 'open' AND reason LIKE '{FOREIGN}%'"  # noqa: S608 - our own
        return {decode_key(key) for (key,) in self._ledger._db.execute(query)}

    def carrying(self, catalog: str, uuid: str) -> set[TableIdentifier]:
        return {row.table for row in self._ledger.table_index.with_uuid(catalog, uuid)}

    def wrong(self) -> list[tuple[str, str]]:
        counted = {pair: count for pair, count in SqliteJobs(self._ledger._db).counts.items() if count}
        kept = self.tables()
        return [("miscounted", f"{kept}, not {counted}")] if counted != kept else []

    def sweeping(self, node: Node) -> None:
        pass

    def look(self) -> None:
        pass

    def letters(self) -> list[DeadLetter]:
        return self._ledger.admin.list_after(DeadLetterFilter(), 0, SEEN)

    async def put(self, hint: Notification) -> None:
        self._ledger.put([hint], self._service.loop.now())
        self._service.ring()

    async def replay(self, numbers: Sequence[int], order: AdminCommand) -> int:
        return self._ledger.admin.replay(numbers, [], order)

    async def release(self, catalog: str, order: AdminCommand) -> None:
        self._ledger.admin.release(catalog, order)
        self._service.ring()
