"""The inbox that several processes share in a database: the product's runner for PostgreSQL on a simulated server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from sfn.clock import Clock
from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey
from sfn.errors import ExternalError
from sfn.inbox.catalogs import ALL_SWEEPS
from sfn.inbox.inbox import Inbox
from sfn.inbox.model import AdminCommand, InboxConfig, JobState
from sfn.inbox.operations import Operations
from sfn.inbox.postgres import _APPEND, _LOCK, POLL_INTERVAL, SESSION_SETTINGS, PostgresRunner
from sfn.inbox.postgres_connections import Connections, NotifyListener
from sfn.inbox.postgres_server import UNREACHABLE, Connect, PostgresConnection, PostgresConnectionLost, PostgresFault
from sfn.inbox.schema import LogRow, decode_job, parse_sweeps
from sfn.inbox.sqlite_writer import SqliteTransaction
from sfn.inbox.transaction import (
    Appended,
    Change,
    Durability,
    Operation,
    Query,
    Row,
    T,
    Transaction,
    WakeRule,
    Wakes,
    WorkerSignal,
    drive,
)
from tests.simulation.database import IDLE_TIMEOUT, Database, SharedTransaction, connection_lost
from tests.simulation.inbox import QUEUE_LIMIT, SharedInbox, name_of
from tests.simulation.loop import PROCESS, SimulatedLoop
from tests.simulation.rules import SKEW, Rules

if TYPE_CHECKING:
    from tests.simulation.node import Node, Service

SELDOM: Final = timedelta(seconds=20)
"""Longest wait without a notification in the calm, where all are heard: thousands of looks would find nothing."""
PATIENCE: Final = 5.0
"""Seconds for a connection."""
LOOK: Final = timedelta(seconds=2)
"""For the look that finds a lease which ran out, once it is time for it."""
RISK: Final = 0.1
"""Of another call's chance to be killed or stopped at it: a transaction has several statements."""
PACE, SLOW = 100.0, 4.0
"""Statements a second, and of those that take long."""
SLOW_SHARE: Final = 0.05
"""Of all statements: they take long."""
AT_ONCE: Final = 1e-4
"""Seconds for a statement of who belongs to no service."""

_NAME: Final = ContextVar("_NAME", default="session")
"""What the operation is called that a task runs."""


@dataclass(frozen=True, slots=True)
class Clockwork:
    """One machine's clock."""

    loop: SimulatedLoop
    ahead: timedelta

    def now(self) -> datetime:
        return self.loop.now() + self.ahead


class SharedReplicaInbox(SharedInbox):
    """The inbox in a database.

    Args:
        service: whose.
        config: settings.
        database: the database.
    """

    def __init__(self, service: Service, config: InboxConfig, database: Database) -> None:
        self.database = database
        self._late: set[tuple[JobKey, int]] = set()
        super().__init__(service, config, database.db)

    @override
    def transaction(self) -> SqliteTransaction:
        return SharedTransaction(self.database)

    @override
    def clock(self) -> Clock:
        return Clockwork(self.database.loop, self.database.rng.uniform(-1, 1) * SKEW / 2)

    @override
    def context(self, node: Node) -> Context:
        context = Context()
        context.run(PROCESS.set, node)
        return context

    @override
    def abandoned(self, node: Node) -> None:
        self.database.abandoned(node)

    @override
    def closed(self, node: Node) -> None:
        self.database.cut(node)

    @override
    def wrong(self) -> list[tuple[str, str]]:
        found, policy = super().wrong(), self.service.policy
        since = self.service.loop.now() - 2 * policy.sweep_every
        query = self.transaction().fetch_all([ALL_SWEEPS])
        swept = parse_sweeps(drive(query)[0]).get(self.service.truth.name)
        if policy.is_swept and (swept is None or swept.started_at < since):
            found.append(("no sweep", f"since {swept}"))
        return found

    @override
    def look(self) -> None:
        """See that no lease has run out for longer than somebody who lives needs to find it."""
        now = self.service.loop.now()
        for (record,) in self.db.execute("SELECT record FROM job WHERE state = ?", (JobState.LEASED.value,)):
            job = decode_job(record)
            claim = job.subject, job.fencing_token
            if job.lease_until is not None and job.lease_until + POLL_INTERVAL + LOOK < now and claim not in self._late:
                self._late.add(claim)
                self.service.observer.blame(
                    "an expired lease is not taken back", f"{job.subject} until {job.lease_until}"
                )

    @override
    async def put(self, hint: Notification) -> None:
        await self.operator.put([hint])

    @override
    async def release(self, catalog: str, order: AdminCommand) -> None:
        while True:
            try:
                return await super().release(catalog, order)
            except ExternalError:
                # A process that stands still has the lock for some seconds: an operator tries again.
                await asyncio.sleep(1)

    @override
    async def replay(self, numbers: Sequence[int], order: AdminCommand) -> int:
        try:
            return await super().replay(numbers, order)
        except ExternalError:
            return 0

    @override
    def _opened(self, node: Node | None, clock: Clock, signal: WorkerSignal) -> Inbox:
        return opened(self.database, self.rules, node, self.config, clock, signal)


