"""Queries and commands of operators over the port to the database; every operation is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.intents import intent_stats_by_catalog
from sfn.inbox.maintenance import CommandProgress
from sfn.inbox.model import (
    RELEASE_BATCH_SIZE,
    AdminCommand,
    DeadLetterStatus,
    InboxConfig,
    Job,
    TableStatus,
    event_seq_of,
    to_table_status,
)
from sfn.inbox.postgres.apply_puts import PostgresWriter
from sfn.inbox.postgres.job_batch import JobBatch
from sfn.inbox.postgres.transaction import InboxTransaction, Locking
from sfn.inbox.statistics import (
    DropLimitState,
    QueueStats,
    catalogs_over_limit,
    counted_steps,
    earliest_by_catalog,
    without_old_names,
)
from sfn.inbox.transitions import on_release_hold, on_replay


class PostgresAdmin:
    """The queries and commands of operators.

    Args:
        config: the configuration of the inbox.
        writer: puts their notifications.
    """

    def __init__(self, config: InboxConfig, writer: PostgresWriter) -> None:
        self._config, self._writer = config, writer

    async def stats(self, unit: InboxTransaction, now: datetime) -> QueueStats:
        """Return the statistics of the inbox; reads every job."""
        tables = await unit.table_index.counts()
        oldest = earliest_by_catalog(await unit.table_index.oldest(now), await unit.letters.oldest())
        letters = await unit.letters.counts()
        tripped, intents = catalogs_over_limit(tables, await unit.catalogs.tripped()), await unit.intents.counts()
        return QueueStats(
            tables, oldest, letters, tripped, *intent_stats_by_catalog(intents), await unit.table_index.missing()
        )

    async def table_status(self, unit: InboxTransaction, subject: JobKey) -> TableStatus | None:
        batch = JobBatch(unit.rows)
        await batch.take((await unit.rows.get({subject}, Locking.NONE)).rows.values(), memos=True)
        row = batch.load(subject)
        if row is None:
            return None
        return to_table_status(row, await unit.events.last(event_seq_of(row)), await unit.intents.of(subject))

    async def drop_limit_state(self, unit: InboxTransaction, catalog: str, now: datetime) -> DropLimitState:
        on = catalog in await unit.catalogs.tripped() or await unit.table_index.is_any_held(catalog)
        since = now - self._config.drop_limit_window
        steps, live = await unit.catalogs.count_steps(catalog, since), await unit.table_index.live_count(catalog)
        drops = await unit.catalogs.drops(catalog, since)
        dropped = await unit.table_index.without_file({drop.name for drop in without_old_names(drops)})
        return DropLimitState(on, counted_steps(steps, drops), self._config.allowed_drops(catalog, live, dropped), live)

    async def replay(
        self,
        unit: InboxTransaction,
        ids: Sequence[int],
        notifications: Sequence[Notification],
        command: AdminCommand,
        also: set[JobKey],
    ) -> int:
        """Replay dead letters, see `DeadLetters.replay`.

        Args:
            also: more jobs to lock; extended by jobs that turn out to be needed.
        """
        letters = await unit.letters.get_many(ids)
        named = {letter.subject for letter in letters if letter.subject is not None}
        batch = JobBatch(unit.rows)
        drawn = await batch.lock(named | self._writer.subjects(notifications) | also, len(notifications), memos=True)
        # Close the letters only now: a transaction that closed one before does not have its job locked any more.
        ended = await unit.letters.end(ids, DeadLetterStatus.REPLAYED, command.at, command.actor)
        for subject in ended:
            if subject is not None:
                batch.save(subject, on_replay(batch.load(subject) or Job(subject, command.at), command.at))
        await self._writer.take(unit, batch, [(notification, command.at) for notification in notifications], drawn)
        also |= batch.lacking
        await batch.write()
        await unit.letters.note("replay", command, len(ended))
        return len(ended)

    async def discard(self, unit: InboxTransaction, ids: Sequence[int], command: AdminCommand) -> int:
        count = len(await unit.letters.end(ids, DeadLetterStatus.DISCARDED, command.at, command.actor))
        await unit.letters.note("discard", command, count)
        return count

    async def release(
        self, unit: InboxTransaction, catalog: str, command: AdminCommand, before: CommandProgress | None = None
    ) -> CommandProgress:
        """Release the next batch, see `DropLimit.release`.

        Args:
            before: the result of the last batch; None for the first batch.
        """
        after = before.last_key if before is not None else ""
        held = await unit.table_index.held(catalog, after, RELEASE_BATCH_SIZE)
        batch = JobBatch(unit.rows)
        await batch.lock([subject for _, subject in held])
        rows = [row for row in batch.rows() if row.reason is DeadLetterReason.HELD_DROP]
        for row in rows:
            batch.save(row.subject, on_release_hold(row, command.at))
        await batch.write()
        if rows:
            await unit.letters.close(
                {row.subject: command.at for row in rows}, DeadLetterStatus.REPLAYED, command.actor
            )
        if before is None:
            await unit.catalogs.trip(catalog, tripped=False)
            await unit.catalogs.forget_steps(catalog)
            before = CommandProgress(await unit.letters.note("release", command, 0))
        count = before.count + len(rows)
        await unit.letters.recount(before.audit_id, count)
        return CommandProgress(
            before.audit_id, count, held[-1][0] if held else after, has_more=len(held) == RELEASE_BATCH_SIZE
        )

    async def notify(
        self,
        unit: InboxTransaction,
        action: str,
        notifications: Sequence[Notification],
        order: AdminCommand,
        also: set[JobKey],
    ) -> None:
        """Put the notifications of `CatalogAdmin.reconcile` or `CatalogAdmin.adopt`, with an audit entry."""
        await self._writer.put_all(unit, [(notifications, order.at)], also)
        await unit.letters.note(action, order, len(notifications))

    async def retire(self, unit: InboxTransaction, catalog: str, command: AdminCommand, *, retired: bool) -> None:
        await unit.catalogs.retire(catalog, retired=retired)
        await unit.letters.note("retire" if retired else "unretire", command, 1)
