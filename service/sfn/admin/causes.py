"""`CauseCounter`: dead letters by cause. The cause is a part of the detail of a letter, so no database can count it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import anyio
import anyio.lowlevel

from sfn.admin.remedies import remedy_for
from sfn.admin.schemas import MAX_BATCH, DeadLetterCause, DeadLetterCauses, DeadLetterCauseSearch, DeadLetterModel
from sfn.inbox.inbox import Inbox
from sfn.inbox.model import DeadLetter, DeadLetterFilter

MAX_COUNTED: Final = 20_000
"""The most letters that are read to count them by cause: the newest."""
_MIN_AGE: Final = 1.0
"""Seconds for which a count is not repeated; longer if counting takes long."""
_MAX_SHARE: Final = 20
"""Counting takes at most one part in this many of the time."""
_MAX_CACHED: Final = 32
"""The most searches with a cached count."""

ToFilter = Callable[[DeadLetterCauseSearch], Awaitable[DeadLetterFilter]]
"""Return the filter of a search; raise `HTTPException` for an unknown catalog."""


@dataclass(slots=True)
class _Count:
    """A cached count, valid until `due_at` on the clock of the event loop."""

    causes: DeadLetterCauses
    due_at: float


class CauseCounter:
    """Counts dead letters by cause, and caches each count for a few seconds.

    Args:
        inbox: the inbox.
        to_filter: returns the filter of a search.
    """

    def __init__(self, inbox: Inbox, to_filter: ToFilter) -> None:
        self._inbox, self._to_filter = inbox, to_filter
        self._cached: dict[DeadLetterCauseSearch, _Count] = {}
        self._counting = anyio.Lock()

    def clear(self) -> None:
        """Forget the cached counts, because letters were replayed or discarded."""
        self._cached.clear()

    async def count(self, search: DeadLetterCauseSearch) -> DeadLetterCauses:
        """Return the letters that match, by cause."""
        # One count at a time: readers that ask for the same letters meanwhile get its result.
        async with self._counting:
            cached = self._cached.get(search)
            if cached is not None and anyio.current_time() < cached.due_at:
                return cached.causes
            began_at = anyio.current_time()
            causes = await self._count(search)
            ended_at = anyio.current_time()
            while len(self._cached) >= _MAX_CACHED:
                del self._cached[next(iter(self._cached))]
            self._cached[search] = _Count(causes, ended_at + max(_MIN_AGE, _MAX_SHARE * (ended_at - began_at)))
            return causes

    async def _count(self, search: DeadLetterCauseSearch) -> DeadLetterCauses:
        groups: dict[tuple[str, str], _Group] = {}
        total = read = 0
        has_more = False
        async for batch in self._batches(await self._to_filter(search)):
            if read >= MAX_COUNTED:
                has_more = True
                break
            read += len(batch)
            for letter in batch:
                cause = letter.cause
                if not search.matches_cause(cause):
                    continue
                total += 1
                group = groups.get((letter.reason.value, cause))
                if group is None:
                    groups[letter.reason.value, cause] = _Group(letter, letter)
                else:
                    group.count, group.oldest = group.count + 1, letter
            # Reading the causes of a batch takes milliseconds, so other requests get a turn in between.
            await anyio.lowlevel.checkpoint()
        found = sorted((group.to_model(cause) for (_, cause), group in groups.items()), key=_most_frequent)
        return DeadLetterCauses(causes=found, letters=total, has_more=has_more)

    async def _batches(self, letter_filter: DeadLetterFilter) -> AsyncIterator[Sequence[DeadLetter]]:
        """Yield the letters that match, the newest first."""
        batch = await self._inbox.list_newest(letter_filter, MAX_BATCH)
        while batch:
            yield batch
            if len(batch) < MAX_BATCH:
                return
            batch = await self._inbox.list_newest(replace(letter_filter, id_below=batch[-1].id), MAX_BATCH)


@dataclass(slots=True)
class _Group:
    """Letters with one cause, while they are counted from the newest to the oldest."""

    newest: DeadLetter
    oldest: DeadLetter
    count: int = 1

    def to_model(self, cause: str) -> DeadLetterCause:
        example = DeadLetterModel.from_letter(self.oldest)
        return DeadLetterCause(
            reason=self.oldest.reason,
            cause=cause,
            count=self.count,
            opened_at=self.oldest.opened_at,
            newest_at=self.newest.opened_at,
            example=self.oldest.id,
            about=example.table or example.catalog or example.sender,
            remedy=remedy_for(example),
        )


def _most_frequent(one: DeadLetterCause) -> tuple[int, int]:
    return -one.count, one.example
