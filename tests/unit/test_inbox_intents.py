"""When the catalog is asked for a commit whose outcome is not known, and what notes make of the open intents."""

from __future__ import annotations

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
    IntentFold,
    OpenIntent,
    after_check,
    first_check_at,
    is_due,
    latest_check_at,
    mark_unresolved,
    next_check_at,
    notifications_for_due,
    parse_intent,
    save_intents,
    whole_catalog_intent,
)
from sfn.inbox.sqlite import connect
from sfn.inbox.sqlite_writer import SqliteTransaction
from sfn.inbox.transaction import Change, drive

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


class Shelf:
    """The open intents of an inbox in memory.

    Args:
        rows: those that are open.
        known: the subjects with a job.
        more: number of further intents of one peer, for tables without a job.
    """

    def __init__(self, *rows: OpenIntent, known: tuple[JobKey, ...] = (), more: int = 0) -> None:
        self.known = known
        self.transaction = SqliteTransaction(connect(":memory:"))
        others = [
            replace(OPEN, id=f"other {number}", opened_at=at(-1), is_for_unknown_table=True) for number in range(more)
        ]
        drive(self.transaction.write([save_intents([*rows, *others])]))

    def fold(self, *messages: Intent | IntentOutcome, now: datetime = NOW) -> list[Change]:
        """Fold messages that were received at a time; return what was written."""
        fold = IntentFold([(message, now) for message in messages])
        queries = fold.queries()
        fold.apply(drive(self.transaction.fetch_all(queries)) if queries else [], lambda one: one in self.known)
        changes = fold.changes()
        drive(self.transaction.write(changes))
        return changes

    def open(self) -> list[OpenIntent]:
        """The open intents in the order in which they were stored, without the others of the peer."""
        query = (
            "SELECT id, subject, sender, peer, opened_at, due_at, is_for_unknown_table, is_unresolved FROM sfn.intent "
            "ORDER BY rowid"
        )
        found = [parse_intent(row) for row in drive(self.transaction.fetch(query))]
        return [one for one in found if not one.id.startswith("other ")]


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


def test_an_answer_with_a_known_outcome_reads_nothing() -> None:
    assert (
        IntentFold([(IntentOutcome("a", is_known=True), NOW), (IntentOutcome("b", is_known=True), NOW)]).queries() == []
    )


def test_an_intent_and_its_answer_in_one_fold_read_nothing_and_leave_no_row() -> None:
    messages = Intent("a", (ORDERS,)), Intent("b", (RETURNS,)), IntentOutcome("b", is_known=True)
    fold = IntentFold([(message, NOW) for message in (*messages, IntentOutcome("a", is_known=True))])
    assert (fold.queries(), fold.subjects()) == ([], set())
    shelf = Shelf()
    shelf.fold(*messages)
    assert [one.id for one in shelf.open()] == ["a"]


def test_an_answer_closes_an_intent_of_an_earlier_fold() -> None:
    shelf = Shelf()
    shelf.fold(Intent("a", (ORDERS, RETURNS)), Intent("b", (ORDERS,)))
    shelf.fold(IntentOutcome("a", is_known=True))
    assert [one.id for one in shelf.open()] == ["b"]


@pytest.mark.parametrize("together", [True, False])
def test_the_messages_of_another_intent_do_not_close_one(*, together: bool) -> None:
    shelf = Shelf()
    messages = Intent("a", (ORDERS,)), IntentOutcome("b", is_known=True)
    for some in [messages] if together else [[one] for one in messages]:
        shelf.fold(*some)
    assert [one.id for one in shelf.open()] == ["a"]


def test_an_intent_is_a_row_for_each_of_its_subjects() -> None:
    shelf = Shelf(known=(ORDERS,))
    shelf.fold(Intent("a", (ORDERS, RETURNS, PROD, ORDERS), "gateway", "10.0.0.1"))
    assert shelf.open() == [
        OPEN,
        replace(OPEN, subject=RETURNS, is_for_unknown_table=True),
        replace(OPEN, subject=PROD),
    ]


