"""A PostgreSQL server: its address, its faults, and whether its database and the tables in it suit the inbox."""

from __future__ import annotations

import re
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from sfn.errors import ErrorScope, FatalError, OutcomeUnknown, Permanent, SfnError, Transient
from sfn.inbox.model import RETRY_AFTER
from sfn.inbox.schema import POSTGRES_MIGRATIONS, Migration, to_micros

# ── Faults

UNREACHABLE: Final = "unreachable"
"""No SQLSTATE: the server can't be reached, or did not answer in time."""
LOST: Final = "lost"
"""No SQLSTATE: the connection ended."""
UNCERTAIN: Final = "uncertain"
"""No SQLSTATE: the connection ended, or there was no answer, while a transaction may have been committed."""
MISCONFIGURED: Final = "misconfigured"
"""Not an SQLSTATE: the driver rejects its arguments."""
LOGIN_FILE: Final = "login-file"
"""No SQLSTATE: the file with the password can't be read."""
NO_TLS: Final = "no-tls"
"""No SQLSTATE: the server does not support TLS, which the URL requires."""
UNTRUSTED: Final = "untrusted"
"""No SQLSTATE: the server's certificate is not trusted, or a certificate file can't be read."""
OTHER_HOST: Final = "other-host"
"""No SQLSTATE: the server's certificate is for another host."""
EXPIRED: Final = "expired"
"""No SQLSTATE: the server's certificate is not valid now."""
ABORTED: Final = "25P02"
"""SQLSTATE in_failed_sql_transaction: the transaction was rolled back."""


