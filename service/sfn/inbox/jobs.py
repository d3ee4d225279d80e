"""Stored jobs and dead letters: the ones of one transaction, the order of claims, and the index of all tables."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from sfn.domain.events import TableReport
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import Capacity, ConcurrencyGroup, DeadLetterReason, IndexedTable, Priority
from sfn.inbox.model import (
    InboxConfig,
    Job,
    JobState,
    OutcomeRecord,
    group_of,
    is_renamed,
    stat_state,
    table_missing_since,
    waiting_since,
)
from sfn.inbox.schema import (
    CACHE,
    GROUP,
    JOB,
    MAX_OUTCOMES,
    OUTCOME,
    PLACE,
    UNREAD_CACHE,
    decode_job,
    encode_cache,
    encode_job,
    encode_key,
    from_micros,
    from_micros_or_none,
    short_key,
    table_key_range,
    to_indexed_table,
    to_micros,
    to_micros_or_none,
)
from sfn.inbox.transaction import Change, Query, Row, Run, Transaction, Update, Upsert
from sfn.sfnfile.naming import layout_location

_JOB: Final = "SELECT job.concurrency_group, job.record, CAST(NULL AS bytea) AS cache FROM sfn.job AS job"
_JOB_AND_CACHE: Final = (
    "SELECT job.concurrency_group, job.record, cache.record AS cache FROM sfn.job AS job "
    "LEFT JOIN sfn.cache AS cache ON cache.key = job.key"
)
_DUE: Final = "WHERE job.concurrency_group = $1 AND job.state = 'queued' ORDER BY job.due_at, job.key LIMIT $2"


class KnownGroups:
    """The numbers of the committed concurrency groups, as far as a process has read them. A number never changes."""

    def __init__(self) -> None:
        self.numbers: dict[ConcurrencyGroup, int] = {}
        self.last = 0

    def copy(self) -> KnownGroups:
        """Return a copy, for a transaction that may read groups of its own, which are not committed."""
        copied = KnownGroups()
        copied.numbers, copied.last = dict(self.numbers), self.last
        return copied

    def query(self) -> Query:
        """Return the query for the groups that were added since."""
        return Query("SELECT id, catalog, store, priority FROM sfn.concurrency_group WHERE id > $1", (self.last,))

    def take(self, rows: Sequence[Row]) -> None:
        """Add the result of `query`."""
        for number, catalog, store, priority in rows:
            self.numbers[ConcurrencyGroup(catalog, store, Priority(priority))] = number
            self.last = max(self.last, number)


class UnreadJobError(Exception):
    """A job is needed that was not read in this transaction."""

    def __init__(self, subject: JobKey) -> None:
        super().__init__(f"the job of {subject} was not read")
        self.subject = subject


T = TypeVar("T")


def rotate(groups: Iterable[ConcurrencyGroup], turn: int) -> list[ConcurrencyGroup]:
    """Return the sorted concurrency groups, rotated by `turn`, so that each turn starts with another group."""
    ordered = sorted(groups)
    first = turn % max(1, len(ordered))
    return ordered[first:] + ordered[:first]


def fair_order(
    due: Sequence[tuple[ConcurrencyGroup, Sequence[T]]], capacity: Capacity
) -> list[tuple[ConcurrencyGroup, T]]:
    """Pick jobs round-robin, first from the short-lived groups and then from the others, until the capacity is used.

    Args:
        due: by group, the due jobs, longest wait first, at most the free capacity of the group.
        capacity: free capacity of the worker.

    Returns:
        The picked jobs, each with its group.
    """
    free = dict(capacity.by_priority)
    tables = capacity.total
    per_catalog = Counter(capacity.per_catalog)
    taken: list[tuple[ConcurrencyGroup, T]] = []
    for group, item in itertools.chain(*(_in_turn(due, first=first) for first in (True, False))):
        is_table = group.priority is not Priority.SWEEP
        has_room = tables > 0 and (group.catalog not in capacity.per_catalog or per_catalog[group.catalog] > 0)
        if free[group.priority] > 0 and (has_room or not is_table):
            taken.append((group, item))
            free[group.priority] -= 1
            free[Priority.LIVE] -= group.priority is Priority.SHORT_LIVED
            tables -= is_table
            per_catalog[group.catalog] -= is_table
    return taken


def _in_turn(
    due: Sequence[tuple[ConcurrencyGroup, Sequence[T]]], *, first: bool
) -> Iterator[tuple[ConcurrencyGroup, T]]:
    """Yield the jobs round-robin; of the short-lived groups if `first`, else of all others."""
    chosen = [(group, items) for group, items in due if (group.priority is Priority.SHORT_LIVED) is first]
    queues = [[(group, item) for item in items] for group, items in chosen]
    return (pair for pairs in itertools.zip_longest(*queues) for pair in pairs if pair is not None)


class StoredJob(NamedTuple):
    """A job as it was read, and the number of its concurrency group."""

    job: Job
    group: int


class Jobs:
    """The jobs of one transaction: read once, changed in memory, and written once.

    Args:
        transaction: the transaction.
        groups: the known concurrency groups; the caller has read the new ones in this transaction.
        config: the configuration of the inbox.
    """

    def __init__(self, transaction: Transaction, groups: KnownGroups, config: InboxConfig) -> None:
        self._transaction, self.groups, self._config = transaction, groups, config
        self._stored: dict[JobKey, StoredJob | None] = {}
        self._changed: dict[JobKey, Job | None] = {}
        self._regrouped: set[JobKey] = set()
        self._outcomes: list[Row] = []

    def query(self, subjects: Collection[JobKey], *, caches: bool = False) -> Query:
        """Return the query for jobs; `take` adds its result."""
        keys = [encode_key(subject) for subject in subjects]
        return Query(f"{_JOB_AND_CACHE if caches else _JOB} WHERE job.key = ANY($1::text[])", (keys,))

    def due_query(self, group: int, most: int) -> Query:
        """Return the query for the first queued jobs of a group, by due time, with their caches."""
        return Query(f"{_JOB_AND_CACHE} {_DUE}", (group, most))

    def take(self, rows: Sequence[Row], subjects: Iterable[JobKey] = (), *, caches: bool = False) -> list[Job]:
        """Add the jobs that a query returned; those of `subjects` that it did not return do not exist.

        Returns:
            The jobs, with the changes that were made before they were added.
        """
        jobs: list[Job] = []
        for number, record, cache in rows:
            job = decode_job(record, cache, has_cache=caches)
            known = self._stored.get(job.subject)
            if known is None:
                self._stored[job.subject] = StoredJob(job, number)
            elif caches and known.job.cache is UNREAD_CACHE:
                self._stored[job.subject] = StoredJob(replace(known.job, cache=job.cache), number)
                changed = self._changed.get(job.subject)
                if changed is not None and changed.cache is UNREAD_CACHE:
                    self._changed[job.subject] = replace(changed, cache=job.cache)
            now = self.get(job.subject)
            if now is not None:
                jobs.append(now)
        for subject in subjects:
            self._stored.setdefault(subject, None)
        return jobs

    async def load(self, subjects: Collection[JobKey], *, caches: bool = False) -> None:
        """Read jobs that were not read yet."""
        wanted = [one for one in dict.fromkeys(subjects) if one not in self._stored or (caches and self._lacks(one))]
        if wanted:
            query = self.query(wanted, caches=caches)
            self.take(await self._transaction.fetch(query.text, *query.values), wanted, caches=caches)

    def _lacks(self, subject: JobKey) -> bool:
        job = self.get(subject)
        return job is not None and job.cache is UNREAD_CACHE

    def get(self, subject: JobKey) -> Job | None:
        """Return a job with its changes; None if there is none.

        Raises:
            UnreadJobError: it was not read.
        """
        if subject in self._changed:
            return self._changed[subject]
        if subject not in self._stored:
            raise UnreadJobError(subject)
        stored = self._stored[subject]
        return stored.job if stored is not None else None

    def is_read(self, subject: JobKey) -> bool:
        """Return True if a job was read, or found to be missing."""
        return subject in self._stored

    def save(self, job: Job) -> Job:
        """Change a job; return it."""
        self._changed[job.subject] = job
        return job

    def delete(self, subject: JobKey) -> None:
        """Delete a job."""
        self._changed[subject] = None

    def add_outcome(self, job: Job) -> None:
        """Add the last result of a job to the history of its outcomes; a repeated one replaces the one before."""
        result = job.last_result
        if result is not None:
            row = (
                encode_key(job.subject),
                job.outcomes % MAX_OUTCOMES,
                job.outcomes,
                to_micros(result.at),
                to_micros_or_none(job.claimed_at),
                job.attempt,
                result.outcome,
                result.why,
                job.repeats + 1,
                to_micros(job.repeated_since or result.at),
            )
            self._outcomes.append(row)

    def current(self) -> list[Job]:
        """Return the jobs that were read or made, with their changes."""
        stored = {subject: one.job if one is not None else None for subject, one in self._stored.items()}
        return [job for job in (stored | self._changed).values() if job is not None]

    def take_group(self, group: ConcurrencyGroup, rows: Sequence[Row]) -> int:
        """Add the result of a `due_query`; return how many of these jobs still belong to the group.

        An event may have moved a job to another group, and so may a new configuration of the stores. Its new number is
        written: under the old one it would hide the jobs behind it from every claim.
        """
        jobs = self.take(rows, caches=True)
        moved = [job for job in jobs if group_of(job, self._config.stores) != group]
        for job in moved:
            self._regrouped.add(job.subject)
            self.save(replace(job))
        return len(jobs) - len(moved)

    def changes(self) -> list[Change]:
        """Return what to write."""
        rows = _Rows()
        for subject, job in self._changed.items():
            stored = self._stored.get(subject)
            if job is None:
                rows.gone += [encode_key(subject)] if stored is not None else []
            elif stored is None or job is not stored.job:
                rows.add(job, self._group_number(job, stored, rows.made), stored)
        rows.outcomes += [row for row in self._outcomes if row[0] not in rows.gone]
        return rows.changes()

    async def write(self, others: Sequence[Change] = ()) -> None:
        """Write the changes of jobs, and others; the unit must not be used any more."""
        changes = [*self.changes(), *others]
        if changes:
            await self._transaction.write(changes)

    def _group_number(self, job: Job, stored: StoredJob | None, made: dict[ConcurrencyGroup, int]) -> int:
        """Return the number of a job's concurrency group; a cheap check rules most changes of the group out."""
        if stored is not None:
            before = stored.job
            alike = job.table_state is before.table_state and job.locations is before.locations
            alike = alike and (job.version > job.processed_version) == (before.version > before.processed_version)
            if alike and job.subject not in self._regrouped:
                return stored.group
        group = group_of(job, self._config.stores)
        number = self.groups.numbers.get(group) or made.get(group)
        if number is None:
            number = made[group] = self.groups.last + len(made) + 1
        return number


