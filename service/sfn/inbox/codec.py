"""Encoding of inbox values for database columns, the same for every database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import compress
from json import dumps, loads
from operator import is_not
from typing import Any

import msgspec
from msgspec.structs import astuple

from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.domain.jobs import BackwardStep, DeadLetterReason, IndexedTable, PendingChange, PublishCache, TableState
from sfn.inbox.model import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterStatus,
    Job,
    JobState,
    LastResult,
    LastSweep,
    is_renamed,
    table_missing_since,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _EtagOnly:
    """The etag of a `PublishCache`; msgspec skips the other fields."""

    etag: str | None = None


encode = msgspec.json.Encoder(order="deterministic").encode
_decode_pending = msgspec.json.Decoder(PendingChange).decode
_decode_table_state = msgspec.json.Decoder(TableState).decode
_decode_last_result = msgspec.json.Decoder(LastResult).decode
_decode_cache = msgspec.json.Decoder(PublishCache).decode
_decode_etag = msgspec.json.Decoder(_EtagOnly).decode
_decode_parts = msgspec.json.Decoder(list[str]).decode
_decode_strings = msgspec.json.Decoder(frozenset[str]).decode
_EMPTY_PENDING, _EMPTY_TABLE_STATE, _EMPTY_CACHE = PendingChange(), TableState(), PublishCache()
_NO_PENDING = encode(_EMPTY_PENDING)


def to_micros(at: datetime) -> int:
    """Return a time as Unix microseconds."""
    return (at - _EPOCH) // _MICROSECOND


def to_micros_or_none(at: datetime | None) -> int | None:
    """Return a time as Unix microseconds; None for None."""
    return (at - _EPOCH) // _MICROSECOND if at is not None else None


def parse_sweep(started_at: int, unlisted_namespaces: str | None) -> LastSweep:
    """Return the last sweep from the columns of a catalog."""
    return LastSweep(
        from_micros(started_at),
        frozenset(loads(unlisted_namespaces)) if unlisted_namespaces is not None else frozenset(),
    )


def namespaces_column(namespaces: frozenset[str]) -> str | None:
    """Return the column value of the namespaces that a sweep could not list; None for none."""
    return dumps(sorted(namespaces)) if namespaces else None


def from_micros(at: int) -> datetime:
    """Return the time of Unix microseconds."""
    return _EPOCH + timedelta(microseconds=at)


def from_micros_or_none(at: int | None) -> datetime | None:
    """Return the time of Unix microseconds; None for None."""
    return _EPOCH + timedelta(microseconds=at) if at is not None else None


def encode_key(subject: JobKey) -> str:
    """Return the key of a subject: a JSON array of catalog, namespace levels and name; for a catalog its name only."""
    if isinstance(subject, CatalogName):
        return encode([subject.catalog]).decode()
    return encode([subject.catalog, *subject.namespace, subject.name]).decode()


def decode_key(key: str) -> JobKey:
    """Return the subject of a key."""
    catalog, *rest = _decode_parts(key)
    return TableIdentifier(catalog, tuple(rest[:-1]), rest[-1]) if rest else CatalogName(catalog)


def table_key_range(catalog: str) -> tuple[str, str]:
    """Return the lower and the upper bound of the keys of a catalog's tables."""
    start = encode([catalog]).decode().removesuffix("]")
    return f"{start},", f"{start}-"


def encode_step(subject: JobKey, step: BackwardStep) -> str:
    """Return the key under which an allowed step is recorded."""
    return repr((encode_key(subject), step.kind.value, step.uuid, step.metadata_location))


JOB_COLUMNS = (
    "state, due_at, not_before, seq, done_seq, told_seq, token, lease_until, attempt, crashes, failing_since, "
    "waits_since, reason, said, wish, story"
)
"""The columns of `parse_row` but for the last one, the memo."""

