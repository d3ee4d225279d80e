"""The inbox's tables in PostgreSQL, and their migrations while other processes use them.

Versions of the service that differ by a migration or two may share the tables: a migration only adds what an older one
need not know. It says which is the oldest that may go on, and so does the table `sfn.version`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sfn.errors import FatalError
from sfn.inbox.postgres.tables.values import Sql, number_of


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration.

    Attributes:
        script: SQL that keeps the tables usable for the versions from `oldest` on.
        oldest: lowest schema version with code that may work on the tables afterwards.
    """

    script: str
    oldest: int


_OFTEN_VACUUMED: Final = (
    "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, "
    "autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1"
)
"""Settings of tables with many dead row versions: every claim and settle leaves some."""

_FIRST: Final = f"""
    CREATE SEQUENCE sfn.number;
    CREATE TABLE sfn.lane(
      id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, catalog text NOT NULL, store text NOT NULL,
      urgency text NOT NULL, UNIQUE(catalog, store, urgency));

    -- Room for versions of a row on its own page: one that touches no index needs no entry in any.
    CREATE TABLE sfn.subject(
      key text COLLATE "C" PRIMARY KEY, name text, catalog text NOT NULL, lane int NOT NULL,
      state text NOT NULL, due_at bigint NOT NULL, not_before bigint,
      seq bigint NOT NULL, done_seq bigint NOT NULL, told_seq bigint, token bigint NOT NULL, lease_until bigint,
      attempt int NOT NULL, crashes int NOT NULL, failing_since bigint, waits_since bigint, reason text,
      said bytea, wish bytea, story bytea, locations bytea, live_uuid text, live_location text)
      WITH (fillfactor = 70, {_OFTEN_VACUUMED});
    CREATE INDEX subject_due ON sfn.subject(lane, due_at, key) WHERE state = 'queued';
    CREATE INDEX subject_lease ON sfn.subject(lease_until) WHERE state = 'leased';
    CREATE INDEX subject_dead ON sfn.subject(catalog, reason, key) WHERE reason IS NOT NULL;
    CREATE INDEX subject_waits ON sfn.subject(lane, waits_since) WHERE waits_since IS NOT NULL;
    CREATE INDEX subject_live ON sfn.subject(catalog) WHERE live_location IS NOT NULL;
    -- A hash takes a text of any length.
    CREATE INDEX subject_uuid ON sfn.subject USING hash (live_uuid);
    CREATE INDEX subject_place ON sfn.subject USING hash (live_location);
    CREATE TABLE sfn.memo(key text COLLATE "C" PRIMARY KEY, memo bytea NOT NULL)
      WITH (fillfactor = 70, {_OFTEN_VACUUMED});
    CREATE TABLE sfn.place(key text COLLATE "C" NOT NULL, catalog text NOT NULL, location text NOT NULL);
    CREATE INDEX place_key ON sfn.place(key);
    CREATE INDEX place_location ON sfn.place USING hash (location);

    CREATE TABLE sfn.event(
      seq bigint PRIMARY KEY, sender text COLLATE "C" NOT NULL, event_id text COLLATE "C", key text NOT NULL,
      received_at bigint NOT NULL, body bytea NOT NULL) WITH ({_OFTEN_VACUUMED});
    CREATE UNIQUE INDEX event_known ON sfn.event(sender, event_id) WHERE event_id IS NOT NULL;

    CREATE TABLE sfn.catalog(
      name text PRIMARY KEY, swept_at bigint, tripped boolean NOT NULL DEFAULT false,
      retired boolean NOT NULL DEFAULT false, catalog_id text);
    CREATE TABLE sfn.permit(
      catalog text NOT NULL, step bytea NOT NULL, at bigint NOT NULL, PRIMARY KEY(catalog, step));

    CREATE TABLE sfn.dead_letter(
      id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text COLLATE "C", name text, catalog text, sender text,
      reason text NOT NULL, detail text NOT NULL, attempts int NOT NULL, status text NOT NULL,
      opened_at bigint NOT NULL, changed_at bigint NOT NULL, actor text);
    CREATE UNIQUE INDEX dead_letter_open ON sfn.dead_letter(key) WHERE status = 'open' AND key IS NOT NULL;
    CREATE INDEX dead_letter_key ON sfn.dead_letter(key, id) WHERE key IS NOT NULL;
    CREATE INDEX dead_letter_status ON sfn.dead_letter(status, id);
    CREATE INDEX dead_letter_catalog ON sfn.dead_letter(status, catalog, id);
    CREATE INDEX dead_letter_reason ON sfn.dead_letter(status, reason, id);
    CREATE INDEX dead_letter_sender ON sfn.dead_letter(sender, id) WHERE sender IS NOT NULL;
    CREATE INDEX dead_letter_closed ON sfn.dead_letter(changed_at) WHERE status <> 'open';
    CREATE TABLE sfn.undecodable(
      letter bigint PRIMARY KEY REFERENCES sfn.dead_letter(id) ON DELETE CASCADE, path text NOT NULL,
      content_type text, size bigint NOT NULL, body bytea NOT NULL);
    CREATE TABLE sfn.audit(
      id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at bigint NOT NULL, actor text NOT NULL,
      action text NOT NULL, about text NOT NULL, count bigint NOT NULL);
"""

