"""One process an inbox: a locked file beside the database."""

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

    The folder of the database is made where it is missing. The file stays when the lock goes: removing it would let two
    processes lock two files of the same name.

    Args:
        database: the inbox's file, by its real path: under every name that it has by links it is one inbox.

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
        """The database is open: remember which files it is made of.

        Args:
            named: the configured path, which may be a link: the next start follows the link again.
        """
        for path in (self._database, named, self._database.with_name(self._database.name + "-wal")):
            self._places[path] = _identity(path)

    def missing(self) -> Path | None:
        """The first file of the inbox that no longer lies where it did, None for none.

        What is written to a file that was moved away or replaced is lost to the next start, however well it is synced.
        """
        for path, identity in self._places.items():
            if identity is None or _identity(path) != identity:
                return path
        return None

    def release(self) -> None:
        """Let another process have the inbox."""
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
    """Which process has an inbox just now, by its id; None for none. Writes nothing, and locks for an instant at most.

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
    """Make a folder and those above it; each is on disk before something is put into it."""
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
    """Why an inbox may not live long, or not work, where it is.

    Attributes:
        found: what is there.
        remedy: what to do.
    """

    found: str
    remedy: str


def placed(database: Path, table: Path = MOUNTS) -> Doubt | None:
    """What speaks against the place of a database; None for nothing. Blocks.

    SQLite keeps what was committed last in a file beside the database, and the lock against other processes lies there
    too. Where the database alone is mounted, both go with the container, and so do events that were acknowledged.

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
