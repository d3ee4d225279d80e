"""Dead letters by the page and by the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sfn.admin.schemas import MOST, Filter, Letter, LetterInFull, Letters, Selection, Unreplayed
from sfn.cli.pages import Grid, Line, Tone, ago, moment, safe
from sfn.cli.printing import progress
from sfn.cli.remedies import remedy
from sfn.cli.service import NotKnown, Service
from sfn.cli.story import about
from sfn.words.table import spelled

NAMED: Final = 100
"""Letters that are named at once: each may be a request of many events, and one answer is waited for."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Letters of one reason and one cause: how many, since when, and the id of one of them."""

    reason: str
    cause: str
    count: int
    opened_at: datetime
    example: int


@dataclass(slots=True)
class Done:
    """What came of all batches: `passed` are the ids of no open letters."""

    count: int = 0
    failed: list[Unreplayed] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)


def pages(service: Service, chosen: Filter, status: str, limit: int, cause: str | None = None) -> Letters:
    """The letters of a filter, oldest first, at most `limit` where that is not 0.

    Args:
        cause: a part of the letters' cause, in any case.
    """
    found: list[Letter] = []
    after: int | None = None
    while True:
        most = min(MOST, limit - len(found)) if limit and cause is None else MOST
        page = service.letters(_parameters(chosen, status, after, most))
        found += [one for one in page.dead_letters if cause is None or cause.lower() in one.cause.lower()]
        after = page.next
        if limit and len(found) > limit:
            return Letters(dead_letters=found[:limit], next=found[limit - 1].id)
        if after is None or (limit and len(found) >= limit):
            return Letters(dead_letters=found, next=after)


def by_cause(letters: Sequence[Letter]) -> list[Cause]:
    """The letters by reason and cause, the most frequent first."""
    groups: dict[tuple[str, str], list[Letter]] = {}
    for one in letters:
        groups.setdefault((one.reason, one.cause), []).append(one)
    found = [
        Cause(reason, cause, len(those), min(one.opened_at for one in those), those[0].id)
        for (reason, cause), those in groups.items()
    ]
    return sorted(found, key=lambda each: (-each.count, each.example))


def causes_grid(found: Sequence[Cause], now: datetime) -> Grid:
    """Causes, one a row."""
    rows = [(f"{one.count:,}", one.reason, ago(one.opened_at, now), str(one.example), safe(one.cause)) for one in found]
    return Grid(("LETTERS", "REASON", "SINCE", "FOR EXAMPLE", "CAUSE"), rows, frozenset({"LETTERS"}), "CAUSE")


def count(service: Service, chosen: Filter) -> int:
    """How many open letters a filter covers."""
    total, after = 0, None
    while True:
        page = service.letters(_parameters(chosen, "open", after, MOST))
        total += len(page.dead_letters)
        after = page.next
        if after is None:
            return total


def replayed(service: Service, numbers: list[int], chosen: Filter, total: int) -> Done:
    """Replay batch after batch: the letters with these numbers, or all open ones that a filter covers."""
    done = Done()
    with progress("queueing", total) as moved:

        def replay(batch: Selection) -> int | None:
            some = service.replay(batch)
            done.count += some.replayed
            done.failed += some.failed
            done.passed += some.passed
            moved(done.count + len(done.failed), total)
            return some.next

        _in_batches(replay, numbers, chosen, total)
    return done


def discarded(service: Service, numbers: list[int], chosen: Filter, total: int) -> Done:
    """Discard batch after batch, as `replayed`."""
    done = Done()
    with progress("discarding", total) as moved:

        def discard(batch: Selection) -> int | None:
            some = service.discard(batch)
            done.count += some.discarded
            done.passed += some.passed
            moved(done.count, total)
            return some.next

        _in_batches(discard, numbers, chosen, total)
    return done


def not_open(service: Service, number: int, now: datetime) -> str:
    """Why there is nothing to do about a letter that is not open, and which one of the same table is."""
    try:
        letter = service.letter(number)
    except NotKnown:
        return f"there is no dead letter {number}: `sfn dead-letters list` names those that are open"
    said = f"dead letter {number} is closed ({safe(letter.status)} {ago(letter.changed_at, now)})"
    if letter.table is None or letter.namespace is None or letter.name is None:
        return said
    name = spelled(letter.namespace, letter.name)
    found = service.letters(_parameters(Filter(catalog=letter.catalog, table=name), "open", None, 1)).dead_letters
    return f"{said}; the open one of {safe(name)} is {found[0].id}" if found else f"{said}; {safe(name)} has none open"


def letter_page(letter: LetterInFull, now: datetime) -> Iterator[Line | Grid]:
    """One letter, whole."""
    actor = "" if letter.actor is None else f" by {safe(letter.actor)}"
    yield Line(f"dead letter {letter.id}: {letter.reason}, {letter.status}", Tone.BAD)
    rows = [
        ("about", safe(about(letter))),
        ("sender", safe(letter.sender or "-")),
        ("opened", f"{moment(letter.opened_at)} ({ago(letter.opened_at, now)})"),
        ("changed", f"{moment(letter.changed_at)} ({ago(letter.changed_at, now)}){actor}"),
        ("attempts", str(letter.attempts)),
        ("detail", safe(letter.detail)),
    ]
    if letter.status == "open":
        rows.append(("remedy", safe(remedy(letter, letter.foreign_id))))
    event = letter.event
    if event is not None:
        kind = safe(event.content_type or "no type said")
        rows.append(("request", f"POST {safe(event.path)}, {kind}, {event.size:,} bytes, of which are kept:"))
    yield Grid(("", " "), rows, long=" ")
    if event is not None:
        for line in event.body.splitlines():
            yield Line(f"  {safe(line)}")
    yield Line("")


def _parameters(chosen: Filter, status: str, after: int | None, limit: int) -> dict[str, str | int]:
    given: dict[str, str | int] = {
        "status": status,
        **chosen.model_dump(mode="json", exclude_none=True),
        "limit": limit,
    }
    return given if after is None else {**given, "after": after}


def _in_batches(ask: Callable[[Selection], int | None], numbers: list[int], chosen: Filter, total: int) -> None:
    """Ask as often as it takes, of none not at all; `ask` answers after which letter to go on, None for the end."""
    for start in range(0, len(numbers), NAMED):
        ask(Selection(ids=numbers[start : start + NAMED]))
    after: int | None = 0
    while not numbers and total and after is not None:
        after = ask(Selection(filter=chosen, after=after, limit=MOST))
