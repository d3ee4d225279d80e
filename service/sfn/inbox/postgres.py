"""The inbox that any number of processes share, in a PostgreSQL database.

All transactions that change jobs take one advisory lock first, so they run one after the other, in all processes
together (see `sfn.inbox.transaction`). An append takes no lock: it is one statement, and any number of them run beside.

The driver asyncpg is an optional dependency, so it is imported only when a database is opened.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import structlog
from typing_extensions import override

from sfn.clock import Clock
from sfn.concurrency import Batcher
from sfn.errors import FatalError, OutcomeUnknown, Transient
from sfn.extras import install_command
from sfn.inbox import QueueStats
from sfn.inbox.inbox import CachedCounts, Inbox
from sfn.inbox.model import CommittedTransaction, FoldResult, InboxConfig
from sfn.inbox.operations import Operations
from sfn.inbox.postgres_server import (
    ABORTED,
    UNCERTAIN,
    PostgresConnection,
    PostgresConnectionLost,
    PostgresFault,
    PostgresServer,
    PreflightResult,
    check_schema,
    check_server,
    inspect_database,
    migrate,
    refusal,
    schema_state,
)
from sfn.inbox.schema import APPEND_NUMBERS, POSTGRES_MIGRATIONS, LogRow, Migration
from sfn.inbox.transaction import (
    Appended,
    Change,
    Durability,
    Operation,
    Query,
    Row,
    Run,
    Update,
    Upsert,
    WakeRule,
    Wakes,
    WorkerSignal,
    wakes_after,
)

if TYPE_CHECKING:
    from sfn.inbox.postgres_connections import Connections, NotifyListener

T = TypeVar("T")

MAX_ATTEMPTS: Final = 10
"""Most attempts of a transaction that conflicts with others."""
MAX_WAIT: Final = 15.0
"""Seconds for a transaction with all attempts, from the wait for a connection to the answer."""
MAX_WIDE_WAIT: Final = 60.0
"""Seconds for a transaction that reads every job."""
APPENDED_AT_ONCE: Final = 1_000
"""Most records of one append; a single call may have more."""
POLL_INTERVAL: Final = timedelta(seconds=1)
"""Longest wait without a signal: a claim then finds what another process put or left."""
MAX_SLOW_TRANSACTIONS: Final = 2
"""Concurrent reading transactions, of operators and of publishes, so that appends, claims and settles need not wait."""
_RETRY_STEP: Final = 0.01
_RETRYABLE: Final = frozenset({"40001", "40P01", "0A000", "26000", "42P05"})
"""SQLSTATEs that are retried: a conflict with another transaction; or invalid prepared statements, because the tables
changed or a pooler switched the session."""


FOLD_LOCK: Final = -3020557525990963835
"""Number of the advisory lock of every transaction that changes jobs."""

_DURABLE: Final = {
    "synchronous_commit": "on",
    # A process that stops inside a transaction must not hold the lock for long.
    "lock_timeout": "5s",
    "statement_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",
    "jit": "off",
}
_INDEXED: Final = {
    # A plan for many rows works for few as well, and the statistics of a table that just grew are out of date.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}
_ANY_PLAN: Final = {
    "enable_seqscan": "on",
    "enable_hashjoin": "on",
    "enable_mergejoin": "on",
    "plan_cache_mode": "auto",
    "statement_timeout": "60s",
}


def _set(settings: Mapping[str, str], how: str) -> str:
    return ";".join(f"{how} {name} = '{value}'" for name, value in settings.items())


SESSION_SETTINGS: Final = _set(_DURABLE | _INDEXED, "SET")
"""Statements that are run in a session that is not shared."""
_LOCK: Final = f"SELECT pg_advisory_xact_lock({FOLD_LOCK})"


@cache
def _begin(durability: Durability, *, has_session: bool) -> str:
    """Return the statements that start a transaction.

    Args:
        durability: what the transaction needs.
        has_session: True if the session is not shared, so that its settings were made before.
    """
    parts = ["BEGIN ISOLATION LEVEL READ COMMITTED"]
    wide = durability is Durability.WIDE_READ
    settings = ({} if has_session else _DURABLE | _INDEXED) | (_ANY_PLAN if wide else {})
    if settings:
        parts.append(_set(settings, "SET LOCAL"))
    if durability in {Durability.SYNCED, Durability.DERIVED}:
        parts.append(_LOCK)
    return ";".join(parts)


_APPEND: Final = (
    "WITH base AS (SELECT nextval('sfn.number') AS first), "
    "new AS (SELECT base.first + one.place AS seq, one.sender, one.event_id, one.key, one.kind, one.received_at, "
    "one.record FROM base, unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::bytea[]) "
    "WITH ORDINALITY AS one(sender, event_id, key, kind, received_at, record, place)), "
    # Two appends of the same events take them in the same order, or each would wait for the other.
    "added AS (INSERT INTO sfn.event(seq, sender, event_id, key, kind, received_at, record) "
    "SELECT seq, sender, event_id, key, kind, received_at, record FROM new ORDER BY sender, event_id, seq "
    "ON CONFLICT (sender, event_id) WHERE event_id IS NOT NULL DO NOTHING RETURNING seq, received_at), "
    "waiting AS (INSERT INTO sfn.pending(seq, received_at) SELECT seq, received_at FROM added) "
    "SELECT base.first, ARRAY(SELECT seq FROM added) FROM base"
)
_PLACEHOLDER: Final = re.compile(r"\$(\d+)")


class PostgresTransaction:
    """Implements `Transaction` on one connection.

    Args:
        connection: the connection, within a transaction.
        tokens: fencing tokens that this process has drawn.
    """

    def __init__(self, connection: PostgresConnection, tokens: list[int]) -> None:
        self.connection, self._tokens = connection, tokens

    async def fetch(self, text: str, *values: object) -> Sequence[Row]:
        return await self.connection.fetch(text, *map(_storable, values))

    async def fetch_all(self, queries: Sequence[Query]) -> list[Sequence[Row]]:
        if len(queries) == 1:
            return [await self.fetch(queries[0].text, *queries[0].values)]
        values = [_storable(value) for query in queries for value in query.values]
        (found,) = await self.connection.fetch(_together(tuple(query.text for query in queries)), *values)
        return list(found)

    async def write(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        values: list[object] = []
        texts: list[str] = []
        for change in changes:
            if isinstance(change, Run):
                texts.append(change.text)
                values += map(_storable, change.values)
            else:
                if isinstance(change, Update):
                    texts.append(_update_text(change.table.name, _typed(change)))
                else:
                    texts.append(_upsert_text(change.table.name, _typed(change), change.on_conflict))
                values += [[_storable(value) for value in column] for column in zip(*change.rows, strict=True)]
        await self.connection.execute(_chained(tuple(texts)), *values)

    async def append(self, rows: Sequence[LogRow]) -> Appended:
        appended = Appended((), 0)
        for start in range(0, len(rows), APPEND_NUMBERS):
            more = await append_rows(self.connection, rows[start : start + APPEND_NUMBERS])
            appended = Appended([*appended.new, *more.new], more.last)
        return appended

    def folded(self, seqs: Sequence[int]) -> Change:
        return Run("DELETE FROM sfn.pending WHERE seq = ANY($1::bigint[])", (list(seqs),))

    async def token(self) -> int:
        if not self._tokens:
            # A sequence is not rolled back, so no other transaction gets these.
            ((first,),) = await self.connection.fetch("SELECT nextval('sfn.token')")
            self._tokens += range(first + 999, first - 1, -1)
        return self._tokens.pop()


async def append_rows(connection: PostgresConnection, rows: Sequence[LogRow]) -> Appended:
    """Add at most `APPEND_NUMBERS` records to the log, in one statement."""
    columns = [[_storable(value) for value in column] for column in zip(*rows, strict=True)]
    ((first, seqs),) = await connection.fetch(_APPEND, *columns)
    if len(seqs) == len(rows):
        return Appended([True] * len(rows), first + len(rows))
    new = set(seqs)
    return Appended([first + place in new for place in range(1, len(rows) + 1)], first + len(rows))


def _typed(change: Upsert | Update) -> tuple[tuple[str, str], ...]:
    names = change.columns if isinstance(change, Update) else change.names
    return tuple((name, change.table.columns[name]) for name in names)


@lru_cache(maxsize=256)
def _upsert_text(table: str, columns: tuple[tuple[str, str], ...], conflict: str) -> str:
    names, rows = _unnested(columns)
    return f"INSERT INTO sfn.{table}({names}) SELECT * FROM {rows} ON CONFLICT {conflict}"


@lru_cache(maxsize=256)
def _update_text(table: str, columns: tuple[tuple[str, str], ...]) -> str:
    _, rows = _unnested(columns)
    key, *changed = [name for name, _ in columns]
    values = ", ".join(f"{name} = new.{name}" for name in changed)
    return f"UPDATE sfn.{table} AS old SET {values} FROM {rows} WHERE old.{key} = new.{key}"


def _unnested(columns: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the names of columns, and the rows of one array for each."""
    names = ", ".join(name for name, _ in columns)
    arrays = ", ".join(f"${number}::{kind}[]" for number, (_, kind) in enumerate(columns, start=1))
    return names, f"unnest({arrays}) AS new({names})"