# A version without this table has no gateway, so it has no commits to check, and leaves those of others alone.
_INTENTS: Final = f"""
    CREATE TABLE sfn.intent(
      id text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, name text, catalog text NOT NULL,
      sender text NOT NULL, peer text COLLATE "C" NOT NULL, opened_at bigint NOT NULL, due_at bigint NOT NULL,
      unseen boolean NOT NULL, left_open boolean NOT NULL, PRIMARY KEY(id, key)) WITH ({_OFTEN_VACUUMED});
    CREATE INDEX intent_due ON sfn.intent(due_at);
    CREATE INDEX intent_left ON sfn.intent(key) WHERE left_open;
    CREATE INDEX intent_unseen ON sfn.intent(peer) WHERE unseen;
"""

# By a version without it a sweep counts for the namespaces as well that it could not list.
_WITHHELD: Final = "ALTER TABLE sfn.catalog ADD COLUMN IF NOT EXISTS withheld text"

# A version without it counts no drop towards half of the tables, and leaves alone what others noted for that.
_MISSING: Final = """
    ALTER TABLE sfn.permit ADD COLUMN IF NOT EXISTS dropped text;
    ALTER TABLE sfn.subject ADD COLUMN IF NOT EXISTS missing_since bigint;
    CREATE INDEX IF NOT EXISTS subject_missing ON sfn.subject(catalog, missing_since) WHERE missing_since IS NOT NULL;
"""

# A version without it counts the old name of a renamed table as a table of its own, and so holds more.
_RENAMED: Final = """
    ALTER TABLE sfn.permit ADD COLUMN IF NOT EXISTS uuid text, ADD COLUMN IF NOT EXISTS renamed boolean;
    ALTER TABLE sfn.subject ADD COLUMN IF NOT EXISTS renamed boolean;
    CREATE INDEX IF NOT EXISTS subject_renamed ON sfn.subject(catalog) WHERE renamed;
"""

# Earlier versions may have taken two names of one directory for two places, and written that the table moved. The row
# of such a table has several locations: a JSON array with a comma between two texts.
_PLACES: Final = """
    UPDATE sfn.subject SET due_at = 0 WHERE state = 'queued' AND position('\\x222c22'::bytea IN locations) > 0;
"""

MIGRATIONS: Final = (
    Migration(_FIRST, oldest=1),
    Migration(_INTENTS, oldest=1),
    Migration(_WITHHELD, oldest=1),
    Migration(_MISSING, oldest=1),
    Migration(_RENAMED, oldest=1),
    Migration(_PLACES, oldest=1),
)
_MIGRATING: Final = number_of("migrating")


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The state of a schema.

    Attributes:
        version: version of the schema; 0 if there is none.
        oldest: lowest version with code that may work on the tables.
    """

    version: int
    oldest: int = 0


async def found(sql: Sql) -> SchemaState:
    """Return the present state of the schema."""
    # Within a transaction, `to_regclass` may have cached that the table does not exist yet.
    ((there,),) = await sql.fetch(
        "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'sfn' AND tablename = 'version')"
    )
    if not there:
        return SchemaState(0)
    versions = await sql.fetch("SELECT version, oldest FROM sfn.version")
    return SchemaState(*versions[0]) if versions else SchemaState(0)


def check(there: SchemaState, where: str, version: int = len(MIGRATIONS)) -> None:
    """Refuse a schema that this version must not work on.

    Args:
        version: the version of this code.

    Raises:
        FatalError: a newer, incompatible version created it.
    """
    if there.oldest > version:
        raise FatalError(
            where,
            expected=f"an inbox of schema version {version}, or a newer one that leaves room for it",
            found=f"version {there.version}, which takes {there.oldest} at least",
            remedy="start the version of iceberg-sfn that wrote it, or a newer one",
        )


async def prepare(sql: Sql, where: str, migrations: Sequence[Migration] = MIGRATIONS) -> bool:
    """Migrate the tables to this version, in one transaction; one process does so at a time.

    Returns:
        True if there were none.

    Raises:
        FatalError: see `check`.
    """
    await sql.fetch("SELECT pg_advisory_xact_lock($1::bigint)", _MIGRATING)
    there = await found(sql)
    check(there, where, len(migrations))
    if not there.version:
        ((known,),) = await sql.fetch("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'sfn')")
        if not known:
            await sql.execute("CREATE SCHEMA sfn")
        await sql.execute("CREATE TABLE IF NOT EXISTS sfn.version(version int NOT NULL, oldest int NOT NULL)")
        await sql.execute("INSERT INTO sfn.version VALUES (0, 0)")
    for number, migration in enumerate(migrations[there.version :], start=there.version + 1):
        await sql.execute(migration.script)
        await sql.execute("UPDATE sfn.version SET version = $1, oldest = $2", number, migration.oldest)
    return not there.version
