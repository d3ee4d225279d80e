"""What must be so of every transaction of a shared inbox: who may have a job when, and what a fold does."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, JobKey
from sfn.inbox.model import Job, JobState
from sfn.inbox.schema import JOB, decode_job, decode_record, encode_key
from sfn.inbox.sqlite_writer import SqliteTransaction
from sfn.inbox.transaction import Change, Update, Upsert
from tests.simulation.loop import SimulatedLoop

if TYPE_CHECKING:
    from tests.simulation.node import Node

SKEW: Final = timedelta(seconds=1)
"""Between the clocks of two processes, at most."""

_DELETED: Final = "DELETE FROM sfn.job WHERE key"


class WatchedTransaction(SqliteTransaction):
    """A transaction that remembers how the jobs were that it changes, and what it folds."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(db)
        self._before: dict[str, Job | None] = {}
        self.seqs: list[int] = []

    @override
    async def write(self, changes: Sequence[Change]) -> None:
        for key in _changed_keys(changes):
            if key not in self._before:
                self._before[key] = self.job(key)
        await super().write(changes)

    @override
    def folded(self, seqs: Sequence[int]) -> Change:
        self.seqs += seqs
        return super().folded(seqs)

    def job(self, key: str) -> Job | None:
        """A job as it is now, without its cache."""
        found = self.db.execute("SELECT record FROM job WHERE key = ?", (key,)).fetchall()
        return decode_job(found[0][0]) if found else None

    def changed(self) -> Iterator[tuple[Job | None, Job | None]]:
        """The changed jobs as they were and as they are now."""
        for key, before in self._before.items():
            yield before, self.job(key)

    def before(self, subject: JobKey) -> Job | None:
        """A job as it was; one that was not changed as it is."""
        key = encode_key(subject)
        return self._before[key] if key in self._before else self.job(key)

    def notifications(self) -> Iterator[tuple[int, Notification]]:
        """The folded notifications, by their numbers in the log."""
        for seq in self.seqs:
            found = self.db.execute("SELECT kind, received_at, record FROM event WHERE seq = ?", (seq,)).fetchall()
            message = decode_record(seq, *found[0]).message if found else None
            if isinstance(message, Notification):
                yield seq, message

    def forget(self) -> None:
        """The transaction ended."""
        self._before, self.seqs = {}, []


def _changed_keys(changes: Iterable[Change]) -> Iterator[str]:
    for change in changes:
        if isinstance(change, Upsert | Update):
            if change.table is JOB:
                yield from (row[0] for row in change.rows)
        elif change.text.startswith(_DELETED) and isinstance(change.values[0], list):
            yield from change.values[0]


@dataclass(frozen=True, slots=True)
class Granted:
    """A claim that was made.

    Attributes:
        node: by which process; None for none of the service's.
        at: seconds since the world began.
    """

    node: Node | None
    at: float


class Rules:
    """Looks at each transaction once it is committed, and at each sweep as it begins.

    Args:
        catalog: name of the catalog.
        loop: time.
        blame: called with the kind and the details of what must not be.
    """

    def __init__(self, catalog: str, loop: SimulatedLoop, blame: Callable[[str, str], None]) -> None:
        self._catalog, self._loop, self._blame = catalog, loop, blame
        self._granted: dict[tuple[JobKey, int], Granted] = {}

    def committed(self, node: Node | None, transaction: WatchedTransaction) -> None:
        """A transaction of a process, or of an operator, was committed."""
        for before, after in transaction.changed():
            if before is not None and before.state is JobState.LEASED and _changes_hands(before, after):
                self._see_it_may(node, before)
            if after is not None and after.state is JobState.LEASED and not _is_same_claim(before, after):
                claim = after.subject, after.fencing_token
                if claim in self._granted:
                    self._blame("a claim that was made before", f"{after.subject} {after.fencing_token}")
                self._granted[claim] = Granted(node, self._loop.time())
        self._see_all_is_applied(transaction)
        transaction.forget()

    def restarted(self) -> None:
        """No process that was given a claim lives, and what they were given may be forgotten."""
        self._granted.clear()

    def claims(self, subject: JobKey) -> list[Granted]:
        """The claims of a job that were made, in order."""
        return [granted for (other, _), granted in self._granted.items() if other == subject]

    def sweeping(self, node: Node) -> None:
        """A process begins a sweep: the claim that it has must be committed, and must be its own."""
        if not node.alive:
            return
        name = CatalogName(self._catalog)
        (claim,) = (one for one in node.worker._leases.running() if one.subject == name)
        granted = self._granted.get((name, claim.fencing_token))
        if granted is None or granted.node is not node:
            self._blame("a sweep out of turn", f"claim {claim.fencing_token} of {name} is not committed")

    def _see_it_may(self, node: Node | None, before: Job) -> None:
        """Who has it ends or prolongs it, or it ran out, or an operator wants it."""
        granted = self._granted.get((before.subject, before.fencing_token))
        is_its_own = granted is not None and granted.node is node
        ran_out = before.lease_until is None or before.lease_until <= self._loop.now() + SKEW
        if not is_its_own and not ran_out and node is not None:
            self._blame("a lease of another one was changed", f"{before.subject} until {before.lease_until}")

    def _see_all_is_applied(self, transaction: WatchedTransaction) -> None:
        """Each notification is applied once, those of one fold in the order of their numbers."""
        if transaction.seqs != sorted(set(transaction.seqs)):
            self._blame("folded out of order", f"{transaction.seqs}")
        applied: dict[JobKey, int] = {}
        for seq, notification in transaction.notifications():
            subject = notification.subject
            applied[subject] = applied.get(subject, 0) + 1
            before, after = transaction.before(subject), transaction.job(encode_key(subject))
            version = before.version if before is not None else 0
            if after is None or after.event_seq < seq or after.version < version + applied[subject]:
                self._blame("folded and not applied", f"{seq} of {subject}")


def _is_same_claim(before: Job | None, after: Job) -> bool:
    """Whether a job was leased before by the claim that has it now."""
    return before is not None and before.state is JobState.LEASED and before.fencing_token == after.fencing_token


def _changes_hands(before: Job, after: Job | None) -> bool:
    """Whether a lease ends, or lasts longer than it did."""
    if after is None or after.state is not JobState.LEASED or after.fencing_token != before.fencing_token:
        return True
    return after.lease_until != before.lease_until
