"""What lies there: our files at all places of a row, and who else is beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from typing import TypeAlias

from sfn.domain.events import ReportedChange
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import DeadLettered, Done, LeasedJob, Rescheduled, StoredObject, Wakeup
from sfn.publish.existing_files import FileFinder, TableFiles
from sfn.publish.policy import Policy
from sfn.publish.queries import CatalogAnswer, Observations
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document
from sfn.sfnfile.naming import FileLayout

# ── changes: What a publish does to files


class Stage(IntEnum):
    """When in a plan a change comes."""

    REPAIR = 0
    POINTER = 1
    COMMIT = 2
    BRANCH = 3
    HINT = 4
    CLEAR_HINT = 5
    SUPERSEDE = 6
    TOMBSTONE = 7
    DELETE = 8


@dataclass(frozen=True, slots=True)
class Put:
    """Write a file over exactly what was seen there.

    Attributes:
        stage: when in the plan.
        key: where.
        body: what.
        replacing: what was seen; None to create.
        check: a key that must be unchanged when this one has been written (a hint's content can repeat, so its swap
            alone does not tell that the document beside it is still ours), with the site whose other rows must still
            be none.
    """

    stage: Stage
    key: str
    body: bytes
    replacing: StoredObject | None
    check: tuple[str, FileLayout] | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete exactly what was seen.

    Attributes:
        fallback_body: what to write instead where a store can't delete on a condition; None to leave the file.
    """

    stage: Stage
    key: str
    replacing: StoredObject
    fallback_body: bytes | None = None


FileChange: TypeAlias = Put | Remove


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """Changes in their order, and the outcome once all of them are made.

    Attributes:
        changes: in their order.
        outcome: once all of them are made.
        aliases: pairs of keys that must hold the same bytes then: the first was changed, the second is taken for
            another name of the same file.
        unchanged_keys: keys that must hold what was seen there.
    """

    changes: tuple[FileChange, ...]
    outcome: Done | Rescheduled | DeadLettered
    aliases: tuple[tuple[str, str], ...] = ()
    unchanged_keys: tuple[str, ...] = ()


def known_locations(wakeups: Iterable[Wakeup]) -> frozenset[str]:
    """Where rows that should look are known to have a file, as `Story.older_at`."""
    return frozenset(wakeup.location for wakeup in wakeups if wakeup.location is not None)


@dataclass(slots=True)
class PlanBuilder:
    """A plan in the making.

    Attributes:
        changes: in no order yet.
        rechecks: moments at which something must be looked at again, and why.
        wakeups: rows that should look.
        wake_locations: locations whose other rows should look.
        missing_since: when each uuid was first seen missing, for those still waited for.
        dead_letter: what is to end as a dead letter.
        recheck_unconfirmed: an event told of nothing that the answer shows; it gets one more look.
        unapplied: what was told and means nothing yet, so stays told.
        given_up: a dead letter for what of it is not waited for any more; all else goes on.
        foreign_hint, older_at: see `Story`.
        unchanged_keys: see `ReadPlan`.
    """

    changes: list[FileChange] = field(default_factory=list)
    rechecks: list[tuple[datetime, str]] = field(default_factory=list)
    wakeups: dict[Wakeup, None] = field(default_factory=dict)
    wake_locations: set[str] = field(default_factory=set)
    missing_since: dict[str, datetime] = field(default_factory=dict)
    dead_letter: DeadLettered | None = None
    recheck_unconfirmed: bool = False
    unapplied: tuple[ReportedChange, ...] = ()
    given_up: DeadLettered | None = None
    unchanged_keys: tuple[str, ...] = ()
    foreign_hint: str | None = None
    older_at: frozenset[str] = frozenset()

    def put(self, stage: Stage, key: str, body: bytes, replacing: StoredObject | None) -> None:
        """Write a file."""
        self.changes.append(Put(stage, key, body, replacing))

    def remove(self, stage: Stage, key: str, replacing: StoredObject, fallback_body: bytes | None = None) -> None:
        """Delete a file."""
        self.changes.append(Remove(stage, key, replacing, fallback_body))

    def recheck_at(self, at: datetime, why: str) -> None:
        """Come back to it."""
        self.rechecks.append((at, why))

    def wake(self, wakeups: Iterable[Wakeup]) -> None:
        """Have other rows look."""
        self.wakeups.update(dict.fromkeys(wakeups))

    def wait_for(self, older: Iterable[Wakeup], at: datetime, why: str) -> None:
        """Have rows with older files look, and come back to it."""
        self.wake(older)
        self.older_at |= known_locations(older)
        self.recheck_at(at, why)

    def ordered_changes(self) -> tuple[FileChange, ...]:
        """The changes in the order that keeps every prefix right."""
        return tuple(sorted(self.changes, key=lambda change: change.stage))


