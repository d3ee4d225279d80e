"""An event followed until its table has settled it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sfn.admin.schemas import DeadLetterModel, TableModel
from sfn.cli.pages import Line, Tone, escape, format_ago
from sfn.cli.remedies import remedy_for
from sfn.cli.service import ServiceClient, UnknownToService
from sfn.cli.story import table_verdict, waiting_text
from sfn.clock import SystemClock, format_duration

FIRST_PAUSE: Final = 0.05
"""Seconds to the second look; each further pause is twice as long."""
MAX_PAUSE: Final = 1.0
"""Seconds between two looks at most."""
_AT_ONCE: Final = timedelta(seconds=1)
"""What may be waited without a word."""


class WaitOutcome(StrEnum):
    """What came of an event."""

    PUBLISHED = "published"
    NOTHING_TO_DO = "nothing-to-do"
    WAITING = "waits"
    DEAD_LETTER = "dead-letter"
    UNSETTLED = "unsettled"


@dataclass(frozen=True, slots=True)
class WaitResult:
    """How a table stands after an event; `table` is None for one that the service has forgotten again."""

    name: str
    outcome: WaitOutcome
    text: str
    remedy: str
    table: TableModel | None

    @property
    def is_ok(self) -> bool:
        """Whether nobody has to do anything, or to wait."""
        return self.outcome in {WaitOutcome.PUBLISHED, WaitOutcome.NOTHING_TO_DO}


@dataclass(frozen=True, slots=True)
class WaitClock:
    """How time passes: the wall clock, one in seconds that never goes back, and what waits so many of them."""

    now: Callable[[], datetime] = SystemClock().now
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def wait_for_table(
    service: ServiceClient,
    catalog: str,
    namespace: tuple[str, ...],
    name: str,
    timeout: timedelta,
    clock: WaitClock = WaitClock(),
    on_waiting: Callable[[str], None] = lambda _: None,
) -> TableModel | None:
    """A table's story once all that was told of it is followed, or when `timeout` is over; None for a forgotten one.

    A look that only comes after that is not waited for.

    Args:
        on_waiting: told what is waited for, once for each look that does not come at once.
    """
    until, pause = clock.monotonic() + timeout.total_seconds(), FIRST_PAUSE
    reported_due_at: datetime | None = None
    while True:
        try:
            table = service.table(catalog, namespace, name)
        except UnknownToService:
            return None
        now, left = clock.now(), until - clock.monotonic()
        if left <= 0 or _is_finished(table, now, timedelta(seconds=left)):
            return table
        if table.due_at != reported_due_at and (table.due_at - now > _AT_ONCE or pause == MAX_PAUSE):
            reported_due_at = table.due_at
            on_waiting(f"{escape(table_verdict(table, now).text)}; Ctrl-C leaves it to the service")
        clock.sleep(min(pause, left))
        pause = min(2 * pause, MAX_PAUSE)


def _is_finished(table: TableModel, now: datetime, left: timedelta) -> bool:
    """Whether no look within `left` will tell more of what was told."""
    is_pending = _is_pending(table, now)
    if is_settled(table, now) and not is_pending:
        return True
    is_far = table.state == "queued" and table.due_at - now > left
    return is_far and (is_pending or table.reason is not None)


def _is_pending(table: TableModel, now: datetime) -> bool:
    """Whether a table waits for another look until which it is not what it should be."""
    return waiting_text(table, now) is not None and table_verdict(table, now).tone is Tone.WARNING


def is_settled(table: TableModel, now: datetime) -> bool:
    """Whether nothing that was told of a table waits for a look, and none that was to come again is due."""
    if table.state != "queued":
        return table.state == "dead"
    return not table.pending.has_unprocessed and (table.due_at > now or waiting_text(table, now) is None)


def wait_result(name: str, table: TableModel | None, now: datetime, timeout: timedelta) -> WaitResult:
    """What came of an event that `awaited` followed.

    Args:
        name: the table as it was typed.
    """
    if table is None:
        said = "nothing to publish: the catalog has no such table, and no file of ours lies there"
        return WaitResult(name, WaitOutcome.NOTHING_TO_DO, said, "", None)
    letter = next((one for one in table.dead_letters if one.status == "open"), None)
    if letter is not None:
        again = f"; looked at again {format_ago(table.due_at, now)}" if table.state == "queued" else ""
        return WaitResult(
            name,
            WaitOutcome.DEAD_LETTER,
            f"{_given_up(letter)}{again}",
            remedy_for(letter, table.foreign_catalog_id),
            table,
        )
    if not is_settled(table, now):
        said = f"not settled within {format_duration(timeout)}: {table_verdict(table, now).text}{_why(table)}"
        return WaitResult(name, WaitOutcome.UNSETTLED, said, f"`sfn status {name}` tells what comes of it", table)
    waits = waiting_text(table, now)
    if waits is not None and _is_pending(table, now):
        return WaitResult(name, WaitOutcome.WAITING, waits, f"`sfn status {name}` tells what comes of it", table)
    if table.listed_as is not None:
        said = f"another spelling of {escape(table.listed_as)}: the event is followed under that name"
        return WaitResult(
            name, WaitOutcome.NOTHING_TO_DO, said, f"`sfn status {table.listed_as}` shows the result", table
        )
    if table.published is None:
        return WaitResult(
            name, WaitOutcome.NOTHING_TO_DO, "nothing to publish: it has no live file, as the catalog says", "", table
        )
    again = "" if waits is None else f"; {waits.partition('; ')[2]}"
    return WaitResult(name, WaitOutcome.PUBLISHED, f"published {table.published.metadata_location}{again}", "", table)


def result_lines(settled: WaitResult) -> list[Line]:
    """It for people."""
    tones = {WaitOutcome.WAITING: Tone.WARNING, WaitOutcome.UNSETTLED: Tone.WARNING, WaitOutcome.DEAD_LETTER: Tone.BAD}
    page = [Line(f"{escape(settled.name)}: {escape(settled.text)}", tones.get(settled.outcome, Tone.GOOD))]
    return [*page, Line(f"  → {escape(settled.remedy)}")] if settled.remedy else page


def _given_up(letter: DeadLetterModel) -> str:
    return f"dead letter {letter.id}, {letter.reason}: {letter.detail}"


def _why(table: TableModel) -> str:
    return f" ({table.last_result.why})" if table.last_result is not None and table.last_result.why else ""
