"""How notes come in: over the port to the database, the same for one put and for many at once."""

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
"""The notes of one call, and when it came."""


class AppliedNotification(NamedTuple):
    """What became of a hint.

    Attributes:
        new: it was not known.
        superseded: its subject had news waiting already.
        stirring: a row may have fallen due by it.
    """

    new: bool
    superseded: bool = False
    stirring: bool = False


class PutReply(NamedTuple):
    """What became of one put; `stirring` as of `Taken`."""

    accepted: PutResult
    stirring: bool


class PostgresWriter:
    """Takes notes in.

    Args:
        terms: settings.
    """

    def __init__(self, terms: InboxConfig) -> None:
        self._terms = terms

    async def put_all(self, unit: InboxTransaction, puts: Sequence[Put], also: set[JobKey]) -> list[PutReply]:
        """Several puts in one transaction.

        Args:
            also: more jobs to lock; extended by jobs that turn out to be needed.

        Raises:
            RetryTransaction: it has grown, or somebody made a row meanwhile.
        """
        noted = [(note, now) for notes, now in puts for note in notes if isinstance(note, Intent | IntentOutcome)]
        if noted:
            await intents.take(unit, noted)
        sheet = JobBatch(unit.rows)
        hints = [(note, now) for notes, now in puts for note in notes if isinstance(note, Notification)]
        numbers = await sheet.lock(self.subjects(hint for hint, _ in hints) | also, len(hints))
        answers = iter(await self.take(unit, sheet, hints, numbers))
        also |= sheet.lacking
        await sheet.write()
        odd = [(note, now) for notes, now in puts for note in notes if isinstance(note, UndecodableRequest)]
        if odd:
            await unit.letters.keep(odd)
        return [_summed([next(answers) for note in notes if isinstance(note, Notification)]) for notes, _ in puts]

    def subjects(self, hints: Iterable[Notification]) -> set[JobKey]:
        """Return the jobs that notifications may change; for event-only catalogs there may be more."""
        subjects: set[JobKey] = set()
        for hint in hints:
            subjects.add(hint.subject)
            if hint.subject.catalog in self._terms.event_only_catalogs:
                subjects.update(name for name in (hint.renamed_from, hint.renamed_to) if name is not None)
        return subjects

    async def take(
        self,
        unit: InboxTransaction,
        sheet: JobBatch,
        hints: Sequence[tuple[Notification, datetime]],
        numbers: Iterator[int],
    ) -> list[AppliedNotification]:
        """Log hints and have their rows changed, which are locked but not written yet.

        Args:
            numbers: one for each, drawn since the rows were locked.
        """
        if not hints:
            return []
        entries = [LoggedEvent(next(numbers), hint, now) for hint, now in hints]
        new = await unit.events.log(entries)
        return [self._fold(sheet, entry) if entry.seq in new else AppliedNotification(new=False) for entry in entries]

    def _fold(self, sheet: JobBatch, entry: LoggedEvent) -> AppliedNotification:
        seq, hint, now = entry
        superseded, stirring = has_unprocessed(sheet.load(hint.subject)), False
        for subject, row in jobs_after_notification(hint, seq, now, self._terms, sheet.load).items():
            stirring = stirring or makes_due(sheet.load(subject), row)
            sheet.save(subject, row)
        return AppliedNotification(new=True, superseded=superseded, stirring=stirring)


def _summed(taken: Sequence[AppliedNotification]) -> PutReply:
    new = sum(one.new for one in taken)
    accepted = PutResult(new, len(taken) - new, sum(one.superseded for one in taken))
    return PutReply(accepted, any(one.stirring for one in taken))