@lru_cache(maxsize=256)
def _together(texts: tuple[str, ...]) -> str:
    """Return one query that returns the rows of several, each as an array."""
    return "SELECT " + ", ".join(f"ARRAY(SELECT found FROM ({text}) AS found)" for text in _renumbered(texts))


@lru_cache(maxsize=256)
def _chained(texts: tuple[str, ...]) -> str:
    """Return one statement that runs several; none of them sees what another one changes."""
    *first, last = _renumbered(texts)
    if not first:
        return last
    return "WITH " + ", ".join(f"change{number} AS ({text})" for number, text in enumerate(first)) + f" {last}"


def _renumbered(texts: Sequence[str]) -> list[str]:
    """Return statements with the numbers of their parameters counted through."""
    numbered: list[str] = []
    offset = 0
    for text in texts:
        numbered.append(_PLACEHOLDER.sub(_shifted(offset), text))
        offset += max(map(int, _PLACEHOLDER.findall(text)), default=0)
    return numbered


def _shifted(offset: int) -> Callable[[re.Match[str]], str]:
    return lambda found: f"${int(found[1]) + offset}"


def _storable(value: object) -> object:
    """Return a value without the characters that PostgreSQL cannot store: NUL and lone surrogates."""
    if isinstance(value, str):
        if "\0" in value or not value.isascii():
            return value.replace("\0", "\ufffd").encode(errors="replace").decode()
        return value
    return [_storable(one) for one in value] if isinstance(value, list) else value


