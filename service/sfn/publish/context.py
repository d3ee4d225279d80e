"""The context of one decision: file changes, plan, aliases of places, and the name that has the table's files.

Many catalogs accept names in any case. The job of a spelling that the catalog does not list has no files. It wakes the
job of the listed name. Two tables are never taken for one: the catalog must answer the same table under both names,
list one of them and not the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import IntEnum
from functools import cached_property
from typing import Final, TypeAlias

from msgspec import structs

from sfn.catalogs.spelling import may_be_same_name
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    Done,
    LeasedJob,
    PendingChange,
    PublishResult,
    Rescheduled,
    StoredObject,
    Wakeup,
)
from sfn.publish.existing_files import FileFinder, TableFiles
from sfn.publish.policy import Policy
from sfn.publish.queries import CatalogAnswer, Observations
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document
from sfn.sfnfile.naming import FileLayout


class Stage(IntEnum):
    """The position of a change in a plan."""

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
    """Write a file, on the condition that the observed content is still there.

    Attributes:
        stage: the position in the plan.
        key: the file's key.
        body: the new content.
        replacing: the observed content; None to create the file.
        check: for a version hint, the key of the document beside it and its layout. That document must be unchanged
            after the write, and no other job may have come to the layout. A hint's content can repeat, so the
            conditional write alone does not prove this.
    """

    stage: Stage
    key: str
    body: bytes
    replacing: StoredObject | None
    check: tuple[str, FileLayout] | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete a file, on the condition that the observed content is still there.

    Attributes:
        fallback_body: the content to write if the store has no conditional delete; None to leave the file.
    """

    stage: Stage
    key: str
    replacing: StoredObject
    fallback_body: bytes | None = None


FileChange: TypeAlias = Put | Remove


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """File changes in their order, and the outcome after them.

    Attributes:
        changes: the changes, in order.
        outcome: the outcome once all changes are made.
        aliases: pairs of keys that must have the same content after the plan: the first was changed, the second is
            assumed to be another name of the same file.
        unchanged_keys: keys with a content that must not change during the plan.
    """

    changes: tuple[FileChange, ...]
    outcome: Done | Rescheduled | DeadLettered
    aliases: tuple[tuple[str, str], ...] = ()
    unchanged_keys: tuple[str, ...] = ()


def known_locations(wakeups: Iterable[Wakeup]) -> frozenset[str]:
    """Return the locations at which the woken jobs are known to have a file, as in `TableState.older_files_at`."""
    return frozenset(wakeup.location for wakeup in wakeups if wakeup.location is not None)


@dataclass(slots=True)
class PlanBuilder:
    """A plan in the making.

    Attributes:
        changes: the changes so far, unordered.
        rechecks: times at which the table must be checked again, with the reasons.
        wakeups: jobs to wake.
        wake_locations: locations; the other jobs there are woken.
        missing_since: the time at which each table uuid was first missing, for uuids that still count as missing.
        dead_letter: the dead letter that the whole publish ends as.
        recheck_unconfirmed: the answer does not show the change of the event; the table is checked once more.
        given_up: the dead letter for files that are given up; everything else is still published.
        foreign_hint, older_at: see `TableState.foreign_version_hint` and `TableState.older_files_at`.
        unchanged_keys: see `PublishPlan`.
    """

    changes: list[FileChange] = field(default_factory=list)
    rechecks: list[tuple[datetime, str]] = field(default_factory=list)
    wakeups: dict[Wakeup, None] = field(default_factory=dict)
    wake_locations: set[str] = field(default_factory=set)
    missing_since: dict[str, datetime] = field(default_factory=dict)
    dead_letter: DeadLettered | None = None
    recheck_unconfirmed: bool = False
    given_up: DeadLettered | None = None
    unchanged_keys: tuple[str, ...] = ()
    foreign_hint: str | None = None
    older_at: frozenset[str] = frozenset()

    def put(self, stage: Stage, key: str, body: bytes, replacing: StoredObject | None) -> None:
        """Add a write."""
        self.changes.append(Put(stage, key, body, replacing))

    def remove(self, stage: Stage, key: str, replacing: StoredObject, fallback_body: bytes | None = None) -> None:
        """Add a deletion."""
        self.changes.append(Remove(stage, key, replacing, fallback_body))

    def recheck_at(self, at: datetime, why: str) -> None:
        """Check the table again at a time."""
        self.rechecks.append((at, why))

    def wake(self, wakeups: Iterable[Wakeup]) -> None:
        """Wake other jobs."""
        self.wakeups.update(dict.fromkeys(wakeups))

    def wait_for(self, older: Iterable[Wakeup], at: datetime, why: str) -> None:
        """Wake the jobs with older files, and check this table again later."""
        self.wake(older)
        self.older_at |= known_locations(older)
        self.recheck_at(at, why)

    def ordered_changes(self) -> tuple[FileChange, ...]:
        """Return the changes in an order in which every prefix leaves the files correct."""
        return tuple(sorted(self.changes, key=lambda change: change.stage))


