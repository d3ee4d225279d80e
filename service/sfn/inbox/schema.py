"""Stored form of the inbox, the same in SQLite and PostgreSQL: its tables, and how values are stored in them.

    event              the log: what was accepted, in the order of arrival; append-only, pruned by age
    pending            records that are not folded into jobs yet: a table in PostgreSQL, where numbers are not committed
                       in order; in SQLite a view of the log behind the number of the last folded record
    job                one row for each table and catalog: the job as one record, beside the columns that are searched
    cache, place       a job's cache; the locations where a job's name may have files
    outcome            the last outcomes of each job, a ring of `MAX_OUTCOMES` rows
    concurrency_group  numbers of the groups
    intent             gateway commits with an unknown outcome
    dead_letter        dead letters; `undecodable` has the requests of some
    catalog, permit    sweeps, drop limits and owners of whole catalogs; the steps that a drop limit allowed
    audit              commands of operators
    process            the processes that share the inbox, and what each of them sees
    counter            the last numbers of letters, groups and audit entries

Statements are written in PostgreSQL's words. `sqlite_text` translates them: the few differences are listed there.

A record of the log is written once, before the sender gets its answer, and read once, when it is folded into the job
of its table. It has every field that folding needs, so that a body is never decoded again. `RecordKind` says what a
record holds and in which format, so a later version can read the records of an earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from hashlib import sha256
from json import loads
from typing import Any, Final, NamedTuple

import msgspec

from sfn.domain.events import InboxMessage, Intent, IntentOutcome, Notification, UndecodableRequest
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.domain.jobs import BackwardStep, IndexedTable, PublishCache
from sfn.errors import FatalError
from sfn.inbox.model import NO_CACHE, Job, LastSweep, is_renamed


class StoredTable(NamedTuple):
    """A table into which several rows are written at once.

    Attributes:
        name: its name.
        key: the columns that identify a row.
        columns: type of each column, in PostgreSQL's words.
    """

    name: str
    key: tuple[str, ...]
    columns: Mapping[str, str]


JOB: Final = StoredTable(
    "job",
    ("key",),
    {
        "key": "text",
        "catalog": "text",
        "concurrency_group": "int",
        "state": "text",
        "stat_state": "text",
        "due_at": "bigint",
        "lease_until": "bigint",
        "waiting_since": "bigint",
        "reason": "text",
        "live_uuid": "text",
        "live_location": "text",
        "missing_since": "bigint",
        "is_renamed": "boolean",
        "record": "bytea",
    },
)
CACHE: Final = StoredTable("cache", ("key",), {"key": "text", "record": "bytea"})
PLACE: Final = StoredTable("place", ("key", "location"), {"key": "text", "catalog": "text", "location": "text"})
OUTCOME: Final = StoredTable(
    "outcome",
    ("key", "slot"),
    {
        "key": "text",
        "slot": "int",
        "number": "bigint",
        "ended_at": "bigint",
        "claimed_at": "bigint",
        "attempt": "int",
        "outcome": "text",
        "why": "text",
        "times": "int",
        "first_at": "bigint",
    },
)
GROUP: Final = StoredTable(
    "concurrency_group", ("id",), {"id": "int", "catalog": "text", "store": "text", "priority": "text"}
)
INTENT: Final = StoredTable(
    "intent",
    ("id", "key"),
    {
        "id": "text",
        "key": "text",
        "subject": "bytea",
        "catalog": "text",
        "sender": "text",
        "peer": "text",
        "opened_at": "bigint",
        "due_at": "bigint",
        "is_for_unknown_table": "boolean",
        "is_unresolved": "boolean",
    },
)
LETTER: Final = StoredTable(
    "dead_letter",
    ("id",),
    {
        "id": "bigint",
        "key": "text",
        "subject": "bytea",
        "catalog": "text",
        "sender": "text",
        "reason": "text",
        "detail": "text",
        "attempts": "int",
        "status": "text",
        "opened_at": "bigint",
        "changed_at": "bigint",
        "actor": "text",
    },
)
UNDECODABLE: Final = StoredTable(
    "undecodable",
    ("letter",),
    {"letter": "bigint", "path": "text", "content_type": "text", "size": "bigint", "body": "bytea"},
)
CATALOG: Final = StoredTable(
    "catalog",
    ("name",),
    {
        "name": "text",
        "swept_at": "bigint",
        "unlisted_namespaces": "text",
        "is_limit_reached": "boolean",
        "is_retired": "boolean",
        "catalog_id": "text",
    },
)
PERMIT: Final = StoredTable(
    "permit",
    ("catalog", "step"),
    {
        "catalog": "text",
        "step": "bytea",
        "at": "bigint",
        "subject": "bytea",
        "is_drop": "boolean",
        "uuid": "text",
        "is_renamed": "boolean",
    },
)
AUDIT: Final = StoredTable(
    "audit",
    ("id",),
    {"id": "bigint", "at": "bigint", "actor": "text", "action": "text", "target": "text", "count": "bigint"},
)
PROCESS: Final = StoredTable("process", ("id",), {"id": "text", "seen_at": "bigint", "record": "bytea"})
COUNTER: Final = StoredTable("counter", ("name",), {"name": "text", "last": "bigint"})

MAX_OUTCOMES: Final = 20
"""Most outcomes in the history of a job."""


def _made(table: StoredTable, required: str = "") -> str:
    """Return the statement that makes a table; the columns in `required` and those of its key are not null."""
    never_null = {*table.key, *required.split()}
    columns = [f"{name} {kind}{' NOT NULL' * (name in never_null)}" for name, kind in table.columns.items()]
    return f"CREATE TABLE sfn.{table.name}({', '.join(columns)}, PRIMARY KEY({', '.join(table.key)}))"


_TABLES: Final = f"""
    {_made(JOB, "catalog concurrency_group state stat_state due_at record")};
    CREATE INDEX job_due ON sfn.job(concurrency_group, due_at, key) WHERE state = 'queued';
    CREATE INDEX job_lease ON sfn.job(lease_until) WHERE state = 'leased';
    CREATE INDEX job_reason ON sfn.job(catalog, reason, key) WHERE reason IS NOT NULL;
    CREATE INDEX job_waiting ON sfn.job(catalog, waiting_since, key) WHERE waiting_since IS NOT NULL;
    CREATE INDEX job_unwell ON sfn.job(key) WHERE stat_state IN ('retrying', 'dead', 'held');
    CREATE INDEX job_missing ON sfn.job(catalog, missing_since) WHERE missing_since IS NOT NULL;
    CREATE INDEX job_renamed ON sfn.job(catalog) WHERE is_renamed;
    {_made(CACHE, "record")};
    {_made(PLACE, "catalog")};
    {_made(OUTCOME, "number ended_at outcome times first_at")};
    {_made(GROUP, "catalog store priority")};
    CREATE UNIQUE INDEX concurrency_group_name ON sfn.concurrency_group(catalog, store, priority);
    {_made(INTENT, "subject catalog sender peer opened_at due_at is_for_unknown_table is_unresolved")};
    CREATE INDEX intent_due ON sfn.intent(due_at);
    CREATE INDEX intent_key ON sfn.intent(key);
    CREATE INDEX intent_unknown ON sfn.intent(peer) WHERE is_for_unknown_table;
    {_made(LETTER, "reason detail attempts status opened_at changed_at")};
    CREATE UNIQUE INDEX dead_letter_open ON sfn.dead_letter(key) WHERE status = 'open' AND key IS NOT NULL;
    CREATE INDEX dead_letter_key ON sfn.dead_letter(key, id) WHERE key IS NOT NULL;
    CREATE INDEX dead_letter_status ON sfn.dead_letter(status, id);
    CREATE INDEX dead_letter_catalog ON sfn.dead_letter(status, catalog, id);
    CREATE INDEX dead_letter_reason ON sfn.dead_letter(status, reason, id);
    CREATE INDEX dead_letter_sender ON sfn.dead_letter(sender, id) WHERE sender IS NOT NULL;
    CREATE INDEX dead_letter_closed ON sfn.dead_letter(changed_at) WHERE status <> 'open';
    {_made(UNDECODABLE, "path size body")};
    {_made(CATALOG)};
    {_made(PERMIT, "at subject is_drop")};
    {_made(AUDIT, "at actor action target count")};
    {_made(PROCESS, "seen_at record")};
    {_made(COUNTER, "last")};