class PostgresRunner:
    """Implements `Runner`: transactions with retries after conflicts, and the classification of their errors.

    Args:
        connections: the connections of the process.
        where: name of the database in errors.
        observe: called after every transaction.
    """

    poll_interval = POLL_INTERVAL

    def __init__(
        self, connections: Connections, where: str, observe: Callable[[CommittedTransaction], None] = lambda _: None
    ) -> None:
        self.connections, self.where, self._observe = connections, where, observe
        self._appends = Batcher[Sequence[LogRow], Appended](self._append_all, weight=len, max_weight=APPENDED_AT_ONCE)
        self.signal = WorkerSignal()
        self._is_waiting = False
        self._tokens: list[int] = []
        self._slow = anyio.Semaphore(MAX_SLOW_TRANSACTIONS)
        self.listener: NotifyListener | None = None
        self.check_version: Callable[[], Awaitable[None]] | None = None
        self._checked_at = -math.inf

    async def append(self, rows: Sequence[LogRow], wakes: Wakes) -> Appended:
        try:
            appended = await self._appends(rows)
        except OutcomeUnknown:
            self._wake(wakes)
            raise
        if any(appended.new):
            # A worker of this process that waits takes it at once; the others need not be woken for that.
            self._wake(Wakes.OWN_WORKER if wakes is Wakes.ALL_WORKERS and self._is_waiting else wakes)
        return appended

    async def claim(
        self, operation: Operation[T], after: int | None, abandoned: Callable[[T], None], *, is_free: bool
    ) -> tuple[T, int] | None:
        if after is None:
            number = self.signal.number
            return await self.run(operation, Durability.DERIVED), number
        if self.listener is not None:
            await self.listener.listen()
        self._is_waiting = is_free
        try:
            await self.signal.wait_beyond(after)
        finally:
            self._is_waiting = False
        return None

    def end_wait(self) -> None:
        """End the wait of a claim."""
        self.signal.notify()

    def _wake(self, wakes: Wakes) -> None:
        if wakes is not Wakes.NO_WORKER:
            self.signal.notify()
        if wakes is Wakes.ALL_WORKERS and self.listener is not None:
            self.listener.notify()

    async def run(self, operation: Operation[T], durability: Durability, wakes: WakeRule[T] = Wakes.NO_WORKER) -> T:
        began = anyio.current_time()
        async with self._slow if durability in {Durability.READ, Durability.WIDE_READ} else nullcontext():
            result = await self.on_tables(operation, durability)
        self._observe(CommittedTransaction(1, 0, anyio.current_time() - began))
        self._wake(wakes_after(wakes, result))
        return result

    async def on_tables(
        self,
        operation: Callable[[Any], Awaitable[T]],
        durability: Durability = Durability.WIDE_READ,
        *,
        starting: bool = False,
    ) -> T:
        """Return the result of an operation on a `PostgresTransaction` once it is committed.

        Args:
            operation: called again, in a new transaction, after a conflict or a lost connection.
            durability: what it needs.
            starting: True if the process has not used the database yet.

        Raises:
            Transient: scope inbox: nothing was changed.
            OutcomeUnknown: scope inbox: the transaction may have been committed.
            Permanent: scope inbox: a value can't be stored.
            FatalError: the inbox cannot be trusted any more, or never could.
        """
        max_wait = MAX_WIDE_WAIT if durability is Durability.WIDE_READ else MAX_WAIT
        return await self._repeated(
            lambda connection: self._once(connection, operation, durability), max_wait, starting=starting
        )

    async def checkpoint(self) -> None:
        """Do nothing: the server does so by itself, and reports errors."""

    async def check(self) -> None:
        """Check at intervals that this version may still work on the tables."""
        if self.check_version is not None and anyio.current_time() >= self._checked_at + VERSION_CHECK_INTERVAL:
            with suppress(Transient):
                await self.check_version()
            self._checked_at = anyio.current_time()

    async def _append_all(self, calls: Sequence[Sequence[LogRow]]) -> Sequence[Appended]:
        began = anyio.current_time()
        rows = [row for call in calls for row in call]
        appended = await self._repeated(lambda connection: self._append(connection, rows), MAX_WAIT)
        self._observe(CommittedTransaction(len(calls), len(rows), anyio.current_time() - began))
        new = iter(appended.new)
        return [Appended(list(itertools.islice(new, len(call))), appended.last) for call in calls]

    async def _append(self, connection: PostgresConnection, rows: Sequence[LogRow]) -> Appended:
        """Append records in one statement, which is a transaction of its own."""
        if not connection.prepares or len(rows) > APPEND_NUMBERS:
            # Behind a pooler the settings must be made in the transaction.
            return await self._once(connection, lambda transaction: transaction.append(rows), Durability.READ)
        try:
            return await append_rows(connection, rows)
        except PostgresConnectionLost as lost:
            raise PostgresConnectionLost(UNCERTAIN, lost.text) from None

    async def _repeated(
        self, attempt: Callable[[PostgresConnection], Awaitable[T]], max_wait: float, *, starting: bool = False
    ) -> T:
        """Return the result of an attempt; it is made again after conflicts, and after one lost connection."""
        try:
            with anyio.fail_after(max_wait):
                return await self._attempts(attempt)
        except PostgresFault as fault:
            raise refusal(fault, self.where, starting=starting) from None
        except TimeoutError:
            # A firewall that lost its state silences all connections, not one.
            self.connections.forget()
            raise refusal(PostgresFault(UNCERTAIN, "no answer in time"), self.where, starting=starting) from None

    async def _attempts(self, attempt: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        number, has_lost = 0, False
        while True:
            number += 1
            try:
                async with self.connections.one() as connection:
                    return await attempt(connection)
            except PostgresConnectionLost as lost:
                # An idle connection does not show that the server was restarted; the next connection is a new one.
                if lost.code == UNCERTAIN or has_lost:
                    raise
                has_lost = True
            except PostgresFault as fault:
                if fault.code not in _RETRYABLE or number == MAX_ATTEMPTS:
                    raise
            await anyio.sleep(number * _RETRY_STEP)

    async def _once(
        self, connection: PostgresConnection, operation: Callable[[Any], Awaitable[T]], durability: Durability
    ) -> T:
        try:
            await connection.execute(_begin(durability, has_session=connection.prepares))
            result = await operation(PostgresTransaction(connection, self._tokens))
            await _commit(connection)
        except PostgresConnectionLost:
            raise
        except Exception:
            with suppress(PostgresFault):
                await connection.execute("ROLLBACK")
            raise
        return result


async def _commit(connection: PostgresConnection) -> None:
    try:
        ended = await connection.execute("COMMIT")
    except PostgresFault as fault:
        # It may have been committed before the answer was lost.
        connection.end()
        raise PostgresConnectionLost(UNCERTAIN, fault.text) from None
    if ended != "COMMIT":
        # The server's answer for a transaction in which something had failed (PostgreSQL manual, "COMMIT").
        raise PostgresFault(ABORTED, f"a transaction that ended with {ended}")


# ── Opening

MAX_START_WAIT: Final = 30.0
"""Seconds that a start waits for a server that is starting too."""
VERSION_CHECK_INTERVAL: Final = 5.0
"""Seconds between two checks of the schema's version."""
_START_RETRY: Final = 1.0

_log = structlog.stdlib.get_logger(__name__)


@asynccontextmanager
async def connected(
    server: PostgresServer,
    observe: Callable[[CommittedTransaction], None] = lambda _: None,
    renewed: Callable[[], None] = lambda: None,
) -> AsyncIterator[PostgresRunner]:
    """Yield the runner of a database, without a request yet; close all connections at the end.

    Args:
        server: address of the database.
        observe: called after every transaction.
        renewed: called after each new connection: another server may answer than before.

    Raises:
        FatalError: asyncpg is not installed.
    """
    try:
        from sfn.inbox.postgres_connections import Connections, NotifyListener, connect
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        expected, remedy = "the package asyncpg, which speaks to PostgreSQL", install_command("postgres")
        raise FatalError(server.name, expected=expected, found="none", remedy=remedy) from None
    connections = Connections(partial(connect, server), server.patience, SESSION_SETTINGS, renewed)
    runner = PostgresRunner(connections, server.name, observe)
    runner.listener = NotifyListener(connections, runner.signal.notify)
    try:
        yield runner
    finally:
        await runner.listener.close()
        await connections.close()


async def preflight(server: PostgresServer, clock: Clock) -> PreflightResult:
    """Check that the inbox could use a database, without touching any row.

    Raises:
        FatalError: the database is not suitable.
        Transient: scope inbox: the server does not answer.
    """
    async with connected(server) as runner:

        async def find(transaction: PostgresTransaction) -> PreflightResult:
            return await inspect_database(transaction, runner.where, clock.now, is_pooled=runner.connections.is_pooled)

        return await runner.on_tables(find, starting=True)


async def prepare_database(
    runner: PostgresRunner, migrations: Sequence[Migration] = POSTGRES_MIGRATIONS, max_wait: float = MAX_START_WAIT
) -> bool:
    """Check that the database is suitable for the inbox, and create missing tables; return True if there were none.

    Args:
        runner: the runner.
        migrations: the migrations of this version.
        max_wait: seconds to wait for a server that does not answer.

    Raises:
        Transient: scope inbox: the server has not answered for a while.
        FatalError: the database is not suitable.
    """

    async def prepare(transaction: PostgresTransaction) -> bool:
        await check_server(transaction, runner.where)
        found = await schema_state(transaction)
        check_schema(found, runner.where, len(migrations))
        return found.version < len(migrations) and await migrate(transaction.connection, runner.where, migrations)

    give_up_at = anyio.current_time() + max_wait
    last_error = ""
    while True:
        try:
            return await runner.on_tables(prepare, starting=True)
        except Transient as trouble:
            if anyio.current_time() >= give_up_at:
                raise
            if str(trouble) != last_error:
                last_error = str(trouble)
                _log.warning("waiting for the database", seconds=max_wait, error=last_error)
            await anyio.sleep(_START_RETRY)


class PostgresInbox(Inbox):
    """The inbox in a PostgreSQL database, which other processes may share; `opened` creates it."""

    _cached_stats: CachedCounts[QueueStats]

    @classmethod
    @asynccontextmanager
    async def opened(  # noqa: PLR0913 - the last ones are for tests
        cls,
        server: PostgresServer,
        config: InboxConfig,
        clock: Clock,
        *,
        queue_limit: int = 25_000,
        observe: Callable[[CommittedTransaction], None] = lambda _: None,
        observe_fold: Callable[[FoldResult], None] = lambda _: None,
        stats_max_age: float = 5.0,
        migrations: Sequence[Migration] = POSTGRES_MIGRATIONS,
    ) -> AsyncIterator[PostgresInbox]:
        """Open the inbox in a database, and create missing tables; close all connections at the end.

        Args:
            server: address of the database.
            config: the configuration of the inbox.
            clock: the wall clock; the clocks of all processes must agree to a fraction of a lease.
            queue_limit: most messages that may wait.
            observe: called after every transaction.
            observe_fold: called after every fold.
            stats_max_age: greatest age of the statistics in seconds; 0 for current ones.
            migrations: the migrations of this version.

        Raises:
            FatalError: the database is not suitable, or a newer, incompatible version created the tables.
            Transient: scope inbox: the server has not answered for a while.
        """
        operations = Operations(config, clock.now)
        async with connected(server, observe, operations.forget_groups) as runner:
            new = await prepare_database(runner, migrations)
            _log.info("inbox opened", database=runner.where, new=new, pooled=runner.connections.is_pooled)
            inbox = cls(runner, operations, clock, queue_limit=queue_limit, observe_fold=observe_fold, unapplied=1)
            inbox._cached_stats = CachedCounts(super(PostgresInbox, inbox).stats, stats_max_age)

            async def check_version() -> None:
                check_schema(await runner.on_tables(schema_state), runner.where, len(migrations))
                await inbox._cached_stats.refresh()

            runner.check_version = check_version
            yield inbox

    @override
    async def stats(self) -> QueueStats:
        """Return the statistics of the inbox; they may be some seconds old."""
        return await self._cached_stats()
