"""The inbox that several replicas share, as each of them has it, and the rules of who may have a row when."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from typing_extensions import override

from sfn.clock import Clock
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.errors import ExternalError
from sfn.inbox.model import AdminCommand, DeadLetter, DeadLetterStatus, InboxConfig, Job, JobState, stat_state
from sfn.inbox.postgres import PostgresInbox
from sfn.inbox.postgres.connections import Connections, PostgresConnection
from sfn.inbox.postgres.database import OpenedDatabase
from sfn.inbox.postgres.job_queue import POLLED
from sfn.inbox.postgres.tables import KnownGroups, SqlTransaction
from sfn.inbox.postgres.transaction_runner import SETTLED, Transactions
from tests.simulation.database.connection import TwinConnection, connector
from tests.simulation.database.dead_letters import TwinLetters
from tests.simulation.database.events import TwinCatalogs, TwinEvents
from tests.simulation.database.intents import TwinIntents
from tests.simulation.database.jobs import TwinJobs, TwinTableIndex
from tests.simulation.database.server import Server, Session, Table
from tests.simulation.inbox import FOREIGN, SEEN, InboxPorts
from tests.simulation.loop import PROCESS, SimulatedLoop

if TYPE_CHECKING:
    from tests.simulation.node import Node, Service

PATIENCE = 5.0
"""Seconds for a connection."""
SELDOM: Final = timedelta(seconds=20)
"""How often a worker looks in the calm, when it is told of everything."""

_TENDING = Table[str, bool]("tending")

SKEW: Final = timedelta(seconds=1)
"""Between the clocks of two processes, at most."""
LOOK: Final = timedelta(seconds=2)
"""For the look that finds a lease which ran out, once it is time for it."""


class Replica(PostgresInbox):
    """The inbox as one process has it: the service's own."""

    def __init__(self, server: Server, node: Node | None, terms: InboxConfig, clock: Clock) -> None:
        self.connections = Connections(connector(server, node), PATIENCE, SETTLED, lambda: None)
        there = OpenedDatabase(self.connections, TwinTransactions(self.connections, "simulated"), "simulated")
        super().__init__(there, terms, clock, stats_max_age=0)
        self._faults = server.faults

    @override
    async def wait(self, until: datetime | None) -> None:
        """Where nothing befalls anybody, thousands of looks would find nothing."""
        if not self._faults.is_still:
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


class SharedPostgresInbox:
    """Implements `SharedInbox` with the real inbox for PostgreSQL on a simulated server.

    Args:
        service: whose.
        server: where it is.
        terms: settings.
    """

    def __init__(self, service: Service, server: Server, terms: InboxConfig) -> None:
        self.server, self._terms, self._service = server, terms, service
        self._operator = Replica(server, None, terms, server.loop)
        self.rules = Rules(service, server)

    def opened(self, node: Node) -> InboxPorts:
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


class TwinTransaction:
    """Implements `InboxTransaction`.

    Args:
        connection: where the transaction runs.
        stores: see `Terms.stores`.
    """

    def __init__(self, connection: TwinConnection, stores: Collection[str]) -> None:
        self._connection = connection
        self.rows = TwinJobs(connection, stores)
        self.events = TwinEvents(connection)
        self.intents = TwinIntents(connection)
        self.letters = TwinLetters(connection)
        self.catalogs = TwinCatalogs(connection)
        self.table_index = TwinTableIndex(connection)

    async def alone(self) -> bool:
        async def alone(session: Session) -> bool:
            return session.lock_now(_TENDING, "")

        return await self._connection.run("alone", alone)

    def committed(self) -> None:
        """Nothing was learnt that outlives it."""


class TwinTransactions(Transactions):
    """The service's own, on a simulated database."""

    def __init__(self, connections: Connections, where: str) -> None:
        super().__init__(connections, where, KnownGroups(), ())

    @override
    def _unit(self, connection: PostgresConnection) -> SqlTransaction:
        # All that a verb sees of it is the port.
        return cast("SqlTransaction", TwinTransaction(cast("TwinConnection", connection), ()))


@dataclass(frozen=True, slots=True)
class Granted:
    """A claim that was made.

    Attributes:
        node: by which process; None for none of the service's.
        at: seconds since the world began.
    """

    node: Node | None
    at: float