@dataclass(frozen=True, slots=True)
class Alias:
    """One file under two names.

    Attributes:
        key: the key that is written.
        other: the other key of the same file.
        layout: the layout of the key that is written.
    """

    key: str
    other: str
    layout: FileLayout


def find_aliases(
    job: LeasedJob, layout: FileLayout | None, existing: Sequence[TableFiles], observations: Observations
) -> dict[FileLayout, Alias]:
    """Return the layouts of our files that seem to be other names of another layout.

    The written name is the table's own one, else the one that was published last, else the first one.

    Args:
        layout: the layout of the table's own files.
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
            # A location below a root is not a table's directory.
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
    """Return the key that one of our files would have at another location."""
    return replace(table_files.layout, location=location).folder + key.removeprefix(table_files.layout.folder)


def is_same_file(one: TableFiles, other: TableFiles) -> bool:
    """Return whether the main files of two layouts seem to be one file."""
    if one.key == other.key:
        return True
    have_same_name = one.key.rpartition("/")[2] == other.key.rpartition("/")[2]
    stored = one.stored
    return have_same_name and stored is not None and other.stored is not None and stored.body == other.stored.body


def tested_aliases(aliases: Mapping[FileLayout, Alias], changes: Iterable[FileChange]) -> dict[FileLayout, Alias]:
    """Return the aliases that these changes prove or refute, because they change the content of the file."""
    changed = {
        change.key
        for change in changes
        if not isinstance(change, Put) or change.replacing is None or change.body != change.replacing.body
    }
    return {layout: alias for layout, alias in aliases.items() if alias.key in changed}


def duplicate_layouts(
    job: LeasedJob, layout: FileLayout | None, proven: Mapping[FileLayout, Alias], vacated: AbstractSet[str]
) -> set[str]:
    """Return the job's encoded layouts that the job also has under another name or in another spelling.

    Args:
        layout: the layout of the table's own files; the job has recorded it by now.
        proven: aliases that hold after the plan.
        vacated: encoded layouts where none of our files remains.
    """
    known = job.locations | vacated | ({layout.encoded} if layout is not None else set())
    parsed = {key: FileLayout.parse(key) for key in job.locations}
    return {
        key
        for key, one in parsed.items()
        if (one in proven and proven[one].layout.encoded in known) or (key != one.encoded and one.encoded in known)
    }


@dataclass(frozen=True)
class PublishContext:
    """The situation that one decision is about.

    A decision asks for some of the properties dozens of times, so they are computed once, and there are no slots.

    Attributes:
        job, observations, policy: the arguments of the decision.
        name: the table name of the job.
        answer: the catalog's answer for the name.
        table: the table in that answer; None without a table, or for a table that gets no files.
        location: the canonical location of the table.
        layout: the layout of the table's own files.
        finder: the search for our files.
        existing: our files at all layouts of the job.
        foreign_documents: documents of other names or catalogs in the folder of `layout`.
        conflict: the reason why no file of ours may be written at the table's place.
        listed_as: the name under which the catalog lists or last listed the table; None if it is not known. If it is
            another spelling than the job's, the listed name has the files, and `table` is None here.
        aliases: layouts of the job that are other names of a layout in `existing`.
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
        """The listed name of the table, if it is another spelling of the job's name."""
        return self.listed_as if self.listed_as != self.name else None

    @property
    def has_table(self) -> bool:
        """True if the catalog has a table of this name, even if another spelling of the name has the files."""
        return self.table is not None or (self.listed_name is not None and isinstance(self.answer.found, Table))

    @cached_property
    def documents(self) -> list[Document]:
        """Our main documents at all layouts."""
        return [doc for table_files in self.existing if (doc := table_files.main_document) is not None]

    @property
    def has_documents_elsewhere(self) -> bool:
        """True if a main document is not the table's own: it is of another table, at another layout, or a tombstone."""
        return any(
            not (self.is_current(one) and doc.is_live and self.table is not None and doc.guid == self.table.uuid)
            for one in self.existing
            if (doc := one.main_document) is not None
        )

    @cached_property
    def newest_document(self) -> Document | None:
        """The live document with the greatest Ordinal, else the document of any state with the greatest Ordinal."""
        found = self.documents
        return max([doc for doc in found if doc.is_live] or found, key=lambda doc: doc.ordinal, default=None)

    @property
    def is_purged(self) -> bool:
        """True if an event reported a purge of the table in our files, not of an earlier table of the same name."""
        published = self.job.table_state.live
        if published is None:
            return self.job.pending.purge and self.table is None
        return self.job.pending.purge and all(doc.guid == published.uuid for doc in self.documents if doc.is_live)

    @cached_property
    def last_ordinal(self) -> int:
        """The greatest Ordinal of our documents, 0 without any."""
        return max((file.doc.ordinal for table_files in self.existing for file in table_files.files), default=0)

    @cached_property
    def current_files(self) -> TableFiles | None:
        """Our files at the table's own place."""
        return next((table_files for table_files in self.existing if self.is_current(table_files)), None)

    def is_current(self, table_files: TableFiles) -> bool:
        """Return whether these are the files of the table itself, at its own layout."""
        if self.table is None or table_files.layout != self.layout:
            return False
        # With naming by uuid, the first files are the table's own. The others belong to earlier tables of the name.
        return not table_files.layout.naming.is_by_uuid or table_files is next(
            one for one in self.existing if one.layout == self.layout
        )

    def files_at(self, location: str) -> list[TableFiles]:
        """Return our files at a table's location, or in one folder below a root."""
        return [table_files for table_files in self.existing if table_files.layout.location == location]


