"""One transaction of the simulated database, and what runs transactions on it."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from typing_extensions import override

from sfn.inbox.postgres.connections import Connections, PostgresConnection
from sfn.inbox.postgres.tables import KnownGroups, SqlTransaction
from sfn.inbox.postgres.transaction_runner import Transactions
from tests.simulation.database.connection import TwinConnection
from tests.simulation.database.intents import TwinIntents
from tests.simulation.database.letters import TwinLetters
from tests.simulation.database.notes import TwinCatalogs, TwinEvents
from tests.simulation.database.roster import TwinRoster
from tests.simulation.database.rows import TwinRows
from tests.simulation.database.session import Session
from tests.simulation.database.tables import Table

_TENDING = Table[str, bool]("tending")


class TwinUnit:
    """Implements `InboxTransaction`.

    Args:
        connection: where the transaction runs.
        stores: see `Terms.stores`.
    """

    def __init__(self, connection: TwinConnection, stores: Collection[str]) -> None:
        self._connection = connection
        self.rows = TwinRows(connection, stores)
        self.events = TwinEvents(connection)
        self.intents = TwinIntents(connection)
        self.letters = TwinLetters(connection)
        self.catalogs = TwinCatalogs(connection)
        self.table_index = TwinRoster(connection)

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
        return cast("SqlTransaction", TwinUnit(cast("TwinConnection", connection), ()))
