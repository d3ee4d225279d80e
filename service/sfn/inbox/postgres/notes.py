"""The part of the port to the database that is not about rows, see `unit`: dead letters, whole catalogs, intents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from sfn.inbox.book import Change
from sfn.inbox.intents import Opened, OpenIntent, Span
from sfn.inbox.letters import Audited, DeadLetter, Letter, Order, Status, Wanted
from sfn.inbox.names import NamedTable
from sfn.inbox.row import LastSweep
from sfn.words import Subject, Undecodable


@dataclass(frozen=True, slots=True)
class Sought:
    """What notes of intents rest on.

    Attributes:
        ids: whose open intents.
        known: of which it is asked whether they have a row.
        left: of which it is asked when one was left open.
        peers: of which it is asked how many count against them.
    """

    ids: Collection[str]
    known: Collection[Subject]
    left: Collection[Subject]
    peers: Collection[str]


@dataclass(slots=True)
class Looked:
    """What there is of it; nothing of it is locked.

    Attributes:
        rows: open intents.
        known: subjects that have a row.
        left_at: when the last one of a subject was left open that is there still.
        unseen: how many of a peer count against it; missing where none does.
    """

    rows: list[OpenIntent] = field(default_factory=list)
    known: set[Subject] = field(default_factory=set)
    left_at: dict[Subject, datetime] = field(default_factory=dict)
    unseen: dict[str, int] = field(default_factory=dict)


class Letters(Protocol):
    """The dead letters, and the audit log."""

    async def open(self, letters: Sequence[tuple[Letter, datetime]]) -> None:
        """Open letters of subjects whose rows are locked, one of each, or bring their open ones up to date."""
        ...

    async def keep(self, notes: Sequence[tuple[Undecodable, datetime]]) -> None:
        """Open letters of requests that nobody understood; the oldest go of a sender that has too many."""
        ...

    async def close(self, subjects: Mapping[Subject, datetime], status: Status, actor: str | None = None) -> None:
        """Close the open letters of subjects whose rows are locked, each at a moment."""
        ...

    async def end(self, numbers: Collection[int], status: Status, now: datetime, actor: str) -> list[Subject | None]:
        """Close those of these letters that are open; of each, by number, whose it was."""
        ...

    async def find(self, wanted: Wanted, after: int, limit: int) -> list[DeadLetter]:
        """See `sfn.inbox.desk.DeadLetters.find`."""
        ...

    async def newest(self, wanted: Wanted, limit: int) -> list[DeadLetter]:
        """See `sfn.inbox.desk.DeadLetters.newest`."""
        ...

    async def numbered(self, numbers: Collection[int]) -> list[DeadLetter]:
        """See `sfn.inbox.desk.DeadLetters.numbered`."""
        ...

    async def event(self, number: int) -> Undecodable | None:
        """See `sfn.inbox.desk.DeadLetters.event`."""
        ...

    async def counts(self) -> Mapping[tuple[str, str], int]:
        """See `Figures.letters`."""
        ...

    async def oldest(self) -> Mapping[str, datetime]:
        """By catalog when the oldest open letter was opened of a table that is given up; held ones wait on purpose."""
        ...

    async def prune(self, before: datetime, most: int) -> int:
        """Delete letters that were closed before a moment, so many at most; how many."""
        ...

    async def note(self, action: str, order: Order, count: int) -> int:
        """Remember an order that was carried out, and forget very old ones; the entry's id."""
        ...

    async def recount(self, entry: int, count: int) -> None:
        """Remember how far an order is that was noted."""
        ...

    async def audited(self, before: int | None, limit: int) -> list[Audited]:
        """See `sfn.inbox.desk.Desk.audited`."""
        ...


class Catalogs(Protocol):
    """What is noted of whole catalogs."""

    async def lock(self, catalog: str) -> None:
        """Have the catalog's brake alone until the transaction ends."""
        ...

    async def tripped(self) -> frozenset[str]:
        """The catalogs whose steps ask for leave in vain."""
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

    async def retired(self) -> frozenset[str]:
        """The catalogs of which that was noted."""
        ...

    async def own(self, catalog: str, catalog_id: str) -> None:
        """Note for which `catalog_id` files are written."""
        ...

    async def owner(self, catalog: str) -> str | None:
        """For which that was noted last."""
        ...


class Intents(Protocol):
    """The open intents: whose are locked is changed by nobody else until the transaction ends."""

    async def span(self) -> Span:
        """When they are due; not locked."""
        ...

    async def due(self, now: datetime, most: int) -> list[OpenIntent]:
        """So many of those that are due by now, the oldest first, locked; what another transaction has is left out."""
        ...

    async def close(self, ids: Collection[str]) -> None:
        """Delete those of these ids that were not left open; what another transaction has is waited for."""
        ...

    async def get(self, ids: Collection[str]) -> list[OpenIntent]:
        """All of these ids, locked; what another transaction has is waited for, and read as it left it."""
        ...

    async def look(self, sought: Sought) -> Looked:
        """What notes rest on."""
        ...

    async def open(self, rows: Sequence[OpenIntent]) -> None:
        """Add those that are not there; a catalog's own that is gets the other's times, but is put off no further."""
        ...

    async def save(self, changes: Sequence[Change]) -> None:
        """Write changes of those that are locked."""
        ...

    async def counts(self) -> Mapping[str, Opened]:
        """What is open, by catalog: every one is looked at."""
        ...

    async def of(self, subject: Subject) -> Opened | None:
        """What is open of a subject; None for nothing."""
        ...