class PostgresFault(Exception):
    """A failed request to the database.

    Attributes:
        code: an SQLSTATE (PostgreSQL manual, appendix A), or one of the constants above.
        text: the message, without secrets.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class PostgresConnectionLost(PostgresFault):
    """The connection is closed. An open transaction was rolled back."""


_WAIT: Final = "it is tried again; see whether the server runs and is reached"
_ROOM: Final = "free some room on the disk of the database's server"
_PRIMARY: Final = "let `inbox.url` lead to the primary: several hosts with target_session_attrs=read-write find it"
_LOGIN: Final = "give the user and its password in `inbox.url`, or `inbox.password_file`, as the server knows them"
_GRANT: Final = (
    "as a superuser: GRANT CREATE ON DATABASE …, or CREATE SCHEMA sfn AUTHORIZATION … and leave it to the user"
)

_PASSING: Final = {
    LOST: _WAIT,
    UNREACHABLE: _WAIT,
    UNCERTAIN: "it is tried again; what was sent with an id is never taken twice",
    "08": _WAIT,
    "25006": _PRIMARY,
    "25": _WAIT,
    "26": "it is tried again, as behind a pooler",
    "40": "it is tried again",
    "42P05": "it is tried again, as behind a pooler",
    "53": "see what the database's server lacks: connections, memory or room on its disk",
    "53100": _ROOM,
    "53300": "raise max_connections of the server, or start fewer replicas: each has eight connections at most",
    "55": "see who keeps tables of the schema sfn locked (pg_stat_activity)",
    "57": _WAIT,
    "58": "look at the log of the database's server",
}
"""Remedies of temporary faults, which need no restart of the listener, by code or class."""
_AT_A_START: Final = {
    "28": _LOGIN,
    "3D000": "create the database: CREATE DATABASE … OWNER …",
    "42501": _GRANT,
    MISCONFIGURED: "set `inbox.url` to postgresql://user:password@host:port/database, percent-encoded",
    LOGIN_FILE: "write the password there, readable for the service's user; or correct `inbox.password_file`",
    NO_TLS: "set ssl = on at the server, or another sslmode in `inbox.url`",
    UNTRUSTED: "set sslrootcert in `inbox.url` to the certificates that signed the server's, or to system",
    OTHER_HOST: "name the server in `inbox.url` as its certificate does, or give it a certificate for this name",
    EXPIRED: "renew the server's certificate, and compare the clocks of both hosts",
}
"""Remedies of a wrong configuration: a start is refused, but a running process waits until it is corrected."""
_FATAL: Final = {
    "0A": "let `inbox.url` lead to PostgreSQL 13 or newer",
    "3F": "leave the schema sfn to the service: start it again, and it makes what is missing",
    "42": "leave the schema sfn to the service: start it again, and it makes what is missing",
    "XX": "look at the log of the database's server; restore it from a backup if its data are damaged",
}


def refusal(fault: PostgresFault, where: str, *, starting: bool = False) -> SfnError:
    """Return the error of the inbox for a fault.

    Args:
        where: name of the database in errors.
        starting: True if the process has not used the database yet.

    Returns:
        A `Transient` with scope inbox; an `OutcomeUnknown` if the transaction may have been committed; a `FatalError`
        if this process can't continue or start; a `Permanent` for values that the database can't store.
    """
    expected = "a transaction to be stored" if not starting else "a database that the inbox can be kept in"
    found = f"{fault.text} ({fault.code})"
    remedy = _of(_AT_A_START, fault.code)
    if remedy is not None and starting:
        return FatalError(where, expected=expected, found=found, remedy=remedy)
    remedy = remedy or _of(_PASSING, fault.code)
    if remedy is not None:
        kind = OutcomeUnknown if fault.code == UNCERTAIN else Transient
        return kind(
            where, scope=ErrorScope.INBOX, expected=expected, found=found, remedy=remedy, retry_after=RETRY_AFTER
        )
    remedy = _of(_FATAL, fault.code)
    if remedy is not None or starting:
        return FatalError(where, expected=expected, found=found, remedy=remedy or "")
    return Permanent(where, scope=ErrorScope.INBOX, expected="values that can be stored", found=found)


def _of(remedies: Mapping[str, str], code: str) -> str | None:
    """Return the remedy for a code, or for its class: the first two characters of an SQLSTATE."""
    is_state = code.isdigit() or code.isupper()
    return remedies.get(code) or (remedies.get(code[:2]) if is_state else None)


# ── Addresses and connections

CONNECTED_WITHIN: Final = 5.0
"""Seconds, unless the URL says `connect_timeout`."""
_CERTIFICATES: Final = frozenset({"sslcert", "sslcrl", "sslkey", "sslrootcert"})
_ENCRYPTED: Final = frozenset({"require", "verify-ca", "verify-full"})
"""Values of `sslmode` that refuse a connection without TLS."""
_SYSTEM: Final = "system"
"""The value of `sslrootcert` that stands for the certificates of the system, as in libpq 16."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A database of a server, or of one of several, as libpq's URLs name it (PostgreSQL manual, section 34.1.1.2).

    Attributes:
        url: may hold a password.
        password_file: file with the password; read for each new connection.
    """

    url: str = field(repr=False)
    password_file: Path | None = None

    @property
    def name(self) -> str:
        """The URL without anything that may be secret."""
        parts = urlsplit(self.url)
        login, _, hosts = parts.netloc.rpartition("@")
        user = login.partition(":")[0]
        return f"postgresql://{user}@{hosts}{parts.path}" if user else f"postgresql://{hosts}{parts.path}"

    @property
    def unsafe_hosts(self) -> list[str]:
        """The hosts for which the server decides about encryption, without folders of sockets."""
        options = self._options()
        if options.get("sslrootcert") == _SYSTEM or options.get("sslmode") in _ENCRYPTED:
            return []
        named = urlsplit(self.url).netloc.rpartition("@")[2].split(",")
        hosts = [unquote(re.sub(r":\d*$", "", host)) for host in named]
        if not any(hosts):
            hosts = options.get("host", "").split(",")
        return [host for host in hosts if host and not host.startswith("/")]

    @property
    def patience(self) -> float:
        """Seconds for an attempt to connect."""
        return float(self._options().get("connect_timeout", CONNECTED_WITHIN))

    def arguments(self) -> dict[str, Any]:
        """Return the connection parameters for the driver.

        Raises:
            PostgresFault: the file with the password, or a certificate, can't be read.
        """
        options = self._options()
        options.pop("connect_timeout", None)
        driver_arguments: dict[str, Any] = {}
        if options.get("sslrootcert") == _SYSTEM:
            del options["sslrootcert"]
            driver_arguments["ssl"] = ssl.create_default_context()
        if self.password_file is not None:
            driver_arguments["password"] = _read(self.password_file, LOGIN_FILE).rstrip("\r\n")
        for option in sorted(_CERTIFICATES & options.keys()):
            _read(Path(options[option]), UNTRUSTED)
        return {"dsn": urlsplit(self.url)._replace(query=urlencode(options)).geturl(), **driver_arguments}

    def _options(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.url).query))


def _read(file: Path, code: str) -> str:
    """Return the content of a file; the driver would report a missing file as a server that can't be reached."""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise PostgresFault(code, f"{file}: {why}") from None


