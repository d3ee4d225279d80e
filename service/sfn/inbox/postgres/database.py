"""Opening the database: driver, server, version and tables; and the preflight of `sfn check`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import anyio
import structlog

from sfn.clock import Clock
from sfn.errors import FatalError, Transient
from sfn.inbox.codec import to_micros
from sfn.inbox.postgres import schema
from sfn.inbox.postgres.connections import Connections, PostgresConnection
from sfn.inbox.postgres.schema import MIGRATIONS, Migration
from sfn.inbox.postgres.server import PostgresServer
from sfn.inbox.postgres.tables import KnownGroups, Sql
from sfn.inbox.postgres.transaction_runner import SETTLED, Transactions

EXTRA: Final = "pip install '.[postgres]'"
OLDEST: Final = 130_000
"""The lowest supported `server_version_num`."""
START_PATIENCE: Final = 30.0
"""Seconds that a start waits for a server that is starting too."""
_AGAIN: Final = 1.0

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedDatabase:
    """A database that answers.

    Attributes:
        connections: the connections of the process.
        transactions: runs transactions.
        where: name of the database in messages.
    """

    connections: Connections
    transactions: Transactions
    where: str


@asynccontextmanager
async def reached(server: PostgresServer, stores: Collection[str] = ()) -> AsyncIterator[OpenedDatabase]:
    """Yield the database, without a request yet; close all connections at the end.

    Raises:
        FatalError: asyncpg is not installed.
    """
    try:
        from sfn.inbox.postgres.driver import connect
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise FatalError(
            server.name, expected="the package asyncpg, which speaks to PostgreSQL", found="none", remedy=EXTRA
        ) from None

    async def made(prepares: bool) -> PostgresConnection:  # noqa: FBT001 - the one thing that there is to say
        return await connect(server, prepares=prepares)

    lanes = KnownGroups()
    connections = Connections(made, server.patience, SETTLED, lanes.forget)
    try:
        yield OpenedDatabase(connections, Transactions(connections, server.name, lanes, stores), server.name)
    finally:
        await connections.close()


async def prepared(
    there: OpenedDatabase, migrations: Sequence[Migration] = MIGRATIONS, patience: float = START_PATIENCE
) -> bool:
    """Check that the database is suitable for the inbox, and create missing tables.

    Args:
        migrations: the migrations of this version.
        patience: seconds to wait for a server that does not answer.

    Returns:
        True if tables were created or migrated.

    Raises:
        Transient: scope inbox: the server has not answered for a while.
        FatalError: the database is not suitable.
    """

    async def prepare(sql: Sql) -> bool:
        await suits(sql, there.where)
        found = await schema.found(sql)
        schema.check(found, there.where, len(migrations))
        return found.version < len(migrations) and await schema.prepare(sql, there.where, migrations)

    give_up_at = anyio.current_time() + patience
    last_error = ""
    while True:
        try:
            return await there.transactions.on_tables(prepare, starting=True)
        except Transient as trouble:
            if anyio.current_time() >= give_up_at:
                raise
            if str(trouble) != last_error:
                last_error = str(trouble)
                _log.warning("the database is waited for", seconds=patience, error=last_error)
            await anyio.sleep(_AGAIN)


async def suits(sql: Sql, where: str) -> None:
    """Refuse an unsuitable database.

    Raises:
        FatalError: the server is too old, or the encoding does not hold every text.
    """
    ((version, encoding),) = await sql.fetch(
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding')"
    )
    if version < OLDEST:
        raise FatalError(
            where,
            expected=f"PostgreSQL {OLDEST // 10_000} or newer",
            found=f"version {version // 10_000}",
            remedy="upgrade the server",
        )
    if encoding != "UTF8":
        remedy = "create the database with ENCODING 'UTF8' TEMPLATE template0"
        raise FatalError(where, expected="a database with the encoding UTF8", found=encoding, remedy=remedy)


_MAY_MAKE: Final = (
    "SELECT CASE WHEN to_regnamespace('sfn') IS NULL THEN has_database_privilege(current_database(), 'CREATE') "
    "ELSE has_schema_privilege('sfn', 'CREATE') END"
)
_MAY_NOT_USE: Final = (
    "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('sfn') AND (relkind = 'r' AND NOT ("
    "has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE') "
    "AND has_table_privilege(oid, 'DELETE')) OR relkind = 'S' AND NOT has_sequence_privilege(oid, 'USAGE')) "
    "ORDER BY relname"
)
_FACTS: Final = (
    "SELECT current_setting('server_version'), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, "
    "current_setting('fsync')::bool AND current_setting('full_page_writes')::bool, pg_is_in_recovery(), "
    "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'iceberg-sfn' "
    "AND pid <> pg_backend_pid())"
)


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """The facts about a suitable database.

    Attributes:
        where: name of the database, without a secret.
        server: version of the server.
        version: version of the schema; 0 without tables.
        is_pooled: True behind a pooler.
        is_durable: True if the server's settings let commits survive a power cut.
        ahead: time by which the server's clock is ahead of this process.
        others: number of visible connections of other listener processes.
    """

    where: str
    server: str
    version: int
    is_pooled: bool
    is_durable: bool
    ahead: timedelta
    others: int


async def preflight(server: PostgresServer, clock: Clock) -> PreflightResult:
    """Check that the inbox could use a database, without touching any row.

    Raises:
        FatalError: the database is not suitable.
        Transient: scope inbox: the server does not answer.
    """
    async with reached(server) as there:

        async def prove(sql: Sql) -> PreflightResult:
            await suits(sql, there.where)
            found = await schema.found(sql)
            schema.check(found, there.where)
            await _permitted(sql, there.where, found.version)
            ((version, at, is_durable, is_standby, others),) = await sql.fetch(_FACTS)
            if is_standby:
                raise _refused(there.where, "a primary", "a standby, which takes no writes")
            ahead = timedelta(microseconds=at - to_micros(clock.now()))
            pooled = there.connections.is_pooled
            return PreflightResult(there.where, version, found.version, pooled, is_durable, ahead, others)

        return await there.transactions.on_tables(prove, starting=True)


async def _permitted(sql: Sql, where: str, version: int) -> None:
    if version < len(MIGRATIONS):
        ((may,),) = await sql.fetch(_MAY_MAKE)
        if not may:
            remedy = "CREATE SCHEMA sfn AUTHORIZATION …, or GRANT CREATE ON DATABASE … TO …"
            raise _refused(where, "the right to make the schema sfn and its tables", "that it is not granted", remedy)
    lacking: Sequence[str] = [name for (name,) in await sql.fetch(_MAY_NOT_USE)]
    if lacking:
        remedy = "GRANT ALL ON ALL TABLES IN SCHEMA sfn TO …, and ALL SEQUENCES"
        raise _refused(where, "the right to read and write the schema sfn", f"none to {', '.join(lacking)}", remedy)


def _refused(where: str, expected: str, found: str, remedy: str = "") -> FatalError:
    return FatalError(where, expected=expected, found=found, remedy=remedy)
