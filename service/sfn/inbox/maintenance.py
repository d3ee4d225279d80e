"""Maintenance of an inbox, the same for all adapters: limits, the log of errors, the owner of a catalog's files."""

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

_log = structlog.stdlib.get_logger(__name__)

INDEX_PAGE_SIZE: Final = 500
"""Tables that are read from the index at a time."""
PRUNE_BATCH_SIZE: Final = 500
"""Events, or dead letters, that are deleted at a time: few, because puts wait meanwhile."""
CLOSED_LETTER_RETENTION: Final = timedelta(days=30)
"""Time until a closed dead letter is deleted."""
MAINTENANCE_INTERVAL: Final = 60.0
"""Seconds between two maintenance runs."""
MAX_AUDIT_ENTRIES: Final = 10_000
"""Most entries of the audit log."""


@dataclass(frozen=True, slots=True)
class CommandProgress:
    """Progress of a command that takes several transactions.

    Attributes:
        audit_id: id of the entry in the audit log.
        count: number of jobs so far.
        last_key: key of the last job; jobs are processed by key.
        has_more: True if there may be more jobs.
    """

    audit_id: int
    count: int = 0
    last_key: str = ""
    has_more: bool = True


LOG_INTERVAL: Final = timedelta(minutes=1)
"""Pause between two records of the same error: calls are retried every second."""


class InboxErrorLog:
    """The log of failed inbox calls that are retried and raise no error to a client.

    The first successful call is logged as a recovery. If calls keep failing, each error is logged once a minute.

    Args:
        clock: the wall clock.
        part: name of the caller, for the log.
    """

    def __init__(self, clock: Clock, part: str) -> None:
        self._clock, self._part = clock, part
        self._logged_at: dict[str, datetime] = {}
        self._is_failing = False

    @contextmanager
    def log_errors(self) -> Iterator[None]:
        """Log an error of the call in this context.

        Raises:
            ExternalError: as the call raised it.
        """
        try:
            yield
        except ExternalError as error:
            self._log_error(str(error))
            raise
        if self._is_failing:
            self._is_failing = False
            _log.info("inbox recovered", part=self._part)

    def _log_error(self, error: str) -> None:
        now = self._clock.now()
        # If the clock was set back, records are not suppressed for longer.
        self._logged_at = {text: at for text, at in self._logged_at.items() if at <= now < at + LOG_INTERVAL}
        if error not in self._logged_at:
            self._logged_at[error] = now
            self._is_failing = True
            _log.warning("inbox call failed", part=self._part, error=error)


async def recorded_owner(catalog: str, catalog_id: str, catalog_admin: CatalogAdmin, table_index: TableIndex) -> str:
    """Record which `catalog_id` the files of a catalog carry, and return it.

    A `catalog_id` changes with the address of the catalog. While files carry another `catalog_id` and can be adopted,
    the owner is that other id; else it is the catalog's own id.

    The search may read all tables. If the recorded owner is the catalog's own id, there is no search, so files that the
    catalog wrote at another address meanwhile are not found. A foreign file in a table's place counts only if its
    `catalog_id` is the recorded owner; otherwise the file may never have been ours.

    Args:
        catalog: configured name of the catalog.
        catalog_id: the present `catalog_id`.
        catalog_admin: reads and records the owner.
        table_index: lists the tables.

    Returns:
        The recorded owner.

    Raises:
        Transient: scope inbox.
        FatalError: the inbox cannot be trusted any more.
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
    """Return the `catalog_id` in the file of a table if the listener wrote that file; None if unknown."""
    if row.live is not None:
        return row.catalog_id_in_file or recorded
    return row.foreign_catalog_id if row.foreign_catalog_id == recorded else None
