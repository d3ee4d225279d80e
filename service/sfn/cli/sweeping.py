"""Sweeps of the running service: followed to their end, and told of."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from sfn.admin.schemas import Asked, Status, Sweep
from sfn.cli.pages import Grid, Line, Page, Tone, counted, moment, safe
from sfn.cli.printing import Bar
from sfn.cli.service import Service
from sfn.clock import lasting
from sfn.errors import SfnError, nearest
from sfn.settings import Misconfigured

SOON: Final = 0.1
"""Seconds to the second look; each further pause is twice as long."""
LATEST: Final = 2.0
"""Seconds between two looks at most."""
_AT_ONCE: Final = timedelta(seconds=1)
"""What a sweep may wait without a word."""
_HELD: Final = "held"
_APART: Final = "two of a catalog are kept apart"


def check_named(catalog: str | None, known: Sequence[str], told: Collection[str]) -> None:
    """Refuse a catalog that can't be swept.

    Args:
        catalog: as it was named; None for all.
        known: those that can.
        told: those that can't, as events tell of them.

    Raises:
        Misconfigured: it is none of these, or there are none.
    """
    mute = sorted(one for one in told if one == catalog or (catalog is None and not known))
    if mute:
        found = "one that is told of by events: there is nothing to compare"
        raise Misconfigured([SfnError(", ".join(mute), expected="a catalog that can be asked", found=found)])
    if catalog is not None and catalog not in known:
        expected = f"a configured catalog that can be asked ({', '.join(known) or 'none'})"
        raise Misconfigured([SfnError("--catalog", expected=expected, found=catalog, remedy=nearest(catalog, known))])


def delays(asked: Asked, status: Status) -> list[str]:
    """What holds up sweeps that were asked for, in words: how long, and until when."""
    told = []
    running = {one.name for one in status.catalogs if one.sweep is not None and one.sweep.running}
    for name in asked.catalogs:
        begins = asked.begins_at.get(name)
        if begins is None and name in running:
            told.append(f"{name}: is being swept just now; another sweep follows it, {_APART}")
        elif begins is not None and begins - asked.asked_at > _AT_ONCE:
            wait = lasting(begins - asked.asked_at)
            told.append(f"{name}: the sweep waits {wait}, until {moment(begins)}, as {_APART}")
    return told


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


def begun(status: Status, catalogs: Sequence[str], since: datetime) -> dict[str, Sweep]:
    """The sweeps of these catalogs that began no earlier."""
    return {
        one.name: one.sweep
        for one in status.catalogs
        if one.name in catalogs and one.sweep is not None and one.sweep.began_at >= since
    }


def went_well(sweeps: Mapping[str, Sweep]) -> bool:
    """Whether every table that may be seen was looked at."""
    return all(sweep.state == "ended" and not (sweep.failed or sweep.listing_failed) for sweep in sweeps.values())


def outcome(
    sweeps: Mapping[str, Sweep], retired: Collection[str] = (), missing: Mapping[str, datetime] | None = None
) -> Page:
    """What differed, and what could not be looked at.

    Args:
        retired: catalogs whose tables get no files.
        missing: since when tables are missing, by catalog, as far as that is known; else since the sweep began.
    """
    page: list[Line | Grid] = []
    for name, sweep in sweeps.items():
        page.append(_headline(name, sweep, retired=name in retired))
        if sweep.missing:
            verb = "table is" if sweep.missing == 1 else "tables are"
            since = moment((missing or {}).get(name, sweep.began_at))
            page.append(Line(f"  {sweep.missing:,} {verb} missing from the catalog since {since}", Tone.WARNING))
        if sweep.differed:
            held = f"held by the brake: sfn release {name}"
            rows = [(f"  {safe(one.table)}", held if one.kind == _HELD else safe(one.kind)) for one in sweep.differed]
            page.append(Grid(("  TABLE", "IS"), rows, long="  TABLE"))
        if (more := sweep.differed_total - len(sweep.differed)) > 0:
            page.append(Line(f"  and {more:,} more"))
        page += list(_unlisted(sweep))
        page += [Line(f"  could not look at {safe(one)}", Tone.BAD) for one in sweep.failed]
    return page


def _unlisted(sweep: Sweep) -> Iterator[Line]:
    failed = set(sweep.listing_failed)
    for one in sweep.withheld:
        has_failed = one in failed
        may = "could not" if has_failed else "may not"
        yield Line(f"  {may} list the namespace {safe(one) or '(all)'}", Tone.BAD if has_failed else Tone.WARNING)
    if sweep.withheld and sweep.withheld_reason:
        yield Line(
            f"    {safe((sweep.listing_failed or sweep.withheld)[0])}: {safe(sweep.withheld_reason)}", Tone.QUIET
        )


def _headline(name: str, sweep: Sweep, *, retired: bool) -> Line:
    looked = counted(sweep.tables, "table")
    if sweep.state != "ended":
        why = f": {safe(sweep.error)}" if sweep.error else ""
        return Line(f"{name}: the sweep {safe(sweep.state)} after {looked}{why}", Tone.BAD)
    if not sweep.differed_total:
        return Line(f"{name}: {looked}, nothing differed", Tone.GOOD)
    said = f"{name}: {looked}, {sweep.differed_total:,} differed"
    if retired:
        return Line(f"{said}; retired: nothing is written (`sfn retire {name} --undo`)", Tone.WARNING)
    if sweep.differed and all(one.kind == _HELD for one in sweep.differed):
        return Line(said, Tone.WARNING)
    return Line(f"{said} and are being seen to", Tone.WARNING)
