"""The inbox as operators, sweeps and readers see it: queries and commands, each in one transaction.

A query or a command sees what was accepted before it, because it folds first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from sfn.clock import Clock
from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import IndexedTable
from sfn.inbox import DropLimitState, MissingTableStats, QueueStats, catalogs, jobs, processes
from sfn.inbox.dead_letters import close_letters, find_letters, letters_with_ids, request_of
from sfn.inbox.intents import intents_of
from sfn.inbox.model import (
    RELEASE_BATCH_SIZE,
    AdminCommand,
    AuditEntry,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterStatus,
    Job,
    LastEvent,
    TableStatus,
)
from sfn.inbox.operations import Operations
from sfn.inbox.processes import StoredProcess
from sfn.inbox.schema import (
    AUDIT,
    decode_record,
    encode_key,
    encode_message,
    from_micros,
    from_micros_or_none,
    parse_sweeps,
    to_micros,
)
from sfn.inbox.table_list import list_tables
from sfn.inbox.transaction import Durability, Operation, Query, Run, Runner, Transaction, Upsert, Wakes, draw
from sfn.inbox.transitions import on_check, on_discard, on_release_hold, on_replay

T = TypeVar("T")
P = ParamSpec("P")

PRUNE_BATCH_SIZE: Final = 500
"""Records, or dead letters, that are deleted at a time: few, because appends wait meanwhile in SQLite."""
MAX_AUDIT_ENTRIES: Final = 10_000
"""Most entries of the log of commands."""
INDEX_PAGE_SIZE: Final = 500
"""Tables that are read from the index at a time."""

Method: TypeAlias = Callable[Concatenate["Administration", P], Coroutine[Any, Any, T]]


def as_read(operation: Callable[Concatenate[Transaction, P], Coroutine[Any, Any, T]]) -> Method[P, T]:
    """Return the method of the inbox that runs an operation; the operation changes nothing."""

    @wraps(operation)
    async def method(inbox: Administration, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await inbox.run_read(lambda transaction: operation(transaction, *args, **kwargs))

    return method


def as_query(operation: Callable[Concatenate[Transaction, P], Coroutine[Any, Any, T]]) -> Method[P, T]:
    """Return a method as `as_read` does; it folds before, so that the operation sees what this process has accepted."""

    @wraps(operation)
    async def method(inbox: Administration, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await inbox.run_query(lambda transaction: operation(transaction, *args, **kwargs))

    return method


def as_command(
    operation: Callable[Concatenate[Administration, Transaction, P], Coroutine[Any, Any, T]],
) -> Method[P, T]:
    """Return the method of the inbox that runs an operation as a command of operators, see `run_command`."""

    @wraps(operation)
    async def method(inbox: Administration, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await inbox.run_command(lambda transaction: operation(inbox, transaction, *args, **kwargs))

    return method


_STATS: Final = (
    Query("SELECT catalog, stat_state, count(*) FROM sfn.job WHERE stat_state <> '' GROUP BY catalog, stat_state"),
    Query("SELECT catalog, count(*), min(missing_since) FROM sfn.job WHERE missing_since IS NOT NULL GROUP BY catalog"),
    Query(
        "SELECT catalog, reason, count(*), min(opened_at) FROM sfn.dead_letter WHERE status = 'open' "
        "GROUP BY catalog, reason"
    ),
    Query("SELECT catalog, count(DISTINCT id), min(opened_at) FROM sfn.intent GROUP BY catalog"),
    Query("SELECT name FROM sfn.catalog WHERE is_limit_reached"),
    Query("SELECT count(*), min(received_at) FROM sfn.pending"),
    catalogs.ALL_SWEEPS,
)


_WAITS: Final = (
    "SELECT one.catalog, (SELECT min(waiting_since) FROM sfn.job WHERE catalog = one.catalog AND waiting_since > 0), "
    "(SELECT count(*) FROM sfn.job WHERE catalog = one.catalog AND waiting_since <= $1) "
    "FROM (SELECT DISTINCT catalog FROM sfn.concurrency_group) AS one"
)


async def queue_stats(transaction: Transaction, now: datetime, late_after: timedelta) -> QueueStats:
    """Return the statistics of the inbox; reads an entry of an index for every job."""
    found = await transaction.fetch_all([Query(_WAITS, (to_micros(now - late_after),)), *_STATS])
    waits, counts, missing, letters, intents, reached, ((unapplied, since),), swept = found
    tables = {(catalog, state): count for catalog, state, count in counts}
    oldest = {catalog: from_micros(at) for catalog, at, _ in waits if at is not None and at <= to_micros(now)}
    # A sweep that finds too many tables missing holds them without counting steps.
    holding = frozenset(catalog for catalog, state in tables if state == "held")
    return QueueStats(
        tables=tables,
        oldest_due=oldest,
        late={catalog: count for catalog, _, count in waits},
        dead_letters={(catalog or "", reason): count for catalog, reason, count, _ in letters},
        letters_since={(catalog or "", reason): from_micros(at) for catalog, reason, _, at in letters},
        swept=frozenset(parse_sweeps(swept)),
        limit_reached=holding | {name for (name,) in reached},
        open_intents={catalog: count for catalog, count, _ in intents},
        oldest_intent={catalog: from_micros(at) for catalog, _, at in intents},
        missing={catalog: MissingTableStats(count, from_micros(at)) for catalog, count, at in missing},
        unapplied=unapplied,
        oldest_unapplied=from_micros_or_none(since),
    )


async def table_status(transaction: Transaction, subject: JobKey) -> TableStatus | None:
    """Return the state of a job, and how many accepted events are not part of it yet; None if there is none."""
    job = await jobs.stored_job(transaction, subject)
    ((unapplied, since),) = await transaction.fetch(
        # One search for each record that waits; a join may read the whole log instead.
        "SELECT count(*), min(received_at) FROM sfn.pending AS pending "
        "WHERE (SELECT event.key FROM sfn.event AS event WHERE event.seq = pending.seq) = $1",
        encode_key(subject),
    )
    if job is None:
        return TableStatus(Job(subject, from_micros(since)), unapplied=unapplied) if unapplied else None
    found = await transaction.fetch("SELECT kind, received_at, record FROM sfn.event WHERE seq = $1", job.event_seq)
    record = decode_record(job.event_seq, *found[0]) if found else None
    event = record.message if record is not None else None
    last_event = (
        LastEvent(event.sender, event.event_id, record.received_at, event.body)
        if record is not None and isinstance(event, Notification)
        else None
    )
    return TableStatus(job, last_event, await intents_of(transaction, subject), unapplied)


# ── The log of commands


async def add_audit_entry(transaction: Transaction, action: str, command: AdminCommand, count: int) -> int:
    """Add a command to the log of commands, and delete very old entries; return the id of the command."""
    number = await draw(transaction, "audit", 1)
    entry = number, to_micros(command.at), command.actor, action, command.target, count
    await transaction.write(
        [
            Upsert(AUDIT, [entry]),
            Run("DELETE FROM sfn.audit WHERE id <= $1", (number - MAX_AUDIT_ENTRIES,)),
        ]
    )
    return number


async def audit_log(transaction: Transaction, before: int | None, limit: int) -> list[AuditEntry]:
    """Return the newest entries of the log of commands with ids below `before`; None starts with the newest."""
    found = await transaction.fetch(
        "SELECT id, at, actor, action, target, count FROM sfn.audit WHERE id < $1 ORDER BY id DESC LIMIT $2::bigint",
        2**62 if before is None else before,
        limit,
    )
    return [AuditEntry(number, from_micros(at), *rest) for number, at, *rest in found]


# ── The methods of the inbox


@dataclass(frozen=True, slots=True)
class CommandProgress:
    """Progress of a command that takes several transactions.

    Attributes:
        audit_id: id of the entry in the log of commands.
        count: number of jobs so far.
        last_key: key of the last job; jobs are processed by key.
        has_more: True if there may be more jobs.
    """

    audit_id: int
    count: int
    last_key: str
    has_more: bool


class Administration(ABC):
    """The queries and commands of an inbox.

    Every call raises `Transient` with scope inbox, `Permanent` if a value cannot be stored, or `FatalError`.

    Args:
        runner: runs operations in the database.
        operations: the operations of the same process.
        clock: the wall clock.
    """

    def __init__(self, runner: Runner, operations: Operations, clock: Clock) -> None:
        self._runner, self._operations, self._clock = runner, operations, clock
        self._config = operations.config

    @abstractmethod
    async def _catch_up(self, rest: int) -> None:
        """Fold waiting records until at most `rest` are left; of a very large backlog only a part."""

    @abstractmethod
    def _observe_other_folds(self) -> None:
        """Observe the folds of commands and settles."""

    # ── Tables

    async def tables(self, catalog: str) -> AsyncIterator[IndexedTable]:
        after = ""
        while True:
            page, after = await self._page(catalog, after, INDEX_PAGE_SIZE)
            for known in page:
                yield known
            if not page:
                return

    _page = as_query(jobs.tables_after)
    reported_tables = as_query(jobs.reported_tables)
    table_status = as_query(table_status)
    list_tables = as_query(list_tables)
    outcome_history = as_query(jobs.outcome_history)

    # ── Dead letters

    get_many = as_query(letters_with_ids)
    request_of = as_query(request_of)
    list_newest = as_query(find_letters)

    async def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        """Return at most `limit` matching dead letters with ids above `after`, by id."""
        return await self.list_newest(letter_filter, limit, after)

    @as_command
    async def replay(
        self, transaction: Transaction, ids: Sequence[int], notifications: Sequence[Notification], command: AdminCommand
    ) -> int:
        """Queue the subjects of open dead letters and close the letters, in one transaction.

        Args:
            ids: ids of letters; those that are not open are ignored.
            notifications: the notifications of the undecodable requests among them, which can be decoded now.
            command: the entry for the audit log.

        Returns:
            The number of letters that were open.
        """
        ended = await close_letters(transaction, ids, DeadLetterStatus.REPLAYED, command)
        subjects = [subject for subject in ended if subject is not None]
        unit = await self._operations.unfolded(transaction, subjects, has_written=True)
        for subject in subjects:
            unit.jobs.save(on_replay(unit.jobs.get(subject) or Job(subject, command.at), command.at))
        await unit.write()
        await self._notify(transaction, notifications, command)
        await add_audit_entry(transaction, "replay", command, len(ended))
        return len(ended)

    @as_command
    async def discard(self, transaction: Transaction, ids: Sequence[int], command: AdminCommand) -> int:
        """Close open dead letters and return their number; their tables do not count as late until the next event."""
        ended = await close_letters(transaction, ids, DeadLetterStatus.DISCARDED, command)
        subjects = [subject for subject in ended if subject is not None]
        unit = await self._operations.unfolded(transaction, subjects, has_written=True)
        for job in filter(None, map(unit.jobs.get, subjects)):
            unit.jobs.save(on_discard(job))
        await unit.write()
        await add_audit_entry(transaction, "discard", command, len(ended))
        return len(ended)

    # ── Drop limit

    async def max_missing(self, catalog: str) -> int:
        """Return how many missing tables one sweep may find before their drops are held."""
        return self._config.allowed_drops(catalog, await self._live_count(catalog))

    _live_count = as_read(jobs.live_count)

    live_counts = as_read(jobs.live_counts)

    async def drop_limit_state(self, catalog: str, live: int | None = None) -> DropLimitState:
        """Return the state of a catalog's drop limit.

        Args:
            catalog: name of the catalog.
            live: number of its tables with a live file; None to count them, which takes long if there are many.
        """
        return await self._drop_limit_state(catalog, live, self._config, self._clock.now())

    _drop_limit_state = as_query(catalogs.drop_limit_state)

    async def passed_steps(self, catalog: str) -> list[catalogs.PassedStep]:
        """Return the drops and rollbacks that the drop limit of a catalog let pass within the hour, oldest first."""
        return await self._passed_steps(catalog, self._config, self._clock.now())

    _passed_steps = as_query(catalogs.passed_steps)

    async def release(self, catalog: str, command: AdminCommand) -> int:
        """Reset the drop limit of a catalog, queue its held jobs, and return their number.

        The limit is overridden once for each of these jobs. They are released in batches, so that other calls are not
        blocked. If a batch raises or the process ends, the remaining jobs stay held. The audit log has the number of
        released jobs, and the same command continues.
        """
        progress: CommandProgress | None = None
        while progress is None or progress.has_more:
            progress = await self._release(catalog, command, progress)
        return progress.count

    @as_command
    async def _release(
        self, transaction: Transaction, catalog: str, command: AdminCommand, before: CommandProgress | None
    ) -> CommandProgress:
        """Release the first batch of held jobs, or the one after `before`."""
        unit = await self._operations.unfolded(transaction, (), has_written=True)
        after = before.last_key if before is not None else ""
        held = unit.jobs.take(await jobs.held_jobs(transaction, catalog, after, RELEASE_BATCH_SIZE))
        for job in held:
            unit.jobs.save(on_release_hold(job, command.at))
            unit.letters.close(job.subject, DeadLetterStatus.REPLAYED, command.at, command.actor)
        count = len(held) + (before.count if before is not None else 0)
        if before is None:
            unit.others.append(catalogs.set_columns(catalog, is_limit_reached=False))
            unit.others.append(Run("DELETE FROM sfn.permit WHERE catalog = $1", (catalog,)))
            await unit.write()
            audit_id = await add_audit_entry(transaction, "release", command, count)
        else:
            audit_id = before.audit_id
            unit.others.append(Run("UPDATE sfn.audit SET count = $1 WHERE id = $2", (count, audit_id)))
            await unit.write()
        last_key = encode_key(held[-1].subject) if held else after
        return CommandProgress(audit_id, count, last_key, has_more=len(held) == RELEASE_BATCH_SIZE)

    # ── Catalogs

    @as_command
    async def reconcile(
        self, transaction: Transaction, notifications: Sequence[Notification], command: AdminCommand
    ) -> None:
        """Schedule a sweep of the catalog of each notification."""
        await self._notify(transaction, notifications, command)
        await add_audit_entry(transaction, "reconcile", command, len(notifications))

    @as_command
    async def check(
        self, transaction: Transaction, notifications: Sequence[Notification], command: AdminCommand
    ) -> None:
        """Make the table of each notification due now, even if it was given up or waits for a retry."""
        await self._notify(transaction, notifications, command)
        subjects = [one.subject for one in notifications]
        unit = await self._operations.unfolded(transaction, subjects, has_written=True)
        for job in filter(None, map(unit.jobs.get, subjects)):
            unit.jobs.save(on_check(job, command.at))
        await unit.write()
        await add_audit_entry(transaction, "check", command, len(notifications))

    @as_command
    async def adopt(
        self, transaction: Transaction, notifications: Sequence[Notification], command: AdminCommand
    ) -> None:
        """Let tables adopt the files in their place; each notification names the `catalog_id` in these files."""
        await self._notify(transaction, notifications, command)
        await add_audit_entry(transaction, "adopt", command, len(notifications))

    async def retire(self, catalog: str, *, retired: bool, command: AdminCommand) -> None:
        """Record durably that the tables of a catalog get no files any more, or that they get files again."""

        async def retire(transaction: Transaction) -> None:
            await transaction.write([catalogs.set_columns(catalog, is_retired=retired)])
            await add_audit_entry(transaction, "retire" if retired else "unretire", command, 1)

        await self._runner.run(retire, Durability.SYNCED)

    owner_id = as_read(catalogs.owner_id)
    retired_catalogs = as_read(catalogs.retired_catalogs)
    audit_log = as_query(audit_log)

    async def record_owner(self, catalog: str, catalog_id: str) -> None:
        """Record durably which `catalog_id` the files of a catalog carry; see `recorded_owner`."""
        await self._runner.run(
            lambda transaction: transaction.write([catalogs.set_columns(catalog, catalog_id=catalog_id)]),
            Durability.SYNCED,
        )

    async def recorded_owner(self, catalog: str, catalog_id: str) -> str:
        """Record which `catalog_id` the files of a catalog carry, and return it.

        A `catalog_id` changes with the address of the catalog. While files carry another `catalog_id` and can be
        adopted, the owner is that other id; else it is the catalog's own id.

        The search may read all tables. If the recorded owner is the catalog's own id, there is no search, so files that
        the catalog wrote at another address meanwhile are not found. A foreign file in a table's place counts only if
        its `catalog_id` is the recorded owner; otherwise the file may never have been ours.

        Args:
            catalog: configured name of the catalog.
            catalog_id: the present `catalog_id`.
        """
        before = await self.owner_id(catalog)
        if before == catalog_id:
            return catalog_id
        owner = catalog_id
        async for row in self.tables(catalog):
            found = catalogs.owner_of_file(row, before)
            if found not in {None, catalog_id, row.adopt_catalog_id}:
                owner = found or catalog_id
                break
        if owner != before:
            await self.record_owner(catalog, owner)
        return owner

    # ── Processes

    list_processes = as_read(processes.list_processes)

    async def write_process(self, process: StoredProcess) -> None:
        """Write that a process lives, and what it sees."""
        await self._runner.run(lambda transaction: processes.write_process(transaction, process), Durability.DERIVED)

    async def remove_process(self, process_id: str) -> None:
        """Remove the row of a process that ends."""
        await self._runner.run(
            lambda transaction: processes.remove_process(transaction, process_id), Durability.DERIVED
        )

    # ── Steps

    async def run_read(self, operation: Operation[T]) -> T:
        """Return the result of an operation that changes nothing."""
        return await self._runner.run(operation, Durability.READ)

    async def run_query(self, operation: Operation[T]) -> T:
        """Return the result of an operation that changes nothing, after what this process has accepted was folded."""
        await self._catch_up(0)
        return await self.run_read(operation)

    async def run_command(self, operation: Operation[T]) -> T:
        """Return the result of an operation, after all records from before it were folded, once it is on disk."""

        async def run(transaction: Transaction) -> tuple[T] | None:
            # One transaction folds a part of a large backlog.
            if await self._fold(transaction):
                return None
            return (await operation(transaction),)

        while (done := await self._runner.run(run, Durability.SYNCED, Wakes.ALL_WORKERS)) is None:
            pass
        self._observe_other_folds()
        return done[0]

    async def _fold(self, transaction: Transaction, *, has_written: bool = False) -> bool:
        """Fold the oldest records in a transaction; return True if there are more."""
        fold = await self._operations.fold(transaction, has_written=has_written)
        self._operations.other_folds.append(fold)
        return fold.has_more

    async def _notify(
        self, transaction: Transaction, notifications: Sequence[Notification], command: AdminCommand
    ) -> None:
        """Accept notifications as if they had arrived now, and fold them."""
        if notifications:
            await transaction.append([encode_message(one, to_micros(command.at)) for one in notifications])
            while await self._fold(transaction, has_written=True):
                pass


async def prune_events(transaction: Transaction, before: datetime, most: int = PRUNE_BATCH_SIZE) -> int:
    """Delete at most `most` of the oldest folded records, up to the last one from before a time; return their number.

    Younger records between them are deleted, too: the wall clock may have been set back in between.
    """
    ((last,),) = await transaction.fetch(
        "SELECT max(seq) FROM (SELECT seq, received_at FROM sfn.event ORDER BY seq LIMIT $2::bigint) AS oldest "
        "WHERE received_at < $1 AND seq < (SELECT coalesce(min(seq), 9223372036854775807) FROM sfn.pending)",
        to_micros(before),
        most,
    )
    if last is None:
        return 0
    ((count,),) = await transaction.fetch("SELECT count(*) FROM sfn.event WHERE seq <= $1", last)
    await transaction.write([Run("DELETE FROM sfn.event WHERE seq <= $1", (last,))])
    return int(count)