@dataclass(slots=True)
class _Rows:
    """The rows that one transaction writes."""

    made: dict[ConcurrencyGroup, int] = field(default_factory=dict)
    jobs: list[Row] = field(default_factory=list)
    rescheduled: list[Row] = field(default_factory=list)
    changed_records: list[Row] = field(default_factory=list)
    caches: list[Row] = field(default_factory=list)
    without_cache: list[str] = field(default_factory=list)
    places: list[Row] = field(default_factory=list)
    left_places: list[Row] = field(default_factory=list)
    outcomes: list[Row] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def add(self, job: Job, group: int, stored: StoredJob | None) -> None:
        """Add the rows of a changed job."""
        key, before = encode_key(job.subject), stored.job if stored is not None else None
        table, schedule, record = table_columns(job), schedule_columns(job, group), encode_job(job)
        if stored is None or table != table_columns(stored.job):
            self.jobs.append((key, job.subject.catalog, *schedule, *table, record))
        elif schedule != schedule_columns(*stored):
            self.rescheduled.append((key, *schedule, record))
        else:
            self.changed_records.append((key, record))
        if job.cache is not UNREAD_CACHE and (before is None or job.cache is not before.cache):
            cache = encode_cache(job.cache)
            if cache is not None:
                self.caches.append((key, cache))
            elif before is not None:
                self.without_cache.append(key)
        known: frozenset[str] = before.locations if before is not None else frozenset()
        if job.locations is not known and job.locations != known:
            now, then = ({short_key(layout_location(one)) for one in places} for places in (job.locations, known))
            self.places += [(key, job.subject.catalog, location) for location in sorted(now - then)]
            self.left_places += [(key, location) for location in sorted(then - now)]

    def changes(self) -> list[Change]:
        """Return the changes that write the rows."""
        changes: list[Change] = []
        if self.made:
            groups = [(number, one.catalog, one.store, one.priority.value) for one, number in self.made.items()]
            # A number that another group has would be an error, not another name of that group.
            changes.append(Upsert(GROUP, groups, conflict="(catalog, store, priority) DO NOTHING"))
        for table, rows in ((JOB, self.jobs), (CACHE, self.caches), (OUTCOME, self.outcomes)):
            if rows:
                changes.append(Upsert(table, rows))
        if self.rescheduled:
            changes.append(Update(JOB, self.rescheduled, ("key", *_SCHEDULE, "record")))
        if self.changed_records:
            changes.append(Update(JOB, self.changed_records, ("key", "record")))
        if self.places:
            changes.append(Upsert(PLACE, self.places, conflict="DO NOTHING"))
        changes += [
            Run("DELETE FROM sfn.place WHERE key = $1 AND location = $2", tuple(row)) for row in self.left_places
        ]
        if self.without_cache or self.gone:
            keys = [*self.without_cache, *self.gone]
            changes.append(Run("DELETE FROM sfn.cache WHERE key = ANY($1::text[])", (keys,)))
        if self.gone:
            changes += [
                Run(f"DELETE FROM sfn.{table} WHERE key = ANY($1::text[])", (self.gone,))
                for table in ("job", "place", "outcome")
            ]
        return changes


