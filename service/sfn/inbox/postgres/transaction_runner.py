"""Transactions with retries after conflicts, and the classification of their errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar

import anyio

from sfn.errors import SfnError
from sfn.inbox.postgres.connections import Connections, PostgresConnection
from sfn.inbox.postgres.errors import ABORTED, UNCERTAIN, PostgresConnectionLost, PostgresFault, refusal
from sfn.inbox.postgres.tables import KnownGroups, Sql, SqlTransaction
from sfn.inbox.postgres.transaction import InboxTransaction, RetryTransaction

T = TypeVar("T")
Operation: TypeAlias = Callable[[InboxTransaction], Awaitable[T]]

ATTEMPTS: Final = 10
"""Most attempts of a transaction that conflicts with others."""
PATIENCE: Final = 15.0
"""Seconds for a transaction with all attempts, from the wait for a connection to the answer."""
WIDE_PATIENCE: Final = 60.0
"""Seconds for a transaction that reads every job."""
_STEP: Final = 0.01
_RETRYABLE: Final = frozenset({"40001", "40P01", "0A000", "26000", "42P05"})
"""SQLSTATEs that are retried: a conflict with another transaction; or invalid prepared statements, because the tables
changed or a pooler switched the session."""

_DURABLE: Final = {
    "synchronous_commit": "on",
    # A process that stops inside a transaction must not hold its locks for long.
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
}
_WIDE: Final = {**_ANY_PLAN, "statement_timeout": "60s"}


_PLAIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"


def _set(settings: Mapping[str, str], how: str) -> str:
    return ";".join(f"{how} {name} = '{value}'" for name, value in settings.items())


SETTLED: Final = _set(_DURABLE | _INDEXED, "SET")
"""Statements that are run in a session that is not shared."""
_BEGIN: Final = {True: _PLAIN, False: f"{_PLAIN};{_set(_DURABLE | _INDEXED, 'SET LOCAL')}"}
"""Statement that starts a transaction, by whether the session is not shared."""
_BEGIN_WIDE: Final = {
    True: f"{_PLAIN};{_set(_WIDE, 'SET LOCAL')}",
    False: f"{_PLAIN};{_set(_DURABLE | _WIDE, 'SET LOCAL')}",
}


class Transactions:
    """Runs operations, each in a transaction of its own.

    Args:
        connections: the connections of the process.
        where: name of the database in errors.
        lanes: the concurrency groups that the process knows.
        stores: see `InboxConfig.stores`.
    """

    def __init__(self, connections: Connections, where: str, lanes: KnownGroups, stores: Collection[str]) -> None:
        self._connections, self._where = connections, where
        self._lanes, self._stores = lanes, stores

    async def run(self, operation: Operation[T], *, wide: bool = False) -> T:
        """Return the result of an operation once it is committed; raises as `on_tables` does."""
        return await self._judged(operation, wide=wide, starting=False)

    async def on_tables(self, operation: Callable[[Sql], Awaitable[T]], *, starting: bool = False) -> T:
        """Return the result of an operation in SQL once it is committed.

        Args:
            operation: called again, in a new transaction, after a conflict or a lost connection.
            starting: True if the process has not used the database yet.

        Raises:
            Transient: scope inbox: nothing was changed.
            OutcomeUnknown: scope inbox: the transaction may have been committed.
            Permanent: scope inbox: a value can't be stored.
            FatalError: the inbox cannot be trusted any more, or never could.
        """
        return await self._judged(lambda unit: operation(unit.sql), wide=True, starting=starting)

    async def _judged(self, operation: Callable[[SqlTransaction], Awaitable[T]], *, wide: bool, starting: bool) -> T:
        try:
            with anyio.fail_after(WIDE_PATIENCE if wide else PATIENCE):
                return await self._repeated(operation, _BEGIN_WIDE if wide else _BEGIN)
        except PostgresFault as fault:
            raise self._refused(fault, starting=starting) from None
        except TimeoutError:
            # A firewall that lost its state silences all connections, not one.
            self._connections.forget()
            raise self._refused(PostgresFault(UNCERTAIN, "no answer in time"), starting=starting) from None

    async def _repeated(self, operation: Callable[[SqlTransaction], Awaitable[T]], begin: Mapping[bool, str]) -> T:
        lost = 0
        fault = PostgresFault("40001", "others were quicker, time and again")
        for attempt in range(ATTEMPTS):
            if attempt:
                await anyio.sleep(attempt * _STEP)
            try:
                return await self._once(operation, begin)
            except RetryTransaction:
                continue
            except PostgresConnectionLost as gone:
                # An idle connection does not show that the server was restarted; the next connection is a new one.
                lost += 1
                if gone.code == UNCERTAIN or lost > 1:
                    raise
            except PostgresFault as refused:
                if refused.code not in _RETRYABLE:
                    raise
                fault = refused
        raise fault

    async def _once(self, operation: Callable[[SqlTransaction], Awaitable[T]], begin: Mapping[bool, str]) -> T:
        async with self._connections.one() as connection:
            unit = self._unit(connection)
            try:
                await connection.command(begin[connection.prepares])
                result = await operation(unit)
                await _commit(connection)
            except PostgresConnectionLost:
                raise
            except Exception:
                with suppress(PostgresFault):
                    await connection.command("ROLLBACK")
                raise
            unit.committed()
            return result

    def _unit(self, connection: PostgresConnection) -> SqlTransaction:
        return SqlTransaction(connection, self._lanes, self._stores)

    def _refused(self, fault: PostgresFault, *, starting: bool) -> SfnError:
        return refusal(fault, self._where, starting=starting)


async def _commit(connection: PostgresConnection) -> None:
    try:
        ended = await connection.command("COMMIT")
    except PostgresFault as fault:
        # It may have been committed before the answer was lost.
        connection.end()
        raise PostgresConnectionLost(UNCERTAIN, fault.text) from None
    if ended != "COMMIT":
        # The server's answer for a transaction in which something had failed (PostgreSQL manual, "COMMIT").
        raise PostgresFault(ABORTED, f"a transaction that ended with {ended}")
