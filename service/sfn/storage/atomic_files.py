"""`LockableFolder`: atomic replacement of small files in one folder, with blocking calls.

Callers run it on a thread, or in a program without an event loop.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Self, TypeAlias

from sfn.errors import ErrorScope, ExternalError, OutcomeUnknown, Permanent, Transient
from sfn.safe_open import DIRECTORY_FLAGS
from sfn.storage import MAX_READ_BYTES, base_name, parent_folder


@dataclass(frozen=True, slots=True)
class _OsErrorMeaning:
    """The error class, scope and message that an error number becomes."""

    error: type[Transient | Permanent]
    scope: ErrorScope
    expected: str
    remedy: str


_FULL = _OsErrorMeaning(Transient, ErrorScope.STORE, "room for a small file", "free some space or raise the quota")
_DESCRIPTORS = _OsErrorMeaning(Transient, ErrorScope.PROCESS, "a free file descriptor", "raise the limit of open files")
_MEMORY = _OsErrorMeaning(
    Transient, ErrorScope.PROCESS, "memory and locks of the system", "give the service and its machine more"
)
_BROKEN = _OsErrorMeaning(Transient, ErrorScope.STORE, "a working file system", "check the system's log")
_READ_ONLY = _OsErrorMeaning(Permanent, ErrorScope.STORE, "a writable file system", "mount it read-write")
_TOO_SMALL = _OsErrorMeaning(Permanent, ErrorScope.STORE, "a limit of file sizes above 64 KiB", "raise RLIMIT_FSIZE")
_FORBIDDEN = _OsErrorMeaning(
    Permanent,
    ErrorScope.TABLE,
    "permission for this file and its folder",
    "let the service's user read, write and search its folder",
)
_ODD = _OsErrorMeaning(
    Permanent, ErrorScope.TABLE, "a regular file, no link to one, in a folder", "move away what lies there"
)
_NO_NAME = _OsErrorMeaning(
    Permanent, ErrorScope.TABLE, "a name that the file system can hold", "use a shorter or simpler location"
)
_NO_FOLDER = _OsErrorMeaning(
    Transient, ErrorScope.TABLE, "the table's folder", "mount the file system that holds it, or create the folder"
)
_UNFORESEEN = _OsErrorMeaning(Transient, ErrorScope.TABLE, "a file operation that succeeds", "")

_MEANINGS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.ENOMEM: _MEMORY,
    errno.ENOBUFS: _MEMORY,
    errno.ENOLCK: _MEMORY,
    errno.EIO: _BROKEN,
    errno.ESTALE: _BROKEN,
    errno.ETIMEDOUT: _BROKEN,
    errno.ENOTCONN: _BROKEN,
    errno.ENODEV: _BROKEN,
    errno.EROFS: _READ_ONLY,
    errno.EFBIG: _TOO_SMALL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.ENOTDIR: _ODD,
    errno.EISDIR: _ODD,
    errno.ELOOP: _ODD,
    errno.ENXIO: _ODD,
    errno.ENAMETOOLONG: _NO_NAME,
    errno.EILSEQ: _NO_NAME,
    errno.ENOENT: _NO_FOLDER,
}
_UNCERTAIN = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EINTR})


@contextmanager
def map_os_errors(where: str) -> Iterator[None]:
    """Turn every `OSError` of the block into an error of that file or folder."""
    try:
        yield
    except OSError as error:
        raise error_of(where, error) from error


@contextmanager
def map_uncertain_errors(where: str) -> Iterator[None]:
    """Guard the step that makes a change visible: turn errors that leave its outcome open into `OutcomeUnknown`.

    Raises:
        OutcomeUnknown: scope store; the change may have happened.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _UNCERTAIN:
            raise outcome_unknown(where, error) from error
        raise


def error_of(where: str, error: OSError) -> ExternalError:
    """Return the error that an error of the operating system becomes."""
    meaning = _MEANINGS.get(error.errno or 0, _UNFORESEEN)
    return meaning.error(
        where, scope=meaning.scope, expected=meaning.expected, found=describe_os_error(error), remedy=meaning.remedy
    )


