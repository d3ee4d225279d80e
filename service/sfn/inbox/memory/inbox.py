"""All ports of the inbox in memory: queries and commands of operators, on top of the job queue."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime

import anyio.lowlevel

from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.intents import intent_stats_by_catalog
from sfn.inbox.memory.job_queue import MemoryJobQueue
from sfn.inbox.model import (
    RELEASE_BATCH_SIZE,
    AdminCommand,
    AuditEntry,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterStatus,
    Job,
    JobState,
    LastEvent,
    TableStatus,
    event_seq_of,
    stat_state,
    table_missing_since,
    to_table_status,
)
from sfn.inbox.statistics import (
    DropLimitState,
    MissingTableStats,
    QueueStats,
    catalogs_over_limit,
    earliest_by_catalog,
    without_old_names,
)
from sfn.inbox.transitions import on_release_hold, on_replay


class MemoryInbox(MemoryJobQueue):
    """An inbox in memory that implements all ports, for one event loop and one worker."""

    async def release(self, catalog: str, command: AdminCommand) -> int:
        self._tripped.discard(catalog)
        self._permits = {asked: permit for asked, permit in self._permits.items() if asked[0].catalog != catalog}
        entry, count = self._letters.note("release", command, 0), 0
        held = [subject for subject, row in self._rows.items() if subject.catalog == catalog and _is_held(row)]
        for start in range(0, len(held), RELEASE_BATCH_SIZE):
            for subject in held[start : start + RELEASE_BATCH_SIZE]:
                row = self._rows.get(subject)
                if row is not None and _is_held(row):
                    self._save(on_release_hold(row, command.at))
                    self._letters.close(subject, DeadLetterStatus.REPLAYED, command.at, command.actor)
                    count += 1
            self._letters.recount(entry, count)
            self._signal.notify()
            await anyio.lowlevel.checkpoint()
        return count

    async def stats(self) -> QueueStats:
        now = self._clock.now()
        rows = [row for row in self._rows.values() if isinstance(row.subject, TableIdentifier)]
        pending_jobs = [row for row in self._rows.values() if self._lane(row).is_event_driven]
        since = [(row.due_at, row) for row in pending_jobs if row.state is JobState.QUEUED]
        since += [(row.pending_since, row) for row in pending_jobs if row.pending_since is not None]
        overdue = sorted(((at, row.subject.catalog) for at, row in since if at <= now), reverse=True)
        oldest = earliest_by_catalog({catalog: at for at, catalog in overdue}, self._letters.oldest())
        counts = Counter((row.subject.catalog, stat_state(row)) for row in rows)
        tripped, intents = catalogs_over_limit(counts, self._tripped), intent_stats_by_catalog(self._intents.counts())
        return QueueStats(counts, oldest, self._letters.counts(), tripped, *intents, self._missing(rows))

    def _missing(self, rows: Sequence[Job]) -> dict[str, MissingTableStats]:
        since: dict[str, list[datetime]] = defaultdict(list)
        for row in rows:
            if (at := table_missing_since(row.table_state)) is not None:
                since[row.subject.catalog].append(at)
        return {catalog: MissingTableStats(len(times), min(times)) for catalog, times in since.items()}

    async def table_status(self, subject: JobKey) -> TableStatus | None:
        row = self._rows.get(subject)
        if row is None:
            return None
        event, intents = self._logged.get(event_seq_of(row)), self._intents.opened(subject)
        if event is None:
            return to_table_status(row, None, intents)
        notification, received_at = event
        return to_table_status(
            row, LastEvent(notification.sender, notification.event_id, received_at, notification.body), intents
        )

    async def drop_limit_state(self, catalog: str) -> DropLimitState:
        drops = self._drops(catalog)
        on, live = catalog in (await self.stats()).limit_reached, self._live_count(catalog)
        gone = {drop.name for drop in without_old_names(drops)} - self._live(catalog).keys()
        return DropLimitState(
            on, self._steps(catalog, drops), self._config.allowed_drops(catalog, live, len(gone)), live
        )

    async def audit_log(self, before: int | None, limit: int) -> list[AuditEntry]:
        found = [entry for entry in self._letters.audited if before is None or entry.id < before]
        return found[::-1][:limit]

    async def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        return [letter for letter in self._letters.find(letter_filter) if letter.id > after][:limit]

    async def list_newest(self, letter_filter: DeadLetterFilter, limit: int) -> list[DeadLetter]:
        return self._letters.find(letter_filter)[::-1][:limit]

    async def get_many(self, ids: Sequence[int]) -> list[DeadLetter]:
        return self._letters.numbered(ids)

    async def request_of(self, letter_id: int) -> UndecodableRequest | None:
        return self._letters.event(letter_id)

    async def replay(self, ids: Sequence[int], notifications: Sequence[Notification], command: AdminCommand) -> int:
        count = 0
        for letter in self._letters.numbered(ids):
            if self._letters.end(letter.id, DeadLetterStatus.REPLAYED, command.at, command.actor):
                count += 1
                if letter.subject is not None:
                    row = self._rows.get(letter.subject) or Job(letter.subject, command.at)
                    self._save(on_replay(row, command.at))
        await self.put(notifications)
        self._letters.note("replay", command, count)
        return count

    async def discard(self, ids: Sequence[int], command: AdminCommand) -> int:
        count = sum(
            self._letters.end(number, DeadLetterStatus.DISCARDED, command.at, command.actor) for number in set(ids)
        )
        self._letters.note("discard", command, count)
        return count

    async def reconcile(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        await self.put(notifications)
        self._letters.note("reconcile", command, len(notifications))

    async def adopt(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        await self.put(notifications)
        self._letters.note("adopt", command, len(notifications))

    async def retire(self, catalog: str, *, retired: bool, command: AdminCommand) -> None:
        (self._retired.add if retired else self._retired.discard)(catalog)
        self._letters.note("retire" if retired else "unretire", command, 1)

    async def owner_id(self, catalog: str) -> str | None:
        return self._owners.get(catalog)

    async def record_owner(self, catalog: str, catalog_id: str) -> None:
        self._owners[catalog] = catalog_id

    async def retired_catalogs(self) -> frozenset[str]:
        return frozenset(self._retired)


def _is_held(row: Job) -> bool:
    return row.reason is DeadLetterReason.HELD_DROP
