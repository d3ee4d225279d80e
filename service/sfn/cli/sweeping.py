"""Sweeps of the running service: followed to their end, and told of."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from sfn.admin.schemas import ServiceStatus, SweepAccepted, SweepModel
from sfn.cli.pages import Grid, Line, Page, Tone, escape, format_time, pluralise
from sfn.cli.printing import ProgressCallback
from sfn.cli.service import ServiceClient
from sfn.clock import format_duration
from sfn.errors import SfnError, suggest_name
from sfn.settings.sources import ConfigurationError

FIRST_PAUSE: Final = 0.1
"""Seconds to the second look; each further pause is twice as long."""
MAX_PAUSE: Final = 2.0
"""Seconds between two looks at most."""
_AT_ONCE: Final = timedelta(seconds=1)
"""What a sweep may wait without a word."""
_HELD: Final = "held"
_APART: Final = "two of a catalog are kept apart"


def check_sweepable(catalog: str | None, sweepable: Sequence[str], event_only: Collection[str]) -> None:
    """Refuse a catalog that can't be swept.

    Args:
        catalog: as it was named; None for all.
        sweepable: those that can.
        event_only: those that can't, as events tell of them.

    Raises:
        Misconfigured: it is none of these, or there are none.
    """
    mute = sorted(one for one in event_only if one == catalog or (catalog is None and not sweepable))
    if mute:
        found = "one that is told of by events: there is nothing to compare"
        raise ConfigurationError([SfnError(", ".join(mute), expected="a catalog that can be asked", found=found)])
    if catalog is not None and catalog not in sweepable:
        expected = f"a configured catalog that can be asked ({', '.join(sweepable) or 'none'})"
        raise ConfigurationError(
            [SfnError("--catalog", expected=expected, found=catalog, remedy=suggest_name(catalog, sweepable))]
        )


def describe_delays(accepted: SweepAccepted, status: ServiceStatus) -> list[str]:
    """What holds up sweeps that were asked for, in words: how long, and until when."""
    lines = []
    running = {one.name for one in status.catalogs if one.sweep is not None and one.sweep.is_running}
    for name in accepted.catalogs:
        begins = accepted.starts_at.get(name)
        if begins is None and name in running:
            lines.append(f"{name}: is being swept just now; another sweep follows it, {_APART}")
        elif begins is not None and begins - accepted.requested_at > _AT_ONCE:
            wait = format_duration(begins - accepted.requested_at)
            lines.append(f"{name}: the sweep waits {wait}, until {format_time(begins)}, as {_APART}")
    return lines


def wait_for_sweeps(
    service: ServiceClient,
    accepted: SweepAccepted,
    on_progress: ProgressCallback,
    on_waiting: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, SweepModel]:
    """The sweeps that were asked for, by catalog, once all of them ended.

    Args:
        on_progress: told how far they are.
        on_waiting: told once of each catalog that is in trouble, so that its sweep does not begin.
        sleep: waits so many seconds.
    """
    pause, reported = FIRST_PAUSE, set[str]()
    while True:
        status = service.status()
        sweeps = sweeps_since(status, accepted.catalogs, accepted.requested_at)
        total = sum(max(sweep.known_tables, sweep.tables) for sweep in sweeps.values())
        on_progress(
            sum(sweep.tables for sweep in sweeps.values()), total if len(sweeps) == len(accepted.catalogs) else None
        )
        if len(sweeps) == len(accepted.catalogs) and not any(sweep.is_running for sweep in sweeps.values()):
            return sweeps
        for breaker in status.breakers:
            mine = breaker.scope == "catalog" and breaker.name in accepted.catalogs and breaker.name not in sweeps
            stopped = mine and breaker.allowed_probes <= 1
            if stopped and breaker.name not in reported:
                reported.add(breaker.name)
                on_waiting(breaker.name)
        sleep(pause)
        pause = min(2 * pause, MAX_PAUSE)


def sweeps_since(status: ServiceStatus, catalogs: Sequence[str], since: datetime) -> dict[str, SweepModel]:
    """The sweeps of these catalogs that began no earlier."""
    return {
        one.name: one.sweep
        for one in status.catalogs
        if one.name in catalogs and one.sweep is not None and one.sweep.started_at >= since
    }


def all_succeeded(sweeps: Mapping[str, SweepModel]) -> bool:
    """Whether every table that may be seen was looked at."""
    return all(
        sweep.state == "ended" and not (sweep.failed_tables or sweep.listing_failed) for sweep in sweeps.values()
    )


def sweep_page(
    sweeps: Mapping[str, SweepModel], retired: Collection[str] = (), missing: Mapping[str, datetime] | None = None
) -> Page:
    """What differed, and what could not be looked at.

    Args:
        retired: catalogs whose tables get no files.
        missing: since when tables are missing, by catalog, as far as that is known; else since the sweep began.
    """
    page: list[Line | Grid] = []
    for name, sweep in sweeps.items():
        page.append(_headline(name, sweep, retired=name in retired))
        if sweep.missing_tables:
            verb = "table is" if sweep.missing_tables == 1 else "tables are"
            since = format_time((missing or {}).get(name, sweep.started_at))
            page.append(Line(f"  {sweep.missing_tables:,} {verb} missing from the catalog since {since}", Tone.WARNING))
        if sweep.differences:
            held = f"held by the brake: sfn release {name}"
            rows = [
                (f"  {escape(one.table)}", held if one.kind == _HELD else escape(one.kind)) for one in sweep.differences
            ]
            page.append(Grid(("  TABLE", "IS"), rows, wide_column="  TABLE"))
        if (more := sweep.differences_total - len(sweep.differences)) > 0:
            page.append(Line(f"  and {more:,} more"))
        page += list(_unlisted(sweep))
        page += [Line(f"  could not look at {escape(one)}", Tone.BAD) for one in sweep.failed_tables]
    return page


def _unlisted(sweep: SweepModel) -> Iterator[Line]:
    failed = set(sweep.listing_failed)
    for one in sweep.unlisted_namespaces:
        has_failed = one in failed
        may = "could not" if has_failed else "may not"
        yield Line(f"  {may} list the namespace {escape(one) or '(all)'}", Tone.BAD if has_failed else Tone.WARNING)
    if sweep.unlisted_namespaces and sweep.unlisted_reason:
        yield Line(
            f"    {escape((sweep.listing_failed or sweep.unlisted_namespaces)[0])}: {escape(sweep.unlisted_reason)}",
            Tone.QUIET,
        )


def _headline(name: str, sweep: SweepModel, *, retired: bool) -> Line:
    checked = pluralise(sweep.tables, "table")
    if sweep.state != "ended":
        why = f": {escape(sweep.error)}" if sweep.error else ""
        return Line(f"{name}: the sweep {escape(sweep.state)} after {checked}{why}", Tone.BAD)
    if not sweep.differences_total:
        return Line(f"{name}: {checked}, nothing differed", Tone.GOOD)
    said = f"{name}: {checked}, {sweep.differences_total:,} differed"
    if retired:
        return Line(f"{said}; retired: nothing is written (`sfn retire {name} --undo`)", Tone.WARNING)
    if sweep.differences and all(one.kind == _HELD for one in sweep.differences):
        return Line(said, Tone.WARNING)
    return Line(f"{said} and are being seen to", Tone.WARNING)
