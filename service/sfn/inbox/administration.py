"""Queries and commands of operators, and the pruning of old records; each runs in one transaction.

A command folds first: everything that was accepted before it is applied before it. A command that finds more records
than one transaction folds returns None, after it has folded some; the caller runs it again.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import anyio

from sfn.domain.events import Notification, TableReport
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.inbox import DropLimitState, QueueStats, catalogs
from sfn.inbox.intents import intent_stats, intents_of
from sfn.inbox.jobs import counts_by_state, held_keys, missing_tables, oldest_due
from sfn.inbox.letters import (
    add_audit_entry,
    end,
    letter_counts,
    letters_with_ids,
    oldest_letters,
)
from sfn.inbox.model import (
    RELEASE_BATCH_SIZE,
    AdminCommand,
    DeadLetterStatus,
    Job,
    LastEvent,
    TableStatus,
    to_table_status,
)
from sfn.inbox.operations import Operations
from sfn.inbox.records import decode_record, encode_key, encode_message, from_micros, from_micros_or_none, to_micros
from sfn.inbox.transaction import Run, Transaction
from sfn.inbox.transitions import on_release_hold, on_replay

PRUNE_BATCH_SIZE: Final = 500
"""Records, or dead letters, that are deleted at a time: few, because appends wait meanwhile in SQLite."""


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


class Administration:
    """The operations that operators need.

    Args:
        operations: the operations of the same process.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def stats(self, transaction: Transaction, now: datetime) -> QueueStats:
        """Return the statistics of the inbox; reads an entry of an index for every job."""
        tables, oldest = await counts_by_state(transaction), await oldest_due(transaction, now)
        for catalog, at in (await oldest_letters(transaction)).items():
            oldest[catalog] = min(at, oldest.get(catalog, at))
        # A sweep that finds too many tables missing holds them without counting steps.
        holding = frozenset(catalog for catalog, state in tables if state == "held")
        intents = await intent_stats(transaction)
        ((unapplied, since),) = await transaction.fetch("SELECT count(*), min(received_at) FROM sfn.pending")
        return QueueStats(
            tables=tables,
            oldest_due=oldest,
            dead_letters=await letter_counts(transaction),
            limit_reached=holding | await catalogs.catalogs_with_reached_limit(transaction),
            open_intents={catalog: one.count for catalog, one in intents.items()},
            oldest_intent={catalog: one.since for catalog, one in intents.items()},
            missing=await missing_tables(transaction),
            unapplied=unapplied,
            oldest_unapplied=from_micros_or_none(since),
        )

    async def table_status(self, transaction: Transaction, subject: JobKey) -> TableStatus | None:
        """Return the state of a job, and how many accepted events are not part of it yet; None if there is none."""
        unit = await self._operations.unfolded(transaction, ())
        await unit.jobs.load([subject], caches=True)
        job = unit.jobs.get(subject)
        ((unapplied, since),) = await transaction.fetch(
            # One search for each record that waits; a join may read the whole log instead.
            "SELECT count(*), min(received_at) FROM sfn.pending AS pending "
            "WHERE (SELECT event.key FROM sfn.event AS event WHERE event.seq = pending.seq) = $1",
            encode_key(subject),
        )
        if job is None:
            return to_table_status(Job(subject, from_micros(since)), None, None, unapplied) if unapplied else None
        return to_table_status(
            job, await self._event(transaction, job.event_seq), await intents_of(transaction, subject), unapplied
        )

    async def reported_tables(self, transaction: Transaction, table: TableIdentifier) -> tuple[TableReport, ...]:
        """Return the tables that events reported under a name of an event-only catalog."""
        unit = await self._operations.unfolded(transaction, [table])
        job = unit.jobs.get(table)
        return job.table_state.reported if job is not None else ()

    async def drop_limit_state(self, transaction: Transaction, catalog: str, now: datetime) -> DropLimitState:
        """Return the state of a catalog's drop limit."""
        return await catalogs.drop_limit_state(transaction, catalog, self._operations.config, now)

    async def replay(
        self, transaction: Transaction, ids: Sequence[int], notifications: Sequence[Notification], command: AdminCommand
    ) -> int | None:
        """Queue the subjects of open dead letters and close the letters, see `sfn.inbox.DeadLetters.replay`."""
        letters = await letters_with_ids(transaction, ids)
        named = {letter.subject for letter in letters if letter.subject is not None}
        unit = await self._operations.folded(transaction, named)
        self._operations.other_folds.append(unit.fold)
        if unit.fold.has_more:
            await unit.write()
            return None
        ended = await end(transaction, ids, DeadLetterStatus.REPLAYED, command)
        for subject in ended:
            if subject is not None:
                unit.jobs.save(on_replay(unit.jobs.get(subject) or Job(subject, command.at), command.at))
        await unit.write()
        await self._append(transaction, notifications, command)
        await add_audit_entry(transaction, "replay", command, len(ended))
        return len(ended)

    async def discard(self, transaction: Transaction, ids: Sequence[int], command: AdminCommand) -> int | None:
        """Close open dead letters and return their number; their subjects do not change."""
        if await self._fold(transaction):
            return None
        count = len(await end(transaction, ids, DeadLetterStatus.DISCARDED, command))
        await add_audit_entry(transaction, "discard", command, count)
        return count

    async def release(
        self, transaction: Transaction, catalog: str, command: AdminCommand, before: CommandProgress | None
    ) -> CommandProgress | None:
        """Release the first batch of held jobs, or the one after `before`, see `sfn.inbox.DropLimit.release`."""
        if await self._fold(transaction):
            return None
        unit = await self._operations.unfolded(transaction, ())
        after = before.last_key if before is not None else ""
        found = await held_keys(transaction, catalog, after, RELEASE_BATCH_SIZE)
        held = unit.jobs.take([row[1:] for row in found])
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
        last_key = found[-1][0] if found else after
        return CommandProgress(audit_id, count, last_key, has_more=len(found) == RELEASE_BATCH_SIZE)

    async def notify(
        self, transaction: Transaction, action: str, notifications: Sequence[Notification], command: AdminCommand
    ) -> bool | None:
        """Notify subjects for `CatalogAdmin.reconcile` or `CatalogAdmin.adopt`; return True."""
        if await self._fold(transaction):
            return None
        await self._append(transaction, notifications, command)
        await add_audit_entry(transaction, action, command, len(notifications))
        return True

    async def retire(self, transaction: Transaction, catalog: str, command: AdminCommand, *, retired: bool) -> None:
        """Record whether a catalog is retired."""
        await transaction.write([catalogs.set_columns(catalog, is_retired=retired)])
        await add_audit_entry(transaction, "retire" if retired else "unretire", command, 1)

    async def _fold(self, transaction: Transaction) -> bool:
        """Fold the oldest records; return True if there are more."""
        fold = await self._operations.fold(transaction)
        self._operations.other_folds.append(fold)
        return fold.has_more

    async def _append(
        self, transaction: Transaction, notifications: Sequence[Notification], command: AdminCommand
    ) -> None:
        """Accept notifications as if they had arrived now, and fold them."""
        if notifications:
            await transaction.append([encode_message(one, to_micros(command.at)) for one in notifications])
            while await self._fold(transaction):
                pass

    async def _event(self, transaction: Transaction, seq: int) -> LastEvent | None:
        """Return the event with a number in the log; None if it was pruned."""
        found = await transaction.fetch("SELECT kind, received_at, record FROM sfn.event WHERE seq = $1", seq)
        message = decode_record(seq, *found[0]).message if found else None
        if not isinstance(message, Notification):
            return None
        return LastEvent(message.sender, message.event_id, from_micros(found[0][1]), message.body)


