"""The observations of one publish, and the queries that fill them (`decide.py` explains how they work together)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias, TypeVar, assert_never

from sfn.catalogs import NoSuchTable, StagedCreate
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import BackwardStep, IndexedTable, PublishedPointer, StoredObject
from sfn.storage import Guarantees

T = TypeVar("T")

MAX_FOREIGN_FILES = 1000
"""Most files of other jobs that are read in one folder."""
MAX_LISTED_FILES = 10_000
"""Most files that are listed in one folder."""


@dataclass(frozen=True, slots=True)
class LoadTable:
    """Ask the catalog for a table."""

    table: TableIdentifier


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Read the files at these keys."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListFolder:
    """List the keys below a prefix."""

    prefix: str


@dataclass(frozen=True, slots=True)
class FindFiles:
    """Find out at which of these keys a file exists; its content does not matter."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """Store a layout with the job; the answer names the other jobs with a live table of another uuid at its location.

    Attributes:
        layout: a layout as `FileLayout.encoded`.
        uuid: the table's uuid.
    """

    layout: str
    uuid: str | None


@dataclass(frozen=True, slots=True)
class TablesAtLocation:
    """Ask the inbox which other jobs have a live file at a location."""

    location: str


@dataclass(frozen=True, slots=True)
class TablesWithUuid:
    """Ask the inbox which jobs have a live file of a table uuid."""

    uuid: str


@dataclass(frozen=True, slots=True)
class IsListed:
    """Ask the catalog whether the listing of the namespace contains the table."""

    table: TableIdentifier


@dataclass(frozen=True, slots=True)
class ListedSpellings:
    """Ask the catalog under which spellings of its name it lists a table.

    Attributes:
        table: the name.
        fresh: list again if the cached listing contains none of the spellings.
    """

    table: TableIdentifier
    fresh: bool


@dataclass(frozen=True, slots=True)
class IsStepAllowed:
    """Ask the drop limit whether a backward step may pass."""

    step: BackwardStep


@dataclass(frozen=True, slots=True)
class ProbeStore:
    """Ask what the store of an existing file guarantees."""

    key: str


PublishQuery: TypeAlias = (
    LoadTable
    | ReadFiles
    | ListFolder
    | FindFiles
    | RecordLocation
    | TablesAtLocation
    | TablesWithUuid
    | IsListed
    | ListedSpellings
    | IsStepAllowed
    | ProbeStore
)


@dataclass(frozen=True, slots=True)
class Together:
    """Several queries that run at the same time.

    Each round of queries runs the decision again and waits for the slowest answer. So the decision asks at once for
    what it will certainly or nearly certainly need.
    """

    queries: tuple[PublishQuery, ...]


class NeedsQuery(Exception):
    """The decision needs an observation that is missing."""

    def __init__(self, query: PublishQuery | Together) -> None:
        self.query = query
        super().__init__(query)


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """One answer of the catalog.

    Attributes:
        found: the table, or why there is none.
        etag: the entity tag of the answer.
        asked_at, answered_at: the times of request and answer.
        sequence: the position among all answers of this publish, from 1.
        applied: in an event-only catalog, the events that the answer is made of.
    """

    found: Table | NoSuchTable | StagedCreate
    etag: str | None
    asked_at: datetime
    answered_at: datetime
    sequence: int


@dataclass(frozen=True, slots=True)
class ObservedFile:
    """One observed file; None if there is no file.

    Attributes:
        stored: the file.
        sequence: the position as in `CatalogAnswer`; 0 for a file from the cache of an earlier publish.
    """

    stored: StoredObject | None
    sequence: int


@dataclass(slots=True)
class Observations:
    """All answers that one publish has. A lost race discards them and starts with new ones.

    Attributes:
        must_list_folders: list the folder even if a file of ours is at its key.
        is_from_cache: the observations began with the cache of an earlier publish.
        failed_listings: names with a listing that failed for now.
    """

    must_list_folders: bool = False
    is_from_cache: bool = False
    last_sequence: int = 0
    answers: dict[TableIdentifier, CatalogAnswer] = field(default_factory=dict)
    files: dict[str, ObservedFile] = field(default_factory=dict)
    folders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    names_by_query: dict[PublishQuery, Collection[TableIdentifier]] = field(default_factory=dict)
    tables_by_uuid: dict[str, tuple[IndexedTable, ...]] = field(default_factory=dict)
    existence: dict[str, bool] = field(default_factory=dict)
    checks: dict[PublishQuery, bool] = field(default_factory=dict)
    spellings: dict[TableIdentifier, tuple[TableIdentifier, ...]] = field(default_factory=dict)
    failed_listings: set[TableIdentifier] = field(default_factory=set)
    guarantees_by_folder: dict[str, Guarantees] = field(default_factory=dict)

    @classmethod
    def of_cache(cls, objects: Mapping[str, StoredObject | None]) -> Observations:
        """Return observations that start with the cache of an earlier publish."""
        return cls(is_from_cache=bool(objects), files={key: ObservedFile(stored, 0) for key, stored in objects.items()})

    def next_sequence(self) -> int:
        """Return the number of the next answer."""
        self.last_sequence += 1
        return self.last_sequence

    def answer_for(self, table: TableIdentifier) -> CatalogAnswer:
        """Return the catalog's latest answer for a table."""
        return _require(self.answers.get(table), LoadTable(table))

    def file(self, key: str) -> StoredObject | None:
        """Return the file at a key; None if there is none."""
        observed = self.files.get(key)
        if observed is None:
            raise NeedsQuery(ReadFiles((key,)))
        return observed.stored

    def require_files(self, keys: Iterable[str]) -> None:
        """Have several files read in one query, because each query runs the decision again."""
        missing = tuple(key for key in keys if key not in self.files)
        if missing:
            raise NeedsQuery(ReadFiles(missing))

    def ask_together(self, queries: Iterable[PublishQuery]) -> None:
        """Have those of some queries run at the same time that have no answer yet.

        A single one is left until it is needed, which may be never.
        """
        missing = tuple(query for query in queries if not self._is_answered(query))
        if len(missing) > 1:
            raise NeedsQuery(Together(missing))

    def _is_answered(self, query: PublishQuery) -> bool:
        match query:
            case LoadTable(table):
                return table in self.answers
            case ReadFiles(keys):
                return all(key in self.files for key in keys)
            case FindFiles(keys):
                return all(key in self.existence for key in keys)
            case ListFolder(prefix):
                return prefix in self.folders
            case TablesWithUuid(uuid):
                return uuid in self.tables_by_uuid
            case RecordLocation() | TablesAtLocation():
                return query in self.names_by_query
            case IsListed() | IsStepAllowed():
                return query in self.checks
            case ListedSpellings(table, _):
                return table in self.spellings
            case ProbeStore(key):
                return folder_of(key) in self.guarantees_by_folder
        assert_never(query)

    def existing(self, keys: Iterable[str]) -> set[str]:
        """Return the keys at which a file exists."""
        requested = tuple(keys)
        if unknown := tuple(key for key in requested if key not in self.existence):
            raise NeedsQuery(FindFiles(unknown))
        return {key for key in requested if self.existence[key]}

    def folder(self, prefix: str) -> tuple[str, ...]:
        """Return the keys below a prefix."""
        return _require(self.folders.get(prefix), ListFolder(prefix))

    def table_names(self, query: RecordLocation | TablesAtLocation) -> tuple[TableIdentifier, ...]:
        """Return the jobs that match a query, in order."""
        return tuple(sorted(_require(self.names_by_query.get(query), query)))

    def other_tables_with(self, uuid: str, name: TableIdentifier) -> list[tuple[IndexedTable, PublishedPointer]]:
        """Return the jobs of other names with a live file of a table uuid, each with its published pointer."""
        tables = _require(self.tables_by_uuid.get(uuid), TablesWithUuid(uuid))
        return [(entry, entry.live) for entry in tables if entry.live is not None and entry.table != name]

    def is_true(self, query: IsListed | IsStepAllowed) -> bool:
        """Return the answer to a yes-or-no query."""
        return _require(self.checks.get(query), query)

    def listed_spellings(self, table: TableIdentifier, *, fresh: bool) -> tuple[TableIdentifier, ...]:
        """Return the listed spellings of a table's name, or the name alone; empty if the listing is not known."""
        return _require(self.spellings.get(table), ListedSpellings(table, fresh))

    def guarantees(self, key: str) -> Guarantees:
        """Return the proven guarantees of an existing file's store; they hold for the whole folder."""
        return _require(self.guarantees_by_folder.get(folder_of(key)), ProbeStore(key))

    def require_read(self, key: str) -> None:
        """Require that this publish has read a file, because a cached file may have changed."""
        if key not in self.files or self.files[key].sequence == 0:
            raise NeedsQuery(ReadFiles((key,)))

    def require_answer_after(self, table: TableIdentifier, keys: tuple[str, ...]) -> None:
        """Require that the catalog's answer is newer than the etags of these files."""
        newest = max((self.files[key].sequence for key in keys if key in self.files), default=0)
        if self.answer_for(table).sequence < newest:
            raise NeedsQuery(LoadTable(table))


def folder_of(key: str) -> str:
    return key.rpartition("/")[0]


def _require(value: T | None, query: PublishQuery) -> T:
    if value is None:
        raise NeedsQuery(query)
    return value
