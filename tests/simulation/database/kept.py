"""The inbox that several replicas share, as each of them has it and as the world sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from sfn.clock import Clock
from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.errors import ExternalError
from sfn.inbox.model import AdminCommand, DeadLetter, DeadLetterStatus, InboxConfig, Job, stat_state
from sfn.inbox.postgres import PostgresInbox
from sfn.inbox.postgres.connections import Connections
from sfn.inbox.postgres.database import OpenedDatabase
from sfn.inbox.postgres.transaction_runner import SETTLED
from tests.simulation.database.connection import connector
from tests.simulation.database.rules import SKEW, Rules
from tests.simulation.database.server import Server
from tests.simulation.database.unit import TwinTransactions
from tests.simulation.kept import FOREIGN, SEEN, Faces
from tests.simulation.loop import PROCESS, SimulatedLoop

if TYPE_CHECKING:
    from tests.simulation.node import Node, Service

PATIENCE = 5.0
"""Seconds for a connection."""
SELDOM: Final = timedelta(seconds=20)
"""How often a worker looks in the calm, when it is told of everything."""


class Replica(PostgresInbox):
    """The inbox as one process has it: the service's own."""

    def __init__(self, server: Server, node: Node | None, terms: InboxConfig, clock: Clock) -> None:
        self.connections = Connections(connector(server, node), PATIENCE, SETTLED, lambda: None)
        there = OpenedDatabase(self.connections, TwinTransactions(self.connections, "simulated"), "simulated")
        super().__init__(there, terms, clock, stats_max_age=0)
        self._weather = server.weather

    @override
    async def wait(self, until: datetime | None) -> None:
        """Where nothing befalls anybody, thousands of looks would find nothing."""
        if not self._weather.is_still:
            await super().wait(until)
            return
        await self._ear.listen()
        late = self._clock.now() + SELDOM
        await self._signal.wait(late if until is None else min(until, late))


@dataclass(frozen=True, slots=True)
class Clockwork:
    """One machine's clock."""

    loop: SimulatedLoop
    ahead: timedelta

    def now(self) -> datetime:
        return self.loop.now() + self.ahead


class SharedKept:
    """Implements `Kept` with the real inbox for PostgreSQL on a simulated server.

    Args:
        service: whose.
        server: where it is.
        terms: settings.
    """

    def __init__(self, service: Service, server: Server, terms: InboxConfig) -> None:
        self.server, self._terms, self._service = server, terms, service
        self._operator = Replica(server, None, terms, server.loop)
        self.rules = Rules(service, server)

    def opened(self, node: Node) -> Faces:
        return Replica(self.server, node, self._terms, node.clock)

    def clock(self) -> Clock:
        return Clockwork(self.server.loop, self.server.rng.uniform(-1, 1) * SKEW / 2)

    def context(self, node: Node) -> Context:
        context = Context()
        context.run(PROCESS.set, node)
        return context

    def abandoned(self, node: Node) -> None:
        self.server.abandoned(node)

    async def closed(self, node: Node) -> None:
        assert isinstance(node.inbox, Replica)
        await node.inbox.connections.close()

    def row(self, subject: JobKey) -> Job | None:
        stored = self.server.row(subject)
        return stored.row if stored is not None else None

    def tables(self) -> Mapping[tuple[str, str], int]:
        rows = [stored.row for stored in self.server.tables.rows.committed.values()]
        counted = [(row.subject.catalog, stat_state(row)) for row in rows if isinstance(row.subject, TableIdentifier)]
        return {pair: counted.count(pair) for pair in counted}

    def events(self) -> set[str]:
        return {str(event) for sender, event in self.server.tables.events.committed if sender == "test"}

    def intents(self) -> list[tuple[str, JobKey]]:
        return list(self.server.tables.intents.committed)

    def refused(self) -> set[JobKey]:
        return {one.subject for one in self._open_ones() if one.subject is not None and one.reason.startswith(FOREIGN)}

    def carrying(self, catalog: str, uuid: str) -> set[TableIdentifier]:
        rows = [stored.row for stored in self.server.tables.rows.committed.values()]
        live = {row.subject: row.table_state.live for row in rows if row.subject.catalog == catalog}
        return {
            name
            for name, one in live.items()
            if isinstance(name, TableIdentifier) and one is not None and one.uuid == uuid
        }

    def wrong(self) -> list[tuple[str, str]]:
        policy = self._service.policy
        return self.rules.wrong(self.server.loop.now() - 2 * policy.sweep_every if policy.is_swept else None)

    def sweeping(self, node: Node) -> None:
        self.rules.sweeping(node)

    def look(self) -> None:
        self.rules.look()

    def letters(self) -> list[DeadLetter]:
        return self._open_ones()[:SEEN]

    async def put(self, hint: Notification) -> None:
        await self._operator.put([hint])

    async def replay(self, numbers: Sequence[int], order: AdminCommand) -> int:
        try:
            return await self._operator.replay(numbers, [], order)
        except ExternalError:
            return 0

    async def release(self, catalog: str, order: AdminCommand) -> None:
        await self._operator.release(catalog, order)

    def _open_ones(self) -> list[DeadLetter]:
        letters = sorted(self.server.tables.letters.committed.items())
        return [letter for _, letter in letters if letter.status is DeadLetterStatus.OPEN]
