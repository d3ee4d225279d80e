"""The tables that a sweep found to differ: wait until each is repaired, or until it is known why it is not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from sfn.cli.notify import DROP_WAIT_TIMEOUT, SYSTEM_WAIT, WAIT_TIMEOUT, WaitClock, wait_for_table, wait_result
from sfn.cli.render import ProgressCallback
from sfn.domain.identifiers import decode_identifier, encode_identifier
from sfn.domain.jobs import DeadLetterReason

if TYPE_CHECKING:
    from datetime import datetime

    from sfn.admin.schemas import DeadLetterModel, DifferingTable, SweepModel
    from sfn.admin.table_schemas import ListedTableModel, TableModel
    from sfn.cli.client import ServiceClient

MAX_PAUSE: Final = 2.0
"""The longest pause between two lists of the tables that wait, in seconds."""
_DROPPED_KINDS: Final = frozenset({"absent", "renamed"})


@dataclass(frozen=True, slots=True)
class TableRepair:
    """The state of a differing table after the sweep.

    Attributes:
        table: the table, with %2E for a dot in a part.
        kind: the kind of difference that the sweep found.
        detail: what differed.
        held: True if the drop limit held the table when the sweep found it.
        repaired: True if the files are right now.
        why: why the table is not repaired; None if it is.
        reason: the reason of its open dead letter; None without one.
        dead_letter: the id of that letter.
    """

    table: str
    kind: str
    detail: str
    held: bool
    repaired: bool
    why: str | None = None
    reason: str | None = None
    dead_letter: int | None = None


@dataclass(frozen=True, slots=True)
class CatalogRepairs:
    """The state of all differing tables of a catalog.

    Attributes:
        tables: the tables that the sweep names.
        others: number of tables that the sweep does not name and that still wait, or were given up.
    """

    tables: list[TableRepair] = field(default_factory=list)
    others: int = 0

    @property
    def unrepaired(self) -> int:
        """The number of tables that are not repaired."""
        return sum(not one.repaired for one in self.tables) + self.others


class RepairDeadline:
    """The end of a wait for many tables.

    With a timeout it is fixed. Without one it moves on with each table that is processed: the wait ends once nothing is
    processed for as long as `sfn notify --wait` waits for one table.

    Args:
        until: the end, in seconds of the clock; None without a timeout.
        clock: the clock.
    """

    def __init__(self, until: float | None, clock: WaitClock) -> None:
        self._until, self._clock = until, clock
        self._last_processed = clock.monotonic()

    def left(self, kind: str) -> timedelta:
        """Return the time that is left for a table with this kind of difference."""
        # A drop is believed only after the replicas of the catalog had time to answer the same.
        longest = DROP_WAIT_TIMEOUT if kind in _DROPPED_KINDS else WAIT_TIMEOUT
        until = self._last_processed + longest.total_seconds() if self._until is None else self._until
        return timedelta(seconds=max(0.0, until - self._clock.monotonic()))

    def note_processed(self) -> None:
        """Note that a table was processed now."""
        self._last_processed = self._clock.monotonic()


def wait_for_repairs(
    service: ServiceClient,
    sweeps: Mapping[str, SweepModel],
    on_progress: ProgressCallback,
    until: float | None = None,
    clock: WaitClock = SYSTEM_WAIT,
) -> dict[str, CatalogRepairs]:
    """Wait for the differing tables of some sweeps, and return their state by catalog.

    Args:
        service: the client of the service.
        sweeps: the ended sweeps, by catalog.
        on_progress: receives the number of tables.
        until: the end of the wait, in seconds of the clock; None to wait as long as tables are processed.
        clock: the clock.
    """
    deadline, found = RepairDeadline(until, clock), dict[str, CatalogRepairs]()
    total = sum(len(sweep.differences) for sweep in sweeps.values())
    for name, sweep in sweeps.items():
        tables = list[TableRepair]()
        for one in sweep.differences:
            tables.append(_wait_for_repair(service, name, one, deadline, clock))
            on_progress(len(tables) + sum(len(other.tables) for other in found.values()), total)
        found[name] = CatalogRepairs(tables, _count_others(service, name, sweep, deadline, clock))
    return found


def _wait_for_repair(
    service: ServiceClient, catalog: str, one: DifferingTable, deadline: RepairDeadline, clock: WaitClock
) -> TableRepair:
    *namespace, name = decode_identifier(one.table)
    left = deadline.left(one.kind)
    table = wait_for_table(service, catalog, tuple(namespace), name, left, clock)
    if deadline.left(one.kind):
        deadline.note_processed()
    return repair_of(one, catalog, table, clock.now(), left)


def repair_of(
    one: DifferingTable, catalog: str, table: TableModel | None, now: datetime, waited: timedelta
) -> TableRepair:
    """Return the state of a differing table.

    Args:
        one: the table, as the sweep found it.
        catalog: the catalog's name.
        table: its state now; None if the service does not know it any more.
        now: the present time.
        waited: the time that was waited at most.
    """
    letter = next((letter for letter in table.dead_letters if letter.status == "open"), None) if table else None
    repair = partial(TableRepair, one.table, one.kind, one.detail, one.held)
    if table is not None and letter is not None:
        is_pending = table.state != "dead" and table.pending.has_unprocessed
        why = f"{describe_letter(letter, catalog)}{'; a new attempt is pending' if is_pending else ''}"
        return repair(repaired=False, why=why, reason=letter.reason, dead_letter=letter.id)
    result = wait_result(f"{catalog}:{one.table}", table, now, waited, may_be_missing=True)
    if result.is_ok and (table is None or table.reason is None):
        return repair(repaired=True)
    why = table.cause if table is not None and table.reason is not None and table.cause else result.text
    return repair(repaired=False, why=why)


def describe_letter(letter: DeadLetterModel, catalog: str) -> str:
    """Return why a table with an open dead letter is not repaired."""
    if letter.reason == DeadLetterReason.HELD_DROP:
        return f"held by the drop limit: sfn release {catalog}"
    return f"given up: dead letter {letter.id} ({letter.reason}): {letter.cause or letter.detail}"


def _count_others(
    service: ServiceClient, catalog: str, sweep: SweepModel, deadline: RepairDeadline, clock: WaitClock
) -> int:
    """Wait for the tables that a sweep only counted; return how many of them still wait, or were given up."""
    if sweep.differences_total <= len(sweep.differences) or sweep.ended_at is None:
        return 0
    named, pause, before = {one.table for one in sweep.differences}, MAX_PAUSE / 8, -1
    while True:
        waiting = _waiting_tables(service, catalog, sweep.ended_at, named)
        if before not in {-1, len(waiting)}:
            deadline.note_processed()
        left, before = deadline.left("").total_seconds(), len(waiting)
        if left <= 0 or not any(one.state in {"due", "leased"} for one in waiting):
            return len(waiting)
        clock.sleep(min(pause, left))
        pause = min(2 * pause, MAX_PAUSE)


def _waiting_tables(
    service: ServiceClient, catalog: str, until: datetime, named: Collection[str]
) -> list[ListedTableModel]:
    """Return the tables that have waited since a time or longer, and those that the drop limit holds."""
    found: list[ListedTableModel] = []
    for search in ({"sort": "lag"}, {"state": "held"}):
        after: str | None = None
        while True:
            position = {"after": after} if after is not None else {}
            page = service.tables({"catalog": catalog, "limit": 1_000, **search, **position})
            found += [
                one
                for one in page.tables
                if encode_identifier(one.namespace, one.name) not in named
                and (one.waiting_since is None or one.waiting_since <= until)
            ]
            after = page.next
            if after is None:
                break
    return found