def hint_at(observations: Observations, location: str) -> StoredObject | None:
    """Return the version hint at a location."""
    return observations.file(version_hint.key_of(location))


# ── The listed name of a table

RELIST_AFTER: Final = timedelta(seconds=2)
"""The delay before a failed listing is requested again; longer than the failure is cached."""


def find_listed_name(
    job: LeasedJob, observations: Observations, policy: Policy, name: TableIdentifier, table: Table, *, refresh: bool
) -> TableIdentifier | None:
    """Return the name under which the catalog lists a table.

    Args:
        job, observations, policy: the arguments of the decision.
        name: the name of the job.
        table: the catalog's answer for that name.
        refresh: a refresh is due, so the listing is requested again.

    Returns:
        The job's name, or the one other spelling that is listed and has the same table; None without either.
    """
    table_state = job.table_state
    is_known = table_state.listed_as == name and table_state.live is not None and table_state.live.uuid == table.uuid
    if policy.event_only or (is_known and job.pending.renamed_to is None and not refresh):
        return table_state.listed_as
    listed = match_listed_name(observations, policy, name, table, fresh=table_state.live is None)
    if listed is None and table_state.listed_as != name:
        return _name_by_files(job, observations, policy, name, table)
    return listed


def match_listed_name(
    observations: Observations, policy: Policy, name: TableIdentifier, table: Table, *, fresh: bool
) -> TableIdentifier | None:
    """Return the name under which the catalog lists the table that it answers for a name, see `find_listed_name`.

    Args:
        fresh: list again if the cached listing has no such name.
    """
    alike = observations.listed_spellings(name, fresh=fresh)
    if name in alike:
        return name
    same = [
        other for other in alike if policy.table_filter.covers(other) and _is_same_table(observations, other, table)
    ]
    return same[0] if len(same) == 1 else None


def recheck_failed_listing(job: LeasedJob, observations: Observations, name: TableIdentifier) -> Rescheduled | None:
    """Check a new name once more if its listing failed; otherwise two new spellings would both write files.

    The check happens only once, whatever events arrive meanwhile.
    """
    if name not in observations.failed_listings or job.table_state.has_settled or job.table_state.live is not None:
        return None
    why = "the namespace could not be listed: the name may be another spelling of one that has the SFN files"
    return Rescheduled(
        observations.answer_for(name).answered_at + RELIST_AFTER,
        why,
        job.pending,
        PublishResult(structs.replace(job.table_state, has_settled=True)),
    )


def _name_by_files(
    job: LeasedJob, observations: Observations, policy: Policy, name: TableIdentifier, table: Table
) -> TableIdentifier | None:
    """Return the name that has the table's files by the inbox, if no listing is available.

    If two names both wrote files, readers of the directory would see an older answer after a newer one. If both names
    have files, the first one in alphabetical order keeps them. If both gave way to each other, no file would remain.
    """
    live, before = job.table_state.live, job.table_state.listed_as
    has_file = live is not None and live.uuid == table.uuid
    others = observations.other_tables_with(table.uuid, name) if table.uuid is not None else []
    alike = [entry.table for entry, _ in others if may_be_same_name(entry.table, name)]
    known = [other for other in alike if not has_file or str(other) < str(name)]
    # A name that was listed once and has no file yet may give way to this one meanwhile.
    if before is not None and not has_file and (table.uuid is None or str(before) < str(name)):
        known.append(before)
    for other in known:
        if policy.table_filter.covers(other) and _is_same_table(observations, other, table):
            return other
    return None


def _is_same_table(observations: Observations, other: TableIdentifier, table: Table) -> bool:
    found = observations.answer_for(other).found
    if not isinstance(found, Table) or found.skip_reason is not None:
        return False
    if table.uuid is None and found.metadata_location != table.metadata_location:
        return False
    return (found.uuid, found.location) == (table.uuid, table.location)


def wake_listed_name(context: PublishContext, builder: PlanBuilder) -> None:
    """Wake the job of the listed name with the event of another spelling.

    The wakeup carries the catalog's metadata location from here, so that an older answer there is checked again.
    Without an event there is no wakeup, because the listed name may have woken this job. A relayed event is not sent
    back.
    """
    pending, found = context.job.pending, context.answer.found
    is_news = (
        pending != PendingChange() and not pending.is_relayed
    ) or context.job.table_state.listed_as != context.listed_as
    if context.listed_name is not None and is_news:
        floor = found.metadata_location if isinstance(found, Table) else pending.min_metadata_location
        wakeup = Wakeup(
            context.listed_name,
            min_metadata_location=floor,
            drop=pending.drop,
            purge=pending.purge,
            renamed_to=pending.renamed_to,
        )
        builder.wake([wakeup])
