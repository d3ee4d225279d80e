"""What the inbox stores of messages and jobs, and what it reads again."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.domain.events import (
    InboxMessage,
    Intent,
    IntentOutcome,
    Notification,
    TableOrigin,
    TableReport,
    UndecodableRequest,
)
from sfn.domain.identifiers import CatalogName, JobKey, Table, TableIdentifier
from sfn.domain.jobs import (
    BackwardStep,
    DeadLetterReason,
    PendingChange,
    PublishCache,
    PublishedPointer,
    StepKind,
    StoredObject,
    TableState,
)
from sfn.errors import FatalError
from sfn.inbox.model import Job, JobState, LastResult
from sfn.inbox.schema import (
    MAX_KEY_BYTES,
    UNREAD_CACHE,
    RecordKind,
    decode_job,
    decode_record,
    decode_subject,
    encode_cache,
    encode_job,
    encode_key,
    encode_message,
    encode_step,
    encode_subject,
    from_micros,
    table_key_range,
    to_micros,
)
from tests.unit.rows import ORDERS

PLACES = st.sampled_from(["s3://lake/1", "s3://lake/2", "gs://pond/3"])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
moments = st.datetimes(datetime(1969, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone
counts = st.integers(0, 2**53)
names = st.builds(TableIdentifier, st.sampled_from(["prod", "dev"]), st.lists(texts, max_size=2).map(tuple), texts)
catalogs = st.builds(CatalogName, texts)
lives = st.builds(PublishedPointer, texts, st.none() | texts, PLACES, moments, st.none() | texts)
reports = st.builds(
    TableReport,
    st.none() | texts,
    st.lists(texts, max_size=2).map(tuple),
    st.just(-1) | counts,
    st.none() | counts,
    st.none() | names,
)
table_states = st.builds(
    TableState,
    live=st.none() | lives,
    has_settled=st.booleans(),
    missing_since=st.dictionaries(texts, moments, max_size=2),
    on_hold=st.booleans(),
    limit_overridden=st.booleans(),
    version_hints=st.dictionaries(texts, st.lists(texts, max_size=2).map(tuple), max_size=2),
    refresh_at=st.none() | moments,
    misses=counts,
    reported=st.lists(reports, max_size=2).map(tuple),
    is_short_lived=st.booleans(),
    listed_as=st.none() | names,
    older_files_at=st.frozensets(PLACES),
)
tables = st.builds(
    Table,
    st.none() | texts,
    PLACES,
    texts,
    st.lists(texts, max_size=2).map(tuple),
    counts,
    counts,
    branches=st.lists(st.tuples(texts, counts), max_size=2).map(tuple),
)
objects = st.builds(StoredObject, st.binary(max_size=8), texts)
caches = st.builds(
    PublishCache, st.none() | tables, st.none() | texts, st.dictionaries(texts, st.none() | objects, max_size=2)
)
pending = st.builds(PendingChange, st.none() | texts, st.none() | names, st.booleans(), st.booleans(), st.booleans())


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any job."""
    return draw(
        st.builds(
            Job,
            names | catalogs,
            moments,
            state=st.sampled_from(JobState),
            not_before=st.none() | moments,
            version=counts,
            processed_version=counts,
            leased_version=counts,
            event_seq=counts,
            fencing_token=counts,
            lease_until=st.none() | moments,
            claimed_at=st.none() | moments,
            attempt=counts,
            crashes=counts,
            failing_since=st.none() | moments,
            pending_since=st.none() | moments,
            reason=st.none() | st.sampled_from(DeadLetterReason),
            last_result=st.none() | st.builds(LastResult, texts, st.none() | texts, moments),
            outcomes=counts,
            has_letter=st.booleans(),
            pending=pending,
            locations=st.frozensets(PLACES),
            table_state=table_states,
            cache=caches,
        )
    )


messages = st.one_of(
    st.builds(
        Notification,
        names | catalogs,
        texts,
        st.none() | texts,
        min_metadata_location=st.none() | texts,
        renamed_to=st.none() | names,
        drop=st.booleans(),
        purge=st.booleans(),
        uuid=st.none() | texts,
        origin=st.none() | st.sampled_from(TableOrigin),
        renamed_from=st.none() | names,
        hold_drops=st.booleans(),
        force=st.booleans(),
        adopt_catalog_id=st.none() | texts,
        is_guessed=st.booleans(),
        body=st.binary(max_size=8),
        retry=st.booleans(),
    ),
    st.builds(Intent, texts, st.lists(names | catalogs, max_size=3).map(tuple), texts, texts),
    st.builds(IntentOutcome, texts, st.booleans()),
    st.builds(UndecodableRequest, texts, texts, st.none() | texts, st.binary(max_size=8), counts, texts),
)


@given(messages, moments)
def test_message_is_read_as_it_was_accepted(message: InboxMessage, at: datetime) -> None:
    row = encode_message(message, to_micros(at))
    record = decode_record(7, row.kind, row.received_at, row.record)
    assert (record.seq, record.received_at, record.message) == (7, at, message)


