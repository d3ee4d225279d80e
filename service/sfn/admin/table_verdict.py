"""The verdict about one table: its state, since when, why and what to do; for the command line and the page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from sfn.admin.remedies import adopt_command
from sfn.clock import format_ago, format_duration, format_since
from sfn.domain.identifiers import encode_identifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Rescheduled, Retry, Returned

if TYPE_CHECKING:
    from sfn.admin.schemas import DeadLetterModel
    from sfn.admin.table_schemas import CatalogNowModel, OutcomeModel, PendingChangeModel, TableModel

_OUTCOME_TEXTS: Final = {
    Rescheduled.label: "checked",
    Retry.label: "failed",
    DeadLettered.label: "given up",
    Returned.label: "postponed",
}
"""Outcomes of checks in plain words, where the name in JSON is not plain."""


class VerdictSeverity(StrEnum):
    """How much a verdict concerns an operator.

    good     nothing to do
    neutral  nothing to do; the table has no file for a reason
    warning  the service goes on by itself, and is not done
    bad      an operator must act
    """

    GOOD = "good"
    NEUTRAL = "neutral"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """The state of a table in one line. The texts may contain characters of foreign files: escape them.

    Attributes:
        text: the state.
        severity: how much it concerns an operator.
        command: the next command to run; may be empty.
    """

    text: str
    severity: VerdictSeverity
    command: str = ""


def describe_outcome(outcome: str) -> str:
    """Return the name of an outcome in plain words."""
    return _OUTCOME_TEXTS.get(outcome, outcome)


def describe_attempts(outcome: OutcomeModel) -> str:
    """Return an outcome of a history in plain words, with how often it came in a row."""
    name = describe_outcome(outcome.outcome)
    if outcome.first_ended_at is None:
        return name
    first = format_duration(outcome.ended_at - outcome.first_ended_at)
    return f"{name} {outcome.times} times, first {first} earlier"


def table_verdict(table: TableModel, now: datetime) -> TableVerdict:
    """Return the state of a table in one line: since when it is late or was given up, why, and what comes next."""
    letter = next((one for one in table.dead_letters if one.status == "open"), None)
    if table.state == "dead" or letter is not None:
        return _given_up(table, letter, now)
    if table.on_hold:
        command = f"sfn release {table.catalog}"
        return TableVerdict(
            "a drop or rollback is held by the drop limit until an operator acts", VerdictSeverity.BAD, command
        )
    upcoming = "a worker has it now" if table.state == "leased" else f"next attempt {describe_due(table.due_at, now)}"
    if table.late and table.waiting_since is not None:
        cause = table.cause or "no cause is known"
        return TableVerdict(
            f"late since {_since(table.waiting_since, now)}: {cause}; {upcoming}", VerdictSeverity.WARNING
        )
    if table.failing_since is not None and table.attempt > 0 and table.state != "leased":
        cause = f": {table.cause}" if table.cause is not None else ""
        text = f"failing since {_since(table.failing_since, now)}, attempt {table.attempt}{cause}; {upcoming}"
        return TableVerdict(text, VerdictSeverity.WARNING)
    if table.state == "leased":
        return TableVerdict("a worker publishes the table now", VerdictSeverity.GOOD)
    if table.pending.has_unprocessed:
        is_due = "is due" if table.due_at > now else "was due"
        cause = "" if table.cause is None else f": {table.cause}"
        text = f"a notification is pending; its check {is_due} {format_ago(table.due_at, now)}{cause}"
        return TableVerdict(text, VerdictSeverity.WARNING)
    if (waits := waiting_text(table, now)) is not None:
        is_right = table.published is not None and not _has_pending_change(table.pending)
        return TableVerdict(waits, VerdictSeverity.GOOD if is_right else VerdictSeverity.WARNING)
    if table.published is None:
        return _without_file(table)
    answer = table.catalog_now
    if answer is not None and answer.agrees is False:
        text = "behind the catalog: it answers another metadata file, and no event has reported that"
        name = f"{table.catalog}:{encode_identifier(table.namespace, table.name)}"
        return TableVerdict(text, VerdictSeverity.WARNING, f"sfn notify {name}")
    return TableVerdict(
        f"published; the file was written {format_ago(table.published.written_at, now)}", VerdictSeverity.GOOD
    )


def describe_due(at: datetime, now: datetime) -> str:
    """Return when something is due, which may be at once."""
    return format_ago(at, now) if at > now else "is due now"


def _since(at: datetime, now: datetime) -> str:
    return f"{format_since(at, now)} ({format_duration(now - at)})"


def _without_file(table: TableModel) -> TableVerdict:
    match table.unpublished:
        case "retired":
            why = f"no file: the catalog {table.catalog} is retired"
            return TableVerdict(why, VerdictSeverity.NEUTRAL, f"sfn retire {table.catalog} --undo")
        case "excluded":
            return TableVerdict(
                "no file: the catalog's include or exclude leaves the table out", VerdictSeverity.NEUTRAL
            )
        case "left-alone":
            return TableVerdict(
                "no file: the table's own properties in the catalog exclude it", VerdictSeverity.NEUTRAL
            )
        case "dropped" if table.renamed_to is not None:
            return TableVerdict(f"renamed to {table.renamed_to}: its files lead there", VerdictSeverity.NEUTRAL)
        case "dropped":
            return TableVerdict(
                "dropped or renamed: the catalog has no such table, and its files say so", VerdictSeverity.NEUTRAL
            )
        case "spelling":
            listed = table.listed_as or "another name"
            why = f"another spelling of {listed}: the catalog lists that name, which has the files"
            return TableVerdict(why, VerdictSeverity.NEUTRAL, f"sfn status {listed}")
        case "missing":
            return TableVerdict("not found: the catalog has no such table, and no file exists", VerdictSeverity.WARNING)
        case _:
            return TableVerdict("no file yet: the last check found nothing to publish", VerdictSeverity.WARNING)


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


def _given_up(table: TableModel, letter: DeadLetterModel | None, now: datetime) -> TableVerdict:
    reason = letter.reason if letter is not None else table.reason or "unknown"
    number = "" if letter is None else str(letter.id)
    replay = f"sfn dead-letters replay {number}".rstrip()
    since = "" if letter is None else f" since {_since(letter.opened_at, now)}"
    name = encode_identifier(table.namespace, table.name)
    match reason:
        case DeadLetterReason.HELD_DROP:
            held = f"held by the drop limit{since}; if {table.catalog} lost the table, restore it there"
            command = f"sfn release {table.catalog}"
            return TableVerdict(f"{held}; if it was dropped on purpose:", VerdictSeverity.BAD, command)
        case DeadLetterReason.FOREIGN_CATALOG:
            command = adopt_command(table.catalog, table.foreign_catalog_id, name)
            text = f"blocked{since} by a file of another catalog_id; if that file is this catalog's:"
            return TableVerdict(text, VerdictSeverity.BAD, command)
        case _:
            cause = f": {letter.cause}" if letter is not None and letter.cause else ""
            text = f"given up{since} ({reason}){cause}; after its cause is fixed:"
            return TableVerdict(text, VerdictSeverity.BAD, replay)


def describe_pending(pending: PendingChangeModel) -> str:
    """Return the change that is not published yet."""
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


def describe_next(table: TableModel, now: datetime) -> str:
    """Return the time of the next check."""
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
            return f"{describe_due(table.due_at, now)}{early}"


def describe_catalog_now(answer: CatalogNowModel) -> str:
    """Return what the catalog answers now."""
    match answer.state:
        case "event-only":
            return "an event-only catalog cannot be queried"
        case "unanswered":
            return answer.error or "no answer"
        case "found":
            return answer.metadata_location or "-"
        case "staged":
            return "a table without a metadata file yet"
        case "not-found":
            return "no such table"


def describe_agreement(answer: CatalogNowModel) -> str:
    """Return whether the catalog's answer is what is published."""
    return f"{'agrees with' if answer.agrees else 'differs from'} what is published"
