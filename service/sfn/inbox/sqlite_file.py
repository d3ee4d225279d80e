"""The file of the database: its lock, one process per inbox, and checks of the place where the file is."""

from __future__ import annotations

import errno
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from sfn.errors import FatalError
from sfn.mounts import MOUNTS, mount_of, mounts

_SUFFIX = ".lock"


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
        self._path = database.with_name(database.name + _SUFFIX)
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
    path = database.with_name(database.name + _SUFFIX)
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
