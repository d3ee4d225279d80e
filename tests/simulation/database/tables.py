"""What a simulated database holds: tables as committed, and the changes of one transaction over them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from sfn.domain.events import UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import ConcurrencyGroup, PublishCache
from sfn.inbox.intents import IntentKey, OpenIntent
from sfn.inbox.model import AuditEntry, DeadLetter, Job, LastSweep
from sfn.inbox.postgres.transaction import LoggedEvent
from sfn.inbox.statistics import NamedTable

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Table(Generic[K, V]):
    """One table, by its key."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.committed: dict[K, V] = {}


class Stored(NamedTuple):
    """A row without its memo, and which of the rows it is that its subject ever had."""

    row: Job
    life: int


@dataclass(frozen=True, slots=True)
class Noted:
    """What is noted of a catalog."""

    sweep: LastSweep | None = None
    tripped: bool = False
    retired: bool = False
    catalog_id: str | None = None


@dataclass(frozen=True, slots=True)
class Tables:
    """All of them.

    Attributes:
        events: by sender and id, or by sender and number.
        permits: when a step got leave, and which table is dropped by it, by catalog and text.
    """

    rows: Table[JobKey, Stored] = field(default_factory=lambda: Table("row"))
    memos: Table[JobKey, PublishCache] = field(default_factory=lambda: Table("memo"))
    lanes: Table[ConcurrencyGroup, bool] = field(default_factory=lambda: Table("lane"))
    events: Table[tuple[str, str | int], LoggedEvent] = field(default_factory=lambda: Table("event"))
    letters: Table[int, DeadLetter] = field(default_factory=lambda: Table("letter"))
    requests: Table[int, UndecodableRequest] = field(default_factory=lambda: Table("request"))
    audit: Table[int, AuditEntry] = field(default_factory=lambda: Table("audit"))
    catalogs: Table[str, Noted] = field(default_factory=lambda: Table("catalog"))
    intents: Table[IntentKey, OpenIntent] = field(default_factory=lambda: Table("intent"))
    permits: Table[tuple[str, str], tuple[datetime, NamedTable | None]] = field(default_factory=lambda: Table("permit"))


class Changes:
    """What one transaction wrote, which nobody else sees; None for what it deleted."""

    def __init__(self) -> None:
        self._written: dict[Table[Any, Any], dict[Any, Any]] = {}

    def of(self, table: Table[K, V]) -> Mapping[K, V | None]:
        """Those of one table."""
        return self._written.get(table, {})

    def write(self, table: Table[K, V], key: K, value: V | None) -> None:
        """Write, or delete where the value is None."""
        self._written.setdefault(table, {})[key] = value

    def apply(self) -> None:
        """Let all see all of it at once."""
        for table, changed in self._written.items():
            for key, value in changed.items():
                if value is None:
                    table.committed.pop(key, None)
                else:
                    table.committed[key] = value