@given(messages)
def test_only_notifications_have_a_subject_and_the_key_of_deduplication(message: InboxMessage) -> None:
    row = encode_message(message, 0)
    if isinstance(message, Notification):
        assert (row.sender, row.event_id, row.key) == (message.sender, message.event_id, encode_key(message.subject))
    else:
        assert (row.sender, row.event_id, row.key) == ("", None, "")


@pytest.mark.parametrize(
    ("kind", "record"),
    [(RecordKind.NOTIFICATION, b""), (RecordKind.INTENT, b"\xff\xff"), (RecordKind.INTENT_OUTCOME, b"\x01"), (99, b"")],
)
def test_record_that_cannot_be_read_has_no_message(kind: int, record: bytes) -> None:
    assert decode_record(1, kind, 0, record).message is None


@given(messages, st.data())
def test_cut_record_never_raises(message: InboxMessage, data: st.DataObject) -> None:
    row = encode_message(message, 0)
    cut = row.record[: data.draw(st.integers(0, len(row.record)))]
    assert decode_record(1, row.kind, 0, cut).message in {None, message}


def test_stored_formats_are_these() -> None:
    """A later version reads the records of an earlier one, so a changed format needs a new `RecordKind`."""
    samples: list[InboxMessage] = [
        Notification(ORDERS, "etl", "e1", drop=True),
        Intent("a", (ORDERS, CatalogName("prod")), "gate", "::1"),
        IntentOutcome("a", is_known=True),
        UndecodableRequest("etl", "/v1/events", None, b"{", 1, "expected JSON"),
    ]
    decoded = [msgspec.msgpack.decode(encode_message(one, 0).record) for one in samples]
    name, catalog = ["table", "prod", ["sales"], "orders"], ["catalog", "prod"]
    assert decoded == [
        {"subject": name, "sender": "etl", "event_id": "e1", "drop": True},
        ["a", [name, catalog], "gate", "::1"],
        ["a", True],
        ["etl", "/v1/events", None, b"{", 1, "expected JSON"],
    ]
    assert [encode_message(one, 0).kind for one in samples] == [1, 2, 3, 4]


def test_record_with_a_field_of_a_newer_version_is_read() -> None:
    record = msgspec.msgpack.encode({"subject": ["table", "prod", ["sales"], "orders"], "not_known_yet": 1})
    assert decode_record(1, RecordKind.NOTIFICATION, 0, record).message == Notification(ORDERS)


@given(jobs())
def test_job_is_read_as_it_was_stored(job: Job) -> None:
    assert decode_job(encode_job(job), encode_cache(job.cache), has_cache=True) == job


@given(jobs())
def test_job_without_its_cache_is_known_for_one(job: Job) -> None:
    read = decode_job(encode_job(job))
    assert read.cache is UNREAD_CACHE
    assert msgspec.structs.replace(read, cache=job.cache) == job


def test_empty_cache_takes_no_record() -> None:
    assert encode_cache(PublishCache()) is None


def test_damaged_job_is_fatal_and_names_the_remedy() -> None:
    with pytest.raises(FatalError, match="restore the inbox from a backup"):
        decode_job(b"\xc1")


@given(names | catalogs)
def test_subject_is_read_as_it_was_stored(subject: JobKey) -> None:
    assert decode_subject(encode_subject(subject)) == subject


@given(names | catalogs, names | catalogs)
def test_two_subjects_have_two_keys(one: JobKey, other: JobKey) -> None:
    assert (encode_key(one) == encode_key(other)) == (one == other)


@given(names, texts)
def test_keys_of_the_tables_of_a_catalog_lie_together(table: TableIdentifier, catalog: str) -> None:
    start, end = table_key_range(catalog)
    assert (start < encode_key(table) < end) == (table.catalog == catalog)
    assert not start < encode_key(CatalogName(catalog)) < end


def test_long_key_is_cut_and_stays_unique_in_its_catalog() -> None:
    long = [TableIdentifier("prod", ("ä" * 3000,), f"{number}") for number in range(3)]
    keys = [encode_key(one) for one in long]
    assert len(set(keys)) == 3
    assert all(len(key.encode()) <= MAX_KEY_BYTES for key in keys)
    start, end = table_key_range("prod")
    assert all(start < key < end for key in keys)


@given(st.lists(moments, min_size=2).map(sorted))
def test_times_keep_their_order_and_their_microseconds(at: list[datetime]) -> None:
    stored = [to_micros(one) for one in at]
    assert [from_micros(one) for one in stored] == at
    assert all(one <= later for one, later in pairwise(stored))


def test_steps_of_the_drop_limit_have_their_own_digests() -> None:
    other = TableIdentifier("prod", ("sales",), "returns")
    steps = [
        (subject, BackwardStep(kind, uuid, location))
        for subject in (ORDERS, other)
        for kind in StepKind
        for uuid in ("u1", "u2")
        for location in ("s3://lake/1", "s3://lake/\ud800")
    ]
    digests = {encode_step(subject, step) for subject, step in steps}
    assert len(digests) == len(steps)
    assert {len(one) for one in digests} == {32}
