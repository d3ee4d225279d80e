"""One scenario in one naming: a writer changes tables through the catalog, and the service learns of each change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import CreateTableTransaction, Table, Transaction
from pyiceberg.table.update import SetLocationUpdate, TableUpdate
from pyiceberg.types import LongType, NestedField, StringType

from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import NAMINGS
from tests.integration.scenarios.service import PATIENCE, Identifier, Section, Service

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "item", StringType(), required=False))
Name = str | Identifier
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Known:
    """A table as it was at some moment: what a reader may remember of it.

    Attributes:
        identifier: namespace levels and name.
        directory: its location.
        uuid: its `table-uuid`.
        pointer: its metadata file.
    """

    identifier: Identifier
    directory: Path
    uuid: str
    pointer: str


@dataclass(frozen=True, slots=True)
class World:
    """What all scenarios share.

    Attributes:
        catalog: a client of it.
        warehouse: where it puts tables.
        service: follows it.
        rival: a service of another environment, which follows catalogs of its own.
        folder: for what else there is.
    """

    catalog: RestCatalog
    warehouse: Path
    service: Service
    rival: Service
    folder: Path


class Hearing(Protocol):
    """How the service learns of what happens."""

    def changes(self, stage: Stage) -> AbstractContextManager[None]:
        """While it is open tables change; then the service has seen it through."""

    def give_up(self) -> None:
        """Have nobody wait for a play that failed."""


class Stage:
    """Where one scenario plays.

    Args:
        world: what it shares with the others.
        section: how the service follows the catalog there.
        key: of the play, in the names of its namespaces.
        hearing: how the service learns of what happens.
    """

    def __init__(self, world: World, section: Section, key: str, hearing: Hearing) -> None:
        self.world, self.section, self.namespace = world, section, f"{section.name}_{key}"
        self.catalog = world.catalog
        self.catalog.create_namespace(self.namespace)
        self.had: set[str] = set()
        self.directories: set[Path] = set()
        self.tables: dict[Identifier, None] = {}
        self.others: list[Table] = []
        self._namespaces = [self.namespace]
        self._hearing = hearing
        self._tells, self._settles = True, True
        self._last: Mapping[str, object] = {}
        self._next = 1

    def beside(self, suffix: str) -> str:
        """Another namespace."""
        namespace = f"{self.namespace}_{suffix}"
        self.catalog.create_namespace(namespace)
        self._namespaces.append(namespace)
        return namespace

    def identifier(self, name: Name) -> Identifier:
        """Of a table of the scenario's namespace, if it has none of its own."""
        return (self.namespace, name) if isinstance(name, str) else name

    def known(self, name: Name) -> Known:
        """A table as it is now."""
        return self._noted(self.identifier(name), self.load(name))

    def load(self, name: Name) -> Table:
        """A table of the catalog."""
        table: Table = self.catalog.load_table(self.identifier(name))
        return table

    def create(self, name: Name, *, at: Path | None = None, properties: Mapping[str, str] | None = None) -> Known:
        """Make an empty table, at its catalog's place or another."""
        identifier = self.identifier(name)
        table = self.catalog.create_table(identifier, SCHEMA, self._location(at), properties=dict(properties or {}))
        return self._changed(identifier, table, "create")

    def staged(self, name: Name) -> CreateTableTransaction:
        """Begin to make a table, of which the catalog knows nothing before it is committed."""
        change: CreateTableTransaction = self.catalog.create_table_transaction(self.identifier(name), SCHEMA)
        return change

    def append(self, name: Name, branch: str = "main") -> Known:
        """Commit a row that no other commit has."""
        self.append_to(self.load(name), branch)
        return self.committed(name)

    def append_to(self, table: Table | Transaction, branch: str = "main") -> None:
        """Commit such a row to a table of whatever catalog, and tell nobody."""
        row, self._next = {"id": self._next, "item": f"item {self._next}"}, self._next + 1
        schema = (table if isinstance(table, Table) else table.table_metadata).schema().as_arrow()
        table.append(pa.Table.from_pylist([row], schema=schema), branch=branch)

    def filled(self, name: Name, *, at: Path | None = None) -> Known:
        """A new table with a row, in one commit."""
        identifier = self.identifier(name)
        with self.catalog.create_table_transaction(identifier, SCHEMA, self._location(at)) as change:
            self.append_to(change)
        return self._changed(identifier, self.load(name), "create")

    def grown(self, name: Name) -> Known:
        """A new table, and then a row."""
        self.create(name)
        return self.append(name)

    def set(self, name: Name, properties: Mapping[str, str]) -> Known:
        """Commit properties."""
        with self.load(name).transaction() as change:
            change.set_properties(dict(properties))
        return self.committed(name)

    def committed(self, name: Name) -> Known:
        """Tell the service of what was done to a table."""
        return self._changed(self.identifier(name), self.load(name), "commit")

    def rename(self, old: Name, new: Name) -> Known:
        source, target = self.identifier(old), self.identifier(new)
        self.catalog.rename_table(source, target)
        known = self._noted(target, self.load(target))
        self.tables[source] = None
        destination = {"namespace": list(target[:-1]), "name": target[-1]}
        self._told(source, "rename", destination=destination, metadata_location=known.pointer)
        return known

    def drop(self, name: Name, *, purge: bool = False) -> Known:
        """Drop a table; how it was last."""
        known = self.known(name)
        self.catalog.drop_table(known.identifier, purge_requested=purge)
        self._told(known.identifier, "drop", purge=purge)
        return known

    def register(self, name: Name, pointer: str) -> Known:
        identifier = self.identifier(name)
        return self._changed(identifier, self.catalog.register_table(identifier, pointer), "register")

    def tell_of(self, name: Name, operation: str = "create") -> None:
        """Tell the service of a table that the catalog may not have."""
        self.tables[self.identifier(name)] = None
        self._told(self.identifier(name), operation)

    def tell_rival(self, table: Table) -> None:
        """Tell the other environment's service of a table of its own."""
        name = table.name()
        self._seen(table)
        self.others.append(table)
        self.world.rival.tell(self._event(name, "commit"))
        self.world.rival.until_settled(self.section.name, [name])

    def changes(self) -> AbstractContextManager[None]:
        """What is done in it is what happens; the service may learn of it in several ways."""
        return self._hearing.changes(self)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What is done in it need not be published before the next is done."""
        settles, self._settles = self._settles, False
        yield
        self._settles = settles
        if settles:
            self.settle()

    @contextmanager
    def muted(self) -> Iterator[None]:
        """The service is told of nothing that is done in it."""
        self._tells = self._settles = False
        yield
        self._tells = self._settles = True

    def tell_last(self) -> None:
        """Tell it of the last change, whether it was told or not."""
        self.world.service.tell(self._last)

    def until_looked_at(self) -> None:
        """Wait until the service has looked at all tables of which it knows something new."""
        self.world.service.until_looked_at(self.section.name, list(self.tables))

    def settle(self) -> None:
        """Wait until the service has nothing left to do for the tables."""
        self.world.service.until_settled(self.section.name, list(self.tables))

    def live(self) -> list[Table]:
        """All tables that the catalog has."""
        found = [self.catalog.list_tables(namespace) for namespace in self._namespaces]
        return [self.load(identifier) for identifiers in found for identifier in identifiers]

    def history(self, name: Name) -> list[str]:
        """Every pointer that a table had, as its metadata-log has them."""
        table = self.load(name)
        return [*(entry.metadata_file for entry in table.metadata.metadata_log), str(table.metadata_location)]

    def place(self, name: str) -> Path:
        """A place for tables that is not the catalog's own choice."""
        return self.world.warehouse / "places" / self.namespace / name

    def short(self, identifier: Sequence[str]) -> str:
        """A table's name as it is written down: the same in each naming."""
        namespace = identifier[0].removeprefix(self.namespace).removeprefix("_")
        name = identifier[-1] if len(identifier[-1]) <= _LONGEST else f"{identifier[-1][:8]}…"
        return f"{namespace}.{name}" if namespace else name

    def _changed(self, identifier: Identifier, table: Table, operation: str) -> Known:
        known = self._noted(identifier, table)
        self._told(identifier, operation, metadata_location=known.pointer)
        return known

    def _noted(self, identifier: Identifier, table: Table) -> Known:
        self.tables[identifier] = None
        return Known(identifier, self._seen(table), str(table.metadata.table_uuid), str(table.metadata_location))

    def _seen(self, table: Table) -> Path:
        """Remember what files may name, and where they may lie."""
        log = [entry.metadata_file for entry in table.metadata.metadata_log]
        self.had.update(canonical(location) for location in [*log, str(table.metadata_location)])
        directory = folder(table.location())
        self.directories.add(directory)
        return directory

    def _told(self, table: Identifier, operation: str, **more: object) -> None:
        self._last = {**self._event(table, operation), **more}
        if self._tells:
            self.tell_last()
        if self._settles:
            self.settle()

    def _event(self, table: Identifier, operation: str) -> dict[str, object]:
        return {"catalog": self.section.name, "namespace": list(table[:-1]), "name": table[-1], "operation": operation}

    @staticmethod
    def _location(place: Path | None) -> str | None:
        return None if place is None else f"file://{place}"