_SCHEDULE: Final = ("concurrency_group", "state", "stat_state", "due_at", "lease_until", "waiting_since")
"""The columns that folds, claims and settles change often."""


def schedule_columns(job: Job, group: int) -> Row:
    """Return the columns from `concurrency_group` to `waiting_since`."""
    return (
        group,
        job.state.value,
        stat_state(job) if isinstance(job.subject, TableIdentifier) else "",
        to_micros(job.due_at),
        to_micros_or_none(job.lease_until) if job.state is JobState.LEASED else None,
        to_micros_or_none(waiting_since(job)),
    )


def table_columns(job: Job) -> Row:
    """Return the columns from `reason` to `is_renamed`."""
    live = job.table_state.live
    return (
        job.reason.value if job.reason is not None else None,
        live.uuid if live is not None else None,
        live.location if live is not None else None,
        to_micros_or_none(table_missing_since(job.table_state)),
        True if is_renamed(job) else None,
    )


# ── Queries over the jobs of all tables

_OLD_NAMES: Final = (
    "SELECT count(*) FROM sfn.job AS old WHERE old.catalog = $1 AND old.is_renamed AND old.live_uuid <> '' "
    "AND EXISTS (SELECT 1 FROM sfn.job AS other WHERE other.catalog = old.catalog "
    "AND other.live_uuid = old.live_uuid AND other.key <> old.key "
    "AND (other.is_renamed IS NULL OR other.key < old.key))"
)
"""Number of live files under old names of renamed tables, by the rule of `catalogs.without_old_names`."""


