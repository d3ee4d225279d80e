"""How the database is reached at first: the driver, the server, the tables; and how it is proved without a start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio
import structlog

from sfn.errors import FatalError, Transient
from sfn.inbox.postgres import schema
from sfn.inbox.postgres.connections import Connections, PostgresConnection
from sfn.inbox.postgres.schema import MIGRATIONS, Migration
from sfn.inbox.postgres.server import PostgresServer
from sfn.inbox.postgres.tables import KnownGroups, Sql
from sfn.inbox.postgres.transactions import SETTLED, Transactions

EXTRA: Final = "pip install '.[postgres]'"
OLDEST: Final = 130_000
"""The lowest `server_version_num` that is known to have all that is used."""
START_PATIENCE: Final = 30.0
"""Seconds that a start waits for a server that is starting too."""
_AGAIN: Final = 1.0

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedDatabase:
    """A database that answers.

    Attributes:
        connections: to it.
        transactions: on it.
        where: what it is called in messages.
    """

    connections: Connections
    transactions: Transactions
    where: str


@asynccontextmanager
async def reached(server: PostgresServer, stores: Collection[str] = ()) -> AsyncIterator[OpenedDatabase]:
    """The database; nothing was asked of it yet. All connections are closed in the end.

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
        migrations: this version's.
        patience: seconds that a server which does not answer is waited for.

    Returns:
        Whether it had none.

    Raises:
        Transient: scope inbox: it does not answer, and did not for a while.
        FatalError: it never will do.
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
    """Refuse a database that the inbox can't be kept in.

    Raises:
        FatalError: it is too old, or does not hold every text.
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