class Rules:
    """Looks at each transaction as it ends well, and at each sweep as it begins.

    Args:
        service: whose inbox it is.
        server: where it is.
    """

    def __init__(self, service: Service, server: Server) -> None:
        self._service, self._server = service, server
        self._granted: dict[tuple[JobKey, int], Granted] = {}
        self._taken_back: set[tuple[JobKey, int]] = set()
        server.committing = self.committing

    def committing(self, session: Session) -> None:
        """A transaction is about to be seen: no row that somebody has is taken from him, no claim is made twice."""
        rows = self._server.tables.rows
        for subject, stored in session.changes.of(rows).items():
            then, after = rows.committed.get(subject), stored.row if stored is not None else None
            before = then.row if then is not None else None
            if before is not None and before.state is JobState.LEASED and _changes_hands(before, after):
                self._see_it_may(session, before)
            if (
                after is not None
                and after.state is JobState.LEASED
                and (before is None or before.fencing_token != after.fencing_token)
            ):
                if (subject, after.fencing_token) in self._granted:
                    self._server.blame("a claim that was made before", f"{subject} {after.fencing_token}")
                self._granted[subject, after.fencing_token] = Granted(session.node, self._server.loop.time())

    def claims(self, subject: JobKey) -> list[Granted]:
        """The claims of a row that were made, in order."""
        return [granted for (other, _), granted in self._granted.items() if other == subject]

    def sweeping(self, node: Node) -> None:
        """A process begins to list its catalog: for a claim that it was given, which nobody else has."""
        name = CatalogName(self._service.truth.name)
        (claim,) = (one for one in node.worker._leases.running() if one.subject == name)
        granted = self._granted.get((name, claim.fencing_token))
        if granted is None or granted.node is not node:
            self._server.blame("a sweep out of turn", f"claim {claim.fencing_token} of {name} is not on disk")

    def look(self) -> None:
        """See that no lease has run out for longer than somebody who lives needs to find it."""
        now = self._server.loop.now()
        for stored in self._server.tables.rows.committed.values():
            row = stored.row
            late = row.lease_until is not None and row.lease_until + POLLED + LOOK < now
            if row.state is JobState.LEASED and late and (row.subject, row.fencing_token) not in self._taken_back:
                self._taken_back.add((row.subject, row.fencing_token))
                self._server.blame("a lease that nobody takes back", f"{row.subject} until {row.lease_until}")

    def wrong(self, swept_since: datetime | None) -> list[tuple[str, str]]:
        """What is wrong when nothing happens.

        Args:
            swept_since: when the catalog was swept last at the earliest; None for one that is not.
        """
        newest: dict[JobKey, int] = {}
        for entry in self._server.tables.events.committed.values():
            newest[entry.notification.subject] = max(entry.seq, newest.get(entry.notification.subject, 0))
        rows = {subject: stored.row for subject, stored in self._server.tables.rows.committed.items()}
        behind = [subject for subject in rows if rows[subject].notified_seq < newest.get(subject, 0)]
        found = [("behind its events", str(subject)) for subject in behind if isinstance(subject, TableIdentifier)]
        found += [("changed without a lock", what) for what in self._server.breaches]
        swept = self._server.tables.catalogs.committed.get(self._service.truth.name)
        swept_at = swept.sweep.started_at if swept is not None and swept.sweep is not None else None
        if swept_since is not None and (swept_at is None or swept_at < swept_since):
            found.append(("nobody sweeps", f"since {swept_at}"))
        return found

    def _see_it_may(self, session: Session, before: Job) -> None:
        """Who has it ends or prolongs it, or it ran out, or an operator wants it."""
        granted = self._granted.get((before.subject, before.fencing_token))
        is_its_own = granted is not None and granted.node is session.node
        ran_out = before.lease_until is None or before.lease_until <= self._server.loop.now() + SKEW
        if not is_its_own and not ran_out and not session.is_ordered:
            self._server.blame("a lease of another one was changed", f"{before.subject} until {before.lease_until}")


def _changes_hands(before: Job, after: Job | None) -> bool:
    """Whether a lease ends, or lasts longer than it did."""
    if after is None or after.state is not JobState.LEASED or after.fencing_token != before.fencing_token:
        return True
    return after.lease_until != before.lease_until
