"""The inbox that the processes of a service share: the world looks into it, and acts on it as an operator does.

All inboxes here are the product's `Inbox` and `Operations` on a SQLite database in memory. Only the runner between them
is simulated: it lets processes die and wait between transactions. `SharedSqliteInbox` is the inbox in a file;
`tests.simulation.replicas` has the one in a database that several processes reach.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, cast

from typing_extensions import override

from sfn.clock import Clock
from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.errors import ErrorScope, Transient
from sfn.inbox.dead_letters import find_letters
from sfn.inbox.inbox import Inbox
from sfn.inbox.jobs import KnownGroups, tables_with_uuid
from sfn.inbox.model import AdminCommand, DeadLetter, DeadLetterFilter, InboxConfig, Job, group_of, stat_state
from sfn.inbox.operations import Operations
from sfn.inbox.schema import LogRow, decode_job, decode_subject
from sfn.inbox.sqlite import connect, recover
from sfn.inbox.sqlite_writer import SqliteTransaction
from sfn.inbox.transaction import (
    Appended,
    Durability,
    Operation,
    T,
    Transaction,
    WakeRule,
    Wakes,
    WorkerSignal,
    drive,
    wakes_after,
)
from tests.simulation.rules import Rules, WatchedTransaction
from tests.support.memory_inbox import InlineRunner

if TYPE_CHECKING:
    from tests.simulation.node import Node, Service

FOREIGN = "foreign"
"""How the reasons begin for which a place is taken by somebody else's file."""
SEEN = 9
"""Dead letters that an operator looks at."""
QUEUE_LIMIT: Final = 10_000


def name_of(operation: Operation[Any], transaction: Transaction) -> str:
    """What an operation is called in histories: by its function, such as `claim` or `settle_all`."""
    work = cast("CoroutineType[Any, Any, Any]", operation(transaction))
    work.close()
    return work.cr_code.co_name


