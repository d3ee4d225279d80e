"""What is known of all tables, claimed or not."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.words.claim import Published
from sfn.words.outcome import Reason
from sfn.words.table import TableName


@dataclass(frozen=True, slots=True)
class Known:
    """A row of the roster.

    Attributes:
        table: its name.
        live: the pointer last published, if one is live.
        etag: entity tag of the catalog's last answer.
        reason: why the row has an open dead letter, None without one.
        told: `Wish.floor` of the row, None while no wish is open. While the catalog still answers it, a sweep has no
            news for a row that was given up.
        foreign_id: see `Story`.
        adopts: see `Wish`.
        missing: uuids of tables of ours that the row misses.
        renamed: see `sfn.inbox.names.NamedTable`.
    """

    table: TableName
    live: Published | None
    etag: str | None
    reason: Reason | None = None
    told: str | None = None
    foreign_id: str | None = None
    adopts: str | None = None
    missing: frozenset[str] = frozenset()
    renamed: bool = False

    @property
    def is_held(self) -> bool:
        """Whether the brake holds a step of it."""
        return self.reason is Reason.HELD_DROP

    @property
    def carried(self) -> str | None:
        """The `catalog_id` in the file at the table's place, ours or not; None where there is none, or nobody knows."""
        return self.live.catalog_id if self.live is not None else self.foreign_id

    @property
    def is_stuck(self) -> bool:
        """Whether an operator must look first, or many hours pass: nobody waits for it, and no sweep tells it more."""
        return self.reason in {Reason.HELD_DROP, Reason.POISON}
