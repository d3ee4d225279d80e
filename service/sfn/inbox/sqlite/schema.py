"""The inbox's tables in SQLite, and their migrations."""

from __future__ import annotations

import sqlite3

from sfn.errors import FatalError

MIGRATIONS = (
    """
    CREATE TABLE lane(
      id INTEGER PRIMARY KEY, catalog TEXT NOT NULL, store TEXT NOT NULL, urgency TEXT NOT NULL,
      UNIQUE(catalog, store, urgency));
    CREATE TABLE subject(
      key TEXT PRIMARY KEY, catalog TEXT NOT NULL, lane INTEGER NOT NULL REFERENCES lane(id),
      state TEXT NOT NULL, due_at INTEGER NOT NULL, not_before INTEGER,
      seq INTEGER NOT NULL, done_seq INTEGER NOT NULL, token INTEGER NOT NULL, lease_until INTEGER,
      attempt INTEGER NOT NULL, crashes INTEGER NOT NULL, failing_since INTEGER, reason TEXT,
      live_uuid TEXT, live_location TEXT,
      wish BLOB, story BLOB) WITHOUT ROWID;
    CREATE INDEX subject_due ON subject(lane, due_at) WHERE state = 'queued';
    CREATE INDEX subject_lease ON subject(lease_until) WHERE state = 'leased';
    CREATE INDEX subject_dead ON subject(catalog, reason) WHERE reason IS NOT NULL;
    CREATE INDEX subject_uuid ON subject(catalog, live_uuid) WHERE live_uuid IS NOT NULL;
    CREATE INDEX subject_live ON subject(catalog, live_location) WHERE live_location IS NOT NULL;
    CREATE TABLE memo(key TEXT PRIMARY KEY, memo BLOB NOT NULL);
    CREATE TABLE location(
      location TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY(location, key)) WITHOUT ROWID;
    CREATE INDEX location_key ON location(key);
    CREATE TABLE event(
      seq INTEGER PRIMARY KEY, sender TEXT NOT NULL, event_id TEXT, key TEXT NOT NULL,
      received_at INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE(sender, event_id));
    CREATE TABLE catalog(
      name TEXT PRIMARY KEY, swept_at INTEGER, tripped INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
    CREATE TABLE permit(
      catalog TEXT NOT NULL, step TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY(catalog, step)) WITHOUT ROWID;
    CREATE TABLE dead_letter(
      id INTEGER PRIMARY KEY, key TEXT NOT NULL, catalog TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL,
      status TEXT NOT NULL, opened_at INTEGER NOT NULL, changed_at INTEGER NOT NULL, attempts INTEGER NOT NULL);
    CREATE UNIQUE INDEX dead_letter_open ON dead_letter(key) WHERE status = 'open';
    """,
    # A dead letter may have no subject now. Each filter that may leave few of many has an index in the order of ids.
    """
    ALTER TABLE subject ADD COLUMN said BLOB;
    ALTER TABLE catalog ADD COLUMN retired INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE dead_letter RENAME TO dead_letter_1;
    DROP INDEX dead_letter_open;
    CREATE TABLE dead_letter(
      id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, catalog TEXT, sender TEXT, reason TEXT NOT NULL,
      detail TEXT NOT NULL, attempts INTEGER NOT NULL, status TEXT NOT NULL, opened_at INTEGER NOT NULL,
      changed_at INTEGER NOT NULL, actor TEXT);
    INSERT INTO dead_letter(id, key, catalog, reason, detail, attempts, status, opened_at, changed_at)
      SELECT id, key, catalog, reason, detail, attempts, status, opened_at, changed_at FROM dead_letter_1;
    DROP TABLE dead_letter_1;
    CREATE UNIQUE INDEX dead_letter_open ON dead_letter(key) WHERE status = 'open' AND key IS NOT NULL;
    CREATE INDEX dead_letter_key ON dead_letter(key, id) WHERE key IS NOT NULL;
    CREATE INDEX dead_letter_status ON dead_letter(status, id);
    CREATE INDEX dead_letter_catalog ON dead_letter(status, catalog, id);
    CREATE INDEX dead_letter_reason ON dead_letter(status, reason, id);
    CREATE INDEX dead_letter_sender ON dead_letter(sender, id) WHERE sender IS NOT NULL;
    CREATE INDEX dead_letter_closed ON dead_letter(changed_at) WHERE status != 'open';
    CREATE TABLE undecodable(
      letter INTEGER PRIMARY KEY REFERENCES dead_letter(id) ON DELETE CASCADE, path TEXT NOT NULL, content_type TEXT,
      size INTEGER NOT NULL, body BLOB NOT NULL);
    CREATE TABLE audit(
      id INTEGER PRIMARY KEY, at INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, about TEXT NOT NULL,
      count INTEGER NOT NULL);
    """,
    # Only failed jobs are in the index, so successful jobs do not pay for it.
    """
    ALTER TABLE subject ADD COLUMN waits_since INTEGER;
    CREATE INDEX subject_waits ON subject(lane, waits_since) WHERE waits_since IS NOT NULL;
    ALTER TABLE catalog ADD COLUMN catalog_id TEXT;
    """,
    "ALTER TABLE subject ADD COLUMN told_seq INTEGER;",
    # An older version does not know the concurrency groups of short-lived tables, and would fail at the first of them.
    "",
    # An older version knows no intents, so it would never check commits with an unknown outcome.
    """
    CREATE TABLE intent(
      id TEXT NOT NULL, key TEXT NOT NULL, catalog TEXT NOT NULL, sender TEXT NOT NULL, peer TEXT NOT NULL,
      opened_at INTEGER NOT NULL, due_at INTEGER NOT NULL, unseen INTEGER NOT NULL, left_open INTEGER NOT NULL,
      PRIMARY KEY(id, key)) WITHOUT ROWID;
    CREATE INDEX intent_due ON intent(due_at);
    CREATE INDEX intent_left ON intent(key) WHERE left_open;
    CREATE INDEX intent_unseen ON intent(peer) WHERE unseen;
    """,
    "ALTER TABLE catalog ADD COLUMN withheld TEXT;",
    # Which table a step drops, and since when the catalog does not show a table that has a live file.
    """
    ALTER TABLE permit ADD COLUMN dropped TEXT;
    ALTER TABLE subject ADD COLUMN missing_since INTEGER;
    CREATE INDEX subject_missing ON subject(catalog, missing_since) WHERE missing_since IS NOT NULL;
    """,
    # A table that was renamed is one table, though its old name may have a live file, or be dropped, as well.
    """
    ALTER TABLE permit ADD COLUMN uuid TEXT;
    ALTER TABLE permit ADD COLUMN renamed INTEGER;
    ALTER TABLE subject ADD COLUMN renamed INTEGER;
    CREATE INDEX subject_renamed ON subject(catalog) WHERE renamed;
    """,
    # Earlier versions may have taken two names of one directory for two places, and written that the table moved.
    """
    UPDATE subject SET due_at = 0
      WHERE state = 'queued' AND key IN (SELECT key FROM location GROUP BY key HAVING count(*) > 1);
    """,
)
VERSION = len(MIGRATIONS)


