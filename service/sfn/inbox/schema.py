"""Tables of the inbox, the same in SQLite and PostgreSQL, and their migrations.

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
    counter            the last numbers of letters, groups and audit entries

Statements are written in PostgreSQL's words. `sqlite_text` translates them: the few differences are listed there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple


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
        "pending_since": "bigint",
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
        "dropped": "bytea",
        "uuid": "text",
        "is_renamed": "boolean",
    },
)
AUDIT: Final = StoredTable(
    "audit",
    ("id",),
    {"id": "bigint", "at": "bigint", "actor": "text", "action": "text", "target": "text", "count": "bigint"},
)
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
    CREATE INDEX job_pending ON sfn.job(concurrency_group, pending_since) WHERE pending_since IS NOT NULL;
    CREATE INDEX job_missing ON sfn.job(catalog, missing_since) WHERE missing_since IS NOT NULL;
    CREATE INDEX job_renamed ON sfn.job(catalog) WHERE is_renamed;
    {_made(CACHE, "record")};
    {_made(PLACE, "catalog")};
    {_made(OUTCOME, "number ended_at outcome")};
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
    {_made(PERMIT, "at")};
    {_made(AUDIT, "at actor action target count")};
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
    CREATE INDEX job_live ON sfn.job(catalog) WHERE live_location IS NOT NULL;
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