def outcome_unknown(where: str, error: OSError) -> OutcomeUnknown:
    """Return the error of a change that may be visible, but may not survive a power cut."""
    return OutcomeUnknown(
        where,
        scope=ErrorScope.STORE,
        expected="a durable change",
        found=describe_os_error(error),
        remedy="check the system's log",
    )


def describe_os_error(error: OSError) -> str:
    """Describe an error with its symbol and the system's own text."""
    number = error.errno or 0
    return f"{errno.errorcode.get(number, number)} ({os.strerror(number)})"


_NO_FOLDER_FSYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}
"""Errors of file systems, such as some network ones, that cannot fsync a folder; there is nothing to wait for."""


class PendingFsyncs:
    """The folders that still need an fsync. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way: dict[str, int] = {}
        # Each failure gets a new object: an fsync covers no failure that came after its start.
        self._pending: dict[str, object] = {}

    @contextmanager
    def pending(self, folder: str) -> Iterator[None]:
        """Mark a folder as pending while the block changes and syncs it, as it may hang, and after `OutcomeUnknown`."""
        with self._lock:
            self._under_way[folder] = self._under_way.get(folder, 0) + 1
        try:
            yield
        except OutcomeUnknown:
            with self._lock:
                self._pending[folder] = object()
            raise
        finally:
            with self._lock:
                left = self._under_way.pop(folder) - 1
                if left:
                    self._under_way[folder] = left

    def flush(self, folder: str, where: str) -> None:
        """Fsync a folder and the two above it where this is pending. A folder that is gone needs none.

        Args:
            folder: the folder that is read or changed next.
            where: its name in messages.

        Raises:
            OutcomeUnknown: a visible change may still not survive a power cut.
            OSError: a folder cannot be opened.
        """
        with self._lock:
            if not self._pending and not self._under_way:
                return
        for place in (folder, parent_folder(folder), parent_folder(parent_folder(folder))):
            with self._lock:
                pending = self._pending.get(place)
                if pending is None and place not in self._under_way:
                    continue
            with suppress(FileNotFoundError):
                fsync_folder(place, where)
            with self._lock:
                if pending is not None and self._pending.get(place) is pending:
                    del self._pending[place]


def fsync_folder(folder: str, where: str) -> None:
    """Make the visible changes of a folder survive a power cut.

    Args:
        folder: its path.
        where: its name in messages.

    Raises:
        OutcomeUnknown: they may not survive.
        OSError: the folder cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fsync_descriptor(descriptor, where)
    finally:
        os.close(descriptor)


