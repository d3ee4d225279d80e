"""The whole service on one page, pure: what needs attention and which command helps, then the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sfn.admin.schemas import Breaker, Catalog, Status, Sweep
from sfn.cli.pages import Grid, Line, Page, Tone, ago, counted, safe
from sfn.cli.remedies import adoption
from sfn.clock import lasting
from sfn.words import Reason

LATE: Final = timedelta(minutes=5)
"""A table that was due so long ago is waited for: nothing in a sound service takes as long."""

_NAMED: Final = 3
"""Namespaces or tables that one line names."""
_NUMBERS: Final = ("LIVE", "DUE", "SCHEDULED", "RETRYING", "LEASED", "DEAD", "HELD")


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that does not mend itself, or not soon.

    Attributes:
        what: what is wrong.
        command: what to type next; may be empty.
    """

    what: str
    command: str = ""


def attention(status: Status, now: datetime) -> list[Attention]:
    """All that somebody should look at, what holds up most first."""
    found = [Attention(f"not ready: {safe(', '.join(status.reasons))}")] if not status.ready else []
    # One of more than one slot has seen a success since: what was wrong is over.
    found += [Attention(_away(breaker, now), "sfn check") for breaker in status.breakers if breaker.slots <= 1]
    for catalog in status.catalogs:
        found.extend(_of_catalog(catalog, now, away=is_away(status, catalog.name)))
    given_up = {reason: number for reason, number in status.dead_letters.items() if reason != Reason.HELD_DROP}
    if total := sum(given_up.values()):
        kinds = ", ".join(f"{number:,} {safe(reason)}" for reason, number in sorted(given_up.items()))
        found.append(Attention(f"{counted(total, 'dead letter')}: {kinds}", "sfn dead-letters list --by-cause"))
    return found


def overview(status: Status, url: str, now: datetime) -> Page:
    """What an operator sees first."""
    wrong = attention(status, now)
    page: list[Line | Grid] = [_verdict(status, wrong)]
    if not wrong and (dead := sum(one.tables.dead for one in status.catalogs)):
        page.append(Line(f"  {counted(dead, 'table')} given up, with the dead letters discarded"))
    for one in wrong:
        page.append(Line(f"  ! {one.what}", Tone.WARNING))
        if one.command:
            page.append(Line(f"      → {one.command}"))
    page += [
        Line(""),
        Line(f"sfn {safe(status.version)}{_part(status)} at {url}, up {lasting(now - status.started_at)}", Tone.QUIET),
        Line(""),
    ]
    columns = ("CATALOG", *_NUMBERS, "OLDEST DUE", "LAST SWEEP")
    page.append(Grid(columns, [_row(one, now) for one in status.catalogs], frozenset(_NUMBERS), "LAST SWEEP"))
    if few := [one for one in status.catalogs if one.missing and not _are_many_missing(one)]:
        page += [Line(""), *(Line(f"{_missing(one, now)}; a table counts as dropped later", Tone.QUIET) for one in few)]
    if open_ones := [one for one in status.catalogs if one.open_intents]:
        page += [Line(""), *(Line(_unanswered(one, now), Tone.QUIET) for one in open_ones)]
    return page


def is_away(status: Status, catalog: str) -> bool:
    """Whether a catalog does not answer, as far as the service has asked it."""
    return any(one.scope == "catalog" and one.name == catalog and one.slots <= 1 for one in status.breakers)


def sweep_in_words(sweep: Sweep | None, now: datetime) -> str:
    """How far the last sweep came, or what came of it."""
    if sweep is None:
        return "none yet"
    if sweep.running:
        return f"running for {lasting(now - sweep.began_at)}: {sweep.tables:,} of {max(sweep.known, sweep.tables):,}"
    when = ago(sweep.ended_at or sweep.began_at, now)
    if sweep.state != "ended":
        return f"{safe(sweep.state)} {when}"
    return f"{when}: {counted(sweep.tables, 'table')}, {sweep.differed_total:,} differed"


def _verdict(status: Status, wrong: list[Attention]) -> Line:
    if wrong:
        needs = "thing needs" if len(wrong) == 1 else "things need"
        return Line(f"{len(wrong)} {needs} attention", Tone.BAD)
    live = sum(one.live for one in status.catalogs)
    others = sum(one.tables.known for one in status.catalogs) - live
    waiting = sum(one.tables.due + one.tables.retrying + one.tables.leased for one in status.catalogs)
    work = f"{waiting:,} being seen to" if waiting else "nothing waits"
    without = f" and {others:,} without a file (dropped, left out, not published yet)" if others > 0 else ""
    return Line(f"all is well: {counted(live, 'table')}{without}, {work}", Tone.GOOD)


def _away(breaker: Breaker, now: datetime) -> str:
    began = breaker.since.astimezone(UTC)
    since = f"{began:%H:%M:%S} UTC" if began.date() == now.date() else f"{began:%F %H:%M:%S} UTC"
    name = f" {safe(breaker.name)}" if breaker.name else ""
    what = f"the {breaker.scope}{name} is in trouble since {since} ({lasting(now - began)})"
    return f"{what}, asked again {ago(breaker.until, now)}: {safe(breaker.error)}"


