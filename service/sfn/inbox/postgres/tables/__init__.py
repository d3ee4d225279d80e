"""The statements of one transaction in SQL: `SqlTransaction`, with one module for each table."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sfn.inbox.postgres.tables.catalogs import CatalogTable
from sfn.inbox.postgres.tables.concurrency_groups import GroupNumbers, KnownGroups
from sfn.inbox.postgres.tables.dead_letters import DeadLetterTable
from sfn.inbox.postgres.tables.events import EventTable
from sfn.inbox.postgres.tables.intents import PostgresIntents
from sfn.inbox.postgres.tables.jobs import JobTable
from sfn.inbox.postgres.tables.table_index import IndexTable
from sfn.inbox.postgres.tables.values import Sql, number_of

__all__ = ["KnownGroups", "Sql", "SqlTransaction"]

_TENDING: Final = number_of("tending")


class SqlTransaction:
    """Implements `InboxTransaction`.

    Args:
        sql: runs the statements of the transaction.
        known: the concurrency groups that this process knows.
        stores: see `InboxConfig.stores`.

    Attributes:
        sql: the argument, for callers that run SQL.
    """

    def __init__(self, sql: Sql, known: KnownGroups, stores: Collection[str]) -> None:
        self.sql, self._lanes = sql, GroupNumbers(known)
        self.rows = JobTable(sql, self._lanes, stores)
        self.events = EventTable(sql)
        self.intents = PostgresIntents(sql)
        self.letters = DeadLetterTable(sql)
        self.catalogs = CatalogTable(sql)
        self.table_index = IndexTable(sql)

    async def alone(self) -> bool:
        ((alone,),) = await self.sql.fetch("SELECT pg_try_advisory_xact_lock($1::bigint)", _TENDING)
        return bool(alone)

    def committed(self) -> None:
        """Note that the transaction is committed."""
        self._lanes.keep()
