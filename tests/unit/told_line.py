"""A line from events to files where nobody can ask the catalog: the truth is in memory, and is only told of."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from typing_extensions import override

from sfn.catalogs.event_sourced import EventCatalog
from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import LeasedJob
from sfn.inbox.memory import MemoryInbox
from sfn.publish.policy import Policy
from sfn.publish.publish import Ports, publish
from tests.promises.inboxes import TERMS
from tests.unit.publishing import LAG, Line

ALLOWED = "file:///warehouse"


def metadata(table: Table, **more: Any) -> bytes:  # noqa: ANN401 - JSON
    """What a table's metadata file says."""
    content = {
        "format-version": 2,
        "table-uuid": table.uuid,
        "location": table.location,
        "last-updated-ms": table.last_updated_ms,
        "current-snapshot-id": table.snapshot_id,
        "metadata-log": [{"metadata-file": entry, "timestamp-ms": 0} for entry in table.metadata_log],
        **more,
    }
    return json.dumps(content).encode()


class ToldLine(Line):
    """A line whose catalog is of type told.

    Attributes:
        told: the adapter.
    """

    def __init__(self, policy: Policy | None = None, **terms: Any) -> None:  # noqa: ANN401 - those of `Terms`
        told = policy or Policy("c1", replica_lag=LAG, allowed_locations=(ALLOWED,))
        super().__init__(replace(told, is_swept=False, event_only=True))
        self.inbox = MemoryInbox(replace(TERMS, event_only_catalogs=frozenset({"prod"}), **terms), self.clock)
        self.told = EventCatalog("prod", "c1", self.store.read_range, (ALLOWED,))

    def lay(self, table: Table) -> Table:
        """Write a table's metadata file."""
        self.store.files[table.metadata_location] = metadata(table)
        return table

    def create(self, name: TableIdentifier, location: str | None = None) -> Table:
        """A new table, whose metadata file is there."""
        return self.lay(self.catalog.create(name, location))

    def commit(self, name: TableIdentifier, location: str | None = None) -> Table:
        """One more version, whose metadata file is there."""
        return self.lay(self.catalog.commit(name, location))

    async def tell(
        self,
        name: TableIdentifier,
        table: Table,
        birth: TableOrigin | None = None,
        *,
        seconds: float = 0,
        **more: Any,  # noqa: ANN401
    ) -> None:
        """An event of a pointer."""
        await self.hear(
            Notification(name, min_metadata_location=table.metadata_location, origin=birth, **more), seconds=seconds
        )

    @override
    async def publish(self, claim: LeasedJob) -> None:
        ports = Ports(self.inbox, self.inbox, self.told, self.store, self.clock)
        outcome = await publish(claim, ports, self.policy, jitter=0)
        assert await self.inbox.settle(claim, outcome, self.clock.now())
        self.outcomes.append(outcome)


DAY = timedelta(days=1).total_seconds()