def _of_catalog(catalog: Catalog, now: datetime, *, away: bool) -> Iterator[Attention]:
    name = catalog.name
    # One of whose tables nobody told, and that is not swept, is not asked either.
    if catalog.catalog_id is None and (catalog.tables.known or catalog.sweep is not None):
        yield Attention(f"{name}: not reached yet", "sfn check")
    if catalog.foreign_id is not None:
        what = f"{name}: its files were written for the catalog_id {safe(catalog.foreign_id)}, and now it is "
        yield Attention(
            f"{what}{safe(catalog.catalog_id or 'unknown')}: each table stays as it is from its next commit on",
            adoption(name, catalog.foreign_id),
        )
    if catalog.retired:
        yield Attention(_retired(catalog, away=away), f"sfn retire {name} --undo")
    if _are_many_missing(catalog):
        yield Attention(
            _missing(catalog, now),
            f"see whether {name} lost tables or somebody dropped them; which they are: sfn reconcile --catalog {name}",
        )
    brake = catalog.brake
    if held := max(brake.held, catalog.tables.held):
        step = "its" if held == 1 else "their"
        yield Attention(
            f"{name}: the brake holds {counted(held, 'table')} until somebody looks "
            f"(no more than {brake.limit:,} may go within an hour): {step} files stay as they were",
            f"if {name} lost tables, restore them, then sfn reconcile --catalog {name}; if they were dropped on "
            f"purpose: sfn release {name}; which they are: sfn dead-letters list --catalog {name} --reason held-drop",
        )
    elif brake.tripped:
        yield Attention(f"{name}: the brake is on, more drops will be held", f"sfn release {name}")
    late = now - catalog.oldest_due_at if catalog.oldest_due_at is not None else timedelta()
    if late > LATE:
        waiting = counted(catalog.tables.due + catalog.tables.retrying, "table")
        given_up = f", {catalog.tables.dead:,} given up" if catalog.tables.dead else ""
        yield Attention(f"{name}: late by {lasting(late)}, {waiting} in the queue{given_up}")
    if catalog.sweep is not None:
        # A running sweep may reach the faulty tables last, so the findings of the one before are shown too.
        sweeps = (catalog.sweep.before, catalog.sweep) if catalog.sweep.running else (catalog.sweep,)
        found = (attention for sweep in sweeps if sweep is not None for attention in _of_sweep(name, sweep))
        yield from dict.fromkeys(found)


def _are_many_missing(catalog: Catalog) -> bool:
    """Return whether more tables are missing than somebody drops from hour to hour."""
    return catalog.missing > max(1, catalog.live // 100)


def _missing(catalog: Catalog, now: datetime) -> str:
    since = catalog.missing_since or now
    began = since.astimezone(UTC)
    at = f"{began:%H:%M:%S} UTC" if began.date() == now.date() else f"{began:%F %H:%M:%S} UTC"
    verb = "is" if catalog.missing == 1 else "are"
    tables = f"{catalog.missing:,} of its {counted(max(catalog.live, catalog.missing), 'table')}"
    return f"{catalog.name}: {tables} {verb} missing from the catalog since {at} ({lasting(now - since)})"


def _retired(catalog: Catalog, *, away: bool) -> str:
    if not catalog.live:
        return f"{catalog.name} is retired: no live table is left; take it out of the configuration, or have it back"
    left = f"{catalog.live:,} of its tables still {'has a file' if catalog.live == 1 else 'have files'}"
    why = "the catalog is away, and is asked before one goes" if away else "being withdrawn"
    return f"{catalog.name} is retired: {left} ({why}); leave it in the configuration until none has"


def _of_sweep(name: str, sweep: Sweep) -> Iterator[Attention]:
    if sweep.state == "failed":
        yield Attention(f"{name}: the last sweep failed: {safe(sweep.error or 'no reason told')}", "sfn check")
    if sweep.listing_failed:
        what = f"{name}: could not list {_some(sweep.listing_failed, 'namespace')}"
        why = f": {safe(sweep.withheld_reason)}" if sweep.withheld_reason else ""
        yield Attention(f"{what}; nothing in them counts as dropped{why}", "sfn check")
    failed = set(sweep.listing_failed)
    if refused := [one for one in sweep.withheld if one not in failed]:
        yield Attention(f"{name}: may not list {_some(refused, 'namespace')}", "sfn check")
    if sweep.failed:
        yield Attention(f"{name}: could not look at {_some(sweep.failed, 'table')}", "sfn check")


def _some(names: Sequence[str], thing: str) -> str:
    shown = ", ".join(safe(name) or "(all)" for name in names[:_NAMED])
    return f"{counted(len(names), thing)}: {shown}{', …' if len(names) > _NAMED else ''}"


def _row(catalog: Catalog, now: datetime) -> tuple[str, ...]:
    tables, name = catalog.tables, f"{catalog.name} (retired)" if catalog.retired else catalog.name
    counts = (catalog.live, tables.due, tables.scheduled, tables.retrying, tables.leased, tables.dead, tables.held)
    oldest = "-" if catalog.oldest_due_at is None else ago(catalog.oldest_due_at, now)
    return (
        name,
        *(f"{count:,}" for count in counts),
        oldest,
        "-" if catalog.is_told else sweep_in_words(catalog.sweep, now),
    )


def _unanswered(catalog: Catalog, now: datetime) -> str:
    commits, at = counted(catalog.open_intents, "commit"), catalog.oldest_intent_at
    oldest = f", the oldest of {lasting(now - at)} ago" if at is not None else ""
    return f"{catalog.name}: {commits} through a gateway, whose outcome is not known yet{oldest}"


def _part(status: Status) -> str:
    """What the process does that was asked, where others do the rest."""
    return f", {' and '.join(safe(role) for role in status.roles)} alone," if status.roles else ""
