"""When the catalog is asked for a commit whose outcome is not known, and what notes make of the open intents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.inbox.book import Book, Change, parted
from sfn.inbox.intents import (
    ASKS,
    MERGED_WITHIN,
    MOST_UNSEEN,
    WHOLE,
    OpenIntent,
    asked,
    farthest,
    first_ask,
    hints,
    is_due,
    left_open,
    next_ask,
    whole,
)
from sfn.words import Answered, CatalogName, Hint, Intent, Subject, TableName

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS, RETURNS, PROD = (
    TableName("prod", ("sales",), "orders"),
    TableName("prod", ("sales",), "returns"),
    CatalogName("prod"),
)
OPEN = OpenIntent("a", ORDERS, "gateway", "10.0.0.1", NOW, first_ask(NOW))

pauses = st.floats(0, 3 * ASKS[-1].total_seconds()).map(lambda seconds: timedelta(seconds=seconds))
turns = st.timedeltas(timedelta(hours=-2), timedelta(hours=2))


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


class Kept:
    """A shelf of few."""

    def __init__(self, *rows: OpenIntent, known: tuple[TableName, ...] = (), more: int = 0) -> None:
        self.rows, self.known, self.more = rows, known, more

    def of(self, number: str) -> Iterable[OpenIntent]:
        return [row for row in self.rows if row.id == number]

    def left_at(self, subject: Subject) -> datetime | None:
        return max((row.opened_at for row in self.rows if row.subject == subject and row.is_left), default=None)

    def unseen(self, peer: str) -> int:
        return self.more + sum(row.peer == peer and row.is_unseen for row in self.rows)

    def has_row(self, table: TableName) -> bool:
        return table in self.known


def test_asks_come_in_order_and_end() -> None:
    assert [next_ask(NOW, at(seconds)) for seconds in (0, 29, 30, 119, 120, 600, 2099, 2100)] == [
        *(at(seconds) for seconds in (30, 30, 120, 120, 600, 2100, 2100)),
        None,
    ]


@given(pauses)
def test_what_is_asked_late_is_asked_once_and_next_in_the_future(pause: timedelta) -> None:
    late = first_ask(NOW) + pause
    after = asked(OPEN, late)
    if late >= NOW + ASKS[-1]:
        assert after is None
    else:
        assert after is not None
        assert late < after.due_at <= NOW + ASKS[-1]
        assert not is_due(after.due_at, late)
        assert after == replace(OPEN, due_at=after.due_at)


@given(st.lists(turns, max_size=20))
def test_whatever_clocks_do_an_intent_is_due_within_the_longest_time_and_ends(turned: list[timedelta]) -> None:
    row: OpenIntent | None = OPEN
    now = NOW
    for turn in turned:
        now += turn
        if row is not None and is_due(row.due_at, now):
            row = asked(row, now)
            assert row is None or not is_due(row.due_at, now)
        assert row is None or row.due_at <= farthest(now)
    for _ in range(len(ASKS) + 1):
        if row is not None:
            now = max(now, row.due_at)
            row = asked(row, now)
    assert row is None


def test_a_moment_further_away_than_any_ask_does_not_count() -> None:
    ahead = replace(OPEN, opened_at=at(86_400), due_at=at(86_430))
    assert is_due(ahead.due_at, NOW)
    assert asked(ahead, NOW) == OPEN
    assert not is_due(farthest(NOW), NOW)


def test_what_is_left_open_is_counted_from_then() -> None:
    left = left_open(replace(OPEN, due_at=at(2100), is_unseen=True), at(100))
    assert left == replace(OPEN, opened_at=at(100), due_at=at(130), is_unseen=True, is_left=True)


def test_a_catalogs_own_intent_is_counted_from_now_and_its_ask_is_not_put_off() -> None:
    first = whole(OPEN, None)
    assert first == OpenIntent(WHOLE, PROD, "gateway", "", NOW, at(30), is_left=True)
    later = replace(OPEN, opened_at=at(20), due_at=at(50))
    assert whole(later, first) == replace(first, opened_at=at(20))
    assert whole(later, replace(first, due_at=at(600))).due_at == at(50)


def test_one_hint_is_put_for_all_intents_of_a_subject() -> None:
    due = [OPEN, replace(OPEN, id="b", sender="other"), replace(OPEN, subject=PROD)]
    assert hints(due) == [Hint(ORDERS, "gateway"), Hint(PROD, "gateway")]


def test_most_answers_need_no_look() -> None:
    opened = Intent("c", (ORDERS,))
    answers = (Answered("b", known=False), opened, Answered("c", known=True))
    notes: tuple[Intent | Answered, ...] = (Answered("a", known=True), *answers)
    closed, others = parted([(note, NOW) for note in notes])
    assert closed == ["a"]
    assert tuple(note for note, _ in others) == answers


def test_an_intent_is_a_row_for_each_of_its_subjects() -> None:
    book = Book(Kept(known=(ORDERS,)))
    book.take(Intent("a", (ORDERS, RETURNS, PROD, ORDERS), "gateway", "10.0.0.1"), NOW)
    made = [OPEN, replace(OPEN, subject=RETURNS, is_unseen=True), replace(OPEN, subject=PROD)]
    assert book.changes() == [Change(None, row) for row in made]


def test_what_is_there_is_left_as_it_is() -> None:
    book = Book(Kept(OPEN, known=(ORDERS,)))
    book.take(Intent("a", (ORDERS,), "other", "10.0.0.2"), at(9))
    assert book.changes() == []


def test_notes_of_one_id_follow_one_another() -> None:
    book = Book(Kept())
    for note in (Intent("a", (ORDERS,)), Answered("a", known=True), Answered("a", known=False)):
        book.take(note, NOW)
    assert book.changes() == []
    book.take(Intent("a", (ORDERS,)), at(1))
    assert [change.after and change.after.opened_at for change in book.changes()] == [at(1)]


@pytest.mark.parametrize(("others", "kept"), [(MOST_UNSEEN - 2, ["a", "b"]), (MOST_UNSEEN - 1, ["a", WHOLE])])
def test_a_peer_has_a_bound(others: int, kept: list[str]) -> None:
    book = Book(Kept(more=others))
    for number, name in (("a", ORDERS), ("b", RETURNS)):
        book.take(Intent(number, (name,), "gateway", "10.0.0.1"), NOW)
    assert [after.id for _, after in book.changes() if after is not None] == kept


def test_the_catalogs_own_intent_is_no_more_than_one() -> None:
    before = OpenIntent(WHOLE, PROD, "gateway", "", at(-900), at(-5), is_left=True)
    book = Book(Kept(before, more=MOST_UNSEEN))
    book.take(Intent("a", (ORDERS, RETURNS), "gateway", "10.0.0.1"), NOW)
    assert book.changes() == [Change(before, replace(before, opened_at=NOW))]


def test_what_is_closed_or_merged_counts_no_more() -> None:
    mine = replace(OPEN, is_unseen=True)
    left = replace(OPEN, id="x", peer="10.0.0.9", is_left=True)
    for end, more in ((Answered("a", known=True), 1), (Answered("a", known=False), 1)):
        book = Book(Kept(mine, left, more=MOST_UNSEEN - more))
        book.take(end, at(1))
        book.take(Intent("b", (RETURNS,), "gateway", "10.0.0.1"), at(1))
        assert [(before and before.id, after and after.id) for before, after in book.changes()] == [
            ("a", None),
            (None, "b"),
        ]


@given(st.lists(st.floats(0, 60).map(lambda seconds: timedelta(seconds=seconds)), min_size=1, max_size=20))
def test_each_commit_left_open_has_one_that_is_asked_for_at_most_ten_seconds_early(came: list[timedelta]) -> None:
    rows: dict[str, OpenIntent] = {}
    for number, after in enumerate(sorted(came)):
        kept = Kept(*rows.values(), known=(ORDERS,))
        opened = Intent(f"{number}", (ORDERS,))
        book = Book(kept)
        book.take(opened, NOW + after)
        book.take(Answered(opened.id, known=False), NOW + after)
        rows |= {row.id: row for _, row in book.changes() if row is not None}
    moments = sorted(row.opened_at for row in rows.values())
    assert all(any(0 <= (NOW + after - one).total_seconds() <= 10 for one in moments) for after in came)
    assert all(later - one > MERGED_WITHIN for one, later in pairwise(moments))
