"""The ports to the inbox: the durable list of what to look at, one row a subject, and the log of events.

States of a row, and who moves it:

    queued(due_at)  put, settle     waits for its time
    leased          claim           a worker has it; the attempt is already counted
    dead            settle          waits for a new event or an operator
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sfn.domain.events import EventHistory, InboxMessage, Notification, PutResult, UndecodableRequest
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import BackwardStep, Capacity, IndexedTable, LeasedJob, Outcome
from sfn.inbox.model import AdminCommand, AuditEntry, DeadLetter, DeadLetterFilter, NewDeadLetter, TableStatus
from sfn.inbox.statistics import DropLimitState, QueueStats

# ── inbox: The ports to the inbox


class InboxWriter(Protocol):
    """For the receiver: how notes come in."""

    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        """Take all notes or none, in one transaction that is on disk when this returns.

        What could not be decoded becomes a dead letter; of a sender with too many of them the oldest goes.

        An intent is open until its commit is answered so that the outcome is known, or until its last ask: 30 seconds,
        2, 10 and 35 minutes after it was put, or answered so that it is not, its subjects are hinted. An id that is put
        again is left as it is; an answer to one that is not open, or was left open before, closes nothing. Where a peer
        has too many open for tables without a row, one intent of the whole catalog stands for the rest. The answer to
        a commit and the hint of what it changed belong into one put. In `Accepted` hints alone are counted.

        Raises:
            Transient: scope inbox: the queue is full or the commit failed; nothing was taken. `retry_after` is set.
            Broken: the inbox can't be trusted any more.
        """
        ...


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What a worker gets.

    Attributes:
        jobs: what it has to do.
        next_due: when the next row that was not claimed falls due, or an intent; None: none waits.
        poison_letters: letters of rows that turned out to be poison since the last claim.
        expired_leases: leases that ran out since the last claim, or that the process before this one left behind.
    """

    jobs: tuple[LeasedJob, ...]
    next_due: datetime | None
    poison_letters: tuple[NewDeadLetter, ...] = ()
    expired_leases: int = 0


class JobQueue(Protocol):
    """For the worker: what to do."""

    async def wait(self, until: datetime | None) -> None:
        """Return at `until`, or once a put or a settle may have made something due since the last `claim` began.

        A hint whose row was due already does not, nor does an intent: about when the first one may be due this returns
        anyhow.
        """
        ...

    async def claim(self, capacity: Capacity, running: Sequence[LeasedJob] = ()) -> ClaimResult:
        """Lease due rows, in turn over the lanes; their attempts are counted durably.

        First of all the subjects of intents that are due are hinted, so many at once.

        The clock is read when the inbox comes to it: what waited its turn must not shorten a lease.

        Args:
            running: what the caller still works on. Whoever asks for more is alive: leases of these that ran out,
                because the inbox was slow to renew them or the whole process stood still, are renewed.
        """
        ...

    async def renew(self, claims: Sequence[LeasedJob]) -> list[LeasedJob]:
        """Prolong leases, from when the inbox comes to it; those that were lost are missing from the answer."""
        ...

    async def record_location(
        self, claim: LeasedJob, layout_key: str, uuid: str | None
    ) -> frozenset[TableIdentifier] | None:
        """Durably add the text of a site (`sfn.sfnfile.naming`) to the row before anything is written there.

        Returns:
            Other rows with a live table of another uuid than `uuid` at that site's location (they are hinted when the
            site is new to this row); None: the lease was lost.
        """
        ...

    async def allow_step(self, claim: LeasedJob, step: BackwardStep, now: datetime) -> bool:
        """Ask the catalog's brake for leave, durably; a step that got it gets it again. False also for a lost lease."""
        ...

    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        """End a claim. False: the lease was lost, and nothing was changed."""
        ...


