"""Whose a catalog's files are once its address has changed: what the rows say of it, remembered across starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from sfn.clock import Clock
from sfn.domain.jobs import IndexedTable
from sfn.errors import ExternalError
from sfn.inbox import CatalogAdmin, TableIndex

# ── whose: Whose a catalog's files are once its address has changed


async def recorded_owner(catalog: str, catalog_id: str, catalog_admin: CatalogAdmin, table_index: TableIndex) -> str:
    """Note whose a catalog's files are: those of another `catalog_id`, while there are any to be adopted, else its own.

    All rows may be read for it, but not of a catalog that is noted as its own: files that it wrote at another address
    meanwhile are then not looked for. A table that another catalog's file keeps from its place counts only where that
    catalog was noted before: else nobody says that it was ever ours.

    Args:
        catalog: its configured name.
        catalog_id: which it is now.

    Returns:
        What was noted.

    Raises:
        Transient: scope inbox.
        Broken: the inbox can't be trusted any more.
    """
    before = await catalog_admin.owner_id(catalog)
    if before == catalog_id:
        return catalog_id
    owner = catalog_id
    async for row in table_index.tables(catalog):
        found = _owner_of_file(row, before)
        if found not in {None, catalog_id, row.adopt_catalog_id}:
            owner = found or catalog_id
            break
    if owner != before:
        await catalog_admin.record_owner(catalog, owner)
    return owner


def _owner_of_file(row: IndexedTable, recorded: str | None) -> str | None:
    """The `catalog_id` in a file that we wrote, as far as is known."""
    if row.live is not None:
        return row.catalog_id_in_file or recorded
    return row.foreign_catalog_id if row.foreign_catalog_id == recorded else None


# ── keeping: How much of what is over an inbox keeps

INDEX_PAGE_SIZE: Final = 500
"""Rows of the roster that are read at a time."""
PRUNE_BATCH_SIZE: Final = 500
"""Events, or dead letters, that are deleted at a time: few, because puts wait for it."""
CLOSED_LETTER_RETENTION: Final = timedelta(days=30)
"""How long a dead letter is kept that was closed."""
MAINTENANCE_INTERVAL: Final = 60.0
"""Seconds."""
MAX_AUDIT_ENTRIES: Final = 10_000
"""Orders that are remembered."""


@dataclass(frozen=True, slots=True)
class CommandProgress:
    """How far an order is that is carried out in several transactions.

    Attributes:
        audit_id: its id in the audit log.
        count: rows so far.
        last_key: key of the last of them; they come by key.
        has_more: whether there may be others.
    """

    audit_id: int
    count: int = 0
    last_key: str = ""
    has_more: bool = True


# ── troubles: What the log is told of an inbox in trouble

LOG_INTERVAL: Final = timedelta(minutes=1)
"""From one record of a trouble to the next of the same text: a call is tried again every second."""

_log = structlog.stdlib.get_logger(__name__)


class InboxErrorLog:
    """Tells the log of calls of the inbox whose trouble nobody else hears of: they are tried again by themselves.

    The first call that works ends the trouble. Where others fail all the same, it is told again after a minute.

    Args:
        clock: the wall clock.
        part: who calls, for the log.
    """

    def __init__(self, clock: Clock, part: str) -> None:
        self._clock, self._part = clock, part
        self._logged_at: dict[str, datetime] = {}
        self._is_failing = False

    @contextmanager
    def log_errors(self) -> Iterator[None]:
        """Around one call.

        Raises:
            Trouble: as the call raised it.
        """
        try:
            yield
        except ExternalError as trouble:
            self._log_error(str(trouble))
            raise
        if self._is_failing:
            self._is_failing = False
            _log.info("inbox works again", part=self._part)

    def _log_error(self, error: str) -> None:
        now = self._clock.now()
        # A clock that was set back must not silence anything for longer.
        self._logged_at = {text: at for text, at in self._logged_at.items() if at <= now < at + LOG_INTERVAL}
        if error not in self._logged_at:
            self._logged_at[error] = now
            self._is_failing = True
            _log.warning("inbox in trouble", part=self._part, error=error)