def _indexed(rows: Sequence[Row]) -> list[IndexedTable]:
    jobs = [decode_job(record, cache, has_cache=True) for _, record, cache in rows]
    return [to_indexed_table(job, job.subject) for job in jobs if isinstance(job.subject, TableIdentifier)]


async def tables_after(
    transaction: Transaction, catalog: str, after: str, limit: int
) -> tuple[list[IndexedTable], str]:
    """Return a page of a catalog's tables with keys greater than `after`, and the last key; empty at the end."""
    start, end = table_key_range(catalog)
    page = _indexed(
        await transaction.fetch(
            f"{_JOB_AND_CACHE} WHERE job.key > $1 AND job.key < $2 ORDER BY job.key LIMIT $3",
            max(start, after),
            end,
            limit,
        )
    )
    return page, encode_key(page[-1].table) if page else ""


async def stored_job(transaction: Transaction, subject: JobKey) -> Job | None:
    """Return a job with its cache; None if there is none."""
    found = await transaction.fetch(f"{_JOB_AND_CACHE} WHERE job.key = $1", encode_key(subject))
    return decode_job(*found[0][1:], has_cache=True) if found else None


async def reported_tables(transaction: Transaction, table: TableIdentifier) -> tuple[TableReport, ...]:
    """Return the tables that events reported under a name of an event-only catalog; none for other catalogs."""
    found = await transaction.fetch(f"{_JOB} WHERE job.key = $1", encode_key(table))
    return decode_job(found[0][1]).table_state.reported if found else ()


