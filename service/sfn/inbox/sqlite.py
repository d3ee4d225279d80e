"""The inbox of one process, in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio.to_thread
import structlog

from sfn.clock import Clock
from sfn.errors import FatalError
from sfn.inbox.inbox import Inbox
from sfn.inbox.model import CommittedTransaction, FoldResult, InboxConfig
from sfn.inbox.operations import Operations
from sfn.inbox.schema import SQLITE_TABLES, sqlite_text
from sfn.inbox.sqlite_file import InboxLock, placed
from sfn.inbox.sqlite_writer import SqliteTransaction, SqliteWriter, to_inbox_error
from sfn.inbox.transaction import Transaction, drive

MIGRATIONS: Final = (SQLITE_TABLES,)
"""Scripts that lead from one version of the schema to the next; the first one makes an empty inbox."""
MAX_LOCK_WAIT: Final = 2.0
"""Seconds that another program may lock the database; all operations wait meanwhile."""
_LOGGED: Final = frozenset({"wal", "memory"})
"""Answers of SQLite if it has a write-ahead log, and if there is no file that needs one."""

_log = structlog.stdlib.get_logger(__name__)


def ignore_commit(_: CommittedTransaction) -> None:
    """Observe nothing."""


def ignore_fold(_: FoldResult) -> None:
    """Observe nothing."""


class SqliteInbox(Inbox):
    """The inbox in a SQLite file, for one process; `opened` creates it."""

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        path: Path,
        config: InboxConfig,
        clock: Clock,
        *,
        queue_limit: int = 10_000,
        observe: Callable[[CommittedTransaction], None] = ignore_commit,
        observe_fold: Callable[[FoldResult], None] = ignore_fold,
    ) -> AsyncIterator[SqliteInbox]:
        """Open the inbox in a file, or create it; lock it against other processes, and close it at the end.

        All leases of the last process are taken back.

        Args:
            path: the file, or a link to it.
            config: the configuration of the inbox.
            clock: the wall clock.
            queue_limit: most messages that may wait for the disk.
            observe: called after every transaction.
            observe_fold: called after every fold.

        Raises:
            FatalError: another process has the inbox open, a newer version wrote it, it can't be read and written, or
                it is mounted without its folder.
            Transient: scope inbox: the disk is full.
        """
        operations = Operations(config, clock.now)
        lock, db = await _lock_and_open(path, operations)
        ((unapplied,),) = db.execute("SELECT count(*) FROM pending").fetchall()
        writer = SqliteWriter(db, str(path), missing=lock.missing, observe=observe, undone=operations.forget_groups)
        try:
            yield cls(
                writer,
                operations,
                clock,
                queue_limit=queue_limit,
                observe_fold=observe_fold,
                unapplied=unapplied,
            )
        finally:
            if await writer.close():
                lock.release()


async def _lock_and_open(named: Path, operations: Operations) -> tuple[InboxLock, sqlite3.Connection]:
    """Lock a file and open the database in it."""
    # SQLite, too, puts its log next to the target of a link.
    path = Path(await anyio.to_thread.run_sync(os.path.realpath, named))
    doubt = await anyio.to_thread.run_sync(placed, path)
    if doubt is not None:
        _log.warning("doubtful place for the inbox", found=doubt.found, remedy=doubt.remedy)
    lock = InboxLock(path)
    try:
        db = await anyio.to_thread.run_sync(_open, path, operations)
        lock.watch(named)
    except BaseException:
        lock.release()
        raise
    return lock, db


def _open(path: Path, operations: Operations) -> sqlite3.Connection:
    try:
        # The log shows whether the inbox is new: its file may be lost, or another disk mounted in its place.
        new = not path.exists() or path.stat().st_size == 0
        db = connect(str(path))
        recovered = recover(db, operations)
    except sqlite3.Error as error:
        refused = to_inbox_error(error, str(path))
        if refused is None:
            raise
        raise refused from error
    _log.info("inbox opened", path=str(path), new=new, leases_taken_back=recovered)
    return db


def connect(path: str) -> sqlite3.Connection:
    """Open a database, make it durable by its settings, and bring its tables to this version.

    Raises:
        FatalError: the file system can't have a write-ahead log, or a newer version wrote the database.
        sqlite3.Error: the database can't be opened.
    """
    db = sqlite3.connect(
        path, timeout=MAX_LOCK_WAIT, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    (mode,) = db.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode not in _LOGGED:
        raise FatalError(
            path,
            expected="a file system on which SQLite can keep a write-ahead log",
            found=f"journal_mode {mode}",
            remedy="put the inbox on a local disk: set `inbox.url`",
        )
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA wal_autocheckpoint=10000")
    db.execute("PRAGMA journal_size_limit=67108864")
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found > len(MIGRATIONS):
        raise FatalError(
            path,
            expected=f"an inbox of schema version {len(MIGRATIONS)} or lower",
            found=f"version {found}",
            remedy="start the version of iceberg-sfn that wrote it, or a newer one",
        )
    for number in range(found, len(MIGRATIONS)):
        db.executescript(f"BEGIN IMMEDIATE;{sqlite_text(MIGRATIONS[number])};PRAGMA user_version={number + 1};COMMIT;")
    return db


def recover(db: sqlite3.Connection, operations: Operations) -> int:
    """Take back every lease, because the process that had them is gone; return their number."""
    transaction = SqliteTransaction(db)

    async def recovered(transaction: Transaction) -> int:
        return await operations.recover(transaction)

    db.execute("BEGIN IMMEDIATE")
    count = drive(recovered(transaction))
    db.execute("COMMIT")
    return count
