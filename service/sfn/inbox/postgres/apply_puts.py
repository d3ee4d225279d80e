"""Puts, over the port to the database: one or many in a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from sfn.domain.events import InboxMessage, Intent, IntentOutcome, Notification, PutResult, UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.inbox.model import InboxConfig, has_unprocessed
from sfn.inbox.postgres import intents
from sfn.inbox.postgres.job_batch import JobBatch
from sfn.inbox.postgres.transaction import InboxTransaction, LoggedEvent
from sfn.inbox.scheduling import makes_due
from sfn.inbox.transitions import jobs_after_notification

Put: TypeAlias = tuple[Sequence[InboxMessage], datetime]
"""The messages of one call, and its time."""


class AppliedNotification(NamedTuple):
    """The result of one notification.

    Attributes:
        new: True if it was not known.
        superseded: True if its subject had an unprocessed change already.
        may_make_due: True if a job may have become due.
    """

    new: bool
    superseded: bool = False
    may_make_due: bool = False


class PutReply(NamedTuple):
    """The result of one put; `may_make_due` as in `AppliedNotification`."""

    accepted: PutResult
    may_make_due: bool


class PostgresWriter:
    """The operations of receivers.

    Args:
        config: the configuration of the inbox.
    """

    def __init__(self, config: InboxConfig) -> None:
        self._config = config

    async def put_all(self, unit: InboxTransaction, puts: Sequence[Put], also: set[JobKey]) -> list[PutReply]:
        """Run several puts in one transaction.

        Args:
            also: more jobs to lock; extended by jobs that turn out to be needed.

        Raises:
            RetryTransaction: `also` has grown, or another transaction inserted a job meanwhile.
        """
        noted = [(note, now) for notes, now in puts for note in notes if isinstance(note, Intent | IntentOutcome)]
        if noted:
            await intents.take(unit, noted)
        batch = JobBatch(unit.rows)
        notifications = [(note, now) for notes, now in puts for note in notes if isinstance(note, Notification)]
        numbers = await batch.lock(
            self.subjects(notification for notification, _ in notifications) | also, len(notifications)
        )
        answers = iter(await self.take(unit, batch, notifications, numbers))
        also |= batch.lacking
        await batch.write()
        odd = [(note, now) for notes, now in puts for note in notes if isinstance(note, UndecodableRequest)]
        if odd:
            await unit.letters.keep(odd)
        return [_summed([next(answers) for note in notes if isinstance(note, Notification)]) for notes, _ in puts]

    def subjects(self, notifications: Iterable[Notification]) -> set[JobKey]:
        """Return the jobs that notifications may change; for event-only catalogs there may be more."""
        subjects: set[JobKey] = set()
        for notification in notifications:
            subjects.add(notification.subject)
            if notification.subject.catalog in self._config.event_only_catalogs:
                subjects.update(
                    name for name in (notification.renamed_from, notification.renamed_to) if name is not None
                )
        return subjects

    async def take(
        self,
        unit: InboxTransaction,
        batch: JobBatch,
        notifications: Sequence[tuple[Notification, datetime]],
        numbers: Iterator[int],
    ) -> list[AppliedNotification]:
        """Log notifications and change their jobs, which are locked; the changes are not written yet.

        Args:
            numbers: one for each notification, drawn after the jobs were locked.
        """
        if not notifications:
            return []
        entries = [LoggedEvent(next(numbers), notification, now) for notification, now in notifications]
        new = await unit.events.log(entries)
        return [self._fold(batch, entry) if entry.seq in new else AppliedNotification(new=False) for entry in entries]

    def _fold(self, batch: JobBatch, entry: LoggedEvent) -> AppliedNotification:
        seq, notification, now = entry
        superseded, may_make_due = has_unprocessed(batch.load(notification.subject)), False
        for subject, row in jobs_after_notification(notification, seq, now, self._config, batch.load).items():
            may_make_due = may_make_due or makes_due(batch.load(subject), row)
            batch.save(subject, row)
        return AppliedNotification(new=True, superseded=superseded, may_make_due=may_make_due)


def _summed(taken: Sequence[AppliedNotification]) -> PutReply:
    new = sum(one.new for one in taken)
    accepted = PutResult(new, len(taken) - new, sum(one.superseded for one in taken))
    return PutReply(accepted, any(one.may_make_due for one in taken))