STAT_STATE_SQL = (
    "CASE WHEN state = 'leased' THEN 'leased' WHEN reason = 'held-drop' THEN 'held' "
    "WHEN reason IS NOT NULL THEN 'dead' WHEN attempt > 0 THEN 'retrying' "
    "WHEN seq > done_seq THEN 'due' ELSE 'scheduled' END"
)
"""`sfn.inbox.model.stat_state`, in SQL."""


def parse_job(key: str, columns: tuple[Any, ...], locations: frozenset[str]) -> Job:
    """Return the job from the values of `JOB_COLUMNS` and its cache."""
    state, due, before, notified_seq, processed_seq, event_seq, token, lease, attempt, crashes, *rest = columns
    since, pending_since, reason, last_result, pending, table_state, cache = rest
    return Job(
        subject=decode_key(key),
        due_at=from_micros(due),
        state=JobState(state),
        not_before=from_micros_or_none(before),
        notified_seq=notified_seq,
        processed_seq=processed_seq,
        event_seq=event_seq,
        fencing_token=token,
        lease_until=from_micros_or_none(lease),
        attempt=attempt,
        crashes=crashes,
        failing_since=from_micros_or_none(since),
        pending_since=from_micros_or_none(pending_since),
        reason=DeadLetterReason(reason) if reason is not None else None,
        last_result=_decode_last_result(last_result) if last_result is not None else None,
        pending=parse_pending(pending),
        locations=locations,
        table_state=parse_table_state(table_state),
        cache=parse_cache(cache),
    )


def parse_pending(column: bytes | None) -> PendingChange:
    return _decode_pending(column) if column is not None else _EMPTY_PENDING


def parse_table_state(column: bytes | None) -> TableState:
    return _decode_table_state(column) if column is not None else _EMPTY_TABLE_STATE


def parse_cache(column: bytes | None) -> PublishCache:
    return _decode_cache(column) if column is not None else _EMPTY_CACHE


def parse_etag(column: bytes | None) -> str | None:
    """Return the etag from the column of a cache."""
    return _decode_etag(column).etag if column is not None else None


def parse_indexed_table(
    table: TableIdentifier,
    reason: str | None,
    pending_column: bytes | None,
    table_state_column: bytes | None,
    cache_column: bytes | None,
) -> IndexedTable:
    """Return the entry of the table index from the columns of a job."""
    why = DeadLetterReason(reason) if reason is not None else None
    table_state, pending = parse_table_state(table_state_column), parse_pending(pending_column)
    missing_uuids, is_renamed = frozenset(table_state.missing_since), pending.renamed_to not in {None, table}
    return IndexedTable(
        table,
        table_state.live,
        parse_etag(cache_column),
        why,
        pending.min_metadata_location,
        table_state.foreign_catalog_id,
        pending.adopt_catalog_id,
        missing_uuids,
        is_renamed,
    )


def encode_pending(pending: PendingChange) -> bytes | None:
    """Return the column value of a pending change; None if it is empty."""
    encoded = encode(pending)
    return encoded if encoded != _NO_PENDING else None


def encode_table_state(table_state: TableState) -> bytes | None:
    """Return the column value of a table state; None if it is empty."""
    return encode(table_state) if table_state != _EMPTY_TABLE_STATE else None


def encode_last_result(result: LastResult | None) -> bytes | None:
    """Return the column value of a last result; None for None."""
    return encode(result) if result is not None else None


def encode_strings(strings: frozenset[str]) -> bytes | None:
    """Return the column value of a set of strings; None if it is empty."""
    return encode(sorted(strings)) if strings else None


def parse_strings(column: bytes | None) -> frozenset[str]:
    """Return the set of strings from its column."""
    return _decode_strings(column) if column is not None else frozenset()


def encode_cache(cache: PublishCache) -> bytes | None:
    """Return the column value of a cache; None if it is empty."""
    return encode(cache) if cache != _EMPTY_CACHE else None