class TableIndex(Protocol):
    """For publishes, sweeps and readers: what is known about all tables."""

    def tables(self, catalog: str) -> AsyncIterator[IndexedTable]:
        """Every table row of a catalog."""
        ...

    async def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        """The rows whose live file carries this table uuid, by name."""
        ...

    async def event_history(self, table: TableIdentifier) -> EventHistory | None:
        """All that was told of a table in a catalog that nobody can ask; None for nothing, and in any other catalog."""
        ...

    async def at_location(self, table: TableIdentifier, location: str) -> frozenset[TableIdentifier]:
        """Other rows with a live file at a location, whatever their uuid."""
        ...


class DropLimit(Protocol):
    """For operators and sweeps: how many steps that are not forward are let pass."""

    async def max_missing(self, catalog: str) -> int:
        """How many absences one sweep may find before they are held."""
        ...

    async def release(self, catalog: str, command: AdminCommand) -> int:
        """Reset a catalog's brake and queue what it held, waived once each; how many rows.

        Many are let go batch by batch, with other verbs in between. One that raises, or whose process ends, in the
        middle leaves the rest held: the audit log says how many were let go, and the same order goes on.
        """
        ...


# ── desk: The ports for operators


class AdminQueries(Protocol):
    """How things stand. Every verb raises `Transient` with scope inbox, or `Broken`."""

    async def stats(self) -> QueueStats:
        """How many of what, without a look at every row."""
        ...

    async def table_status(self, subject: JobKey) -> TableStatus | None:
        """A table's row, or a catalog's; None where there is none."""
        ...

    async def drop_limit_state(self, catalog: str) -> DropLimitState:
        """A catalog's brake."""
        ...

    async def audit_log(self, before: int | None, limit: int) -> list[AuditEntry]:
        """Orders with ids less than `before`, the newest first; None for the newest of all."""
        ...


class DeadLetters(Protocol):
    """Dead letters, found and dealt with. Every verb raises as `Desk`'s do."""

    async def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        """So many of those that are wanted, with ids greater than `after`, by id."""
        ...

    async def list_newest(self, letter_filter: DeadLetterFilter, limit: int) -> list[DeadLetter]:
        """So many of those that are wanted, the newest first."""
        ...

    async def get_many(self, ids: Sequence[int]) -> list[DeadLetter]:
        """Those of these ids that there are, by id."""
        ...

    async def request_of(self, letter_id: int) -> UndecodableRequest | None:
        """The request that a letter is about, None for one about a subject."""
        ...

    async def replay(self, ids: Sequence[int], notifications: Sequence[Notification], command: AdminCommand) -> int:
        """Have the subjects of open letters looked at again, and close the letters, in one transaction.

        Args:
            ids: ids; those of letters that are not open are passed over.
            notifications: what the requests among them say, now that somebody understands them.
            command: for the audit log.

        Returns:
            How many were open.
        """
        ...

    async def discard(self, ids: Sequence[int], command: AdminCommand) -> int:
        """Close open letters; how many there were. Their subjects are left as they are."""
        ...


class CatalogAdmin(Protocol):
    """Whole catalogs: looked at, and whose files theirs are. Every verb raises as `Desk`'s do."""

    async def reconcile(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        """Have catalogs swept; each hint names one."""
        ...

    async def adopt(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        """Have tables take over what lies in their place; each hint names the catalog whose files they are."""
        ...

    async def retire(self, catalog: str, *, retired: bool, command: AdminCommand) -> None:
        """Say durably that a catalog's tables get no files any more, or that they do again."""
        ...

    async def owner_id(self, catalog: str) -> str | None:
        """The `catalog_id` that was noted last; None for none."""
        ...

    async def record_owner(self, catalog: str, catalog_id: str) -> None:
        """Note durably which `catalog_id` a catalog's files carry, see `sfn.inbox.admin`."""
        ...

    async def retired_catalogs(self) -> frozenset[str]:
        """Which catalogs' tables get none."""
        ...
