"""Rows in SQLite: whatever was saved is what another process loads, in the lane where it is looked for."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sfn.domain.events import EventHistory, ReportedChange, TableHistory, TableOrigin
from sfn.domain.identifiers import CatalogName, JobKey, Table, TableIdentifier
from sfn.domain.jobs import DeadLetterReason, PendingChange, PublishCache, PublishedPointer, StoredObject, TableState
from sfn.inbox.codec import decode_key, encode_key, from_micros, parse_pending, parse_table_state, table_key_range
from sfn.inbox.model import Job, JobState, group_of
from sfn.inbox.sqlite.rows import MAX_CACHED_JOBS, SqliteJobs
from sfn.inbox.sqlite.schema import prepare

PLACES = st.sampled_from(["s3://lake/1", "s3://lake/2", "gs://pond/3"])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
moments = st.datetimes(datetime(1969, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone
counts = st.integers(0, 2**53)
names = st.builds(TableIdentifier, st.sampled_from(["prod", "dev"]), st.lists(texts, max_size=2).map(tuple), texts)
lives = st.builds(PublishedPointer, texts, st.none() | texts, PLACES, moments)
tellings = st.builds(
    ReportedChange,
    counts,
    st.none() | texts,
    st.none() | texts,
    st.none() | st.sampled_from(TableOrigin),
    st.booleans(),
    st.none() | names,
    st.none() | moments,
    st.booleans(),
)
told_tables = st.builds(
    TableHistory, st.none() | texts, st.none() | texts, counts, counts, st.just(-1) | counts, st.none() | names
)
stories = st.builds(
    TableState,
    live=st.none() | lives,
    has_settled=st.booleans(),
    missing_since=st.dictionaries(texts, moments, max_size=2),
    on_hold=st.booleans(),
    limit_overridden=st.booleans(),
    version_hints=st.dictionaries(texts, st.lists(texts, max_size=2).map(tuple), max_size=2),
    refresh_at=st.none() | moments,
    misses=counts,
    event_history=st.none()
    | st.builds(EventHistory, st.lists(told_tables, max_size=2).map(tuple), st.just(-1) | counts),
    is_short_lived=st.booleans(),
)
tables = st.builds(Table, st.none() | texts, PLACES, texts, st.lists(texts, max_size=2).map(tuple), counts, counts)
helds = st.builds(StoredObject, st.binary(max_size=8), texts)
memos = st.builds(
    PublishCache, st.none() | tables, st.none() | texts, st.dictionaries(texts, st.none() | helds, max_size=2)
)
wishes = st.builds(
    PendingChange,
    st.none() | texts,
    st.none() | names,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    reported_changes=st.lists(tellings, max_size=2).map(tuple),
)


def rows(subject: JobKey) -> st.SearchStrategy[Job]:
    return st.builds(
        Job,
        st.just(subject),
        moments,
        state=st.sampled_from(JobState),
        not_before=st.none() | moments,
        notified_seq=counts,
        processed_seq=counts,
        event_seq=st.none() | counts,
        fencing_token=counts,
        lease_until=st.none() | moments,
        attempt=counts,
        crashes=counts,
        failing_since=st.none() | moments,
        pending_since=st.none() | moments,
        reason=st.none() | st.sampled_from(DeadLetterReason),
        pending=wishes,
        locations=st.frozensets(PLACES),
        table_state=stories,
        cache=memos,
    )


def opened() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    prepare(db, "inbox.db")
    return db


def stored(db: sqlite3.Connection, key: str) -> tuple[Job | None, list[int], int]:
    """A row as another process would load it, its lane, and how many other records there are of it."""
    lanes = [lane for (lane,) in db.execute("SELECT lane FROM subject WHERE key = ?", (key,))]
    query = "SELECT (SELECT count(*) FROM memo WHERE key = ?1) + (SELECT count(*) FROM location WHERE key = ?1)"
    (others,) = db.execute(query, (key,)).fetchone()
    return SqliteJobs(db).load(key), lanes, others


@given(st.data(), names | st.just(CatalogName("prod")))
def test_what_is_saved_is_what_another_process_loads(data: st.DataObject, subject: JobKey) -> None:
    key = encode_key(subject)
    with closing(opened()) as db:
        ours = SqliteJobs(db)
        assert ours.load(key) is None
        for _ in range(3):
            before = ours.load(key)
            row = data.draw(st.none() | rows(subject))
            if row is not None and before is not None and data.draw(st.booleans()):
                parts = data.draw(
                    st.sets(
                        st.sampled_from(
                            ["pending", "table_state", "cache", "locations", "due_at", "notified_seq", "event_seq"]
                        )
                    )
                )
                row = replace(before, **{part: getattr(row, part) for part in parts})
            ours.save(key, row)
            assert ours.load(key) == row
            ours.flush()
            expected = [] if row is None else [ours.lanes()[group_of(row)]]
            others = 0 if row is None else len(row.locations) + (row.cache != PublishCache())
            assert stored(db, key) == (row, expected, others)


def test_no_more_rows_stay_known_than_there_is_room_for() -> None:
    with closing(opened()) as db:
        ours = SqliteJobs(db)
        at = datetime(2026, 1, 1, tzinfo=UTC)
        for number in range(MAX_CACHED_JOBS + 10):
            table = TableIdentifier("prod", (), f"t{number}")
            ours.save(encode_key(table), Job(table, at + timedelta(microseconds=number)))
        ours.flush()
        ours.begin()
        db.execute("UPDATE subject SET due_at = 0")
        due = [
            ours.load(encode_key(TableIdentifier("prod", (), f"t{number}")))
            for number in (0, 9, 10, MAX_CACHED_JOBS + 9)
        ]
        assert [row is not None and row.due_at == from_micros(0) for row in due] == [True, True, False, False]


@given(names | st.builds(CatalogName, texts))
def test_a_key_says_whose_it_is(subject: JobKey) -> None:
    assert decode_key(encode_key(subject)) == subject


@given(names, texts)
def test_keys_of_a_catalog_lie_together(table: TableIdentifier, catalog: str) -> None:
    start, end = table_key_range(catalog)
    assert (start < encode_key(table) < end) == (table.catalog == catalog)
    assert not start < encode_key(CatalogName(catalog)) < end


def test_what_an_older_version_wrote_is_read() -> None:
    pending = b'{"drop":true,"min_metadata_location":"s3://x","not_known_any_more":false,"renamed_to":null}'
    assert parse_pending(pending) == PendingChange(min_metadata_location="s3://x", drop=True)
    story = b'{"has_settled":true,"live":null,"misses":2,"not_known_any_more":{},"refresh_at":null}'
    assert parse_table_state(story) == TableState(has_settled=True, misses=2)