async def prune_events(transaction: Transaction, before: datetime, most: int = PRUNE_BATCH_SIZE) -> int:
    """Delete at most `most` of the oldest records, folded ones from before a time; return their number.

    They are deleted in the order of their numbers, because the wall clock may have been set back in between.
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


MAX_STATS_SHARE: Final = 20
"""The database counts for at most one of this many seconds."""
STATS_WANTED: Final = 300.0
"""Seconds after the last read until the cache is not refreshed any more: most scrapers read more often."""


class CachedStats:
    """A cache of the statistics, a few seconds old, because counting reads all jobs.

    Args:
        count: counts.
        max_age: greatest age in seconds; longer if counting takes long.
    """

    def __init__(self, count: Callable[[], Awaitable[QueueStats]], max_age: float) -> None:
        self._count, self._max_age = count, max_age
        self._stats: QueueStats | None = None
        self._begun_at = self._due_at = self._pause = 0.0
        self._asked_at = -math.inf
        self._counting = anyio.Lock()

    async def __call__(self) -> QueueStats:
        """Return the statistics; the first call, and a call after a long pause, waits until they are counted."""
        self._asked_at = now = anyio.current_time()
        # Twice the pause: a reader must not wait, and `refresh` may.
        if self._stats is None or now >= self._due_at + self._pause:
            return await self._counted()
        return self._stats

    async def refresh(self) -> None:
        """Count the statistics if they are due and were read recently, also if the first reader stopped waiting."""
        now = anyio.current_time()
        if self._due_at <= now < self._asked_at + STATS_WANTED:
            await self._counted()

    async def _counted(self) -> QueueStats:
        asked_at = anyio.current_time()
        async with self._counting:
            if self._stats is None or self._begun_at < asked_at:
                self._begun_at = anyio.current_time()
                self._stats = await self._count()
                ended_at = anyio.current_time()
                self._pause = (
                    max(self._max_age, MAX_STATS_SHARE * (ended_at - self._begun_at)) if self._max_age else 0.0
                )
                self._due_at = ended_at + self._pause
            return self._stats
