"""Dead letters by the page and by the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sfn.admin.schemas import (
    MAX_BATCH,
    DeadLetterCriteria,
    DeadLetterDetails,
    DeadLetterModel,
    DeadLetterPage,
    DeadLetterSelection,
    FailedReplay,
)
from sfn.cli.pages import Grid, Line, Tone, escape, format_ago, format_time
from sfn.cli.printing import progress
from sfn.cli.remedies import remedy_for
from sfn.cli.service import ServiceClient, UnknownToService
from sfn.cli.story import describe_key
from sfn.domain.identifiers import encode_identifier

MAX_IDS: Final = 100
"""Letters that are named at once: each may be a request of many events, and one answer is waited for."""


@dataclass(frozen=True, slots=True)
class CauseCount:
    """Letters of one reason and one cause: how many, since when, and the id of one of them."""

    reason: str
    cause: str
    count: int
    opened_at: datetime
    example: int


@dataclass(slots=True)
class BatchResult:
    """What came of all batches: `skipped` are the ids of no open letters."""

    count: int = 0
    failed: list[FailedReplay] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)


def fetch_letters(
    service: ServiceClient, criteria: DeadLetterCriteria, status: str, limit: int, cause: str | None = None
) -> DeadLetterPage:
    """The letters of a filter, oldest first, at most `limit` where that is not 0.

    Args:
        cause: a part of the letters' cause, in any case.
    """
    found: list[DeadLetterModel] = []
    after: int | None = None
    while True:
        most = min(MAX_BATCH, limit - len(found)) if limit and cause is None else MAX_BATCH
        page = service.dead_letters(_query_parameters(criteria, status, after, most))
        found += [one for one in page.dead_letters if cause is None or cause.lower() in one.cause.lower()]
        after = page.next
        if limit and len(found) > limit:
            return DeadLetterPage(dead_letters=found[:limit], next=found[limit - 1].id)
        if after is None or (limit and len(found) >= limit):
            return DeadLetterPage(dead_letters=found, next=after)


def group_by_cause(letters: Sequence[DeadLetterModel]) -> list[CauseCount]:
    """The letters by reason and cause, the most frequent first."""
    groups: dict[tuple[str, str], list[DeadLetterModel]] = {}
    for one in letters:
        groups.setdefault((one.reason, one.cause), []).append(one)
    found = [
        CauseCount(reason, cause, len(those), min(one.opened_at for one in those), those[0].id)
        for (reason, cause), those in groups.items()
    ]
    return sorted(found, key=lambda each: (-each.count, each.example))


def causes_grid(found: Sequence[CauseCount], now: datetime) -> Grid:
    """Causes, one a row."""
    rows = [
        (f"{one.count:,}", one.reason, format_ago(one.opened_at, now), str(one.example), escape(one.cause))
        for one in found
    ]
    return Grid(("LETTERS", "REASON", "SINCE", "FOR EXAMPLE", "CAUSE"), rows, frozenset({"LETTERS"}), "CAUSE")


def count_open(service: ServiceClient, criteria: DeadLetterCriteria) -> int:
    """How many open letters a filter covers."""
    total, after = 0, None
    while True:
        page = service.dead_letters(_query_parameters(criteria, "open", after, MAX_BATCH))
        total += len(page.dead_letters)
        after = page.next
        if after is None:
            return total


def replay_all(service: ServiceClient, numbers: list[int], criteria: DeadLetterCriteria, total: int) -> BatchResult:
    """Replay batch after batch: the letters with these numbers, or all open ones that a filter covers."""
    done = BatchResult()
    with progress("queueing", total) as on_progress:

        def replay(batch: DeadLetterSelection) -> int | None:
            some = service.replay(batch)
            done.count += some.replayed
            done.failed += some.failed
            done.skipped += some.skipped
            on_progress(done.count + len(done.failed), total)
            return some.next

        _in_batches(replay, numbers, criteria, total)
    return done


def discard_all(service: ServiceClient, numbers: list[int], criteria: DeadLetterCriteria, total: int) -> BatchResult:
    """Discard batch after batch, as `replayed`."""
    done = BatchResult()
    with progress("discarding", total) as on_progress:

        def discard(batch: DeadLetterSelection) -> int | None:
            some = service.discard(batch)
            done.count += some.discarded
            done.skipped += some.skipped
            on_progress(done.count, total)
            return some.next

        _in_batches(discard, numbers, criteria, total)
    return done


def explain_not_open(service: ServiceClient, number: int, now: datetime) -> str:
    """Why there is nothing to do about a letter that is not open, and which one of the same table is."""
    try:
        letter = service.dead_letter(number)
    except UnknownToService:
        return f"there is no dead letter {number}: `sfn dead-letters list` names those that are open"
    said = f"dead letter {number} is closed ({escape(letter.status)} {format_ago(letter.changed_at, now)})"
    if letter.table is None or letter.namespace is None or letter.name is None:
        return said
    name = encode_identifier(letter.namespace, letter.name)
    found = service.dead_letters(
        _query_parameters(DeadLetterCriteria(catalog=letter.catalog, table=name), "open", None, 1)
    ).dead_letters
    return (
        f"{said}; the open one of {escape(name)} is {found[0].id}" if found else f"{said}; {escape(name)} has none open"
    )


def letter_lines(letter: DeadLetterDetails, now: datetime) -> Iterator[Line | Grid]:
    """One letter, whole."""
    actor = "" if letter.actor is None else f" by {escape(letter.actor)}"
    yield Line(f"dead letter {letter.id}: {letter.reason}, {letter.status}", Tone.BAD)
    rows = [
        ("about", escape(describe_key(letter))),
        ("sender", escape(letter.sender or "-")),
        ("opened", f"{format_time(letter.opened_at)} ({format_ago(letter.opened_at, now)})"),
        ("changed", f"{format_time(letter.changed_at)} ({format_ago(letter.changed_at, now)}){actor}"),
        ("attempts", str(letter.attempts)),
        ("detail", escape(letter.detail)),
    ]
    if letter.status == "open":
        rows.append(("remedy", escape(remedy_for(letter, letter.foreign_catalog_id))))
    event = letter.request
    if event is not None:
        kind = escape(event.content_type or "no type said")
        rows.append(("request", f"POST {escape(event.path)}, {kind}, {event.size:,} bytes, of which are kept:"))
    yield Grid(("", " "), rows, wide_column=" ")
    if event is not None:
        for line in event.body.splitlines():
            yield Line(f"  {escape(line)}")
    yield Line("")


def _query_parameters(criteria: DeadLetterCriteria, status: str, after: int | None, limit: int) -> dict[str, str | int]:
    given: dict[str, str | int] = {
        "status": status,
        **criteria.model_dump(mode="json", exclude_none=True),
        "limit": limit,
    }
    return given if after is None else {**given, "after": after}


def _in_batches(
    send: Callable[[DeadLetterSelection], int | None], numbers: list[int], criteria: DeadLetterCriteria, total: int
) -> None:
    """Ask as often as it takes, of none not at all; `send` answers after which letter to go on, None for the end."""
    for start in range(0, len(numbers), MAX_IDS):
        send(DeadLetterSelection(ids=numbers[start : start + MAX_IDS]))
    after: int | None = 0
    while not numbers and total and after is not None:
        after = send(DeadLetterSelection(filter=criteria, after=after, limit=MAX_BATCH))
