"""What the services can know of where a table is: a name's row is known to the other rows once it has settled."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sfn.domain.identifiers import JobKey, Table, TableIdentifier
from tests.simulation.loop import EPOCH

if TYPE_CHECKING:
    from tests.simulation.world import World


class Knowledge:
    """Of the first catalog."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[tuple[TableIdentifier, str | None], datetime] = {}

    def settled(self, subject: JobKey) -> None:
        """A row settled: what it says of its table is known from now on, if every inbox has it."""
        if not isinstance(subject, TableIdentifier) or subject.catalog != self._world.truths[0].name:
            return
        table = self._world.truths[0].true(subject)
        if isinstance(table, Table) and (subject, table.uuid) not in self._since:
            services = self._world.services
            if all(subject in one.kept.carrying(subject.catalog, table.uuid or "") for one in services):
                self._since[subject, table.uuid] = self._world.loop.now()

    def is_known(self, uuid: str | None, identifier: tuple[str, ...], at: datetime) -> bool:
        """Whether a table was known to be live at a time: under this name by the catalog, or by the row of another."""
        name = self._named(identifier)
        mine = self._world.truths[0].true(name)
        return (isinstance(mine, Table) and mine.uuid == uuid) or any(
            other != name and owner == uuid and since <= at for (other, owner), since in self._since.items()
        )

    def there_since(self, identifier: tuple[str, ...], place: str) -> datetime | None:
        """Since when a name's table is at a place; one that was ever switched off may be gone from there."""
        world, name = self._world, self._named(identifier)

        def is_there(table: Table) -> bool:
            sites = world.checker.sites(name, table)
            return table.uuid not in world.switched and place in [site.location for site in sites]

        since = world.truths[0].there_since(name, is_there)
        return None if since is None else EPOCH + timedelta(seconds=since)

    def _named(self, identifier: tuple[str, ...]) -> TableIdentifier:
        return TableIdentifier(self._world.truths[0].name, identifier[:-1], identifier[-1])
