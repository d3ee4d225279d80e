"""Sweeps of the running service: followed to their end, and told of."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from sfn.cli.answers import Asked, Status, Sweep
from sfn.cli.pages import Grid, Line, Page, Tone, counted, safe
from sfn.cli.printing import Bar
from sfn.cli.service import Service

SOON: Final = 0.1
"""Seconds to the second look; each further pause is twice as long."""
LATEST: Final = 2.0
"""Seconds between two looks at most."""


def follow(
    service: Service,
    asked: Asked,
    moved: Bar,
    waits: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Sweep]:
    """The sweeps that were asked for, by catalog, once all of them ended.

    Args:
        moved: told how far they are.
        waits: told once of each catalog that is in trouble, so that its sweep does not begin.
        sleep: waits so many seconds.
    """
    pause, told = SOON, set[str]()
    while True:
        status = service.status()
        sweeps = begun(status, asked.catalogs, asked.asked_at)
        total = sum(max(sweep.known, sweep.tables) for sweep in sweeps.values())
        moved(sum(sweep.tables for sweep in sweeps.values()), total if len(sweeps) == len(asked.catalogs) else None)
        if len(sweeps) == len(asked.catalogs) and not any(sweep.running for sweep in sweeps.values()):
            return sweeps
        for breaker in status.breakers:
            mine = breaker.scope == "catalog" and breaker.name in asked.catalogs and breaker.name not in sweeps
            stopped = mine and breaker.slots <= 1
            if stopped and breaker.name not in told:
                told.add(breaker.name)
                waits(breaker.name)
        sleep(pause)
        pause = min(2 * pause, LATEST)


def begun(status: Status, catalogs: list[str], since: datetime) -> dict[str, Sweep]:
    """The sweeps of these catalogs that began no earlier."""
    return {
        one.name: one.sweep
        for one in status.catalogs
        if one.name in catalogs and one.sweep is not None and one.sweep.began_at >= since
    }


def went_well(sweeps: Mapping[str, Sweep]) -> bool:
    """Whether every table that may be seen was looked at."""
    return all(sweep.state == "ended" and not sweep.failed for sweep in sweeps.values())


def outcome(sweeps: Mapping[str, Sweep]) -> Page:
    """What differed, and what could not be looked at."""
    page: list[Line | Grid] = []
    for name, sweep in sweeps.items():
        page.append(_headline(name, sweep))
        if sweep.differed:
            rows = [(f"  {safe(one.table)}", safe(one.kind)) for one in sweep.differed]
            page.append(Grid(("  TABLE", "IS"), rows, long="  TABLE"))
        if (more := sweep.differed_total - len(sweep.differed)) > 0:
            page.append(Line(f"  and {more:,} more"))
        page += [Line(f"  may not list the namespace {safe(one) or '(all)'}", Tone.WARNING) for one in sweep.withheld]
        page += [Line(f"  could not look at {safe(one)}", Tone.BAD) for one in sweep.failed]
    return page


def _headline(name: str, sweep: Sweep) -> Line:
    looked = counted(sweep.tables, "table")
    if sweep.state != "ended":
        why = f": {safe(sweep.error)}" if sweep.error else ""
        return Line(f"{name}: the sweep {safe(sweep.state)} after {looked}{why}", Tone.BAD)
    if not sweep.differed_total:
        return Line(f"{name}: {looked}, nothing differed", Tone.GOOD)
    return Line(f"{name}: {looked}, {sweep.differed_total:,} differed and are being seen to", Tone.WARNING)
