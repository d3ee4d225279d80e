"""Stored form of the inbox's values: records of the log, jobs, keys and times, the same for every database.

A record of the log is written once, before the sender gets its answer, and read once, when it is folded into the job
of its table. It has every field that folding needs, so that a body is never decoded again. `RecordKind` says what a
record holds and in which format, so a later version can read the records of an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from sfn.domain.events import InboxMessage, Intent, IntentOutcome, Notification, UndecodableRequest
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.domain.jobs import BackwardStep, IndexedTable, PublishCache
from sfn.errors import FatalError
from sfn.inbox.model import NO_CACHE, Job, is_renamed

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
MAX_KEY_BYTES: Final = 2000
"""Most bytes of a key: an entry of PostgreSQL's B-tree takes at most a third of a page of 8192 bytes."""
_KEY_START: Final = 400

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_encode_key = msgspec.json.Encoder().encode
_decode_job = msgspec.msgpack.Decoder(Job).decode
_decode_cache = msgspec.msgpack.Decoder(PublishCache).decode
_decode_subject: Callable[[bytes], JobKey] = msgspec.msgpack.Decoder(TableIdentifier | CatalogName).decode
UNREAD_CACHE: Final = PublishCache(etag="")
"""Stands for the cache of a job that was read without it, by identity."""


def to_micros(at: datetime) -> int:
    """Return a time as Unix microseconds."""
    return (at - _EPOCH) // _MICROSECOND


def to_micros_or_none(at: datetime | None) -> int | None:
    """Return a time as Unix microseconds; None for None."""
    return (at - _EPOCH) // _MICROSECOND if at is not None else None


def from_micros(at: int) -> datetime:
    """Return the time of Unix microseconds."""
    return _EPOCH + timedelta(microseconds=at)


def from_micros_or_none(at: int | None) -> datetime | None:
    """Return the time of Unix microseconds; None for None."""
    return _EPOCH + timedelta(microseconds=at) if at is not None else None


class RecordKind(IntEnum):
    """What a record of the log holds, and its format. A changed format gets a new number."""

    NOTIFICATION = 1
    INTENT = 2
    INTENT_OUTCOME = 3
    UNDECODABLE = 4


_KINDS: Final[Mapping[type[Any], RecordKind]] = {
    Notification: RecordKind.NOTIFICATION,
    Intent: RecordKind.INTENT,
    IntentOutcome: RecordKind.INTENT_OUTCOME,
    UndecodableRequest: RecordKind.UNDECODABLE,
}
_DECODERS: Final[Mapping[int, Callable[[bytes], InboxMessage]]] = {
    kind: msgspec.msgpack.Decoder(message).decode for message, kind in _KINDS.items()
}


class LogRow(NamedTuple):
    """A record before it has a number.

    Attributes:
        sender: name of the sender; with `event_id` the key of de-duplication.
        event_id: the sender's id of the event; None is never de-duplicated.
        key: key of the subject; empty for a record without one.
        kind: a `RecordKind`.
        received_at: Unix microseconds.
        record: the encoded message.
    """

    sender: str
    event_id: str | None
    key: str
    kind: int
    received_at: int
    record: bytes


class LogRecord(NamedTuple):
    """A record that waits to be folded.

    Attributes:
        seq: its number: of two records, the one that a sender sent after the answer to the other has a greater one.
        received_at: when it was appended.
        message: the message; None if this version cannot read the record.
    """

    seq: int
    received_at: datetime
    message: InboxMessage | None


def encode_message(message: InboxMessage, received_at: int) -> LogRow:
    """Return the record of a message that arrived at a time, in Unix microseconds."""
    try:
        record = _encode(message)
    except UnicodeEncodeError:
        message = _without_surrogates(message)
        record = _encode(message)
    kind = _KINDS[type(message)]
    if isinstance(message, Notification):
        return LogRow(message.sender, message.event_id, encode_key(message.subject), kind, received_at, record)
    return LogRow("", None, "", kind, received_at, record)


def _without_surrogates(value: Any) -> Any:  # noqa: ANN401 - it returns what it gets
    """Return a message without lone surrogates, which no encoding of Unicode has."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, tuple):
        return tuple(map(_without_surrogates, value))
    if isinstance(value, msgspec.Struct):
        return type(value)(*map(_without_surrogates, msgspec.structs.astuple(value)))
    return value


def decode_record(seq: int, kind: int, received_at: int, record: bytes) -> LogRecord:
    """Return a record; its message is None if it is damaged, or if a newer version wrote it."""
    decode = _DECODERS.get(kind)
    try:
        message = decode(record) if decode is not None else None
    except (msgspec.DecodeError, ValueError):
        message = None
    return LogRecord(seq, from_micros(received_at), message)


def encode_key(subject: JobKey) -> str:
    """Return the key of a subject: a JSON array of catalog, namespace levels and name; for a catalog its name only.

    A key too long for an index is cut, and ends with a digest.
    """
    if isinstance(subject, CatalogName):
        key = _encode_key((subject.catalog,))
    else:
        key = _encode_key((subject.catalog, *subject.namespace, subject.name))
    if len(key) <= MAX_KEY_BYTES:
        return key.decode()
    return f"{key[:_KEY_START].decode(errors='ignore')}…{sha256(key).hexdigest()}"


def encode_subject(subject: JobKey) -> bytes:
    """Return the form of a subject that `decode_subject` reads."""
    return _encode(subject)


def decode_subject(encoded: bytes) -> JobKey:
    """Return an encoded subject."""
    return _decode_subject(encoded)


def table_key_range(catalog: str) -> tuple[str, str]:
    """Return the lower and the upper bound of the keys of a catalog's tables."""
    start = encode_key(CatalogName(catalog)).removesuffix("]")
    return f"{start},", f"{start}-"


def encode_step(subject: JobKey, step: BackwardStep) -> bytes:
    """Return the digest under which an allowed step is recorded: its text may be too long for an index."""
    text = repr((encode_key(subject), step.kind.value, step.uuid, step.metadata_location))
    return sha256(text.encode(errors="replace")).digest()


def encode_job(job: Job) -> bytes:
    """Return the record of a job, without its cache."""
    return _encode(msgspec.structs.replace(job, cache=NO_CACHE) if job.cache is not NO_CACHE else job)


def decode_job(record: bytes, cache: bytes | None = None, *, has_cache: bool = False) -> Job:
    """Return the job of a record.

    Args:
        record: the record.
        cache: the record of its cache; None for an empty one.
        has_cache: False if the cache was not read.

    Raises:
        FatalError: the record is damaged.
    """
    try:
        job = _decode_job(record)
        read = _decode_cache(cache) if cache is not None else NO_CACHE
    except (msgspec.DecodeError, ValueError) as error:
        raise FatalError(
            "inbox",
            expected="records of jobs that this version can read",
            found=str(error),
            remedy="restore the inbox from a backup, or start with an empty one: a sweep fills it",
        ) from error
    return msgspec.structs.replace(job, cache=read if has_cache else UNREAD_CACHE)


def encode_cache(cache: PublishCache) -> bytes | None:
    """Return the record of a cache; None if it is empty."""
    return _encode(cache) if cache != NO_CACHE else None


def to_indexed_table(job: Job, table: TableIdentifier) -> IndexedTable:
    """Return the entry of a job in the index of all tables."""
    pending, table_state = job.pending, job.table_state
    return IndexedTable(
        table,
        table_state.live,
        job.cache.etag,
        job.reason,
        pending.min_metadata_location,
        table_state.foreign_catalog_id,
        pending.adopt_catalog_id,
        frozenset(table_state.missing_since),
        is_renamed(job),
    )
