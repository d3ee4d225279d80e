"""`MemoryCatalog`: a catalog in memory for tests and the simulator, with methods that change it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import count
from uuid import UUID

from sfn.catalogs import (
    Loaded,
    LoadResult,
    NoSuchTable,
    NotModified,
    SkipNamespace,
    StagedCreate,
    UnlistedNamespace,
    VendedCredential,
)
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent

_EPOCH_MS = 1_700_000_000_000


@dataclass(slots=True)
class _TableVersions:
    """A table's metadata, oldest first; empty for a staged create."""

    versions: list[Table] = field(default_factory=list)


class MemoryCatalog:
    """A catalog in memory. Its methods never suspend; ids, file names and times are counters, so runs are repeatable.

    Args:
        name: the catalog's name in the configuration.
        warehouse: location of the tables' directories.
        fold_name: maps the spellings of a name to one value, for a catalog that answers for every spelling and lists
            the one that was created. None: each spelling is a separate name.

    Attributes:
        error: raised by every query while it is set.
        vended: the credentials of tables; a dropped table gets none.
    """

    def __init__(
        self, name: str, warehouse: str = "file:///warehouse", fold_name: Callable[[str], str] | None = None
    ) -> None:
        self.name, self.fold_name = name, fold_name
        self.error: ExternalError | None = None
        self.vended: dict[TableIdentifier, tuple[VendedCredential, ...]] = {}
        self._warehouse = warehouse
        self._serial = count(1)
        self._namespaces: set[tuple[str, ...]] = set()
        self._closed: set[tuple[str, ...]] = set()
        self._rows: dict[TableIdentifier, _TableVersions] = {}

    async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        self._raise_error()
        row = self._rows.get(self._row_name(table))
        if row is None:
            return NoSuchTable()
        if not row.versions:
            return StagedCreate()
        etag = _etag(row.versions[-1])
        return NotModified() if etag == known_etag else Loaded(row.versions[-1], etag)

    async def is_listed(self, table: TableIdentifier) -> bool:
        self._raise_error()
        self._raise_closed(table.namespace)
        return table in self._listed_tables()

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        self._raise_error()
        skipped = {space for space in self._namespaces if skip is not None and skip(space)}
        for space in sorted(self._closed):
            if skipped.isdisjoint(_path(space)):
                yield UnlistedNamespace(space, f"namespace {'.'.join(space)} is closed")
        for table in self._listed_tables():
            if (skipped | self._closed).isdisjoint(_path(table.namespace)):
                yield table

    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        self._raise_error()
        self._raise_closed(parent)
        for space in sorted(self._namespaces):
            if space[:-1] == parent:
                yield space

    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        self._raise_error()
        self._raise_closed(namespace)
        for table in self._listed_tables():
            if table.namespace == namespace:
                yield table

    async def vended_credentials(self, table: TableIdentifier) -> tuple[VendedCredential, ...] | NoSuchTable:
        self._raise_error()
        return self.vended.get(table, ()) if table in self._rows else NoSuchTable()

    async def renew_credentials(
        self, table: TableIdentifier, rejected: Sequence[VendedCredential]
    ) -> tuple[VendedCredential, ...] | NoSuchTable:
        return await self.vended_credentials(table)

    def create_namespace(self, *levels: str) -> None:
        """Create a namespace and its parents."""
        self._namespaces.update(levels[:depth] for depth in range(1, len(levels) + 1))

    def drop_namespace(self, *levels: str) -> None:
        """Remove an empty namespace."""
        self._namespaces.remove(levels)

    def close_namespace(self, *levels: str) -> None:
        """Forbid the listing of a namespace and of those below it."""
        self._closed.add(levels)

    def create(self, table: TableIdentifier, location: str | None = None, left_alone: str | None = None) -> Table:
        """Create a table with a new UUID; a staged table gets its first metadata."""
        self.stage(table)
        where = location or "/".join((self._warehouse, *table.namespace, table.name))
        uuid = str(UUID(int=next(self._serial)))
        return self._write(table, Table(uuid=uuid, location=where, metadata_location="", skip_reason=left_alone))

    def stage(self, table: TableIdentifier) -> None:
        """Stage a table that has no metadata file yet.

        Raises:
            ValueError: there is no such namespace, or the name is taken.
        """
        if table.namespace not in self._namespaces:
            raise ValueError(f"no namespace for {table}")
        if self._rows.get(table, _TableVersions()).versions:
            raise ValueError(f"{table} exists")
        self._rows[table] = _TableVersions()

    def commit(self, table: TableIdentifier, location: str | None = None, left_alone: str | None = None) -> Table:
        """Commit one more version of the metadata, with a new snapshot."""
        before = self._rows[table].versions[-1]
        after = replace(before, location=location or before.location, skip_reason=left_alone)
        return self._write(table, replace(after, snapshot_id=next(self._serial)))

    def branch(self, table: TableIdentifier, name: str) -> Table:
        """Commit to a branch, which is created if it does not exist."""
        before = self._rows[table].versions[-1]
        branches = {**dict(before.branches), name: next(self._serial)}
        return self._write(table, replace(before, branches=tuple(sorted(branches.items()))))

    def drop_branch(self, table: TableIdentifier, name: str) -> Table:
        """Commit one more version, without a branch."""
        before = self._rows[table].versions[-1]
        return self._write(table, replace(before, branches=tuple(one for one in before.branches if one[0] != name)))

    def current(self, table: TableIdentifier) -> Table | None:
        """Return the current version, None if there is none."""
        row = self._rows.get(table)
        return row.versions[-1] if row is not None and row.versions else None

    def amend(self, table: TableIdentifier, version: Table) -> None:
        """Replace the current version in place, for example with a shortened log."""
        self._rows[table].versions[-1] = version

    def roll_back(self, table: TableIdentifier) -> Table:
        """Make the previous version current again, as the registration of its file or a restored backup does."""
        self._rows[table].versions.pop()
        return self._rows[table].versions[-1]

    def register(self, table: TableIdentifier, version: Table) -> None:
        """Register existing metadata under a name."""
        self.stage(table)
        self._rows[table].versions.append(version)

    def rename(self, source: TableIdentifier, target: TableIdentifier) -> None:
        """Move a table to another name; its files stay where they are."""
        self.stage(target)
        self._rows[target] = self._rows.pop(source)

    def drop(self, table: TableIdentifier) -> None:
        del self._rows[table]

    def _write(self, table: TableIdentifier, version: Table) -> Table:
        versions = self._rows[table].versions
        serial = next(self._serial)
        before = versions[-1] if versions else None
        number = len(before.metadata_log) + 1 if before else 0
        version = replace(
            version,
            metadata_location=f"{version.location}/metadata/{number:05d}-{UUID(int=serial)}.metadata.json",
            metadata_log=(*before.metadata_log, before.metadata_location) if before else (),
            log_times=(*before.log_times, before.last_updated_ms) if before else (),
            last_updated_ms=_EPOCH_MS + 1000 * serial,
        )
        versions.append(version)
        return version

    def _row_name(self, table: TableIdentifier) -> TableIdentifier:
        """Return the name of the row that the catalog finds for a name."""
        if self.fold_name is None or table in self._rows:
            return table
        wanted = [self.fold_name(part) for part in (*table.namespace, table.name)]
        alike = (one for one in self._rows if [self.fold_name(part) for part in (*one.namespace, one.name)] == wanted)
        return next(alike, table)

    def _listed_tables(self) -> list[TableIdentifier]:
        return [table for table, row in self._rows.items() if row.versions]

    def _raise_closed(self, namespace: tuple[str, ...]) -> None:
        if not self._closed.isdisjoint(_path(namespace)):
            where = f"catalog {self.name}: namespace {'.'.join(namespace)}"
            raise Permanent(where, scope=ErrorScope.TABLE, expected="a listing", found="a closed namespace")

    def _raise_error(self) -> None:
        if self.error is not None:
            raise self.error


def _path(namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return a namespace and its parents, from the root on."""
    return [namespace[:depth] for depth in range(len(namespace) + 1)]


def _etag(version: Table) -> str:
    # A metadata file never changes, so its location stands for its content.
    return f'"{sha256(version.metadata_location.encode()).hexdigest()[:8]}"'
