"""Rows in SQLite: whatever was saved is what another process loads, in the lane where it is looked for."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sfn.inbox.codec import key_of, keys_of_tables, moment, parse_story, parse_wish, subject_of
from sfn.inbox.row import Row, State, lane_of
from sfn.inbox.sqlite.rows import KEPT, Rows
from sfn.inbox.sqlite.schema import prepare
from sfn.words import (
    Birth,
    CatalogName,
    Held,
    Memo,
    Published,
    Reason,
    Story,
    Subject,
    Table,
    TableName,
    Telling,
    Told,
    ToldTable,
    Wish,
)

PLACES = st.sampled_from(["s3://lake/1", "s3://lake/2", "gs://pond/3"])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
moments = st.datetimes(datetime(1969, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone
counts = st.integers(0, 2**53)
names = st.builds(TableName, st.sampled_from(["prod", "dev"]), st.lists(texts, max_size=2).map(tuple), texts)
lives = st.builds(Published, texts, st.none() | texts, PLACES, moments)
tellings = st.builds(
    Telling,
    counts,
    st.none() | texts,
    st.none() | texts,
    st.none() | st.sampled_from(Birth),
    st.booleans(),
    st.none() | names,
    st.none() | moments,
    st.booleans(),
)
told_tables = st.builds(
    ToldTable, st.none() | texts, st.none() | texts, counts, counts, st.just(-1) | counts, st.none() | names
)
stories = st.builds(
    Story,
    live=st.none() | lives,
    visited=st.booleans(),
    absent=st.dictionaries(texts, moments, max_size=2),
    held=st.booleans(),
    waived=st.booleans(),
    hints=st.dictionaries(texts, st.lists(texts, max_size=2).map(tuple), max_size=2),
    refresh_at=st.none() | moments,
    misses=counts,
    told=st.none() | st.builds(Told, st.lists(told_tables, max_size=2).map(tuple), st.just(-1) | counts),
    short_lived=st.booleans(),
)
tables = st.builds(Table, st.none() | texts, PLACES, texts, st.lists(texts, max_size=2).map(tuple), counts, counts)
helds = st.builds(Held, st.binary(max_size=8), texts)
memos = st.builds(Memo, st.none() | tables, st.none() | texts, st.dictionaries(texts, st.none() | helds, max_size=2))
wishes = st.builds(
    Wish,
    st.none() | texts,
    st.none() | names,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    tellings=st.lists(tellings, max_size=2).map(tuple),
)


def rows(subject: Subject) -> st.SearchStrategy[Row]:
    return st.builds(
        Row,
        st.just(subject),
        moments,
        state=st.sampled_from(State),
        not_before=st.none() | moments,
        seq=counts,
        done_seq=counts,
        told_seq=st.none() | counts,
        token=counts,
        lease_until=st.none() | moments,
        attempt=counts,
        crashes=counts,
        failing_since=st.none() | moments,
        waits_since=st.none() | moments,
        reason=st.none() | st.sampled_from(Reason),
        wish=wishes,
        locations=st.frozensets(PLACES),
        story=stories,
        memo=memos,
    )


def opened() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    prepare(db, "inbox.db")
    return db


def stored(db: sqlite3.Connection, key: str) -> tuple[Row | None, list[int], int]:
    """A row as another process would load it, its lane, and how many other records there are of it."""
    lanes = [lane for (lane,) in db.execute("SELECT lane FROM subject WHERE key = ?", (key,))]
    query = "SELECT (SELECT count(*) FROM memo WHERE key = ?1) + (SELECT count(*) FROM location WHERE key = ?1)"
    (others,) = db.execute(query, (key,)).fetchone()
    return Rows(db).load(key), lanes, others


@given(st.data(), names | st.just(CatalogName("prod")))
def test_what_is_saved_is_what_another_process_loads(data: st.DataObject, subject: Subject) -> None:
    key = key_of(subject)
    with closing(opened()) as db:
        ours = Rows(db)
        assert ours.load(key) is None
        for _ in range(3):
            before = ours.load(key)
            row = data.draw(st.none() | rows(subject))
            if row is not None and before is not None and data.draw(st.booleans()):
                parts = data.draw(
                    st.sets(st.sampled_from(["wish", "story", "memo", "locations", "due_at", "seq", "told_seq"]))
                )
                row = replace(before, **{part: getattr(row, part) for part in parts})
            ours.save(key, row)
            assert ours.load(key) == row
            ours.flush()
            expected = [] if row is None else [ours.lanes()[lane_of(row)]]
            others = 0 if row is None else len(row.locations) + (row.memo != Memo())
            assert stored(db, key) == (row, expected, others)


def test_no_more_rows_stay_known_than_there_is_room_for() -> None:
    with closing(opened()) as db:
        ours = Rows(db)
        at = datetime(2026, 1, 1, tzinfo=UTC)
        for number in range(KEPT + 10):
            table = TableName("prod", (), f"t{number}")
            ours.save(key_of(table), Row(table, at + timedelta(microseconds=number)))
        ours.flush()
        ours.begin()
        db.execute("UPDATE subject SET due_at = 0")
        due = [ours.load(key_of(TableName("prod", (), f"t{number}"))) for number in (0, 9, 10, KEPT + 9)]
        assert [row is not None and row.due_at == moment(0) for row in due] == [True, True, False, False]


@given(names | st.builds(CatalogName, texts))
def test_a_key_says_whose_it_is(subject: Subject) -> None:
    assert subject_of(key_of(subject)) == subject


@given(names, texts)
def test_keys_of_a_catalog_lie_together(table: TableName, catalog: str) -> None:
    start, end = keys_of_tables(catalog)
    assert (start < key_of(table) < end) == (table.catalog == catalog)
    assert not start < key_of(CatalogName(catalog)) < end


def test_what_an_older_version_wrote_is_read() -> None:
    wish = b'{"anew":false,"drop":true,"floor":"s3://x","looked_again":false,"purge":false,"renamed_to":null,"vague":false}'
    assert parse_wish(wish) == Wish(floor="s3://x", drop=True)
    story = (
        b'{"absent":{},"held":false,"hints":{},"live":null,"misses":2,"refresh_at":null,"visited":true,"waived":false}'
    )
    assert parse_story(story) == Story(visited=True, misses=2)
