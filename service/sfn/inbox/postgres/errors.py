"""Faults of the database, and the map of their codes to errors of the inbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfn.errors import ErrorScope, FatalError, OutcomeUnknown, Permanent, SfnError, Transient
from sfn.inbox.model import RETRY_AFTER

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
    LOGIN_FILE: "let the service's user read `inbox.password_file`",
    NO_TLS: "set ssl = on at the server, or another sslmode in `inbox.url`",
    UNTRUSTED: "set sslrootcert in `inbox.url` to the certificates that signed the server's, or to system",
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