def opened(
    database: Database, rules: Rules, node: Node | None, config: InboxConfig, clock: Clock, signal: WorkerSignal
) -> Inbox:
    """Return the inbox in a database as a process has it, or one that never dies.

    Args:
        database: the database.
        rules: looks at its transactions.
        node: the process, or None.
        config: settings.
        clock, signal: those of the process.
    """
    operations = Operations(config, clock.now)
    connections = Connections(connector(database, rules, node), PATIENCE, SESSION_SETTINGS, operations.forget_groups)
    runner = ReplicaRunner(connections, database)
    runner.signal = signal
    runner.listener = NotifyListener(connections, signal.notify)
    return Inbox(runner, operations, clock, queue_limit=QUEUE_LIMIT, observe_fold=lambda _: None, unapplied=1)


class ReplicaRunner(PostgresRunner):
    """The product's runner; only the statements of an operation are run otherwise."""

    def __init__(self, connections: Connections, database: Database) -> None:
        super().__init__(connections, "simulated")
        self._faults = database.faults
        self._named = SharedTransaction(database)

    @property
    @override
    def poll_interval(self) -> timedelta:  # type: ignore[override] # a constant there
        return SELDOM if self._faults.is_still else POLL_INTERVAL

    @override
    async def append(self, rows: Sequence[LogRow], wakes: Wakes) -> Appended:
        with _called("append"):
            return await super().append(rows, wakes)

    @override
    async def run(self, operation: Operation[T], durability: Durability, wakes: WakeRule[T] = Wakes.NO_WORKER) -> T:
        async def run(transaction: Transaction) -> T:
            return await operation(PausedTransaction(transaction))

        with _called(name_of(operation, self._named)):
            return await super().run(run, durability, wakes)


@contextmanager
def _called(name: str) -> Iterator[None]:
    before = _NAME.set(name)
    try:
        yield
    finally:
        _NAME.reset(before)


def connector(database: Database, rules: Rules, node: Node | None) -> Connect:
    """Return what connects a process, or one that never dies."""

    async def connect(*, prepares: bool) -> PostgresConnection:
        connection = SimulatedConnection(database, rules, node, prepares=prepares)
        await connection.pause("connect")
        if database.is_away:
            connection.end()
            raise PostgresFault(UNREACHABLE, "connection refused")
        return connection

    return connect