"""
"""What both databases have alike; each filter of letters that may leave few of many has an index in order of ids."""

SQLITE_TABLES: Final = f"""
    {_TABLES}
    CREATE INDEX job_stat ON job(catalog, stat_state);
    CREATE INDEX job_uuid ON job(catalog, live_uuid) WHERE live_uuid IS NOT NULL;
    CREATE INDEX job_location ON job(catalog, live_location) WHERE live_location IS NOT NULL;
    CREATE INDEX place_location ON place(catalog, location);
    CREATE TABLE event(
      seq INTEGER PRIMARY KEY, sender TEXT NOT NULL, event_id TEXT, key TEXT NOT NULL, kind INTEGER NOT NULL,
      received_at INTEGER NOT NULL, record BLOB NOT NULL, UNIQUE(sender, event_id));
    INSERT INTO counter(name, last) VALUES('folded', 0);
    CREATE VIEW pending AS
      SELECT seq, received_at FROM event WHERE seq > (SELECT last FROM counter WHERE name = 'folded');
"""

_OFTEN_VACUUMED: Final = (
    "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, "
    "autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1"
)
"""Settings of tables with many dead row versions: every fold, claim and settle leaves some."""

APPEND_NUMBERS: Final = 10_000
"""Most records of one append in PostgreSQL: an append draws that many numbers at once."""

POSTGRES_TABLES: Final = f"""
    {_TABLES}
    -- A key is compared byte by byte, and a row has room for versions of it on its own page.
    ALTER TABLE sfn.job ALTER COLUMN key TYPE text COLLATE "C", SET (fillfactor = 70, {_OFTEN_VACUUMED});
    ALTER TABLE sfn.cache ALTER COLUMN key TYPE text COLLATE "C", SET (fillfactor = 70, {_OFTEN_VACUUMED});
    ALTER TABLE sfn.outcome ALTER COLUMN key TYPE text COLLATE "C", SET (fillfactor = 70, {_OFTEN_VACUUMED});
    ALTER TABLE sfn.intent ALTER COLUMN id TYPE text COLLATE "C", ALTER COLUMN key TYPE text COLLATE "C",
      SET ({_OFTEN_VACUUMED});
    -- It has all tables of a catalog. Without the length the planner may use it to find the tables at one location.
    CREATE INDEX job_live ON sfn.job(catalog) WHERE live_location IS NOT NULL AND length(live_location) > 0;
    -- A hash takes a text of any length.
    CREATE INDEX job_uuid ON sfn.job USING hash (live_uuid);
    CREATE INDEX job_location ON sfn.job USING hash (live_location);
    CREATE INDEX place_location ON sfn.place USING hash (location);
    CREATE SEQUENCE sfn.number INCREMENT BY {APPEND_NUMBERS + 1};
    CREATE SEQUENCE sfn.token INCREMENT BY 1000;
    CREATE TABLE sfn.event(
      seq bigint PRIMARY KEY, sender text COLLATE "C" NOT NULL, event_id text COLLATE "C", key text NOT NULL,
      kind int NOT NULL, received_at bigint NOT NULL, record bytea NOT NULL) WITH ({_OFTEN_VACUUMED});
    CREATE UNIQUE INDEX event_known ON sfn.event(sender, event_id) WHERE event_id IS NOT NULL;
    CREATE TABLE sfn.pending(seq bigint PRIMARY KEY, received_at bigint NOT NULL)
      WITH ({_OFTEN_VACUUMED});
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration.

    Attributes:
        script: SQL that keeps the tables usable for the versions from `oldest` on.
        oldest: lowest schema version with code that may work on the tables afterwards.
    """

    script: str
    oldest: int


POSTGRES_MIGRATIONS: Final = (Migration(POSTGRES_TABLES, oldest=1),)
"""Versions of the service that differ by a migration or two may share the tables."""

_PARAMETER: Final = re.compile(r"\$(\d+)(?:::\w+(?:\[\])?)?")
_ANY: Final = re.compile(r"= ANY\(\$(\d+)(?:::\w+\[\])?\)")
_TYPES: Final = {"bigint": "INTEGER", "int": "INTEGER", "boolean": "INTEGER", "bytea": "BLOB", "text": "TEXT"}
_COLUMN_TYPE: Final = re.compile(r"(?<=\w )(bigint|int|boolean|bytea|text)(?=[ ,)])")


@lru_cache(maxsize=512)
def sqlite_text(statement: str) -> str:
    """Return a statement in SQLite's words.

    A parameter `$1` becomes `?1`, `= ANY($1)` searches a JSON array, and there are no schemas and casts.
    """
    text = statement.replace("sfn.", "")
    text = _ANY.sub(r"IN (SELECT value FROM json_each(?\1))", text)
    text = _PARAMETER.sub(r"?\1", text)
    if "CREATE TABLE" in text:
        text = _COLUMN_TYPE.sub(lambda found: _TYPES[found[1]], text)
    return text


# ── Values

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
MAX_KEY_BYTES: Final = 2000
"""Most bytes of a key: an entry of PostgreSQL's B-tree takes at most a third of a page of 8192 bytes."""
MAX_KEY_PART_BYTES: Final = 600
"""Most bytes of a location or an event's id beside the other part of a key, for the same reason."""
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
        seq: its number. A record that a sender sends after the answer to an earlier one has a greater number.
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
        event_id = short_key(message.event_id) if message.event_id is not None else None
        return LogRow(message.sender, event_id, encode_key(message.subject), kind, received_at, record)
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