_ENCODED: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "state": ("state", str),
    "due_at": ("due_at", to_micros),
    "not_before": ("not_before", to_micros_or_none),
    "seq": ("notified_seq", int),
    "done_seq": ("processed_seq", int),
    "told_seq": ("event_seq", lambda seq: seq),
    "token": ("fencing_token", int),
    "lease_until": ("lease_until", to_micros_or_none),
    "attempt": ("attempt", int),
    "crashes": ("crashes", int),
    "failing_since": ("failing_since", to_micros_or_none),
    "waits_since": ("pending_since", to_micros_or_none),
    "reason": ("reason", lambda reason: reason.value if reason is not None else None),
    "said": ("last_result", encode_last_result),
    "wish": ("pending", encode_pending),
    "story": ("table_state", encode_table_state),
}
"""By column name: the attribute of `Job` that is stored there, and its encoder."""


def encode_column(job: Job, name: str) -> object:
    """Return the value of a job in one of the `JOB_COLUMNS`."""
    attribute, encoded = _ENCODED[name]
    return encoded(getattr(job, attribute))


_COLUMN_OF = {attribute: (name, encoded) for name, (attribute, encoded) in _ENCODED.items()}
_FIELDS = tuple(_COLUMN_OF.get(attribute, (attribute, None)) for attribute in Job.__struct_fields__)


def encode_changes(job: Job, before: Job | None) -> dict[str, Any]:
    """Return the column values to store, by column name, without key, concurrency group, cache and locations.

    Args:
        job: the job to store.
        before: the stored job, to return only the columns that differ; None for a new job.
    """
    if before is None:
        changed = {name: encoded(getattr(job, attribute)) for name, (attribute, encoded) in _ENCODED.items()}
    else:
        now, was = astuple(job), astuple(before)
        # Most values are the identical object, which is the cheapest comparison.
        others = compress(zip(_FIELDS, now, was, strict=True), map(is_not, now, was))
        changed = {name: encoded(new) for (name, encoded), new, old in others if encoded is not None and new != old}
    live = job.table_state.live
    if before is None or is_renamed(job) != is_renamed(before):
        changed["renamed"] = is_renamed(job) or None
    if "story" in changed:
        changed["missing_since"] = to_micros_or_none(table_missing_since(job.table_state))
    if before is None or (job.table_state is not before.table_state and live != before.table_state.live):
        changed["live_uuid"], changed["live_location"] = (
            (live.uuid, live.location) if live is not None else (None, None)
        )
    return changed


DEAD_LETTER_COLUMNS = "id, key, sender, reason, detail, attempts, status, opened_at, changed_at, actor"
"""The columns that `parse_dead_letter` reads."""


def parse_dead_letter(columns: tuple[Any, ...]) -> DeadLetter:
    """Return the dead letter from the values of `DEAD_LETTER_COLUMNS`."""
    number, key, sender, reason, detail, attempts, status, opened, changed, actor = columns
    return DeadLetter(
        id=number,
        subject=decode_key(key) if key is not None else None,
        sender=sender,
        reason=DeadLetterReason(reason),
        detail=detail,
        attempts=attempts,
        status=DeadLetterStatus(status),
        opened_at=from_micros(opened),
        changed_at=from_micros(changed),
        actor=actor,
    )


def dead_letter_conditions(letter_filter: DeadLetterFilter) -> dict[str, Any]:
    """Return the conditions of a filter: the compared value, by column and SQL operator."""
    all_of_them: dict[str, Any] = {
        "status =": letter_filter.status.value if letter_filter.status is not None else None,
        "catalog =": letter_filter.catalog,
        "key =": encode_key(letter_filter.table) if letter_filter.table is not None else None,
        "reason =": letter_filter.reason.value if letter_filter.reason is not None else None,
        "sender =": letter_filter.sender,
        "opened_at <": to_micros(letter_filter.opened_before) if letter_filter.opened_before is not None else None,
        "opened_at >=": to_micros(letter_filter.opened_since) if letter_filter.opened_since is not None else None,
    }
    return {compared: value for compared, value in all_of_them.items() if value is not None}
