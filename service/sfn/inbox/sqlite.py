"""The inbox of one process, in a SQLite file: its opening, its lock, and checks of the place where the file is."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
from sfn.inbox.sqlite_writer import SqliteTransaction, SqliteWriter, to_inbox_error
from sfn.inbox.transaction import drive
from sfn.mounts import MOUNTS, mount_of, mounts

MIGRATIONS: Final = (SQLITE_TABLES,)
"""Scripts that lead from one version of the schema to the next; the first one makes an empty inbox."""
MAX_LOCK_WAIT: Final = 2.0
"""Seconds that another program may lock the database; all operations wait meanwhile."""
_LOGGED: Final = frozenset({"wal", "memory"})
"""Answers of SQLite if it has a write-ahead log, and if there is no file that needs one."""

_log = structlog.stdlib.get_logger(__name__)


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
        queue_limit: int = 25_000,
        observe: Callable[[CommittedTransaction], None] = lambda _: None,
        observe_fold: Callable[[FoldResult], None] = lambda _: None,
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
        lock, db, unapplied = await _lock_and_open(path, operations)
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


async def _lock_and_open(named: Path, operations: Operations) -> tuple[InboxLock, sqlite3.Connection, int]:
    """Lock a file and open the database in it; return both, and the number of records that wait to be folded."""
    # SQLite, too, puts its log next to the target of a link.
    path = Path(await anyio.to_thread.run_sync(os.path.realpath, named))
    doubt = await anyio.to_thread.run_sync(placed, path)
    if doubt is not None:
        _log.warning("doubtful place for the inbox", found=doubt.found, remedy=doubt.remedy)
    lock = InboxLock(path)
    try:
        db, unapplied = await anyio.to_thread.run_sync(_open, path, operations)
        lock.watch(named)
    except BaseException:
        lock.release()
        raise
    return lock, db, unapplied


def _open(path: Path, operations: Operations) -> tuple[sqlite3.Connection, int]:
    try:
        # The log shows whether the inbox is new: its file may be lost, or another disk mounted in its place.
        new = not path.exists() or path.stat().st_size == 0
        db = connect(str(path))
        try:
            recovered = recover(db, operations)
            ((unapplied,),) = db.execute("SELECT count(*) FROM pending").fetchall()
        except BaseException:
            # It may hold the lock of a transaction.
            db.close()
            raise
    except sqlite3.Error as error:
        refused = to_inbox_error(error, str(path))
        if refused is None:
            raise
        raise refused from error
    _log.info("inbox opened", path=str(path), new=new, leases_taken_back=recovered)
    return db, unapplied


def connect(path: str) -> sqlite3.Connection:
    """Open a database, make it durable by its settings, and bring its tables to this version.

    Raises:
        FatalError: the file system can't have a write-ahead log, or a newer version wrote the database.
        sqlite3.Error: the database can't be opened.
    """
    db = sqlite3.connect(
        path, timeout=MAX_LOCK_WAIT, isolation_level=None, check_same_thread=False, cached_statements=512
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
    db.execute("BEGIN IMMEDIATE")
    count = drive(operations.recover(SqliteTransaction(db)))
    db.execute("COMMIT")
    return count


# ── The lock and the place of the file

_LOCK_SUFFIX: Final = ".lock"


class InboxLock:
    """The exclusive right to an inbox, held until it is released or the process ends, however that ends.

    A missing folder of the database is created. The lock file is never removed: if it were, two processes could lock
    two files of the same name.

    Args:
        database: real path of the inbox's file, so that all links to it lead to one inbox.

    Raises:
        FatalError: another process has the inbox, or the folder can't be written to.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(database.name + _LOCK_SUFFIX)
        try:
            _make(database.parent)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unusable(database, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        except BlockingIOError as error:
            raise self._taken() from error
        except OSError as error:
            os.close(self._descriptor)
            raise _unusable(self._path, error) from error
        self._places: dict[Path, tuple[int, int] | None] = {self._path: _identity(self._path)}

    def watch(self, named: Path) -> None:
        """Remember which files the open database consists of.

        Args:
            named: the configured path, which may be a link: the next start follows the link again.
        """
        for path in (self._database, named, self._database.with_name(self._database.name + "-wal")):
            self._places[path] = _identity(path)

    def missing(self) -> Path | None:
        """Return the first file of the inbox that was moved, removed or replaced; None if there is none.

        The next start does not find what is written to a file that was moved or replaced, even if it is synced.
        """
        for path, identity in self._places.items():
            if identity is None or _identity(path) != identity:
                return path
        return None

    def release(self) -> None:
        """Release the lock, so that another process can open the inbox."""
        os.close(self._descriptor)

    def _taken(self) -> FatalError:
        holder = _holder(self._descriptor)
        os.close(self._descriptor)
        return FatalError(
            str(self._database),
            expected="an inbox that no other process uses",
            found=f"that process {holder} holds {self._path}",
            remedy="stop that process, or give this one another `inbox.url`",
        )


def held_by(database: Path) -> str | None:
    """Return the id of the process that has an inbox open; None if there is none. Locks only briefly, writes nothing.

    Args:
        database: see `InboxLock`.

    Raises:
        FatalError: the state of the lock cannot be read.
    """
    path = database.with_name(database.name + _LOCK_SUFFIX)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        # A shared lock does not block others that request a shared lock.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(descriptor)
    except OSError as error:
        raise _unusable(path, error) from error
    else:
        return None
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "of unknown id"


def _make(folder: Path) -> None:
    """Create a folder and its parents; each is on disk before anything is created in it."""
    if folder.is_dir():
        return
    _make(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise
    above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(above)
    finally:
        os.close(above)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at a path; None if there is none, or it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _unusable(path: Path, error: OSError) -> FatalError:
    name = errno.errorcode.get(error.errno or 0, "an error")
    return FatalError(
        str(path),
        expected="a file that the service may make and lock",
        found=f"{name} ({error.strerror}) at {error.filename or path}",
        remedy="let the service's user write its folder, on a file system that has locks, or set `inbox.url`",
    )


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason why an inbox may be lost, or not work, at its place.

    Attributes:
        found: the problem.
        remedy: what to do.
    """

    found: str
    remedy: str


def placed(database: Path, table: Path = MOUNTS) -> Doubt | None:
    """Return the reason against the place of a database; None if there is none. Blocks.

    SQLite keeps the last commits in a file next to the database, and the lock against other processes is there too. If
    only the database is mounted, both are lost with the container, and with them events that were acknowledged.

    Args:
        database: its real path.
        table: the list of mounts.

    Raises:
        FatalError: the database itself is a mount point.
    """
    known = mounts(table)
    if any(mount.point == str(database) for mount in known):
        raise FatalError(
            str(database),
            expected="a mounted folder that holds the inbox",
            found="a single mounted file: SQLite's log beside the file would be lost with the container",
            remedy=f"mount a folder (a volume at {database.parent}) in place of the file",
        )
    mount = mount_of(database, known)
    if mount is None:
        return None
    place = f"{database.parent} lies on {mount.kind} (mounted at {mount.point})"
    if mount.is_remote:
        return Doubt(f"{place}: SQLite is not safe on network file systems", "use a local disk, or PostgreSQL")
    if mount.is_memory:
        return Doubt(f"{place}: it is empty after a restart of the machine or the container", "use a disk")
    if mount.is_layer:
        return Doubt(f"{place}: it goes with the container", f"mount a volume at {database.parent}")
    return None
