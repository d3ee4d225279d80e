"""The page of `sfn status NS.TABLE`: a verdict with the next command, then the facts about the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sfn.admin.remedies import adopt_command, remedy_for
from sfn.admin.schemas import DeadLetterModel
from sfn.admin.table_schemas import CatalogNowModel, OutcomeModel, PendingChangeModel, TableModel
from sfn.cli.render import Grid, Line, Page, Tone, escape, format_time
from sfn.clock import format_ago, format_duration, format_seconds, format_since
from sfn.domain.identifiers import encode_identifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Rescheduled, Retry, Returned
from sfn.errors import pluralise

_OUTCOME_TEXTS: Final = {
    Rescheduled.label: "checked",
    Retry.label: "failed",
    DeadLettered.label: "given up",
    Returned.label: "postponed",
}
"""Outcomes of checks in plain words, where the name in JSON is not plain."""
_MAX_EVENT_SHOWN: Final = 400
"""The most characters of an event that are printed."""


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """The state of a table in one line.

    Attributes:
        text: the state.
        tone: GOOD if no operator is needed.
        command: the next command to run; may be empty.
    """

    text: str
    tone: Tone
    command: str = ""


def table_verdict(table: TableModel, now: datetime) -> TableVerdict:
    """Return the state of a table in one line: since when it is late or was given up, why, and what comes next."""
    letter = next((one for one in table.dead_letters if one.status == "open"), None)
    if table.state == "dead" or letter is not None:
        return _given_up(table, letter, now)
    if table.on_hold:
        command = f"sfn release {table.catalog}"
        return TableVerdict("a drop or rollback is held by the drop limit until an operator acts", Tone.BAD, command)
    upcoming = "at a worker now" if table.state == "leased" else f"next attempt {format_ago(table.due_at, now)}"
    if table.late and table.waiting_since is not None:
        cause = escape(table.cause or "no cause is known")
        return TableVerdict(f"late since {_since(table.waiting_since, now)}: {cause}; {upcoming}", Tone.WARNING)
    if table.failing_since is not None and table.attempt > 0 and table.state != "leased":
        cause = f": {escape(table.cause)}" if table.cause is not None else ""
        text = f"failing since {_since(table.failing_since, now)}, attempt {table.attempt}{cause}; {upcoming}"
        return TableVerdict(text, Tone.WARNING)
    if table.state == "leased":
        return TableVerdict("a worker publishes the table now", Tone.GOOD)
    if table.pending.has_unprocessed:
        is_due = "is due" if table.due_at > now else "was due"
        cause = "" if table.cause is None else f": {escape(table.cause)}"
        text = f"a notification is pending; its check {is_due} {format_ago(table.due_at, now)}{cause}"
        return TableVerdict(text, Tone.WARNING)
    if (waits := waiting_text(table, now)) is not None:
        is_right = table.published is not None and not _has_pending_change(table.pending)
        return TableVerdict(waits, Tone.GOOD if is_right else Tone.WARNING)
    if table.published is None:
        return _without_file(table)
    return TableVerdict(f"published; the file was written {format_ago(table.published.written_at, now)}", Tone.GOOD)


def _since(at: datetime, now: datetime) -> str:
    return f"{format_since(at, now)} ({format_duration(now - at)})"


def _without_file(table: TableModel) -> TableVerdict:
    match table.unpublished:
        case "retired":
            why = f"no file: the catalog {table.catalog} is retired"
            return TableVerdict(why, Tone.PLAIN, f"sfn retire {table.catalog} --undo")
        case "excluded":
            return TableVerdict("no file: the catalog's include or exclude leaves the table out", Tone.PLAIN)
        case "left-alone":
            return TableVerdict("no file: the table's own properties in the catalog exclude it", Tone.PLAIN)
        case "dropped" if table.renamed_to is not None:
            return TableVerdict(f"renamed to {escape(table.renamed_to)}: its files lead there", Tone.PLAIN)
        case "dropped":
            return TableVerdict("dropped or renamed: the catalog has no such table, and its files say so", Tone.PLAIN)
        case "spelling":
            listed = escape(table.listed_as or "another name")
            why = f"another spelling of {listed}: the catalog lists that name, which has the files"
            return TableVerdict(why, Tone.PLAIN, f"sfn status {listed}")
        case "missing":
            return TableVerdict("not found: the catalog has no such table, and no file exists", Tone.WARNING)
        case _:
            return TableVerdict("no file yet: the last check found nothing to publish", Tone.WARNING)


def waiting_text(table: TableModel, now: datetime) -> str | None:
    """Return the reason for the next check of a table that was rescheduled; None for other tables."""
    last = table.last_result
    if table.state != "queued" or table.pending.has_unprocessed or last is None or last.outcome != Rescheduled.label:
        return None
    if table.unpublished in {"retired", "spelling"}:
        return None
    if _has_pending_change(table.pending):
        so_far = f"{_pending_changes(table.pending)} is pending"
    elif table.published is None:
        so_far = "no live file"
    else:
        so_far = "published"
    return f"{so_far}; next check {format_ago(table.due_at, now)} ({last.why})"


def table_page(table: TableModel, now: datetime) -> Page:
    """Return the page about a table."""
    summary = table_verdict(table, now)
    name = escape(f"{table.catalog}:{encode_identifier(table.namespace, table.name)}")
    page: list[Line | Grid] = [Line(f"{name}: {summary.text}", summary.tone)]
    if summary.command:
        page.append(Line(f"  → {summary.command}"))
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
            _OUTCOME_TEXTS.get(one.outcome, one.outcome),
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


def _given_up(table: TableModel, letter: DeadLetterModel | None, now: datetime) -> TableVerdict:
    reason = letter.reason if letter is not None else table.reason or "unknown"
    number = "" if letter is None else str(letter.id)
    replay = f"sfn dead-letters replay {number}".rstrip()
    since = "" if letter is None else f" since {_since(letter.opened_at, now)}"
    name = encode_identifier(table.namespace, table.name)
    match reason:
        case DeadLetterReason.HELD_DROP:
            text = f"held by the drop limit{since} until an operator acts; if it is right:"
            return TableVerdict(text, Tone.BAD, replay)
        case DeadLetterReason.FOREIGN_CATALOG:
            command = adopt_command(table.catalog, table.foreign_catalog_id, name)
            text = f"blocked{since} by a file of another catalog_id; if that file is this catalog's:"
            return TableVerdict(text, Tone.BAD, command)
        case _:
            cause = f": {escape(letter.cause)}" if letter is not None and letter.cause else ""
            text = f"given up{since} ({escape(reason)}){cause}; after its cause is fixed:"
            return TableVerdict(text, Tone.BAD, replay)


def _facts(table: TableModel, now: datetime) -> Iterator[tuple[str, str]]:
    yield from _pointers(table, now)
    if table.foreign_version_hint is not None:
        hint = table.foreign_version_hint.strip()
        yield "version hint", f'foreign ("{hint}"), never changed; delete it to have the service write one'
    yield "pending", _describe_pending(table.pending)
    if table.unapplied_events:
        yield "", f"{pluralise(table.unapplied_events, 'event')} accepted, not applied yet"
    if table.last_result is not None:
        why = f": {table.last_result.why}" if table.last_result.why else ""
        outcome = _OUTCOME_TEXTS.get(table.last_result.outcome, table.last_result.outcome)
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
    head = "catalog now"
    match answer.state:
        case "event-only":
            yield head, "an event-only catalog cannot be queried"
        case "unanswered":
            yield head, f"no answer: {answer.error}"
        case "found":
            yield head, answer.metadata_location or "-"
        case "staged":
            yield head, "a table without a metadata file yet"
        case "not-found":
            yield head, "no such table"
    if answer.answered_at is not None:
        verdict = "agrees with" if answer.agrees else "differs from"
        yield "", f"{verdict} what is published; answered {format_time(answer.answered_at)}"


def _upcoming(table: TableModel, now: datetime) -> Iterator[tuple[str, str]]:
    if table.next_check_at is not None:
        commits = pluralise(table.open_intents, "commit")
        again = f"again {format_ago(table.next_check_at, now)}" if table.next_check_at > now else "now"
        yield "gateway", f"{commits} with an unknown outcome: the catalog is asked {again}"
    yield "next check", _describe_next(table, now)
    if table.refresh_at is not None:
        yield "refresh", format_ago(table.refresh_at, now)


def _describe_pending(pending: PendingChangeModel) -> str:
    if not pending.has_unprocessed and not _has_pending_change(pending):
        return "nothing: every notification is processed"
    return _pending_changes(pending) or "a check of the table"


def _has_pending_change(pending: PendingChangeModel) -> bool:
    """Return whether a reported change is not published yet."""
    return pending.drop or pending.renamed_to is not None or pending.min_metadata_location is not None


def _pending_changes(pending: PendingChangeModel) -> str:
    changes = [
        f"at least {pending.min_metadata_location}" if pending.min_metadata_location is not None else "",
        f"a rename to {pending.renamed_to}" if pending.renamed_to is not None else "",
        ("a drop with purge" if pending.purge else "a drop") if pending.drop else "",
    ]
    return "; ".join(filter(None, changes))


def _describe_next(table: TableModel, now: datetime) -> str:
    match table.state:
        case "leased":
            return "now"
        case "dead":
            return (
                f"{format_ago(table.due_at, now)}, or with the next event"
                if table.due_at > now
                else "with the next event"
            )
        case _:
            wait = table.not_before
            early = f", not before {format_duration(wait - now)} from now" if wait is not None and wait > now else ""
            return f"{format_ago(table.due_at, now) if table.due_at > now else 'due, waits for a worker'}{early}"