async def tables_with_uuid(transaction: Transaction, catalog: str, uuid: str) -> list[IndexedTable]:
    """Return the tables with this uuid in their live file, by name."""
    found = await transaction.fetch(f"{_JOB_AND_CACHE} WHERE job.catalog = $1 AND job.live_uuid = $2", catalog, uuid)
    return sorted(_indexed(found), key=lambda one: one.table)


async def others_at(transaction: Transaction, table: JobKey, location: str) -> dict[TableIdentifier, str | None]:
    """Return the other tables that have a live file at a location, each with its uuid."""
    found = await transaction.fetch(
        f"{_JOB} WHERE job.catalog = $1 AND job.live_location = $2 ORDER BY job.key", table.catalog, location
    )
    jobs = [decode_job(record) for _, record, _ in found]
    return {
        job.subject: job.table_state.live.uuid
        for job in jobs
        if isinstance(job.subject, TableIdentifier) and job.subject != table and job.table_state.live is not None
    }


async def live_count(transaction: Transaction, catalog: str, most: int | None = None) -> int:
    """Return how many tables have a live file, at most `most`, because counting many tables takes long.

    An old name of a renamed table is no table of its own.
    """
    ((old,),) = await transaction.fetch(_OLD_NAMES, catalog)
    # The length is in the condition of PostgreSQL's index `job_live`.
    ((count,),) = await transaction.fetch(
        "SELECT count(*) FROM (SELECT 1 FROM sfn.job WHERE catalog = $1 AND live_location IS NOT NULL "
        "AND length(live_location) > 0 LIMIT $2::bigint) AS live",
        catalog,
        2**62 if most is None else most + old,
    )
    return int(count - old)


async def live_counts(transaction: Transaction) -> dict[str, int]:
    """Return how many tables of each catalog have a live file; reads an entry of an index for every table."""
    found = await transaction.fetch("SELECT DISTINCT catalog FROM sfn.concurrency_group")
    return {catalog: await live_count(transaction, catalog) for (catalog,) in found}


async def without_file(transaction: Transaction, subjects: Collection[JobKey]) -> int:
    """Return how many of these have no job with a live file."""
    ((count,),) = await transaction.fetch(
        "SELECT count(*) FROM sfn.job WHERE key = ANY($1::text[]) AND live_location IS NOT NULL",
        [encode_key(subject) for subject in subjects],
    )
    return len(subjects) - int(count)


async def held_jobs(transaction: Transaction, catalog: str, after: str, limit: int) -> Sequence[Row]:
    """Return a page of the jobs that the drop limit holds, with keys greater than `after`, by key."""
    return await transaction.fetch(
        f"{_JOB} WHERE job.catalog = $1 AND job.reason = $2 AND job.key > $3 ORDER BY job.key LIMIT $4",
        catalog,
        DeadLetterReason.HELD_DROP.value,
        after,
        limit,
    )


async def outcome_history(transaction: Transaction, subject: JobKey) -> list[OutcomeRecord]:
    """Return the last outcomes of a job, newest first."""
    found = await transaction.fetch(
        "SELECT outcome, why, ended_at, claimed_at, attempt, times, first_at FROM sfn.outcome WHERE key = $1 "
        "ORDER BY number DESC",
        encode_key(subject),
    )
    return [
        OutcomeRecord(
            outcome, why, from_micros(ended), from_micros_or_none(claimed), attempt, times, from_micros(first)
        )
        for outcome, why, ended, claimed, attempt, times, first in found
    ]


def visitors_query(places: Iterable[tuple[str, str]]) -> Query:
    """Return the query for the jobs that may have a file at one of these places, each a catalog and a location."""
    wanted = sorted(places)
    clauses = " OR ".join(
        f"(place.catalog = ${2 * number + 1} AND place.location = ${2 * number + 2})" for number in range(len(wanted))
    )
    return Query(
        f"{_JOB} WHERE job.key IN (SELECT place.key FROM sfn.place AS place WHERE {clauses})",
        tuple(value for catalog, location in wanted for value in (catalog, short_key(location))),
    )