class SharedInbox:
    """One inbox, on a database in memory.

    Args:
        service: whose.
        config: settings.
        db: the database.

    Attributes:
        rules: what is wrong with a transaction.
        operator: the inbox as who belongs to no process has it.
    """

    def __init__(self, service: Service, config: InboxConfig, db: sqlite3.Connection) -> None:
        self.service, self.config, self.db = service, config, db
        self.rules = Rules(service.truth.name, service.loop, service.observer.blame)
        self.operator = self._opened(None, service.loop, WorkerSignal())

    def opened(self, node: Node) -> Inbox:
        """What a new process has of it."""
        return self._opened(node, node.clock, node.bell)

    def transaction(self) -> SqliteTransaction:
        """A transaction on the database in which nothing pauses."""
        raise NotImplementedError

    def _opened(self, node: Node | None, clock: Clock, signal: WorkerSignal) -> Inbox:
        raise NotImplementedError

    def clock(self) -> Clock:
        """What a new process takes for the time."""
        return self.service.loop

    def context(self, node: Node) -> Context:
        """What all that a new process does runs in."""
        return Context()

    def abandoned(self, node: Node) -> None:
        """A process died."""

    def closed(self, node: Node) -> None:
        """A process ended as it should."""

    def row(self, subject: JobKey) -> Job | None:
        """A job with all that was accepted of it."""

        async def row(transaction: Transaction) -> Job | None:
            unit = await Operations(self.config, self.service.loop.now).unfolded(transaction, ())
            await unit.jobs.load([subject], caches=True)
            return unit.jobs.get(subject)

        return self._foreseen(row)

    def tables(self) -> Mapping[tuple[str, str], int]:
        """How many tables are in which state, by catalog and state."""
        found = self.db.execute("SELECT catalog, stat_state, count(*) FROM job WHERE stat_state <> '' GROUP BY 1, 2")
        return {(catalog, state): count for catalog, state, count in found}

    def events(self) -> set[str]:
        """Ids of the world's events that are logged."""
        return {event for (event,) in self.db.execute("SELECT event_id FROM event WHERE sender = 'test'")}

    def intents(self) -> list[tuple[str, JobKey]]:
        """The intents that are open, each with a subject, by all that was accepted."""

        async def intents(transaction: Transaction) -> list[tuple[str, JobKey]]:
            found = await transaction.fetch("SELECT id, subject FROM sfn.intent ORDER BY id, key")
            return [(number, decode_subject(subject)) for number, subject in found]

        return self._foreseen(intents)

    def refused(self) -> set[JobKey]:
        """Whose place is taken by somebody else's file."""
        query = "SELECT subject FROM dead_letter WHERE status = 'open' AND subject IS NOT NULL AND reason LIKE ?"
        return {decode_subject(subject) for (subject,) in self.db.execute(query, (f"{FOREIGN}%",))}

    def carrying(self, catalog: str, uuid: str) -> set[TableIdentifier]:
        """Tables whose live file carries the uuid."""
        return {one.table for one in drive(tables_with_uuid(self.transaction(), catalog, uuid))}

    def letters(self) -> list[DeadLetter]:
        """Some open dead letters."""
        return drive(find_letters(self.transaction(), DeadLetterFilter(), SEEN, 0))

    def wrong(self) -> list[tuple[str, str]]:
        """What is wrong in it when nothing happens: (kind, what)."""
        found = [("accepted and not applied", f"{row}") for row in self.db.execute("SELECT seq FROM pending")]
        groups = KnownGroups()
        groups.take(drive(self.transaction().fetch_all([groups.query()]))[0])
        names = {number: group for group, number in groups.numbers.items()}
        for number, state, stat, record in self.db.execute(
            "SELECT concurrency_group, state, stat_state, record FROM job"
        ):
            job = decode_job(record)
            is_table = isinstance(job.subject, TableIdentifier)
            expected = group_of(job, self.config.stores), job.state.value, stat_state(job) if is_table else ""
            if (names[number], state, stat) != expected:
                found.append(("misplaced", f"{job.subject} as {names[number]}, {state}, {stat}"))
        return found

    def sweeping(self, node: Node) -> None:
        """A process begins to list its catalog."""
        self.rules.sweeping(node)

    def look(self) -> None:
        """Nothing befalls anybody any more: see that nobody waits for the dead."""

    async def put(self, hint: Notification) -> None:
        """Take a hint in, whichever process lives."""
        await self.operator.put([hint])
        self.service.ring()

    async def replay(self, numbers: Sequence[int], order: AdminCommand) -> int:
        """Replay letters; how many were open."""
        return await self.operator.replay(numbers, [], order)

    async def release(self, catalog: str, order: AdminCommand) -> None:
        """Release what the brake holds."""
        await self.operator.release(catalog, order)

    def cut_power(self) -> None:
        """The machine of the inbox loses its power, once all processes on it are dead."""
        raise NotImplementedError

    def _foreseen(self, look: Operation[T]) -> T:
        """What an operation would find if all that was accepted were folded by now; nothing changes."""
        transaction, operations = self.transaction(), Operations(self.config, self.service.loop.now)
        self.db.execute("BEGIN")
        try:
            while drive(operations.fold(transaction)).has_more:
                pass
            return drive(look(transaction))
        finally:
            self.db.execute("ROLLBACK")


class Disk:
    """What a power cut leaves of a database: all of it up to some commit, which is the last synced one or a later one.

    Args:
        db: the database.
        rng: chance.
    """

    def __init__(self, db: sqlite3.Connection, rng: random.Random) -> None:
        self._db, self._rng = db, rng
        self._synced, self._between = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
        self._unsynced = 0
        self.committed(is_synced=True)

    def committed(self, *, is_synced: bool) -> None:
        """A transaction was committed."""
        if is_synced:
            self._db.backup(self._synced)
            self._unsynced = 0
            return
        self._unsynced += 1
        # Any of the unsynced commits, each as likely as the others: to keep them all would take too much.
        if self._rng.random() * self._unsynced < 1:
            self._db.backup(self._between)

    def cut(self, *, keeps_some: bool) -> int:
        """Undo what is not on disk: all that is not synced, or a part of it; return how much is not synced."""
        unsynced = self._unsynced
        left = self._rng.choice([self._synced, self._between, self._db]) if keeps_some and unsynced else self._synced
        if left is not self._db:
            left.backup(self._db)
        self.committed(is_synced=True)
        return unsynced