# ── aliases: Other names of one place


@dataclass(frozen=True, slots=True)
class Alias:
    """One file under two names.

    Attributes:
        key: by the name that is written.
        other: by the other one.
        layout: where the file belongs, by the name that is written.
    """

    key: str
    other: str
    layout: FileLayout


def find_aliases(
    job: LeasedJob, layout: FileLayout | None, existing: Sequence[TableFiles], observations: Observations
) -> dict[FileLayout, Alias]:
    """The sites of our files that are, as far as can be told, other names of one of the other sites.

    The name that is written is the table's, or else the one that was published last, or the first one.

    Args:
        layout: where the table's files belong.
    """
    live = job.table_state.live
    home = layout.location if layout is not None else live.location if live is not None else None
    known: dict[FileLayout, None] = {} if layout is None else {layout: None}
    found: dict[FileLayout, Alias] = {}
    for table_files in sorted(
        existing, key=lambda table_files: (table_files.layout.location != home, table_files.layout.encoded)
    ):
        main_file = table_files.main_file
        if main_file is None or table_files.layout in found:
            continue
        for other in known:
            # A location below a root is no directory of a table's.
            if (
                other.location == table_files.layout.location
                or other.has_version_hint is not table_files.layout.has_version_hint
            ):
                continue
            key = key_at_location(table_files, main_file.key, other.location)
            stored = observations.file(key)
            if stored is not None and stored.body == main_file.stored.body:
                found[table_files.layout] = Alias(
                    key, main_file.key, replace(table_files.layout, location=other.location)
                )
                break
        else:
            known[table_files.layout] = None
    return found


def key_at_location(table_files: TableFiles, key: str, location: str) -> str:
    """The key of one of our files if its site were at another location."""
    return replace(table_files.layout, location=location).folder + key.removeprefix(table_files.layout.folder)


def is_same_file(one: TableFiles, other: TableFiles) -> bool:
    """Whether the leading files of two sites are, as far as can be told, one file."""
    if one.key == other.key:
        return True
    are_called_alike = one.key.rpartition("/")[2] == other.key.rpartition("/")[2]
    held = one.stored
    return are_called_alike and held is not None and other.stored is not None and held.body == other.stored.body


def tested_aliases(aliases: Mapping[FileLayout, Alias], changes: Iterable[FileChange]) -> dict[FileLayout, Alias]:
    """The aliases that these changes prove or refute: a file that has other bytes afterwards."""
    changed = {
        change.key
        for change in changes
        if not isinstance(change, Put) or change.replacing is None or change.body != change.replacing.body
    }
    return {layout: alias for layout, alias in aliases.items() if alias.key in changed}


