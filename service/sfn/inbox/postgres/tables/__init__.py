"""The port to the database in SQL, for one transaction; what runs the statements is given."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sfn.inbox.postgres.tables.catalogs import CatalogTable
from sfn.inbox.postgres.tables.events import EventTable
from sfn.inbox.postgres.tables.intents import IntentTable
from sfn.inbox.postgres.tables.lanes import KnownLanes, Lanes
from sfn.inbox.postgres.tables.letters import LetterTable
from sfn.inbox.postgres.tables.roster import RosterTable
from sfn.inbox.postgres.tables.rows import RowTable
from sfn.inbox.postgres.tables.values import Sql, number_of

__all__ = ["KnownLanes", "Sql", "SqlUnit"]

_TENDING: Final = number_of("tending")


class SqlUnit:
    """Implements `Unit`.

    Args:
        sql: the transaction.
        known: what this process knows of the lanes.
        stores: see `Terms.stores`.

    Attributes:
        sql: the same transaction, for those who know that it is one of SQL.
    """

    def __init__(self, sql: Sql, known: KnownLanes, stores: Collection[str]) -> None:
        self.sql, self._lanes = sql, Lanes(known)
        self.rows = RowTable(sql, self._lanes, stores)
        self.events = EventTable(sql)
        self.intents = IntentTable(sql)
        self.letters = LetterTable(sql)
        self.catalogs = CatalogTable(sql)
        self.roster = RosterTable(sql)

    async def alone(self) -> bool:
        ((alone,),) = await self.sql.fetch("SELECT pg_try_advisory_xact_lock($1::bigint)", _TENDING)
        return bool(alone)

    def committed(self) -> None:
        """The transaction ended well."""
        self._lanes.keep()
