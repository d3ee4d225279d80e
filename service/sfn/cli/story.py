"""One table's whole story on a page, pure: how it stands and what to do, then what is held, wanted and was tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sfn.admin.schemas import Letter, Table, Wanted
from sfn.cli.pages import Grid, Line, Page, Tone, ago, counted, safe
from sfn.cli.remedies import adoption, remedy
from sfn.clock import lasting
from sfn.words import Dead, Later, Reason, Released, Retry
from sfn.words.table import spelled

_ENDED: Final = {
    Later.label: "right as far as could be told,",
    Retry.label: "failed",
    Dead.label: "given up",
    Released.label: "put off",
}
"""How a look ended, where its name in JSON says that to insiders alone."""
_SHOWN: Final = 400
"""Characters of an event."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a table stands.

    Attributes:
        text: in one line.
        tone: GOOD where nobody has to do anything.
        command: what to type next, where there is something.
    """

    text: str
    tone: Tone
    command: str = ""


def verdict(table: Table, now: datetime) -> Verdict:
    """What a tired reader needs first."""
    letter = next((one for one in table.dead_letters if one.status == "open"), None)
    if table.state == "dead" or letter is not None:
        return _given_up(table, letter)
    if table.held:
        command = f"sfn release {table.catalog}"
        return Verdict("a step that is not forward is held until somebody lets it pass", Tone.BAD, command)
    if table.failing_since is not None:
        long = lasting(now - table.failing_since)
        return Verdict(f"fails since {long}, attempt {table.attempt}; again {ago(table.due_at, now)}", Tone.WARNING)
    if table.state == "leased":
        return Verdict("is being published just now", Tone.GOOD)
    if table.wanted.news:
        return Verdict(f"something new was told of; its turn: {ago(table.due_at, now)}", Tone.WARNING)
    if (waits := waiting(table, now)) is not None:
        is_right = table.published is not None and not _is_open(table.wanted)
        return Verdict(waits, Tone.GOOD if is_right else Tone.WARNING)
    if table.published is None:
        return _without_file(table)
    return Verdict(f"is published, as the catalog said {ago(table.published.written_at, now)}", Tone.GOOD)


def _without_file(table: Table) -> Verdict:
    match table.unpublished:
        case "retired":
            why = f"is left without a file: the catalog {table.catalog} is retired"
            return Verdict(why, Tone.PLAIN, f"sfn retire {table.catalog} --undo")
        case "excluded":
            return Verdict("gets no files: the catalog's include or exclude leaves it out", Tone.PLAIN)
        case "left-alone":
            return Verdict("gets no files: its own properties in the catalog say so", Tone.PLAIN)
        case "dropped" if table.renamed_to is not None:
            return Verdict(f"was renamed to {safe(table.renamed_to)}: its files say so", Tone.PLAIN)
        case "dropped":
            return Verdict("was dropped or renamed: the catalog has it no more, and its files say so", Tone.PLAIN)
        case "spelling":
            listed = safe(table.listed_as or "another name")
            why = f"is another spelling of {listed}: the catalog lists it so, and that name has the files"
            return Verdict(why, Tone.PLAIN, f"sfn status {listed}")
        case "missing":
            return Verdict("is not there: the catalog has no such table, nor is there a file of it", Tone.WARNING)
        case _:
            return Verdict("has no file yet: nothing was found that could be published", Tone.WARNING)


def waiting(table: Table, now: datetime) -> str | None:
    """What a table waits for whose last look was well as far as could be told; None for one that waits for nothing."""
    last = table.last
    if table.state != "queued" or table.wanted.news or last is None or last.outcome != Later.label:
        return None
    if table.unpublished in {"retired", "spelling"}:
        return None
    if _is_open(table.wanted):
        so_far = f"{_wishes(table.wanted)} is pending"
    elif table.published is None:
        so_far = "has no live file"
    else:
        so_far = "is published, as the catalog says"
    return f"{so_far}; looked at once more {ago(table.due_at, now)} ({last.why})"


def story(table: Table, now: datetime) -> Page:
    """The page."""
    said = verdict(table, now)
    name = safe(f"{table.catalog}:{spelled(table.namespace, table.name)}")
    page: list[Line | Grid] = [Line(f"{name} {said.text}", said.tone)]
    if said.command:
        page.append(Line(f"  → {said.command}"))
    page.append(Line(""))
    page.append(Grid(("", " "), [(head, safe(text)) for head, text in _facts(table, now)], long=" "))
    if table.dead_letters:
        page.append(Line(""))
        page.append(letters_grid(table.dead_letters, now, with_status=True))
    return page


def letters_grid(letters: Sequence[Letter], now: datetime, *, with_status: bool) -> Grid:
    """Dead letters, one a row."""
    columns = ("ID", *(("STATUS",) if with_status else ()), "REASON", "ABOUT", "OPENED", "TRIED", "DETAIL")
    rows = [
        (
            str(one.id),
            *((one.status,) if with_status else ()),
            one.reason,
            safe(about(one)),
            ago(one.opened_at, now),
            str(one.attempts),
            safe(one.detail),
        )
        for one in letters
    ]
    return Grid(columns, rows, frozenset({"ID", "TRIED"}), "DETAIL")


def about(letter: Letter) -> str:
    """What a letter is about: a table, a catalog, or the sender of what nobody understood."""
    if letter.namespace is not None and letter.name is not None:
        return f"{letter.catalog}:{spelled(letter.namespace, letter.name)}"
    return letter.catalog or f"sender {letter.sender or 'unknown'}"


def _given_up(table: Table, letter: Letter | None) -> Verdict:
    reason = letter.reason if letter is not None else table.reason or "unknown"
    number = "" if letter is None else str(letter.id)
    replay = f"sfn dead-letters replay {number}".rstrip()
    name = spelled(table.namespace, table.name)
    match reason:
        case Reason.HELD_DROP:
            return Verdict("is held by the brake until somebody looks; where it is right:", Tone.BAD, replay)
        case Reason.FOREIGN_CATALOG:
            command = adoption(table.catalog, table.foreign_id, name)
            return Verdict("is kept from us by another catalog's file; where that is ours:", Tone.BAD, command)
        case _:
            return Verdict(f"was given up ({safe(reason)}); once its cause is mended:", Tone.BAD, replay)


def _facts(table: Table, now: datetime) -> Iterator[tuple[str, str]]:
    if table.published is None:
        yield "published", "nothing"
    else:
        yield "published", table.published.metadata_location
        yield "", f"uuid {table.published.table_uuid or 'none'}, written {ago(table.published.written_at, now)}"
    if table.foreign_hint is not None:
        hint = table.foreign_hint.strip()
        yield "version hint", f'not ours ("{hint}"): left alone; remove it to have it kept'
    yield "wanted", _wanted(table.wanted)
    if table.last is not None:
        why = f": {table.last.why}" if table.last.why else ""
        outcome = _ENDED.get(table.last.outcome, table.last.outcome)
        yield "last look", f"{outcome} {ago(table.last.at, now)}{why}"
    if table.failing_since is not None:
        yield "fails", f"since {lasting(now - table.failing_since)}, {counted(table.attempt, 'attempt')}"
    yield from _ahead(table, now)
    if table.last_event is not None:
        event = table.last_event
        number = "" if event.event_id is None else f", event {event.event_id}"
        yield "last event", f"{ago(event.received_at, now)} from {event.sender or 'nobody'}{number}"
        if event.body:
            yield "", event.body if len(event.body) <= _SHOWN else f"{event.body[:_SHOWN]} …"
    for location in table.locations:
        yield "location", location
    if (letter := next((one for one in table.dead_letters if one.status == "open"), None)) is not None:
        yield "what to do", remedy(letter, table.foreign_id)


def _ahead(table: Table, now: datetime) -> Iterator[tuple[str, str]]:
    if table.next_ask_at is not None:
        commits = counted(table.open_intents, "commit")
        again = f"again {ago(table.next_ask_at, now)}" if table.next_ask_at > now else "now"
        yield "gateway", f"{commits} whose outcome is not known: the catalog is asked {again}"
    yield "next look", _next(table, now)
    if table.refresh_at is not None:
        yield "refresh", ago(table.refresh_at, now)


def _wanted(wanted: Wanted) -> str:
    if not wanted.news and not _is_open(wanted):
        return "nothing more: all that was told is seen through"
    return _wishes(wanted) or "to be looked at; no more was told"


def _is_open(wanted: Wanted) -> bool:
    """Whether something that was told is not followed yet."""
    return wanted.drop or wanted.renamed_to is not None or wanted.metadata_location is not None


def _wishes(wanted: Wanted) -> str:
    told = [
        f"at least {wanted.metadata_location}" if wanted.metadata_location is not None else "",
        f"a rename to {wanted.renamed_to}" if wanted.renamed_to is not None else "",
        ("a drop with purge" if wanted.purge else "a drop") if wanted.drop else "",
    ]
    return "; ".join(filter(None, told))


def _next(table: Table, now: datetime) -> str:
    match table.state:
        case "leased":
            return "now"
        case "dead":
            return f"{ago(table.due_at, now)}, or with the next event" if table.due_at > now else "with the next event"
        case _:
            wait = table.not_before
            early = f", not before {lasting(wait - now)} from now" if wait is not None and wait > now else ""
            return f"{ago(table.due_at, now) if table.due_at > now else 'due, waits for its turn'}{early}"
