"""Whether the inbox could be kept in a database, without a row of it being touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sfn.clock import Clock
from sfn.errors import FatalError
from sfn.inbox.codec import to_micros
from sfn.inbox.postgres import schema
from sfn.inbox.postgres.opening import reached, suits
from sfn.inbox.postgres.schema import MIGRATIONS
from sfn.inbox.postgres.server import PostgresServer
from sfn.inbox.postgres.tables import Sql

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
    """What was found of a database that the inbox can be kept in.

    Attributes:
        where: the database, without a secret.
        server: its version.
        version: the schema's; 0 for none yet.
        is_pooled: a pooler stands between.
        is_durable: what was committed outlives a power cut, as far as it is set.
        ahead: how far its clock is ahead of ours.
        others: how many connections other processes of ours have, as far as may be seen.
    """

    where: str
    server: str
    version: int
    is_pooled: bool
    is_durable: bool
    ahead: timedelta
    others: int


async def preflight(server: PostgresServer, clock: Clock) -> PreflightResult:
    """Find out.

    Raises:
        FatalError: it can't be kept there.
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