def parse_sweeps(rows: Iterable[Sequence[Any]]) -> dict[str, LastSweep]:
    """Return the last sweeps by catalog, from the result of `catalogs.ALL_SWEEPS`."""
    return {
        name: LastSweep(from_micros(at), frozenset(loads(unlisted)) if unlisted is not None else frozenset())
        for name, at, unlisted in rows
    }


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
    return key.decode() if len(key) <= MAX_KEY_BYTES else _cut(key)


def short_key(text: str) -> str:
    """Return a location or an event's id as a part of a key; one that is too long is cut, and ends with a digest."""
    if len(text) <= MAX_KEY_PART_BYTES // 4:
        return text
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= MAX_KEY_PART_BYTES else _cut(encoded)


def _cut(key: bytes) -> str:
    return f"{key[:_KEY_START].decode(errors='ignore')}…{sha256(key).hexdigest()}"


def encode_subject(subject: JobKey) -> bytes:
    """Return the form of a subject that `decode_subject` reads."""
    return _encode(subject)


def decode_subject(encoded: bytes) -> JobKey:
    """Return an encoded subject."""
    return _decode_subject(encoded)


def table_key_range(catalog: str, namespace: Sequence[str] = ()) -> tuple[str, str]:
    """Return the lower and the upper bound of the keys of the tables in a catalog, or in a namespace of it."""
    start = _encode_key((catalog, *namespace)).decode().removesuffix("]")
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
