"""The operations of the inbox over the port to the database, each in one transaction.

The same code runs over SQL and, in the simulator with several processes, over jobs in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from sfn.domain.events import TableReport
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import BackwardStep, LeasedJob, Wakeup
from sfn.inbox.codec import encode_step
from sfn.inbox.model import InboxConfig, holds_lease, is_renamed
from sfn.inbox.postgres.apply_puts import PostgresWriter
from sfn.inbox.postgres.claiming import Claiming
from sfn.inbox.postgres.job_batch import JobBatch
from sfn.inbox.postgres.operator_commands import PostgresAdmin
from sfn.inbox.postgres.settling import SettleRequest, SettleResult, ask, settle_all
from sfn.inbox.postgres.transaction import InboxTransaction, Locking, TableLocation
from sfn.inbox.statistics import NamedTable, counted_steps, dropped_table, is_already_counted, without_old_names
from sfn.sfnfile.naming import layout_location


class PostgresOperations:
    """All operations of an inbox for one process.

    Args:
        config: the configuration of the inbox.
        clock: read within the transaction.

    Attributes:
        writer, claiming, admin: the operations of receivers, of a worker that claims, and of operators.
    """

    def __init__(self, config: InboxConfig, clock: Callable[[], datetime]) -> None:
        self._config, self._clock = config, clock
        self.writer = PostgresWriter(config)
        self.claiming = Claiming(config, clock, self.writer)
        self.admin = PostgresAdmin(config, self.writer)

    async def settle_all(self, unit: InboxTransaction, endings: Sequence[SettleRequest]) -> list[SettleResult]:
        return await settle_all(unit, endings, self._config)

    async def record_location(
        self, unit: InboxTransaction, claim: LeasedJob, site: str, uuid: str | None
    ) -> frozenset[TableIdentifier] | None:
        name, place = claim.subject, TableLocation(claim.subject.catalog, layout_location(site))
        row = (await unit.rows.get({name}, Locking.NONE)).rows.get(name)
        if row is None or not holds_lease(row, claim):
            return None
        if site in row.locations:
            return await self._others(unit, claim, place, uuid)
        await unit.table_index.lock_locations([place])
        others = await self._others(unit, claim, place, uuid)
        batch = JobBatch(unit.rows)
        numbers = await batch.lock({name, *others}, len(others))
        row = batch.load(name)
        if row is None or not holds_lease(row, claim):
            return None
        batch.save(name, replace(row, locations=row.locations | {site}))
        ask(batch, [Wakeup(other) for other in sorted(others)], numbers, self._clock(), self._config.retry_cap)
        await batch.write()
        return others

    async def allow_step(self, unit: InboxTransaction, claim: LeasedJob, step: BackwardStep, now: datetime) -> bool:
        row = (await unit.rows.get({claim.subject}, Locking.WAIT)).rows.get(claim.subject)
        if row is None or not holds_lease(row, claim):
            return False
        catalog, text = claim.subject.catalog, encode_step(claim.subject, step)
        since = now - self._config.drop_limit_window
        await unit.catalogs.lock(catalog)
        if await unit.catalogs.has_step(catalog, text, since):
            return True
        drop = dropped_table(claim.subject, step, is_renamed=is_renamed(row))
        tripped = catalog in await unit.catalogs.tripped()
        steps = await unit.catalogs.count_steps(catalog, since)
        drops = await unit.catalogs.drops(catalog, since)
        used = counted_steps(steps, drops)
        allowed = not tripped and await self._allows(unit, catalog, used, [*drops, drop] if drop is not None else [])
        if not allowed and not is_already_counted(drop, drops):
            await unit.catalogs.trip(catalog, tripped=True)
            return False
        await unit.catalogs.forget_steps(catalog, since)
        await unit.catalogs.add_step(catalog, text, now, drop)
        return True

    async def reported_tables(self, unit: InboxTransaction, table: TableIdentifier) -> tuple[TableReport, ...]:
        row = (await unit.rows.get({table}, Locking.NONE)).rows.get(table)
        return row.table_state.reported if row is not None else ()

    async def at_location(
        self, unit: InboxTransaction, table: TableIdentifier, location: str
    ) -> frozenset[TableIdentifier]:
        return frozenset(await unit.table_index.live_at(TableLocation(table.catalog, location))) - {table}

    async def max_missing(self, unit: InboxTransaction, catalog: str) -> int:
        return self._config.allowed_drops(catalog, await unit.table_index.live_count(catalog))

    async def _others(
        self, unit: InboxTransaction, claim: LeasedJob, place: TableLocation, uuid: str | None
    ) -> frozenset[TableIdentifier]:
        live = await unit.table_index.live_at(place)
        return frozenset(name for name, other in live.items() if other != uuid and name != claim.subject)

    async def _allows(self, unit: InboxTransaction, catalog: str, used: int, drops: Sequence[NamedTable]) -> bool:
        """Return whether the limit allows one more step; a table that is dropped twice counts once.

        Args:
            unit: the transaction.
            catalog: the catalog's name.
            used: number of counted steps.
            drops: the earlier drops and this one; empty for a step that drops no table.
        """
        # Counting many live tables takes long, and more live tables never allow fewer steps.
        if used >= self._config.max_steps(catalog, 0):
            live = await unit.table_index.live_count(catalog)
            if used >= self._config.max_steps(catalog, live):
                return False
        if not drops:
            return True
        gone = {one.name for one in without_old_names(drops)}
        # At most half of more tables than these are gone.
        live = await unit.table_index.live_count(catalog, 2 * len(gone) + 1)
        return len(gone) <= self._config.max_drops_of(catalog, live + await unit.table_index.without_file(gone))