def fsync_descriptor(descriptor: int, where: str) -> None:
    """Fsync an open folder.

    Raises:
        OutcomeUnknown: a visible change may not survive a power cut.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FSYNC:
            raise outcome_unknown(where, error) from error


TEMPORARY_NAME = ".sfn-swap.tmp"
"""Name of the file in which a new content is prepared."""
LOCK_NAME = ".sfn-swap.lock"
"""File that is locked during a change in its folder."""
PRIVATE_NAMES = frozenset({TEMPORARY_NAME, LOCK_NAME})
"""Names that no key may have and no listing shows."""

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Flags for reads: a pipe in a file's place is refused, not waited for."""
_LOCK_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LOCK_MODE = 0o666
"""Mode of the lock file, whatever the umask: NFS only locks a file that is open for writing. The file is empty."""
_IDENTIFY_FLAGS = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for a file that is only compared with another: where the system can, the file system need not open it."""
_LOCK_OPENINGS = 3
"""Attempts to open a lock file that other processes create and delete."""
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_PART = 64 * 1024
_TRIAL_CONTENT = bytes(4096)
"""A block, not an empty file: a full disk may still have room for a name."""
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK})
"""Errors of file systems without locks; NFS without a lock service returns ENOLCK."""
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EMLINK, errno.EXDEV})
"""Errors of file systems without hard links; CIFS returns EINVAL. The file is new, and linked in its own folder."""


OpenAt: TypeAlias = Callable[[str, int], int]
"""Opens a folder, its parent or a file in it, by path and flags; decides which links are followed."""


def open_at(path: str, flags: int) -> int:
    """Open a folder or file, and follow all links."""
    return os.open(path, flags & ~os.O_NOFOLLOW)


def is_never_given_up() -> bool:
    """Return False: the caller waits until the call returns, and never gives up."""
    return False


@dataclass(slots=True)
class _PreparedContent:
    """A content under the temporary name.

    Attributes:
        is_moved: the content has another name now, so the temporary name is free.
    """

    is_moved: bool = False


class LockableFolder:
    """An open folder that is locked before any change in it.

    Two locks are held. One is an `flock` on the folder itself. The earlier version knows no other, and may run beside
    this one during an upgrade. The other is an `flock` on a regular file in the folder: on NFS the server holds it for
    all hosts, while the lock of a folder is the host's own. The kernel drops the locks with their holder. The holder
    deletes the file before it releases the locks, so only a holder that died leaves the empty file to the next one.
    A content is prepared under the locks and removed before their release. So a process that holds the locks and finds
    a prepared file knows that its writer is dead, and removes it; no age needs to be guessed.

    Other programs that write here do not know the lock. Against them a creation is still atomic, a replacement is not.

    Args:
        path: the folder; no file in it may be a symbolic link.
        where: its name in messages.
        pending_fsync: records every change until it is durable.
        given_up: returns True if no caller waits for the change any more. Then it is not begun.
        open_by_path: opens the folder, and files in it.

    Raises:
        OSError: from every method, for any failure of the system.
    """

    def __init__(
        self,
        path: str,
        where: str,
        pending_fsync: PendingFsyncs,
        given_up: Callable[[], bool] = is_never_given_up,
        open_by_path: OpenAt = open_at,
    ) -> None:
        self._path = path
        self._where = where
        self._pending_fsync = pending_fsync
        self._given_up = given_up
        self._open = open_by_path
        self._descriptor = open_by_path(path, DIRECTORY_FLAGS)
        self._lock: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            # Unlinked before the release: a process that opened the file meanwhile finds that it was replaced.
            with suppress(OSError):
                os.unlink(LOCK_NAME, dir_fd=self._descriptor)
            os.close(self._lock)
        os.close(self._descriptor)

    def lock(self) -> bool:
        """Lock the folder until it is closed. Never waits.

        Returns:
            False if another process holds the lock or has just released it, or if the folder was just replaced by
            another: open it again.

        Raises:
            Permanent: scope store; the file system has no locks.
        """
        if not self._has_locked_folder():
            return False
        lock, denied = self._lock_file()
        try:
            found = os.fstat(lock)
            _check_regular(found)
            if not self._has_locked(lock, denied):
                return False
            is_in_place = False
            try:
                is_in_place = self._is_in_place(found)
            finally:
                if is_in_place or self._contains(found):
                    # Deleted at the end, also in a folder that was moved away.
                    self._lock, lock = lock, -1
            return is_in_place
        finally:
            if lock >= 0:
                os.close(lock)

    def _has_locked_folder(self) -> bool:
        """Return True if no process of the earlier version holds the folder, or if folders cannot be locked here."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return True

    def _lock_file(self) -> tuple[int, OSError | None]:
        """Open the lock file, or create it.

        A file of another user may be write-protected. Then it is opened for reading, which local file systems accept
        for a lock, too.

        Returns:
            A descriptor, and the reason why it is not open for writing; None if it is.
        """
        for left in reversed(range(_LOCK_OPENINGS)):
            try:
                return self._made_lock_file(), None
            except (FileExistsError, PermissionError):
                try:
                    return os.open(LOCK_NAME, _LOCK_FLAGS, dir_fd=self._descriptor), None
                except PermissionError as denied:
                    with suppress(PermissionError, FileNotFoundError):
                        return os.open(
                            LOCK_NAME, _LOCK_FLAGS & ~os.O_RDWR | os.O_RDONLY, dir_fd=self._descriptor
                        ), denied
                    if not left:
                        raise
                except FileNotFoundError:
                    pass
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _made_lock_file(self) -> int:
        """Create a lock file that all users may lock. An existing file keeps its mode: it may be a link's target."""
        lock = os.open(LOCK_NAME, _LOCK_FLAGS | os.O_CREAT | os.O_EXCL, _LOCK_MODE, dir_fd=self._descriptor)
        with suppress(OSError):
            os.fchmod(lock, _LOCK_MODE)
        return lock

    def _has_locked(self, lock: int, denied: OSError | None) -> bool:
        """Return True if this process now holds the lock of the file.

        Args:
            denied: see `_lock_file`.
        """
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EBADF and denied is not None:
                raise denied from error
            if error.errno in _NO_LOCKS:
                raise self._unsupported("a file system that locks folders, by a file in them", error) from error
            raise
        return True

    def _contains(self, lock: os.stat_result) -> bool:
        """Return True if a lock file is still the folder's."""
        try:
            return os.path.samestat(os.stat(LOCK_NAME, dir_fd=self._descriptor, follow_symlinks=False), lock)
        except FileNotFoundError:
            return False

    def _is_in_place(self, lock: os.stat_result) -> bool:
        """Return True if the folder's path still leads to a lock file.

        False means that the file was replaced, or that the folder was moved away: readers do not see it any more.
        """
        try:
            found = self._open(f"{self._path}/{LOCK_NAME}", _IDENTIFY_FLAGS)
        except FileNotFoundError:
            return False
        try:
            return os.path.samestat(os.fstat(found), lock)
        finally:
            os.close(found)

    def read_content(self, name: str) -> bytes | None:
        """Return at most `MAX_READ_BYTES` bytes of a file, None if there is none."""
        try:
            return read_content(os.open(name, READ_FLAGS, dir_fd=self._descriptor))
        except FileNotFoundError:
            return None

    def create(self, name: str, body: bytes) -> bool:
        """Create a file durably; return False if it exists.

        Raises:
            Permanent: scope store; the file system has no hard links.
            OutcomeUnknown: the file exists, but may not survive a power cut.
        """
        with self._prepared(body), self._pending_fsync.pending(self._path):
            try:
                self._check_still_wanted()
                with map_uncertain_errors(self._where):
                    os.link(
                        TEMPORARY_NAME,
                        name,
                        src_dir_fd=self._descriptor,
                        dst_dir_fd=self._descriptor,
                        follow_symlinks=False,
                    )
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise self._unsupported("a file system with hard links", error) from error
                raise
            self.fsync()
        return True

    def replace(self, name: str, body: bytes) -> None:
        """Replace the content of a file durably and atomically.

        Raises:
            OutcomeUnknown: the content may have been replaced, or may not survive a power cut.
        """
        with self._prepared(body) as content, self._pending_fsync.pending(self._path):
            self._check_still_wanted()
            with map_uncertain_errors(self._where):
                os.replace(TEMPORARY_NAME, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            content.is_moved = True
            self.fsync()

    def remove(self, name: str) -> None:
        """Delete a file durably, and what a dead writer prepared.

        Raises:
            OutcomeUnknown: the file may have been deleted, or may come back after a power cut.
        """
        with suppress(FileNotFoundError):
            os.unlink(TEMPORARY_NAME, dir_fd=self._descriptor)
        with self._pending_fsync.pending(self._path):
            self._check_still_wanted()
            with map_uncertain_errors(self._where):
                os.unlink(name, dir_fd=self._descriptor)
            self.fsync()

    def try_write(self) -> None:
        """Prepare a small content and remove it again, to check that a file can be created here."""
        with self._prepared(_TRIAL_CONTENT):
            pass

    def fsync(self) -> None:
        """Make the visible changes of the folder survive a power cut.

        Raises:
            OutcomeUnknown: they may not survive.
        """
        fsync_descriptor(self._descriptor, self._where)

    @contextmanager
    def _prepared(self, body: bytes) -> Iterator[_PreparedContent]:
        """Hold a content under the temporary name, synced, while the block runs."""
        content = _PreparedContent()
        try:
            descriptor = self._temporary_file()
            try:
                _write_all(descriptor, body)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield content
        finally:
            if not content.is_moved:
                # A failure here does not change the outcome: the next writer removes the file.
                with suppress(OSError):
                    os.unlink(TEMPORARY_NAME, dir_fd=self._descriptor)

    def _temporary_file(self) -> int:
        """Create the temporary file, in place of the leftover of a dead writer."""
        try:
            return os.open(TEMPORARY_NAME, _CREATE_FLAGS, 0o666, dir_fd=self._descriptor)
        except FileExistsError:
            os.unlink(TEMPORARY_NAME, dir_fd=self._descriptor)
            return os.open(TEMPORARY_NAME, _CREATE_FLAGS, 0o666, dir_fd=self._descriptor)

    def _check_still_wanted(self) -> None:
        """Refuse a change without a caller: a file system may hang for hours, and others have gone on since."""
        if self._given_up():
            raise Transient(
                self._where,
                scope=ErrorScope.STORE,
                expected="a caller that waits for the change",
                found="a caller that gave up",
            )

    def _unsupported(self, expected: str, error: OSError) -> Permanent:
        return Permanent(
            self._where,
            scope=ErrorScope.STORE,
            expected=expected,
            found=describe_os_error(error),
            remedy="keep the tables on a local file system, on NFS version 4 or in an object store",
        )


def read_content(descriptor: int, *, start: int = 0, most: int = MAX_READ_BYTES) -> bytes:
    """Return bytes of an open regular file, and close it.

    Args:
        descriptor: opened with `READ_FLAGS`.
        start: offset of the first byte.
        most: number of bytes, at most.
    """
    try:
        found = os.fstat(descriptor)
        _check_regular(found)
        if start:
            os.lseek(descriptor, start, os.SEEK_SET)
        return _read_all(descriptor, found.st_size - start, most)
    finally:
        os.close(descriptor)


def _check_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.ENXIO
        raise OSError(number, os.strerror(number))


def make_folder(path: str, where: str, pending_fsync: PendingFsyncs, open_by_path: OpenAt = open_at) -> None:
    """Create a folder and, if that is missing, its parent; durably, and nothing above.

    An existing table can lack two folders (`metadata/_sfn`, or `<namespace>/<table>` below a root). If more are
    missing, the table is not there: most likely its file system is not mounted, and new folders below the mount point
    would hide the loss.

    Args:
        path: the folder.
        where: its name in messages.
        pending_fsync: records every change until it is durable.
        open_by_path: see `LockableFolder`.

    Raises:
        OutcomeUnknown: a folder may have been created, or may not survive a power cut.
    """
    try:
        _make_one_folder(path, where, pending_fsync, open_by_path)
    except FileNotFoundError:
        _make_one_folder(parent_folder(path), where, pending_fsync, open_by_path)
        _make_one_folder(path, where, pending_fsync, open_by_path)


def _make_one_folder(path: str, where: str, pending_fsync: PendingFsyncs, open_by_path: OpenAt) -> None:
    # The parent is opened first, so that nothing can fail between the two steps.
    holder = open_by_path(parent_folder(path), DIRECTORY_FLAGS)
    try:
        with suppress(FileExistsError), pending_fsync.pending(parent_folder(path)):
            with map_uncertain_errors(where):
                os.mkdir(base_name(path), dir_fd=holder)
            fsync_descriptor(holder, where)
    finally:
        os.close(holder)


def _read_all(descriptor: int, size: int, most: int) -> bytes:
    """Return at most `most` bytes of the rest of a file of about this size.

    A file that has exactly this size needs no second call: a read that returns less than its room ends at the end of
    the file. The buffer fits the file's size. Many small stored bodies, each cut from a large buffer, would fragment
    the heap.
    """
    parts: list[bytes] = []
    room = max(size, 0) + 1
    while most > 0 and (part := os.read(descriptor, min(most, room))):
        parts.append(part)
        if len(part) == size < room:
            break
        most -= len(part)
        room = room - len(part) or _PART
    return b"".join(parts)


def _write_all(descriptor: int, body: bytes) -> None:
    left = memoryview(body)
    while left:
        left = left[os.write(descriptor, left) :]