class PostgresConnection(Protocol):
    """A connection, see `sfn.inbox.postgres_connections.AsyncpgConnection`; every method raises `PostgresFault`."""

    @property
    def is_open(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    @property
    def prepares(self) -> bool: ...

    @property
    def session(self) -> int: ...

    async def fetch(self, statement: str, *values: object) -> Sequence[Sequence[Any]]: ...

    async def execute(self, statement: str, *values: object) -> str: ...

    async def listen(self, channel: str, on_notify: Callable[[str], None]) -> None: ...

    def end(self) -> None: ...

    async def close(self) -> None: ...


class Connect(Protocol):
    """Open a connection, with or without prepared statements."""

    def __call__(self, *, prepares: bool) -> Awaitable[PostgresConnection]: ...


# ── The check of a database, and its tables

MIGRATION_LOCK: Final = -778209067183176368
"""Number of the advisory lock of a migration."""
OLDEST_SERVER: Final = 130_000
"""The lowest supported `server_version_num`."""
_MAY_MAKE: Final = (
    "SELECT CASE WHEN to_regnamespace('sfn') IS NULL THEN has_database_privilege(current_database(), 'CREATE') "
    "ELSE has_schema_privilege('sfn', 'CREATE') END"
)
_MAY_NOT_USE: Final = (
    "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('sfn') AND (relkind = 'r' AND NOT ("
    "has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE') "
    "AND has_table_privilege(oid, 'DELETE')) OR relkind = 'S' AND NOT has_sequence_privilege(oid, 'USAGE')) "
    "ORDER BY relname"
)
_FACTS: Final = (
    "SELECT current_setting('server_version'), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, "
    "current_setting('fsync')::bool AND current_setting('full_page_writes')::bool, pg_is_in_recovery(), "
    "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'iceberg-sfn' "
    "AND pid <> pg_backend_pid())"
)


class ReadTransaction(Protocol):
    """A transaction, or a connection within one, that reads."""

    async def fetch(self, text: str, /, *values: object) -> Sequence[Sequence[Any]]: ...


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The state of a schema.

    Attributes:
        version: version of the schema; 0 if there is none.
        oldest: lowest version with code that may work on the tables.
    """

    version: int
    oldest: int = 0


async def schema_state(transaction: ReadTransaction) -> SchemaState:
    """Return the present state of the schema."""
    # Within a transaction, `to_regclass` may have cached that the table does not exist yet.
    ((there,),) = await transaction.fetch(
        "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'sfn' AND tablename = 'version')"
    )
    if not there:
        return SchemaState(0)
    versions = await transaction.fetch("SELECT version, oldest FROM sfn.version")
    return SchemaState(*versions[0]) if versions else SchemaState(0)


def check_schema(state: SchemaState, where: str, version: int = len(POSTGRES_MIGRATIONS)) -> None:
    """Refuse a schema that this version must not work on.

    Args:
        state: the state.
        where: name of the database.
        version: the version of this code.

    Raises:
        FatalError: a newer, incompatible version created it.
    """
    if state.oldest > version:
        raise FatalError(
            where,
            expected=f"an inbox of schema version {version}, or a newer one that leaves room for it",
            found=f"version {state.version}, which takes {state.oldest} at least",
            remedy="start the version of iceberg-sfn that wrote it, or a newer one",
        )


async def migrate(
    connection: PostgresConnection, where: str, migrations: Sequence[Migration] = POSTGRES_MIGRATIONS
) -> bool:
    """Migrate the tables to this version, in one transaction; one process does so at a time.

    Returns:
        True if there were none.

    Raises:
        FatalError: see `check_schema`.
    """
    await connection.fetch("SELECT pg_advisory_xact_lock($1::bigint)", MIGRATION_LOCK)
    state = await schema_state(connection)
    check_schema(state, where, len(migrations))
    if not state.version:
        ((known,),) = await connection.fetch("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'sfn')")
        if not known:
            await connection.execute("CREATE SCHEMA sfn")
        await connection.execute("CREATE TABLE IF NOT EXISTS sfn.version(version int NOT NULL, oldest int NOT NULL)")
        await connection.execute("INSERT INTO sfn.version VALUES (0, 0)")
    for number, migration in enumerate(migrations[state.version :], start=state.version + 1):
        await connection.execute(migration.script)
        await connection.execute("UPDATE sfn.version SET version = $1, oldest = $2", number, migration.oldest)
    return not state.version


async def check_server(transaction: ReadTransaction, where: str) -> None:
    """Refuse an unsuitable database.

    Raises:
        FatalError: the server is too old, or the encoding does not hold every text.
    """
    ((version, encoding),) = await transaction.fetch(
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding')"
    )
    if version < OLDEST_SERVER:
        raise FatalError(
            where,
            expected=f"PostgreSQL {OLDEST_SERVER // 10_000} or newer",
            found=f"version {version // 10_000}",
            remedy="upgrade the server",
        )
    if encoding != "UTF8":
        remedy = "create the database with ENCODING 'UTF8' TEMPLATE template0"
        raise FatalError(where, expected="a database with the encoding UTF8", found=encoding, remedy=remedy)


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """The facts about a suitable database.

    Attributes:
        where: name of the database, without a secret.
        server: version of the server.
        version: version of the schema; 0 without tables.
        is_pooled: True behind a pooler.
        is_durable: True if the server's settings let commits survive a power cut.
        ahead: time by which the server's clock is ahead of this process.
        others: number of visible connections of other listener processes.
    """

    where: str
    server: str
    version: int
    is_pooled: bool
    is_durable: bool
    ahead: timedelta
    others: int


async def inspect_database(
    transaction: ReadTransaction, where: str, now: Callable[[], datetime], *, is_pooled: bool
) -> PreflightResult:
    """Return the facts about a database, without touching any row.

    Raises:
        FatalError: the database is not suitable.
    """
    await check_server(transaction, where)
    found = await schema_state(transaction)
    check_schema(found, where)
    await _check_grants(transaction, where, found.version)
    ((version, at, is_durable, is_standby, others),) = await transaction.fetch(_FACTS)
    if is_standby:
        raise FatalError(where, expected="a primary", found="a standby, which takes no writes")
    ahead = timedelta(microseconds=at - to_micros(now()))
    return PreflightResult(where, version, found.version, is_pooled, is_durable, ahead, others)


async def _check_grants(transaction: ReadTransaction, where: str, version: int) -> None:
    if version < len(POSTGRES_MIGRATIONS):
        ((may,),) = await transaction.fetch(_MAY_MAKE)
        if not may:
            raise FatalError(
                where,
                expected="the right to make the schema sfn and its tables",
                found="that it is not granted",
                remedy="CREATE SCHEMA sfn AUTHORIZATION …, or GRANT CREATE ON DATABASE … TO …",
            )
    lacking = [name for (name,) in await transaction.fetch(_MAY_NOT_USE)]
    if lacking:
        raise FatalError(
            where,
            expected="the right to read and write the schema sfn",
            found=f"no right to {', '.join(lacking)}",
            remedy="GRANT ALL ON ALL TABLES IN SCHEMA sfn TO …, and ALL SEQUENCES",
        )
