"""The page of `sfn status NS.TABLE`: a verdict with the next command, then the facts about the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from sfn.admin.remedies import remedy_for
from sfn.admin.schemas import DeadLetterModel
from sfn.admin.table_schemas import CatalogNowModel, OutcomeModel, TableModel
from sfn.admin.table_verdict import (
    VerdictSeverity,
    describe_agreement,
    describe_attempts,
    describe_catalog_now,
    describe_next,
    describe_outcome,
    describe_pending,
    table_verdict,
)
from sfn.cli.render import Grid, Line, Page, Tone, escape, format_time
from sfn.clock import format_ago, format_duration, format_seconds
from sfn.domain.identifiers import encode_identifier
from sfn.errors import pluralise

_MAX_EVENT_SHOWN: Final = 400
"""The most characters of an event that are printed."""


TONES: Final = {
    VerdictSeverity.GOOD: Tone.GOOD,
    VerdictSeverity.NEUTRAL: Tone.PLAIN,
    VerdictSeverity.WARNING: Tone.WARNING,
    VerdictSeverity.BAD: Tone.BAD,
}
"""Tones of the verdict about a table."""


def table_page(table: TableModel, now: datetime) -> Page:
    """Return the page about a table."""
    summary = table_verdict(table, now)
    name = escape(f"{table.catalog}:{encode_identifier(table.namespace, table.name)}")
    page: list[Line | Grid] = [Line(f"{name}: {escape(summary.text)}", TONES[summary.severity])]
    if summary.command:
        page.append(Line(f"  → {escape(summary.command)}"))
    page.append(Line(""))
    page.append(Grid(("", " "), [(head, escape(text)) for head, text in _facts(table, now)], wide_column=" "))
    if table.outcomes:
        page += [Line(""), Line("last attempts", Tone.QUIET), _timeline(table.outcomes, now)]
    if table.dead_letters:
        page.append(Line(""))
        page.append(dead_letters_grid(table.dead_letters, now, with_status=True))
    return page


def _timeline(outcomes: Sequence[OutcomeModel], now: datetime) -> Grid:
    """Return a grid of the last attempts, newest first."""
    rows = [
        (
            format_ago(one.ended_at, now),
            describe_attempts(one),
            str(one.attempt),
            "-" if one.claimed_at is None else format_seconds((one.ended_at - one.claimed_at).total_seconds()),
            escape(one.why or "-"),
        )
        for one in outcomes
    ]
    return Grid(("ENDED", "OUTCOME", "ATTEMPT", "TOOK", "WHY"), rows, frozenset({"ATTEMPT"}), "WHY")


def dead_letters_grid(letters: Sequence[DeadLetterModel], now: datetime, *, with_status: bool) -> Grid:
    """Return a grid with one row per dead letter."""
    columns = ("ID", *(("STATUS",) if with_status else ()), "REASON", "ABOUT", "OPENED", "TRIED", "DETAIL")
    rows = [
        (
            str(one.id),
            *((one.status,) if with_status else ()),
            one.reason,
            escape(describe_key(one)),
            format_ago(one.opened_at, now),
            str(one.attempts),
            escape(one.detail),
        )
        for one in letters
    ]
    return Grid(columns, rows, frozenset({"ID", "TRIED"}), "DETAIL")


def describe_key(letter: DeadLetterModel) -> str:
    """Return the table of a dead letter, or its catalog, or the sender of an undecodable request."""
    if letter.namespace is not None and letter.name is not None:
        return f"{letter.catalog}:{encode_identifier(letter.namespace, letter.name)}"
    return letter.catalog or f"sender {letter.sender or 'unknown'}"


def _facts(table: TableModel, now: datetime) -> Iterator[tuple[str, str]]:
    yield from _pointers(table, now)
    if table.foreign_version_hint is not None:
        hint = table.foreign_version_hint.strip()
        yield "version hint", f'foreign ("{hint}"), never changed; delete it to have the service write one'
    yield "pending", describe_pending(table.pending)
    if table.unapplied_events:
        yield "", f"{pluralise(table.unapplied_events, 'event')} accepted, not applied yet"
    if table.last_result is not None:
        why = f": {table.last_result.why}" if table.last_result.why else ""
        outcome = describe_outcome(table.last_result.outcome)
        yield "last check", f"{outcome} {format_ago(table.last_result.at, now)}{why}"
    if table.failing_since is not None:
        yield "failing", f"for {format_duration(now - table.failing_since)}, {pluralise(table.attempt, 'attempt')}"
    yield from _upcoming(table, now)
    if table.last_event is not None:
        event = table.last_event
        number = "" if event.event_id is None else f", event {event.event_id}"
        yield "last event", f"{format_ago(event.received_at, now)} from {event.sender or 'no named sender'}{number}"
        if event.body:
            yield "", event.body if len(event.body) <= _MAX_EVENT_SHOWN else f"{event.body[:_MAX_EVENT_SHOWN]} …"
    for location in table.locations:
        yield "location", location
    if (letter := next((one for one in table.dead_letters if one.status == "open"), None)) is not None:
        yield "remedy", remedy_for(letter, table.foreign_catalog_id)


def _pointers(table: TableModel, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the metadata file in the SFN file, and the one that the catalog answers now."""
    if table.published is None:
        yield "published", "nothing"
    else:
        yield "published", table.published.metadata_location
        yield "", f"uuid {table.published.table_uuid or 'none'}, written {format_ago(table.published.written_at, now)}"
    if table.catalog_now is not None:
        yield from _catalog_now(table.catalog_now)


def _catalog_now(answer: CatalogNowModel) -> Iterator[tuple[str, str]]:
    yield "catalog now", describe_catalog_now(answer)
    if answer.answered_at is not None:
        yield "", f"{describe_agreement(answer)}; answered {format_time(answer.answered_at)}"


def _upcoming(table: TableModel, now: datetime) -> Iterator[tuple[str, str]]:
    if table.next_check_at is not None:
        commits = pluralise(table.open_intents, "commit")
        again = f"again {format_ago(table.next_check_at, now)}" if table.next_check_at > now else "now"
        yield "gateway", f"{commits} with an unknown outcome: the catalog is asked {again}"
    yield "next check", describe_next(table, now)
    if table.refresh_at is not None:
        yield "refresh", format_ago(table.refresh_at, now)