def duplicate_layouts(
    job: LeasedJob, layout: FileLayout | None, proven: Mapping[FileLayout, Alias], vacated: AbstractSet[str]
) -> set[str]:
    """The row's texts of sites that the row knows by another name, or in another spelling, as well.

    Args:
        layout: where the table's files belong; the row knows it by now.
        proven: aliases that hold once the plan is carried out.
        vacated: texts of sites where no file of ours lies any more.
    """
    known = job.locations | vacated | ({layout.encoded} if layout is not None else set())
    parsed = {key: FileLayout.parse(key) for key in job.locations}
    return {
        key
        for key, one in parsed.items()
        if (one in proven and proven[one].layout.encoded in known) or (key != one.encoded and one.encoded in known)
    }


# ── scene: What lies there


@dataclass(frozen=True, slots=True)
class PublishContext:
    """The situation that one decision is about.

    Attributes:
        job, facts, policy: what the decision was given.
        name: the row's table name.
        answer: the catalog's answer for it.
        table: its table, None where it has none (or one that gets no files).
        location: the canonical location of that table.
        layout: where its files belong.
        finder: how our files are found.
        existing: our files at every site.
        foreign_documents: documents of other names or catalogs beside ours at `layout`.
        conflict: why the table's place gets no files of ours.
        listed_as: the name under which the catalog lists the table, or listed it when it last had one. Where the row's
            is another spelling of that, the files are the listed name's, and `table` is None here. None: not known.
        aliases: sites of the row that are other names of one of `existing`.
    """

    job: LeasedJob
    observations: Observations
    policy: Policy
    name: TableIdentifier
    answer: CatalogAnswer
    table: Table | None
    location: str | None
    layout: FileLayout | None
    finder: FileFinder
    existing: tuple[TableFiles, ...]
    foreign_documents: tuple[Document, ...] = ()
    conflict: DeadLettered | None = None
    listed_as: TableIdentifier | None = None
    aliases: Mapping[FileLayout, Alias] = field(default_factory=dict)

    @property
    def listed_name(self) -> TableIdentifier | None:
        """The listed name of the table, where the row's is another spelling of that."""
        return self.listed_as if self.listed_as != self.name else None

    @property
    def has_table(self) -> bool:
        """Whether the catalog has a table of this name, also where another spelling of the name has its files."""
        return self.table is not None or (self.listed_name is not None and isinstance(self.answer.found, Table))

    @property
    def documents(self) -> list[Document]:
        """The leading documents of ours at all sites."""
        return [table_files.main_document for table_files in self.existing if table_files.main_document is not None]

    @property
    def newest_document(self) -> Document | None:
        """What is held: the live document with the greatest Ordinal, else the greatest of any state."""
        found = self.documents
        return max([doc for doc in found if doc.is_live] or found, key=lambda doc: doc.ordinal, default=None)

    @property
    def is_purged(self) -> bool:
        """Whether a purge was told of the table that our files name, and not of one that had the name before it."""
        published = self.job.table_state.live
        if published is None:
            return self.job.pending.purge and self.table is None
        return self.job.pending.purge and all(doc.guid == published.uuid for doc in self.documents if doc.is_live)

    @property
    def last_ordinal(self) -> int:
        """The greatest Ordinal of our documents, 0 without any."""
        return max((file.doc.ordinal for table_files in self.existing for file in table_files.files), default=0)

    @property
    def current_files(self) -> TableFiles | None:
        """Our files where the table is."""
        return next((table_files for table_files in self.existing if self.is_current(table_files)), None)

    def is_current(self, table_files: TableFiles) -> bool:
        """Whether these are the files of the table itself, at its own site."""
        if self.table is None or table_files.layout != self.layout:
            return False
        # With such a naming the first one is the table's, and each other one is of a table that had the name before.
        return not table_files.layout.naming.is_by_uuid or table_files is next(
            one for one in self.existing if one.layout == self.layout
        )

    def files_at(self, location: str) -> list[TableFiles]:
        """Our files at a table's location, or in one folder below a root."""
        return [table_files for table_files in self.existing if table_files.layout.location == location]


def hint_at(observations: Observations, location: str) -> StoredObject | None:
    """The version hint at a location."""
    return observations.file(version_hint.key_of(location))