class SharedSqliteInbox(SharedInbox):
    """The inbox in a file.

    Args:
        service: whose.
        config: settings.
        rng: decides what a power cut leaves; None where none comes.

    Attributes:
        keeps_some: a power cut may leave a part of what is not synced.
    """

    def __init__(self, service: Service, config: InboxConfig, rng: random.Random | None) -> None:
        db = connect(":memory:")
        self._current = WatchedTransaction(db)
        self._disk = Disk(db, rng) if rng is not None else None
        self.keeps_some = True
        super().__init__(service, config, db)

    @override
    def transaction(self) -> SqliteTransaction:
        return SqliteTransaction(self.db)

    def commit(self, node: Node | None, operation: Operation[T], durability: Durability) -> T:
        """Run one transaction of a process, or of an operator."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            result = drive(operation(self._current))
        except BaseException:
            self.db.execute("ROLLBACK")
            self._current.forget()
            raise
        self.db.execute("COMMIT")
        self.rules.committed(node, self._current)
        if self._disk is not None and durability in {Durability.SYNCED, Durability.DERIVED}:
            self._disk.committed(is_synced=durability is Durability.SYNCED)
        return result

    def name_of(self, operation: Operation[Any]) -> str:
        """See `name_of`."""
        return name_of(operation, self._current)

    @override
    def cut_power(self) -> None:
        assert self._disk is not None
        lost = self._disk.cut(keeps_some=self.keeps_some)
        self.service.observer.say(f"a power cut, {lost} transactions after the last sync")
        # As when the file is opened: by the next process, which has the inbox for itself.
        recover(self.db, Operations(self.config, self.service.loop.now))
        self._disk.committed(is_synced=True)
        self._current = WatchedTransaction(self.db)
        self.rules.restarted()

    @override
    def _opened(self, node: Node | None, clock: Clock, signal: WorkerSignal) -> Inbox:
        ((unapplied,),) = self.db.execute("SELECT count(*) FROM pending").fetchall()
        return Inbox(
            SqliteRunner(self, node, signal),
            Operations(self.config, clock.now),
            clock,
            queue_limit=QUEUE_LIMIT,
            observe_fold=lambda _: None,
            unapplied=unapplied,
        )


class SqliteRunner(InlineRunner):
    """Implements `Runner` for one process: each transaction is one step, before and after which the process may die.

    Args:
        kept: the inbox.
        node: the process; None for who never dies.
        signal: wakes its worker.
    """

    where = "simulated"

    def __init__(self, kept: SharedSqliteInbox, node: Node | None, signal: WorkerSignal) -> None:
        super().__init__(kept.db)
        self._kept, self._node, self.signal = kept, node, signal

    @override
    async def append(self, rows: Sequence[LogRow], wakes: Wakes) -> Appended:
        if self._node is not None:
            await self._is_full(self._node)
        return await super().append(rows, wakes)

    @override
    async def run(self, operation: Operation[T], durability: Durability, wakes: WakeRule[T] = Wakes.NO_WORKER) -> T:
        name = self._kept.name_of(operation)
        result = await self._stepped(name, lambda: self._kept.commit(self._node, operation, durability))
        if wakes_after(wakes, result) is not Wakes.NO_WORKER:
            # All processes of a service are woken at once.
            self._kept.service.ring()
        return result

    async def _stepped(self, name: str, work: Callable[[], T]) -> T:
        return work() if self._node is None else await self._node.transact(name, work)

    async def _is_full(self, node: Node) -> None:
        """While it takes nothing it says so, or nothing at all."""
        service = node.service
        now = service.loop.time()
        left = max((end - now for start, end in service.faults.inbox_full if start <= now < end), default=0.0)
        if left > 0:
            await asyncio.sleep(service.rng.choice([0.0, left]))
            raise Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=1.0)
