"""An event followed until its table has settled it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sfn.admin.schemas import Letter, Table
from sfn.cli.pages import Line, Tone, ago, safe
from sfn.cli.remedies import remedy
from sfn.cli.service import NotKnown, Service
from sfn.cli.story import verdict, waiting
from sfn.clock import SystemClock, lasting

SOON: Final = 0.05
"""Seconds to the second look; each further pause is twice as long."""
LATEST: Final = 1.0
"""Seconds between two looks at most."""
_AT_ONCE: Final = timedelta(seconds=1)
"""What may be waited without a word."""


class End(StrEnum):
    """What came of an event."""

    PUBLISHED = "published"
    NOTHING = "nothing-to-do"
    WAITS = "waits"
    DEAD_LETTER = "dead-letter"
    UNSETTLED = "unsettled"


@dataclass(frozen=True, slots=True)
class Settled:
    """How a table stands after an event; `table` is None for one that the service has forgotten again."""

    name: str
    end: End
    said: str
    remedy: str
    table: Table | None

    @property
    def is_well(self) -> bool:
        """Whether nobody has to do anything, or to wait."""
        return self.end in {End.PUBLISHED, End.NOTHING}


@dataclass(frozen=True, slots=True)
class Watch:
    """How time passes: the wall clock, one in seconds that never goes back, and what waits so many of them."""

    now: Callable[[], datetime] = SystemClock().now
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def awaited(
    service: Service,
    catalog: str,
    namespace: tuple[str, ...],
    name: str,
    patience: timedelta,
    watch: Watch = Watch(),
    waits: Callable[[str], None] = lambda _: None,
) -> Table | None:
    """A table's story once all that was told of it is followed, or when `patience` is over; None for a forgotten one.

    A look that only comes after that is not waited for.

    Args:
        waits: told what is waited for, once for each look that does not come at once.
    """
    until, pause = watch.monotonic() + patience.total_seconds(), SOON
    told: datetime | None = None
    while True:
        try:
            table = service.table(catalog, namespace, name)
        except NotKnown:
            return None
        now, left = watch.now(), until - watch.monotonic()
        if left <= 0 or _is_over(table, now, timedelta(seconds=left)):
            return table
        if table.due_at != told and (table.due_at - now > _AT_ONCE or pause == LATEST):
            told = table.due_at
            waits(f"{safe(verdict(table, now).text)}; Ctrl-C leaves it to the service")
        watch.sleep(min(pause, left))
        pause = min(2 * pause, LATEST)


def _is_over(table: Table, now: datetime, left: timedelta) -> bool:
    """Whether no look within `left` will tell more of what was told."""
    is_pending = _is_pending(table, now)
    if is_settled(table, now) and not is_pending:
        return True
    is_far = table.state == "queued" and table.due_at - now > left
    return is_far and (is_pending or table.reason is not None)


def _is_pending(table: Table, now: datetime) -> bool:
    """Whether a table waits for another look until which it is not what it should be."""
    return waiting(table, now) is not None and verdict(table, now).tone is Tone.WARNING


def is_settled(table: Table, now: datetime) -> bool:
    """Whether nothing that was told of a table waits for a look, and none that was to come again is due."""
    if table.state != "queued":
        return table.state == "dead"
    return not table.wanted.news and (table.due_at > now or waiting(table, now) is None)


def outcome(name: str, table: Table | None, now: datetime, patience: timedelta) -> Settled:
    """What came of an event that `awaited` followed.

    Args:
        name: the table as it was typed.
    """
    if table is None:
        said = "nothing to publish: the catalog has no such table, and no file of ours lies there"
        return Settled(name, End.NOTHING, said, "", None)
    letter = next((one for one in table.dead_letters if one.status == "open"), None)
    if letter is not None:
        again = f"; looked at again {ago(table.due_at, now)}" if table.state == "queued" else ""
        return Settled(name, End.DEAD_LETTER, f"{_given_up(letter)}{again}", remedy(letter, table.foreign_id), table)
    if not is_settled(table, now):
        said = f"not settled within {lasting(patience)}: {verdict(table, now).text}{_why(table)}"
        return Settled(name, End.UNSETTLED, said, f"`sfn status {name}` tells what comes of it", table)
    waits = waiting(table, now)
    if waits is not None and _is_pending(table, now):
        return Settled(name, End.WAITS, waits, f"`sfn status {name}` tells what comes of it", table)
    if table.listed_as is not None:
        said = f"another spelling of {safe(table.listed_as)}: the event is followed under that name"
        return Settled(name, End.NOTHING, said, f"`sfn status {table.listed_as}` shows the result", table)
    if table.published is None:
        return Settled(name, End.NOTHING, "nothing to publish: it has no live file, as the catalog says", "", table)
    again = "" if waits is None else f"; {waits.partition('; ')[2]}"
    return Settled(name, End.PUBLISHED, f"published {table.published.metadata_location}{again}", "", table)


def lines(settled: Settled) -> list[Line]:
    """It for people."""
    tones = {End.WAITS: Tone.WARNING, End.UNSETTLED: Tone.WARNING, End.DEAD_LETTER: Tone.BAD}
    page = [Line(f"{safe(settled.name)}: {safe(settled.said)}", tones.get(settled.end, Tone.GOOD))]
    return [*page, Line(f"  → {safe(settled.remedy)}")] if settled.remedy else page


def _given_up(letter: Letter) -> str:
    return f"dead letter {letter.id}, {letter.reason}: {letter.detail}"


def _why(table: Table) -> str:
    return f" ({table.last.why})" if table.last is not None and table.last.why else ""
