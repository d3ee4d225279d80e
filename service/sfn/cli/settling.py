"""An event followed until its table has settled it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from sfn.cli.answers import Letter, Table
from sfn.cli.pages import Line, Tone, ago, lasting, safe
from sfn.cli.remedies import remedy
from sfn.cli.service import NotKnown, Service
from sfn.cli.story import verdict, waiting
from sfn.clock import SystemClock

SOON: Final = 0.05
"""Seconds to the second look; each further pause is twice as long."""
LATEST: Final = 1.0
"""Seconds between two looks at most."""


class End(StrEnum):
    """What came of an event."""

    PUBLISHED = "published"
    NOTHING = "nothing-to-do"
    WAITS = "waits"
    DEAD_LETTER = "dead-letter"
    UNSETTLED = "unsettled"


class Settled(Struct, frozen=True):
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
) -> Table | None:
    """A table's story once all that was told of it is settled, or when `patience` is over; None for a forgotten one.

    One that was given up before may be looked at again only after a long while: that is not waited for.
    """
    until, pause = watch.monotonic() + patience.total_seconds(), SOON
    while True:
        try:
            table = service.table(catalog, namespace, name)
        except NotKnown:
            return None
        left = until - watch.monotonic()
        is_far = table.reason is not None and table.due_at - watch.now() > timedelta(seconds=left)
        if is_settled(table, watch.now()) or left <= 0 or (is_far and table.state == "queued"):
            return table
        watch.sleep(min(pause, left))
        pause = min(2 * pause, LATEST)


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
    if waits is not None and verdict(table, now).tone is not Tone.GOOD:
        return Settled(name, End.WAITS, waits, f"`sfn status {name}` tells what comes of it", table)
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
