"""Calls to a file system that change nothing, in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sfn.concurrency import AbandonableThreads, IsAbandoned, TimedOut
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, SfnError, Transient

T = TypeVar("T")


class BlockingFiles(Protocol):
    """What is looked at."""

    def read_all(self, keys: Sequence[str]) -> Sequence[StoredObject | None] | SfnError:
        """As `read` of each, or why that can't be."""
        ...


@dataclass(frozen=True, slots=True)
class BlockingReads:
    """Knows of no store: one that is let go of takes its threads with it at once.

    Attributes:
        files: what is looked at.
        threads: where.
        limit: seconds that the file system has for one call.
    """

    files: BlockingFiles
    threads: AbandonableThreads
    limit: float

    async def run(self, name: str, call: Callable[[IsAbandoned], T]) -> T:
        """What a look gives.

        Args:
            name: what it does to what.

        Raises:
            Transient: scope store; the file system does not answer.
        """
        answer = await self.threads.run(name, call)
        if isinstance(answer, TimedOut):
            raise no_answer_error(Transient, name, self.limit)
        return answer

    async def run_batch(self, requested: Sequence[Sequence[str]]) -> Sequence[Sequence[StoredObject | None] | SfnError]:
        """The files of several who ask, in one call; raises as `at`."""
        name = f"read {requested[0][0]} and others"
        return await self.run(name, lambda _: [self.files.read_all(keys) for keys in requested])


def no_answer_error(kind: type[Transient], name: str, limit: float) -> Transient:
    """The trouble of a file system that does not answer."""
    return kind(
        name,
        scope=ErrorScope.STORE,
        expected=f"an answer of the file system within {limit:g} s",
        found="none",
        remedy="see whether its mount hangs: its server may be gone",
    )
