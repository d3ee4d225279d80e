"""What is known of all tables, claimed or not."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.words.claim import PublishedPointer
from sfn.words.outcome import DeadLetterReason
from sfn.words.table import TableIdentifier


@dataclass(frozen=True, slots=True)
class IndexedTable:
    """A row of the roster.

    Attributes:
        table: its name.
        live: the pointer last published, if one is live.
        etag: entity tag of the catalog's last answer.
        reason: why the row has an open dead letter, None without one.
        min_metadata_location: `PendingChange.floor` of the row, None while no wish is open. While the catalog still
            answers it, a sweep has no news for a row that was given up.
        foreign_catalog_id: see `Story`.
        adopt_catalog_id: see `PendingChange`.
        missing_uuids: uuids of tables of ours that the row misses.
        is_renamed: see `sfn.inbox.names.NamedTable`.
    """

    table: TableIdentifier
    live: PublishedPointer | None
    etag: str | None
    reason: DeadLetterReason | None = None
    min_metadata_location: str | None = None
    foreign_catalog_id: str | None = None
    adopt_catalog_id: str | None = None
    missing_uuids: frozenset[str] = frozenset()
    is_renamed: bool = False

    @property
    def is_on_hold(self) -> bool:
        """Whether the brake holds a step of it."""
        return self.reason is DeadLetterReason.HELD_DROP

    @property
    def catalog_id_in_file(self) -> str | None:
        """The `catalog_id` in the file at the table's place, ours or not; None where there is none, or nobody knows."""
        return self.live.catalog_id if self.live is not None else self.foreign_catalog_id

    @property
    def is_stuck(self) -> bool:
        """Whether an operator must look first, or many hours pass: nobody waits for it, and no sweep tells it more."""
        return self.reason in {DeadLetterReason.HELD_DROP, DeadLetterReason.POISON}
