"""The jobs of one transaction: read at once, changed in memory, written at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from sfn.domain.identifiers import JobKey
from sfn.inbox.model import Job
from sfn.inbox.postgres.transaction import JobChange, JobStore, Locking, RetryTransaction


class JobBatch:
    """Jobs in memory, from their locks to the end of their transaction.

    Attributes:
        lacking: subjects that were loaded without a lock; if there are any, nothing must be written.
    """

    def __init__(self, rows: JobStore) -> None:
        self._rows = rows
        self._before: dict[JobKey, Job | None] = {}
        self._after: dict[JobKey, Job | None] = {}
        self.lacking: set[JobKey] = set()

    async def lock(self, subjects: Collection[JobKey], numbers: int = 0, *, memos: bool = False) -> Iterator[int]:
        """Lock all jobs that the transaction may need, once, and draw new numbers for their changes.

        Args:
            memos: read the caches of the jobs too, because a change may drop them.
        """
        if not subjects:
            return iter(())
        found = await self._rows.get(subjects, Locking.WAIT, numbers)
        self._before |= dict.fromkeys(subjects)
        await self.take(found.rows.values(), memos=memos)
        return iter(found.numbers)

    async def lock_free(self, subjects: Collection[JobKey], numbers: int) -> tuple[set[JobKey], Iterator[int]]:
        """Lock jobs as `lock` does, without waiting; return the skipped jobs, which another transaction has."""
        there = (await self._rows.get(subjects, Locking.NONE)).rows
        found = await self._rows.get(subjects, Locking.SKIP, numbers)
        self._before |= dict.fromkeys(subject for subject in subjects if subject not in there)
        await self.take(found.rows.values())
        return there.keys() - found.rows.keys(), iter(found.numbers)

    async def take(self, rows: Iterable[Job], *, memos: bool = False) -> list[Job]:
        """Add locked jobs, with their caches if `memos`; return them."""
        found = {row.subject: row for row in rows}
        known: Mapping[JobKey, object] = await self._rows.memos(found) if memos and found else {}
        taken = [replace(row, cache=known[name]) if name in known else row for name, row in found.items()]
        self._before |= {row.subject: row for row in taken}
        return taken

    def load(self, subject: JobKey) -> Job | None:
        """Return a job with its changes; for a job that was not locked, None is only a guess."""
        if subject in self._after:
            return self._after[subject]
        if subject not in self._before:
            self.lacking.add(subject)
            return None
        return self._before[subject]

    def has(self, subject: JobKey) -> bool:
        """Return whether a job was locked and exists."""
        return self._before.get(subject) is not None

    def rows(self) -> list[Job]:
        """Return all locked jobs that exist, with their changes."""
        now = {**self._before, **self._after}
        return [row for row in now.values() if row is not None]

    def save(self, subject: JobKey, row: Job | None) -> None:
        """Change a job; None deletes it."""
        self._after[subject] = row

    def remind(self, row: Job) -> Job:
        """Replace the loaded state of a job by a more complete one; this is no change."""
        self._before[row.subject] = row
        return row

    async def write(self) -> None:
        """Write the changes.

        Raises:
            RetryTransaction: more jobs are needed than were locked, or one was inserted meanwhile.
        """
        if self.lacking:
            raise RetryTransaction
        changes = [JobChange(self._before[subject], row) for subject, row in self._after.items()]
        self._before |= self._after
        self._after = {}
        changes = [change for change in changes if change.after is not change.before]
        if changes:
            await self._rows.save(changes)