class SimulatedConnection:
    """Implements `PostgresConnection`: every statement may take long, never end, or be cut off.

    Between two statements time passes, until the first one that writes. From then on all is done at once, up to the
    commit. So what a transaction wrote is seen by others only when it is committed, and what it reads before is what is
    committed at that time.

    Args:
        database: the database.
        rules: looks at transactions.
        node: the process; None for who never dies.
        prepares: see `Connections`.

    Attributes:
        transaction: the statements of the transaction.
    """

    def __init__(self, database: Database, rules: Rules, node: Node | None, *, prepares: bool) -> None:
        self._database, self._rules, self._node, self.prepares = database, rules, node, prepares
        self._session = database.connected(node)
        self._name = "session"
        self._is_noticed = self._has_read = self._writes = self._is_lost = False
        self.is_busy = False
        self.transaction = SharedTransaction(database)

    @property
    def is_open(self) -> bool:
        """Whether it can be used as far as is known: of one that the server ended that is seen sooner or later."""
        self._is_noticed |= not self._session.is_open and self._database.rng.random() < 1 / 2
        return not self._is_noticed

    @property
    def session(self) -> int:
        return self._session.number + self._database.is_pooled

    async def fetch(self, statement: str, *values: Any) -> Sequence[Sequence[Any]]:
        """Run what the product runs beside the statements of operations."""
        if statement == _APPEND:
            return [await self._append([LogRow(*row) for row in zip(*values, strict=True)])]
        if "nextval('sfn.token')" in statement:
            return [(self._database.draw_tokens(),)]
        assert statement == "SELECT pg_backend_pid()", statement
        return [(self._session.number,)]

    async def execute(self, statement: str, *values: object) -> str:
        """Begin, end or notify."""
        assert not values, statement
        if "NOTIFY" in statement:
            await self.pause("notify")
            self._database.notify(statement.rpartition("NOTIFY ")[2].split("'")[1])
        elif statement.startswith("BEGIN"):
            self._name = _NAME.get() if "ISOLATION" in statement else "session"
            await self._begin(takes_lock=_LOCK in statement)
        elif statement == "COMMIT":
            await self._commit()
        elif statement == "ROLLBACK":
            self._end_transaction()
            self._session.release()
            await self.pause("rollback")
        else:
            assert statement.startswith("SET "), statement
        return statement

    async def listen(self, channel: str, on_notify: Callable[[str], None]) -> None:
        await self.pause("listen")
        self._session.heard = on_notify

    def end(self) -> None:
        # What a dead process leaves is not its own to end.
        if self._node is None or self._node.alive:
            self._is_noticed = True
            self._end_transaction()
            self._session.end()

    async def close(self) -> None:
        self.end()

    async def read(self) -> None:
        """A statement reads."""
        if not self._writes:
            if self._has_read:
                await self.pause(f"amid {self._name}")
            self._has_read = True

    async def drawing(self) -> None:
        """A token is drawn."""
        if not self._writes:
            await self.pause(f"token {self._name}")

    async def write(self) -> None:
        """A statement writes; the first one of a transaction stands for the time up to its commit."""
        if self._writes:
            return
        await self.pause(f"decided {self._name}")
        try:
            await self.pause(f"committing {self._name}")
        except PostgresConnectionLost:
            self._is_lost = True
        self._database.db.execute("BEGIN")
        self._writes = True

    async def pause(self, call: str) -> None:
        """A statement is on its way: the server waits for the next one of a transaction, but not for ever.

        Raises:
            PostgresConnectionLost: the session ended meanwhile.
        """
        database, session = self._database, self._session
        timer = database.loop.call_outside(IDLE_TIMEOUT, session.end) if self.is_busy else None
        if self._node is None:
            await asyncio.sleep(AT_ONCE)
        else:
            is_slow = not database.faults.calm and database.rng.random() < SLOW_SHARE
            await self._node.step(call, RISK, SLOW if is_slow else PACE)
        if timer is not None:
            timer.cancel()
        if session.is_open and self._is_cut():
            database.count("cut")
            session.end()
        if not session.is_open:
            self.end()
            raise connection_lost()

    async def _begin(self, *, takes_lock: bool) -> None:
        assert not self.is_busy, "one transaction in another"
        await self.pause(f"before {self._name}")
        if takes_lock:
            await self._lock()
        self.is_busy = True
        await self.pause(f"begun {self._name}")

    async def _lock(self) -> None:
        try:
            await self._database.lock.take(self._session)
        finally:
            # The process may be dead or asleep by now. Then no statement follows, and the server ends the session.
            timer = self._database.loop.call_outside(IDLE_TIMEOUT, self._session.end)
            if self._node is not None:
                await self._node.hear("")
            timer.cancel()

    async def _append(self, rows: Sequence[LogRow]) -> tuple[int, list[int]]:
        """Append records beside whatever transaction runs: their numbers are drawn before they are committed."""
        is_alone = not self.is_busy
        if is_alone:
            await self.pause("before append")
        first = self._database.draw(len(rows) + 1)
        if not self._writes:
            await self.pause("drawn append")
        await self._begin_append(is_alone=is_alone)
        appended = self.transaction.append_as(first + 1, rows)
        if is_alone:
            self._end_transaction(commits=True)
            await self.pause("committed append")
        return first, [first + place for place, is_new in enumerate(appended.new, start=1) if is_new]

    async def _begin_append(self, *, is_alone: bool) -> None:
        if is_alone:
            self._database.db.execute("BEGIN")
            self._writes = True
        else:
            await self.write()

    async def _commit(self) -> None:
        if self._is_lost:
            self.end()
            raise connection_lost()
        self._end_transaction(commits=True)
        self._session.release()
        await self.pause(f"committed {self._name}")

    def _end_transaction(self, *, commits: bool = False) -> None:
        if self._writes:
            self._database.db.execute("COMMIT" if commits else "ROLLBACK")
            if commits:
                self._rules.committed(self._node, self.transaction)
        self.transaction.forget()
        self.is_busy = self._has_read = self._writes = self._is_lost = False

    def _is_cut(self) -> bool:
        database = self._database
        is_safe = self._node is None or database.faults.calm
        return not is_safe and database.rng.random() < database.faults.cut


class PausedTransaction:
    """Implements `Transaction`: the statements of an operation on a simulated connection.

    Args:
        product: the product's own transaction, which knows the connection.
    """

    def __init__(self, product: Any) -> None:
        self._product = product
        self._connection: SimulatedConnection = product.connection
        self._inner: SharedTransaction = self._connection.transaction

    async def fetch(self, text: str, *values: object) -> Sequence[Row]:
        await self._connection.read()
        return await self._inner.fetch(text, *values)

    async def fetch_all(self, queries: Sequence[Query]) -> list[Sequence[Row]]:
        await self._connection.read()
        return await self._inner.fetch_all(queries)

    async def write(self, changes: Sequence[Change]) -> None:
        if changes:
            await self._connection.write()
            await self._inner.write(changes)

    async def append(self, rows: Sequence[LogRow]) -> Appended:
        await self._connection.write()
        appended: Appended = await self._product.append(rows)
        return appended

    def folded(self, seqs: Sequence[int]) -> Change:
        self._inner.folded(seqs)
        change: Change = self._product.folded(seqs)
        return change

    async def token(self) -> int:
        await self._connection.drawing()
        token: int = await self._product.token()
        return token
