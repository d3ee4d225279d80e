"""When the catalog is asked for a commit whose outcome is not known, and what notes make of the open intents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.domain.events import Intent, IntentOutcome, Notification
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.inbox.intents import (
    CHECK_DELAYS,
    MAX_UNKNOWN_TABLES,
    MERGE_WINDOW,
    WHOLE_CATALOG_ID,
    IntentChange,
    OpenIntent,
    OpenIntents,
    after_check,
    first_check_at,
    is_due,
    latest_check_at,
    mark_unresolved,
    next_check_at,
    notifications_for_due,
    split_messages,
    whole_catalog_intent,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS, RETURNS, PROD = (
    TableIdentifier("prod", ("sales",), "orders"),
    TableIdentifier("prod", ("sales",), "returns"),
    CatalogName("prod"),
)
OPEN = OpenIntent("a", ORDERS, "gateway", "10.0.0.1", NOW, first_check_at(NOW))

pauses = st.floats(0, 3 * CHECK_DELAYS[-1].total_seconds()).map(lambda seconds: timedelta(seconds=seconds))
turns = st.timedeltas(timedelta(hours=-2), timedelta(hours=2))


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


class Kept:
    """A shelf of few."""

    def __init__(self, *rows: OpenIntent, known: tuple[TableIdentifier, ...] = (), more: int = 0) -> None:
        self.rows, self.known, self.more = rows, known, more

    def with_id(self, intent_id: str) -> Iterable[OpenIntent]:
        return [row for row in self.rows if row.id == intent_id]

    def unresolved_since(self, subject: JobKey) -> datetime | None:
        return max((row.opened_at for row in self.rows if row.subject == subject and row.is_unresolved), default=None)

    def count_unknown_tables(self, peer: str) -> int:
        return self.more + sum(row.peer == peer and row.is_for_unknown_table for row in self.rows)

    def has_job(self, table: TableIdentifier) -> bool:
        return table in self.known


def test_asks_come_in_order_and_end() -> None:
    assert [next_check_at(NOW, at(seconds)) for seconds in (0, 29, 30, 119, 120, 600, 2099, 2100)] == [
        *(at(seconds) for seconds in (30, 30, 120, 120, 600, 2100, 2100)),
        None,
    ]


@given(pauses)
def test_what_is_asked_late_is_asked_once_and_next_in_the_future(pause: timedelta) -> None:
    late = first_check_at(NOW) + pause
    after = after_check(OPEN, late)
    if late >= NOW + CHECK_DELAYS[-1]:
        assert after is None
    else:
        assert after is not None
        assert late < after.due_at <= NOW + CHECK_DELAYS[-1]
        assert not is_due(after.due_at, late)
        assert after == replace(OPEN, due_at=after.due_at)


@given(st.lists(turns, max_size=20))
def test_whatever_clocks_do_an_intent_is_due_within_the_longest_time_and_ends(turned: list[timedelta]) -> None:
    row: OpenIntent | None = OPEN
    now = NOW
    for turn in turned:
        now += turn
        if row is not None and is_due(row.due_at, now):
            row = after_check(row, now)
            assert row is None or not is_due(row.due_at, now)
        assert row is None or row.due_at <= latest_check_at(now)
    for _ in range(len(CHECK_DELAYS) + 1):
        if row is not None:
            now = max(now, row.due_at)
            row = after_check(row, now)
    assert row is None


def test_a_moment_further_away_than_any_ask_does_not_count() -> None:
    ahead = replace(OPEN, opened_at=at(86_400), due_at=at(86_430))
    assert is_due(ahead.due_at, NOW)
    assert after_check(ahead, NOW) == OPEN
    assert not is_due(latest_check_at(NOW), NOW)


def test_what_is_left_open_is_counted_from_then() -> None:
    left = mark_unresolved(replace(OPEN, due_at=at(2100), is_for_unknown_table=True), at(100))
    assert left == replace(OPEN, opened_at=at(100), due_at=at(130), is_for_unknown_table=True, is_unresolved=True)


def test_a_catalogs_own_intent_is_counted_from_now_and_its_ask_is_not_put_off() -> None:
    first = whole_catalog_intent(OPEN, None)
    assert first == OpenIntent(WHOLE_CATALOG_ID, PROD, "gateway", "", NOW, at(30), is_unresolved=True)
    later = replace(OPEN, opened_at=at(20), due_at=at(50))
    assert whole_catalog_intent(later, first) == replace(first, opened_at=at(20))
    assert whole_catalog_intent(later, replace(first, due_at=at(600))).due_at == at(50)


def test_one_hint_is_put_for_all_intents_of_a_subject() -> None:
    due = [OPEN, replace(OPEN, id="b", sender="other"), replace(OPEN, subject=PROD)]
    assert notifications_for_due(due) == [Notification(ORDERS, "gateway"), Notification(PROD, "gateway")]


def test_most_answers_need_no_look() -> None:
    opened = Intent("c", (ORDERS,))
    answers = (IntentOutcome("b", is_known=False), opened, IntentOutcome("c", is_known=True))
    notes: tuple[Intent | IntentOutcome, ...] = (IntentOutcome("a", is_known=True), *answers)
    closed, others = split_messages([(note, NOW) for note in notes])
    assert closed == ["a"]
    assert tuple(note for note, _ in others) == answers


def test_an_intent_is_a_row_for_each_of_its_subjects() -> None:
    book = OpenIntents(Kept(known=(ORDERS,)))
    book.apply(Intent("a", (ORDERS, RETURNS, PROD, ORDERS), "gateway", "10.0.0.1"), NOW)
    made = [OPEN, replace(OPEN, subject=RETURNS, is_for_unknown_table=True), replace(OPEN, subject=PROD)]
    assert book.changes() == [IntentChange(None, row) for row in made]


def test_what_is_there_is_left_as_it_is() -> None:
    book = OpenIntents(Kept(OPEN, known=(ORDERS,)))
    book.apply(Intent("a", (ORDERS,), "other", "10.0.0.2"), at(9))
    assert book.changes() == []


def test_notes_of_one_id_follow_one_another() -> None:
    book = OpenIntents(Kept())
    for note in (Intent("a", (ORDERS,)), IntentOutcome("a", is_known=True), IntentOutcome("a", is_known=False)):
        book.apply(note, NOW)
    assert book.changes() == []
    book.apply(Intent("a", (ORDERS,)), at(1))
    assert [change.after and change.after.opened_at for change in book.changes()] == [at(1)]


@pytest.mark.parametrize(
    ("others", "kept"), [(MAX_UNKNOWN_TABLES - 2, ["a", "b"]), (MAX_UNKNOWN_TABLES - 1, ["a", WHOLE_CATALOG_ID])]
)
def test_a_peer_has_a_bound(others: int, kept: list[str]) -> None:
    book = OpenIntents(Kept(more=others))
    for number, name in (("a", ORDERS), ("b", RETURNS)):
        book.apply(Intent(number, (name,), "gateway", "10.0.0.1"), NOW)
    assert [after.id for _, after in book.changes() if after is not None] == kept


def test_the_catalogs_own_intent_is_no_more_than_one() -> None:
    before = OpenIntent(WHOLE_CATALOG_ID, PROD, "gateway", "", at(-900), at(-5), is_unresolved=True)
    book = OpenIntents(Kept(before, more=MAX_UNKNOWN_TABLES))
    book.apply(Intent("a", (ORDERS, RETURNS), "gateway", "10.0.0.1"), NOW)
    assert book.changes() == [IntentChange(before, replace(before, opened_at=NOW))]


def test_what_is_closed_or_merged_counts_no_more() -> None:
    mine = replace(OPEN, is_for_unknown_table=True)
    left = replace(OPEN, id="x", peer="10.0.0.9", is_unresolved=True)
    for end, more in ((IntentOutcome("a", is_known=True), 1), (IntentOutcome("a", is_known=False), 1)):
        book = OpenIntents(Kept(mine, left, more=MAX_UNKNOWN_TABLES - more))
        book.apply(end, at(1))
        book.apply(Intent("b", (RETURNS,), "gateway", "10.0.0.1"), at(1))
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
        book = OpenIntents(kept)
        book.apply(opened, NOW + after)
        book.apply(IntentOutcome(opened.id, is_known=False), NOW + after)
        rows |= {row.id: row for _, row in book.changes() if row is not None}
    moments = sorted(row.opened_at for row in rows.values())
    assert all(any(0 <= (NOW + after - one).total_seconds() <= 10 for one in moments) for after in came)
    assert all(later - one > MERGE_WINDOW for one, later in pairwise(moments))
