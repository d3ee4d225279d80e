"""The part of the port to the database that is not about rows, see `unit`: dead letters, whole catalogs, intents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from sfn.domain.events import UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.inbox.intents import DueRange, IntentChange, OpenIntent, OpenIntentStats
from sfn.inbox.model import (
    AdminCommand,
    AuditEntry,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterStatus,
    LastSweep,
    NewDeadLetter,
)
from sfn.inbox.statistics import NamedTable


@dataclass(frozen=True, slots=True)
class IntentQuery:
    """A query for what is needed to apply messages about intents.

    Attributes:
        ids: ids of the open intents to read.
        known: subjects to check for a job.
        unresolved: subjects to check for unresolved intents.
        peers: peers to count the unknown tables of.
    """

    ids: Collection[str]
    known: Collection[JobKey]
    unresolved: Collection[JobKey]
    peers: Collection[str]


@dataclass(slots=True)
class FoundIntents:
    """The result of an `IntentQuery`; nothing is locked.

    Attributes:
        rows: open intents.
        known: subjects that have a job.
        unresolved_since: by subject, when its newest unresolved intent became unresolved.
        unknown_tables: by peer, the number of its intents for unknown tables.
    """

    rows: list[OpenIntent] = field(default_factory=list)
    known: set[JobKey] = field(default_factory=set)
    unresolved_since: dict[JobKey, datetime] = field(default_factory=dict)
    unknown_tables: dict[str, int] = field(default_factory=dict)


class DeadLetterStore(Protocol):
    """The dead letters, and the audit log."""

    async def open(self, letters: Sequence[tuple[NewDeadLetter, datetime]]) -> None:
        """Open one letter per subject, or update its open letter; the jobs of the subjects are locked."""
        ...

    async def keep(self, notes: Sequence[tuple[UndecodableRequest, datetime]]) -> None:
        """Open letters of undecodable requests; delete the oldest letters of a sender with too many."""
        ...

    async def close(
        self, subjects: Mapping[JobKey, datetime], status: DeadLetterStatus, actor: str | None = None
    ) -> None:
        """Close the open letters of subjects at the given times; the jobs of the subjects are locked."""
        ...

    async def end(
        self, numbers: Collection[int], status: DeadLetterStatus, now: datetime, actor: str
    ) -> list[JobKey | None]:
        """Close the open ones of these letters; return their subjects, by number."""
        ...

    async def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        """Return the dead letters above the id `after`, by id, at most `limit`."""
        ...

    async def list_newest(self, letter_filter: DeadLetterFilter, limit: int) -> list[DeadLetter]:
        """Return the newest dead letters first, at most `limit`."""
        ...

    async def get_many(self, ids: Collection[int]) -> list[DeadLetter]:
        """Return the dead letters with these ids, by id."""
        ...

    async def request_of(self, letter_id: int) -> UndecodableRequest | None:
        """Return the request that the dead letter is about; None if it is about none."""
        ...

    async def counts(self) -> Mapping[tuple[str, str], int]: ...

    async def oldest(self) -> Mapping[str, datetime]:
        """By catalog when the oldest open letter was opened of a table that is given up; held ones wait on purpose."""
        ...

    async def prune(self, before: datetime, most: int) -> int:
        """Delete at most `most` letters that were closed before a time; return their number."""
        ...

    async def note(self, action: str, order: AdminCommand, count: int) -> int:
        """Remember an order that was carried out, and forget very old ones; the entry's id."""
        ...

    async def recount(self, entry: int, count: int) -> None:
        """Remember how far an order is that was noted."""
        ...

    async def audit_log(self, before: int | None, limit: int) -> list[AuditEntry]:
        """Return the newest entries of the audit log below the id `before`, at most `limit`."""
        ...


class CatalogStore(Protocol):
    """What is noted of whole catalogs."""

    async def lock(self, catalog: str) -> None:
        """Have the catalog's brake alone until the transaction ends."""
        ...

    async def tripped(self) -> frozenset[str]:
        """Return the catalogs in which no further step is allowed."""
        ...

    async def trip(self, catalog: str, *, tripped: bool) -> None:
        """Note that they do, or do no more."""
        ...

    async def has_step(self, catalog: str, text: str, since: datetime) -> bool:
        """Whether a step got leave later than a moment."""
        ...

    async def count_steps(self, catalog: str, since: datetime) -> int:
        """How many steps got leave later than a moment."""
        ...

    async def drops(self, catalog: str, since: datetime) -> list[NamedTable]:
        """Return the drops that were allowed after a moment."""
        ...

    async def add_step(self, catalog: str, step: str, now: datetime, drop: NamedTable | None) -> None:
        """Note a step that was allowed, and the table that the step drops."""
        ...

    async def forget_steps(self, catalog: str, until: datetime | None = None) -> None:
        """Forget the steps that got leave by a moment; all of them for None."""
        ...

    async def swept_at(self, catalogs: Collection[str]) -> dict[str, LastSweep]:
        """The last complete sweep, by catalog."""
        ...

    async def note_sweep(self, catalog: str, sweep: LastSweep) -> None:
        """A sweep is complete."""
        ...

    async def retire(self, catalog: str, *, retired: bool) -> None:
        """Note whether a catalog's tables get no files any more."""
        ...

    async def retired_catalogs(self) -> frozenset[str]:
        """Return the retired catalogs."""
        ...

    async def record_owner(self, catalog: str, catalog_id: str) -> None:
        """Note for which `catalog_id` files are written."""
        ...

    async def owner_id(self, catalog: str) -> str | None:
        """For which that was noted last."""
        ...


class OpenIntentStore(Protocol):
    """The open intents. No other transaction changes a locked one until this transaction ends."""

    async def span(self) -> DueRange:
        """When they are due; not locked."""
        ...

    async def due(self, now: datetime, most: int) -> list[OpenIntent]:
        """Lock and return at most `most` due intents, the oldest first; skip those that another transaction has."""
        ...

    async def close(self, ids: Collection[str]) -> None:
        """Delete those of these ids that were not left open; what another transaction has is waited for."""
        ...

    async def get(self, ids: Collection[str]) -> list[OpenIntent]:
        """All of these ids, locked; what another transaction has is waited for, and read as it left it."""
        ...

    async def find(self, sought: IntentQuery) -> FoundIntents:
        """What notes rest on."""
        ...

    async def open(self, rows: Sequence[OpenIntent]) -> None:
        """Add those that are not there; a catalog's own that is gets the other's times, but is put off no further."""
        ...

    async def save(self, changes: Sequence[IntentChange]) -> None:
        """Write changes of those that are locked."""
        ...

    async def counts(self) -> Mapping[str, OpenIntentStats]:
        """Return the statistics of open intents, by catalog; reads every intent."""
        ...

    async def of(self, subject: JobKey) -> OpenIntentStats | None:
        """What is open of a subject; None for nothing."""
        ...
