"""Map of SQLite's errors to those of the inbox, by their codes."""

from __future__ import annotations

import sqlite3

from sfn.errors import ErrorScope, FatalError, Transient
from sfn.inbox.model import RETRY_AFTER

_PRIMARY = 0xFF
"""The bits of a code that hold the primary one (https://www.sqlite.org/rescode.html)."""

_ROOM = "free some room on the disk of the inbox"
_PASSING = {
    sqlite3.SQLITE_FULL: _ROOM,
    sqlite3.SQLITE_IOERR_SHMSIZE: _ROOM,
    sqlite3.SQLITE_BUSY: "leave the inbox to the service: another program has it locked",
    sqlite3.SQLITE_LOCKED: "leave the inbox to the service: another program has it locked",
    sqlite3.SQLITE_NOMEM: "give the service more memory",
}
_FATAL = {
    sqlite3.SQLITE_IOERR: "look at the disk of the inbox and at the machine's log, then start the service again",
    sqlite3.SQLITE_CORRUPT: "restore the inbox from a backup, or move it away: an empty one fills itself by a sweep",
    sqlite3.SQLITE_NOTADB: "move the file away, or set `inbox.url` to another one",
    sqlite3.SQLITE_CANTOPEN: "let the service's user read and write the file and its folder",
    sqlite3.SQLITE_READONLY: "let the service's user write the file and its folder",
    sqlite3.SQLITE_PERM: "let the service's user read and write the file and its folder",
}


def refusal(error: sqlite3.Error, where: str) -> Transient | FatalError | None:
    """Return the inbox's error for an error of SQLite; None for a defect of the statement, not of the file.

    Args:
        where: name of the database, for the error.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    found = f"{getattr(error, 'sqlite_errorname', type(error).__name__)}: {error}"
    passing = _PASSING.get(code) or _PASSING.get(code & _PRIMARY)
    if passing is not None:
        return Transient(
            where,
            scope=ErrorScope.INBOX,
            expected="a transaction to be stored",
            found=found,
            remedy=passing,
            retry_after=RETRY_AFTER,
        )
    fatal = _FATAL.get(code & _PRIMARY)
    return FatalError(where, expected="a sound inbox", found=found, remedy=fatal) if fatal is not None else None