def set_location(table: Table, location: str, *others: TableUpdate) -> None:
    """Commit another location of a table, for which PyIceberg has no verb; files stay where they are.

    Args:
        others: what is changed with it.
    """
    with table.transaction() as change:
        change._apply((SetLocationUpdate(location=location), *others))  # noqa: SLF001 - as `SET LOCATION` does it


def folder(location: str) -> Path:
    """The folder of this machine that a location is."""
    return Path(canonical(location).removeprefix("file://"))


_LONGEST = 40
"""Characters of a name that are written down as they are."""


class Told:
    """It is told of each change as it happens."""

    @contextmanager
    def changes(self, stage: Stage) -> Iterator[None]:
        yield

    def give_up(self) -> None:
        """Nobody waits for anybody."""


class Outage:
    """It is stopped while tables change, and told of each play's last change alone once it runs again.

    It sweeps when it starts, and is told meanwhile; what is absent must be so after another sweep too.

    Args:
        service: it.
        parties: how many plays there are, each in a thread of its own.
    """

    def __init__(self, service: Service, parties: int) -> None:
        self._stop = Barrier(parties, service.stop, PATIENCE)
        self._start = Barrier(parties, service.start, PATIENCE)
        sweeps = (service.first_sweep, service.sweep)
        self._sweeps = [Barrier(parties, partial(sweep, [*NAMINGS]), PATIENCE) for sweep in sweeps]

    @contextmanager
    def changes(self, stage: Stage) -> Iterator[None]:
        self._stop.wait()
        with stage.muted():
            yield
        self._start.wait()
        stage.tell_last()
        for sweep in self._sweeps:
            stage.until_looked_at()
            sweep.wait()
        stage.settle()

    def give_up(self) -> None:
        """Have nobody wait for a play that failed."""
        for barrier in (self._stop, self._start, *self._sweeps):
            barrier.abort()


class Silence:
    """Nobody tells it of a change: sweeps find what has become of the tables.

    Two of them: what is absent counts as dropped once a sweep came between two looks at it.

    Args:
        service: it.
        parties: how many plays there are, each in a thread of its own.
    """

    def __init__(self, service: Service, parties: int) -> None:
        self._sweeps = [Barrier(parties, partial(service.sweep, [*NAMINGS]), PATIENCE) for _ in range(2)]

    @contextmanager
    def changes(self, stage: Stage) -> Iterator[None]:
        with stage.muted():
            yield
        for sweep in self._sweeps:
            sweep.wait()
            stage.until_looked_at()
        stage.settle()

    def give_up(self) -> None:
        """Have nobody wait for a play that failed."""
        for sweep in self._sweeps:
            sweep.abort()
