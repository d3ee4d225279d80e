"""What one publish has learnt so far, and what it still has to ask.

A decision reads `Observations`; what it needs and nobody has asked yet it raises as `NeedsQuery`. The protocol asks
and decides anew. So the decision stays pure, asks for no more than it uses, and the order of asking is its own order
of reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias, TypeVar

from sfn.domain.catalog_answer import AppliedChanges, NoSuchTable, StagedCreate
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import BackwardStep, IndexedTable, PublishedPointer, StoredObject
from sfn.storage import Guarantees

T = TypeVar("T")

MAX_FOREIGN_FILES = 1000
"""Files of other rows in one folder that are looked at."""
MAX_LISTED_FILES = 10_000
"""Files of one folder that are listed."""


@dataclass(frozen=True, slots=True)
class LoadTable:
    """What does the catalog say of this table?"""

    table: TableIdentifier


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """What lies at these keys?"""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListFolder:
    """Which keys lie below this prefix?"""

    prefix: str


@dataclass(frozen=True, slots=True)
class FindFiles:
    """At which of these keys is there a file, of whatever content?"""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """Make the site durable on the row; who else has a live table of another uuid at its location?"""

    layout: str
    uuid: str | None


@dataclass(frozen=True, slots=True)
class TablesAtLocation:
    """Which other rows have a live file at this location?"""

    location: str


@dataclass(frozen=True, slots=True)
class TablesWithUuid:
    """Which rows have a live file of this table uuid?"""

    uuid: str


@dataclass(frozen=True, slots=True)
class IsListed:
    """Does a listing of its namespace name the table?"""

    table: TableIdentifier


@dataclass(frozen=True, slots=True)
class ListedSpellings:
    """Under which spellings of its name does the catalog list the table?

    Attributes:
        table: whose name.
        fresh: a listing that is remembered and has none of them does not do.
    """

    table: TableIdentifier
    fresh: bool


@dataclass(frozen=True, slots=True)
class IsStepAllowed:
    """Does the brake give leave?"""

    step: BackwardStep


@dataclass(frozen=True, slots=True)
class ProbeStore:
    """What does the store of this existing file guarantee?"""

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


class NeedsQuery(Exception):
    """The decision needs an answer that nobody has asked for."""

    def __init__(self, query: PublishQuery) -> None:
        self.query = query
        super().__init__(query)


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """One answer of the catalog.

    Attributes:
        found: what it said.
        etag: its entity tag.
        asked_at, answered: when the request left, when the answer arrived.
        sequence: how many answers were learnt before it.
        applied: of a catalog that can't be asked, how much of what was told the answer is.
    """

    found: Table | NoSuchTable | StagedCreate
    etag: str | None
    asked_at: datetime
    answered_at: datetime
    sequence: int
    applied: AppliedChanges | None = None


@dataclass(frozen=True, slots=True)
class ObservedFile:
    """One file as it was seen: `sequence` as in `Look`, 0 for one that is only remembered from an earlier publish."""

    stored: StoredObject | None
    sequence: int


@dataclass(slots=True)
class Observations:
    """All that one publish knows. A lost race throws it away and starts a new one.

    Attributes:
        must_list_folders: look at the folder even where a file of ours is in its place.
        is_from_cache: it began with what an earlier publish left behind.
        failed_listings: names whose listing could not be had for now.
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
    def of_cache(cls, tags: Mapping[str, StoredObject | None]) -> Observations:
        """Facts that start from what an earlier publish left behind."""
        return cls(is_from_cache=bool(tags), files={key: ObservedFile(stored, 0) for key, stored in tags.items()})

    def next_sequence(self) -> int:
        """The number of the next answer."""
        self.last_sequence += 1
        return self.last_sequence

    def answer_for(self, table: TableIdentifier) -> CatalogAnswer:
        """The catalog's latest answer for a table."""
        return _require(self.answers.get(table), LoadTable(table))

    def file(self, key: str) -> StoredObject | None:
        """The file at a key."""
        observed = self.files.get(key)
        if observed is None:
            raise NeedsQuery(ReadFiles((key,)))
        return observed.stored

    def require_files(self, keys: Iterable[str]) -> None:
        """Have many files read at once that `file` is about to ask for: each question is a decision made anew."""
        missing = tuple(key for key in keys if key not in self.files)
        if missing:
            raise NeedsQuery(ReadFiles(missing))

    def existing(self, keys: Iterable[str]) -> set[str]:
        """Those of these keys at which there is a file."""
        requested = tuple(keys)
        if unknown := tuple(key for key in requested if key not in self.existence):
            raise NeedsQuery(FindFiles(unknown))
        return {key for key in requested if self.existence[key]}

    def folder(self, prefix: str) -> tuple[str, ...]:
        """The keys below a prefix."""
        return _require(self.folders.get(prefix), ListFolder(prefix))

    def table_names(self, query: RecordLocation | TablesAtLocation) -> tuple[TableIdentifier, ...]:
        """Rows that answer a question, in order."""
        return tuple(sorted(_require(self.names_by_query.get(query), query)))

    def other_tables_with(self, uuid: str, name: TableIdentifier) -> list[tuple[IndexedTable, PublishedPointer]]:
        """The rows of other names whose live file carries a table uuid, each with what it published."""
        tables = _require(self.tables_by_uuid.get(uuid), TablesWithUuid(uuid))
        return [(row, row.live) for row in tables if row.live is not None and row.table != name]

    def is_true(self, query: IsListed | IsStepAllowed) -> bool:
        """A yes or no."""
        return _require(self.checks.get(query), query)

    def listed_spellings(self, table: TableIdentifier, *, fresh: bool) -> tuple[TableIdentifier, ...]:
        """Return the listed names that are spelled like a table's, or its own alone; none where that is not known."""
        return _require(self.spellings.get(table), ListedSpellings(table, fresh))

    def guarantees(self, key: str) -> Guarantees:
        """What the store of an existing file was proven to do: what it does for one, it does for the whole folder."""
        return _require(self.guarantees_by_folder.get(folder_of(key)), ProbeStore(key))

    def require_read(self, key: str) -> None:
        """Have a file read unless this publish did so: what is only remembered may have changed."""
        if key not in self.files or self.files[key].sequence == 0:
            raise NeedsQuery(ReadFiles((key,)))

    def require_answer_after(self, table: TableIdentifier, keys: tuple[str, ...]) -> None:
        """Have the catalog asked again unless its answer is younger than the tags of these files (rule: tag first)."""
        newest = max((self.files[key].sequence for key in keys if key in self.files), default=0)
        if self.answer_for(table).sequence < newest:
            raise NeedsQuery(LoadTable(table))


def folder_of(key: str) -> str:
    """Where a file lies."""
    return key.rpartition("/")[0]


def _require(value: T | None, query: PublishQuery) -> T:
    if value is None:
        raise NeedsQuery(query)
    return value
