"""One table's whole story on a page, pure: how it stands and what to do, then what is held, wanted and was tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sfn.admin.schemas import DeadLetterModel, PendingChangeModel, TableModel
from sfn.cli.render import Grid, Line, Page, Tone, escape, format_ago, pluralise
from sfn.cli.status import adopt_command, remedy_for
from sfn.clock import format_duration
from sfn.domain.identifiers import encode_identifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Rescheduled, Retry, Returned

_OUTCOME_TEXTS: Final = {
    Rescheduled.label: "right as far as could be told,",
    Retry.label: "failed",
    DeadLettered.label: "given up",
    Returned.label: "put off",
}
"""How a look ended, where its name in JSON says that to insiders alone."""
_MAX_EVENT_SHOWN: Final = 400
"""Characters of an event."""


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """How a table stands.

    Attributes:
        text: in one line.
        tone: GOOD where nobody has to do anything.
        command: what to type next, where there is something.
    """

    text: str
    tone: Tone
    command: str = ""


def table_verdict(table: TableModel, now: datetime) -> TableVerdict:
    """What a tired reader needs first."""
    letter = next((one for one in table.dead_letters if one.status == "open"), None)
    if table.state == "dead" or letter is not None:
        return _given_up(table, letter)
    if table.on_hold:
        command = f"sfn release {table.catalog}"
        return TableVerdict("a step that is not forward is held until somebody lets it pass", Tone.BAD, command)
    if table.failing_since is not None:
        long = format_duration(now - table.failing_since)
        return TableVerdict(
            f"fails since {long}, attempt {table.attempt}; again {format_ago(table.due_at, now)}", Tone.WARNING
        )
    if table.state == "leased":
        return TableVerdict("is being published just now", Tone.GOOD)
    if table.pending.has_unprocessed:
        return TableVerdict(f"something new was told of; its turn: {format_ago(table.due_at, now)}", Tone.WARNING)
    if (waits := waiting_text(table, now)) is not None:
        is_right = table.published is not None and not _has_pending_change(table.pending)
        return TableVerdict(waits, Tone.GOOD if is_right else Tone.WARNING)
    if table.published is None:
        return _without_file(table)
    return TableVerdict(f"is published, as the catalog said {format_ago(table.published.written_at, now)}", Tone.GOOD)


def _without_file(table: TableModel) -> TableVerdict:
    match table.unpublished:
        case "retired":
            why = f"is left without a file: the catalog {table.catalog} is retired"
            return TableVerdict(why, Tone.PLAIN, f"sfn retire {table.catalog} --undo")
        case "excluded":
            return TableVerdict("gets no files: the catalog's include or exclude leaves it out", Tone.PLAIN)
        case "left-alone":
            return TableVerdict("gets no files: its own properties in the catalog say so", Tone.PLAIN)
        case "dropped" if table.renamed_to is not None:
            return TableVerdict(f"was renamed to {escape(table.renamed_to)}: its files say so", Tone.PLAIN)
        case "dropped":
            return TableVerdict("was dropped or renamed: the catalog has it no more, and its files say so", Tone.PLAIN)
        case "spelling":
            listed = escape(table.listed_as or "another name")
            why = f"is another spelling of {listed}: the catalog lists it so, and that name has the files"
            return TableVerdict(why, Tone.PLAIN, f"sfn status {listed}")
        case "missing":
            return TableVerdict("is not there: the catalog has no such table, nor is there a file of it", Tone.WARNING)
        case _:
            return TableVerdict("has no file yet: nothing was found that could be published", Tone.WARNING)


def waiting_text(table: TableModel, now: datetime) -> str | None:
    """What a table waits for whose last look was well as far as could be told; None for one that waits for nothing."""
    last = table.last_result
    if table.state != "queued" or table.pending.has_unprocessed or last is None or last.outcome != Rescheduled.label:
        return None
    if table.unpublished in {"retired", "spelling"}:
        return None
    if _has_pending_change(table.pending):
        so_far = f"{_pending_changes(table.pending)} is pending"
    elif table.published is None:
        so_far = "has no live file"
    else:
        so_far = "is published, as the catalog says"
    return f"{so_far}; looked at once more {format_ago(table.due_at, now)} ({last.why})"


def table_page(table: TableModel, now: datetime) -> Page:
    """The page."""
    summary = table_verdict(table, now)
    name = escape(f"{table.catalog}:{encode_identifier(table.namespace, table.name)}")
    page: list[Line | Grid] = [Line(f"{name} {summary.text}", summary.tone)]
    if summary.command:
        page.append(Line(f"  → {summary.command}"))
    page.append(Line(""))
    page.append(Grid(("", " "), [(head, escape(text)) for head, text in _facts(table, now)], wide_column=" "))
    if table.dead_letters:
        page.append(Line(""))
        page.append(dead_letters_grid(table.dead_letters, now, with_status=True))
    return page


def dead_letters_grid(letters: Sequence[DeadLetterModel], now: datetime, *, with_status: bool) -> Grid:
    """Dead letters, one a row."""
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
    """What a letter is about: a table, a catalog, or the sender of what nobody understood."""
    if letter.namespace is not None and letter.name is not None:
        return f"{letter.catalog}:{encode_identifier(letter.namespace, letter.name)}"
    return letter.catalog or f"sender {letter.sender or 'unknown'}"


def _given_up(table: TableModel, letter: DeadLetterModel | None) -> TableVerdict:
    reason = letter.reason if letter is not None else table.reason or "unknown"
    number = "" if letter is None else str(letter.id)
    replay = f"sfn dead-letters replay {number}".rstrip()
    name = encode_identifier(table.namespace, table.name)
    match reason:
        case DeadLetterReason.HELD_DROP:
            return TableVerdict("is held by the brake until somebody looks; where it is right:", Tone.BAD, replay)
        case DeadLetterReason.FOREIGN_CATALOG:
            command = adopt_command(table.catalog, table.foreign_catalog_id, name)
            return TableVerdict("is kept from us by another catalog's file; where that is ours:", Tone.BAD, command)
        case _:
            return TableVerdict(f"was given up ({escape(reason)}); once its cause is mended:", Tone.BAD, replay)


def _facts(table: TableModel, now: datetime) -> Iterator[tuple[str, str]]:
    if table.published is None:
        yield "published", "nothing"
    else:
        yield "published", table.published.metadata_location
        yield "", f"uuid {table.published.table_uuid or 'none'}, written {format_ago(table.published.written_at, now)}"
    if table.foreign_version_hint is not None:
        hint = table.foreign_version_hint.strip()
        yield "version hint", f'not ours ("{hint}"): left alone; remove it to have it kept'
    yield "wanted", _describe_pending(table.pending)
    if table.last_result is not None:
        why = f": {table.last_result.why}" if table.last_result.why else ""
        outcome = _OUTCOME_TEXTS.get(table.last_result.outcome, table.last_result.outcome)
        yield "last look", f"{outcome} {format_ago(table.last_result.at, now)}{why}"
    if table.failing_since is not None:
        yield "fails", f"since {format_duration(now - table.failing_since)}, {pluralise(table.attempt, 'attempt')}"
    yield from _upcoming(table, now)
    if table.last_event is not None:
        event = table.last_event
        number = "" if event.event_id is None else f", event {event.event_id}"
        yield "last event", f"{format_ago(event.received_at, now)} from {event.sender or 'nobody'}{number}"
        if event.body:
            yield "", event.body if len(event.body) <= _MAX_EVENT_SHOWN else f"{event.body[:_MAX_EVENT_SHOWN]} …"
    for location in table.locations:
        yield "location", location
    if (letter := next((one for one in table.dead_letters if one.status == "open"), None)) is not None:
        yield "what to do", remedy_for(letter, table.foreign_catalog_id)


def _upcoming(table: TableModel, now: datetime) -> Iterator[tuple[str, str]]:
    if table.next_check_at is not None:
        commits = pluralise(table.open_intents, "commit")
        again = f"again {format_ago(table.next_check_at, now)}" if table.next_check_at > now else "now"
        yield "gateway", f"{commits} whose outcome is not known: the catalog is asked {again}"
    yield "next look", _describe_next(table, now)
    if table.refresh_at is not None:
        yield "refresh", format_ago(table.refresh_at, now)


def _describe_pending(pending: PendingChangeModel) -> str:
    if not pending.has_unprocessed and not _has_pending_change(pending):
        return "nothing more: all that was told is seen through"
    return _pending_changes(pending) or "to be looked at; no more was told"


def _has_pending_change(pending: PendingChangeModel) -> bool:
    """Whether something that was told is not followed yet."""
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
            return f"{format_ago(table.due_at, now) if table.due_at > now else 'due, waits for its turn'}{early}"