_LOGGED = frozenset({"wal", "memory"})
"""Answers of SQLite if it has a write-ahead log, and if there is no file that needs one."""


def prepare(db: sqlite3.Connection, where: str) -> None:
    """Make the database durable by its settings and bring its tables to this version, each step in one transaction.

    Args:
        db: in autocommit mode.
        where: what to call it in an error.

    Raises:
        FatalError: the file system can't have a write-ahead log, or a newer version wrote the database.
    """
    (mode,) = db.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode not in _LOGGED:
        raise FatalError(
            where,
            expected="a file system on which SQLite can keep a write-ahead log",
            found=f"journal_mode {mode}",
            remedy="put the inbox on a local disk: set `inbox.url`",
        )
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA wal_autocheckpoint=10000")
    db.execute("PRAGMA journal_size_limit=67108864")
    db.execute("PRAGMA foreign_keys=ON")
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found > VERSION:
        raise FatalError(
            where,
            expected=f"an inbox of schema version {VERSION} or lower",
            found=f"version {found}",
            remedy="start the version of iceberg-sfn that wrote it, or a newer one",
        )
    for number in range(found, VERSION):
        db.executescript(f"BEGIN IMMEDIATE;{MIGRATIONS[number]}PRAGMA user_version={number + 1};COMMIT;")