def test_what_is_there_is_left_as_it_is() -> None:
    shelf = Shelf(OPEN, known=(ORDERS,))
    assert shelf.fold(Intent("a", (ORDERS,), "other", "10.0.0.2"), now=at(9)) == []
    assert shelf.open() == [OPEN]


def test_notes_of_one_id_follow_one_another() -> None:
    shelf = Shelf()
    shelf.fold(Intent("a", (ORDERS,)), IntentOutcome("a", is_known=True), IntentOutcome("a", is_known=False))
    assert shelf.open() == []
    shelf.fold(Intent("a", (ORDERS,)), now=at(1))
    assert [one.opened_at for one in shelf.open()] == [at(1)]


@pytest.mark.parametrize("is_known", [True, False])
def test_an_answer_that_comes_before_its_intent_closes_nothing(*, is_known: bool) -> None:
    shelf = Shelf()
    shelf.fold(IntentOutcome("a", is_known=is_known), Intent("a", (ORDERS,)))
    assert [(one.id, one.is_unresolved) for one in shelf.open()] == [("a", False)]


@pytest.mark.parametrize("together", [True, False])
def test_an_unresolved_intent_is_not_closed_by_a_second_answer(*, together: bool) -> None:
    shelf = Shelf()
    messages = Intent("a", (ORDERS,)), IntentOutcome("a", is_known=False), IntentOutcome("a", is_known=True)
    for some in [messages] if together else [[one] for one in messages]:
        shelf.fold(*some)
    assert [(one.id, one.is_unresolved) for one in shelf.open()] == [("a", True)]


@pytest.mark.parametrize(
    ("others", "kept"), [(MAX_UNKNOWN_TABLES - 2, ["a", "b"]), (MAX_UNKNOWN_TABLES - 1, ["a", WHOLE_CATALOG_ID])]
)
def test_a_peer_has_a_bound(others: int, kept: list[str]) -> None:
    shelf = Shelf(more=others)
    shelf.fold(*(Intent(number, (name,), "gateway", "10.0.0.1") for number, name in (("a", ORDERS), ("b", RETURNS))))
    assert [one.id for one in shelf.open()] == kept


def test_the_catalogs_own_intent_is_no_more_than_one() -> None:
    before = OpenIntent(WHOLE_CATALOG_ID, PROD, "gateway", "", at(-900), at(-5), is_unresolved=True)
    shelf = Shelf(before, more=MAX_UNKNOWN_TABLES)
    shelf.fold(Intent("a", (ORDERS, RETURNS), "gateway", "10.0.0.1"))
    assert shelf.open() == [replace(before, opened_at=NOW)]


@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_closed_or_merged_counts_no_more(*, is_known: bool) -> None:
    mine = replace(OPEN, is_for_unknown_table=True)
    left = replace(OPEN, id="x", peer="10.0.0.9", is_unresolved=True)
    shelf = Shelf(mine, left, more=MAX_UNKNOWN_TABLES - 1)
    shelf.fold(IntentOutcome("a", is_known=is_known), Intent("b", (RETURNS,), "gateway", "10.0.0.1"), now=at(1))
    assert [one.id for one in shelf.open()] == ["x", "b"]


@pytest.mark.parametrize("together", [True, False])
@given(came=st.lists(st.floats(0, 60).map(lambda seconds: timedelta(seconds=seconds)), min_size=1, max_size=20))
def test_each_commit_left_open_has_one_that_is_asked_for_at_most_ten_seconds_early(
    came: list[timedelta], *, together: bool
) -> None:
    shelf = Shelf(known=(ORDERS,))
    for number, after in enumerate(sorted(came)):
        messages = Intent(f"{number}", (ORDERS,)), IntentOutcome(f"{number}", is_known=False)
        for some in [messages] if together else [[one] for one in messages]:
            shelf.fold(*some, now=NOW + after)
    moments = sorted(one.opened_at for one in shelf.open())
    assert all(any(0 <= (NOW + after - one).total_seconds() <= 10 for one in moments) for after in came)
    assert all(later - one > MERGE_WINDOW for one, later in pairwise(moments))
