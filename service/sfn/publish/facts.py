"""What one publish has learnt so far, and what it still has to ask.

A decision reads `Facts`; what it needs and nobody has asked yet it raises as `Lacking`. The protocol asks and decides
anew. So the decision stays pure, asks for no more than it uses, and the order of asking is its own order of reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias, TypeVar

from sfn.store import Guarantees
from sfn.words import Hearing, Held, Known, Missing, Published, Step, Table, TableName, Unwritten

T = TypeVar("T")

LISTED = 1000
"""Files of other rows in one folder that are looked at."""
FOLDER_LISTED = 10_000
"""Files of one folder that are listed."""


@dataclass(frozen=True, slots=True)
class LoadTable:
    """What does the catalog say of this table?"""

    table: TableName


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
class Remember:
    """Make the site durable on the row; who else has a live table of another uuid at its location?"""

    site: str
    uuid: str | None


@dataclass(frozen=True, slots=True)
class WhoIsAt:
    """Which other rows have a live file at this location?"""

    location: str


@dataclass(frozen=True, slots=True)
class WhoHas:
    """Which rows have a live file of this table uuid?"""

    uuid: str


@dataclass(frozen=True, slots=True)
class IsListed:
    """Does a listing of its namespace name the table?"""

    table: TableName


@dataclass(frozen=True, slots=True)
class ListedAlike:
    """Under which spellings of its name does the catalog list the table?

    Attributes:
        table: whose name.
        fresh: a listing that is remembered and has none of them does not do.
    """

    table: TableName
    fresh: bool


@dataclass(frozen=True, slots=True)
class MayStep:
    """Does the brake give leave?"""

    step: Step


@dataclass(frozen=True, slots=True)
class Prove:
    """What does the store of this existing file guarantee?"""

    key: str


Question: TypeAlias = (
    LoadTable
    | ReadFiles
    | ListFolder
    | FindFiles
    | Remember
    | WhoIsAt
    | WhoHas
    | IsListed
    | ListedAlike
    | MayStep
    | Prove
)


class Lacking(Exception):
    """The decision needs an answer that nobody has asked for."""

    def __init__(self, question: Question) -> None:
        self.question = question
        super().__init__(question)


@dataclass(frozen=True, slots=True)
class Look:
    """One answer of the catalog.

    Attributes:
        found: what it said.
        etag: its entity tag.
        asked, answered: when the request left, when the answer arrived.
        turn: how many answers were learnt before it.
        heard: of a catalog that can't be asked, how much of what was told the answer is.
    """

    found: Table | Missing | Unwritten
    etag: str | None
    asked: datetime
    answered: datetime
    turn: int
    heard: Hearing | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One file as it was seen: `turn` as in `Look`, 0 for one that is only remembered from an earlier publish."""

    held: Held | None
    turn: int


@dataclass(slots=True)
class Facts:
    """All that one publish knows. A lost race throws it away and starts a new one.

    Attributes:
        relist: look at the folder even where a file of ours is in its place.
        from_memory: it began with what an earlier publish left behind.
        unlisted: names whose listing could not be had for now.
    """

    relist: bool = False
    from_memory: bool = False
    turn: int = 0
    looks: dict[TableName, Look] = field(default_factory=dict)
    files: dict[str, Seen] = field(default_factory=dict)
    folders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rows: dict[Question, Collection[TableName]] = field(default_factory=dict)
    carrying: dict[str, tuple[Known, ...]] = field(default_factory=dict)
    there: dict[str, bool] = field(default_factory=dict)
    yes: dict[Question, bool] = field(default_factory=dict)
    spellings: dict[TableName, tuple[TableName, ...]] = field(default_factory=dict)
    unlisted: set[TableName] = field(default_factory=set)
    proven: dict[str, Guarantees] = field(default_factory=dict)

    @classmethod
    def remembered(cls, tags: Mapping[str, Held | None]) -> Facts:
        """Facts that start from what an earlier publish left behind."""
        return cls(from_memory=bool(tags), files={key: Seen(held, 0) for key, held in tags.items()})

    def next_turn(self) -> int:
        """The number of the next answer."""
        self.turn += 1
        return self.turn

    def look(self, table: TableName) -> Look:
        """The catalog's latest answer for a table."""
        return _known(self.looks.get(table), LoadTable(table))

    def file(self, key: str) -> Held | None:
        """The file at a key."""
        seen = self.files.get(key)
        if seen is None:
            raise Lacking(ReadFiles((key,)))
        return seen.held

    def require_files(self, keys: Iterable[str]) -> None:
        """Have many files read at once that `file` is about to ask for: each question is a decision made anew."""
        missing = tuple(key for key in keys if key not in self.files)
        if missing:
            raise Lacking(ReadFiles(missing))

    def existing(self, keys: Iterable[str]) -> set[str]:
        """Those of these keys at which there is a file."""
        wanted = tuple(keys)
        if unknown := tuple(key for key in wanted if key not in self.there):
            raise Lacking(FindFiles(unknown))
        return {key for key in wanted if self.there[key]}

    def folder(self, prefix: str) -> tuple[str, ...]:
        """The keys below a prefix."""
        return _known(self.folders.get(prefix), ListFolder(prefix))

    def names(self, question: Remember | WhoIsAt) -> tuple[TableName, ...]:
        """Rows that answer a question, in order."""
        return tuple(sorted(_known(self.rows.get(question), question)))

    def others_with(self, uuid: str, name: TableName) -> list[tuple[Known, Published]]:
        """The rows of other names whose live file carries a table uuid, each with what it published."""
        rows = _known(self.carrying.get(uuid), WhoHas(uuid))
        return [(row, row.live) for row in rows if row.live is not None and row.table != name]

    def holds(self, question: IsListed | MayStep) -> bool:
        """A yes or no."""
        return _known(self.yes.get(question), question)

    def listed_alike(self, table: TableName, *, fresh: bool) -> tuple[TableName, ...]:
        """Return the listed names that are spelled like a table's, or its own alone; none where that is not known."""
        return _known(self.spellings.get(table), ListedAlike(table, fresh))

    def guarantees(self, key: str) -> Guarantees:
        """What the store of an existing file was proven to do: what it does for one, it does for the whole folder."""
        return _known(self.proven.get(folder_of(key)), Prove(key))

    def require_read(self, key: str) -> None:
        """Have a file read unless this publish did so: what is only remembered may have changed."""
        if key not in self.files or self.files[key].turn == 0:
            raise Lacking(ReadFiles((key,)))

    def require_look_after(self, table: TableName, keys: tuple[str, ...]) -> None:
        """Have the catalog asked again unless its answer is younger than the tags of these files (rule: tag first)."""
        newest = max((self.files[key].turn for key in keys if key in self.files), default=0)
        if self.look(table).turn < newest:
            raise Lacking(LoadTable(table))


def folder_of(key: str) -> str:
    """Where a file lies."""
    return key.rpartition("/")[0]


def _known(value: T | None, question: Question) -> T:
    if value is None:
        raise Lacking(question)
    return value
