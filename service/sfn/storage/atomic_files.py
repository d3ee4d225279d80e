"""One folder of small files that are replaced whole: blocking calls, for a thread or a program without a loop."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Self

from sfn.errors import ErrorScope, ExternalError, OutcomeUnknown, Permanent, Transient
from sfn.storage import MAX_READ_BYTES, base_name, parent_folder

# ── refusal: What an operating system's refusal means for the work at hand


@dataclass(frozen=True, slots=True)
class _OsErrorMeaning:
    """What to do next (`error`), whose budget it spends, and the two halves of the message."""

    error: type[Transient | Permanent]
    scope: ErrorScope
    expected: str
    remedy: str


_FULL = _OsErrorMeaning(Transient, ErrorScope.STORE, "room for a small file", "free some space or raise the quota")
_DESCRIPTORS = _OsErrorMeaning(Transient, ErrorScope.PROCESS, "a free file descriptor", "raise the limit of open files")
_MEMORY = _OsErrorMeaning(
    Transient, ErrorScope.PROCESS, "memory and locks of the system", "give the service and its machine more"
)
_BROKEN = _OsErrorMeaning(Transient, ErrorScope.STORE, "a working file system", "look at the system's log")
_READ_ONLY = _OsErrorMeaning(Permanent, ErrorScope.STORE, "a writable file system", "mount it read-write")
_TOO_SMALL = _OsErrorMeaning(Permanent, ErrorScope.STORE, "a limit of file sizes above 64 KiB", "raise RLIMIT_FSIZE")
_FORBIDDEN = _OsErrorMeaning(
    Permanent, ErrorScope.TABLE, "permission to work in this folder", "let the service's user read, write and search it"
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
    """Turn every `OSError` of the block into a trouble of that file or folder."""
    try:
        yield
    except OSError as error:
        raise error_of(where, error) from error


@contextmanager
def map_uncertain_errors(where: str) -> Iterator[None]:
    """As the step that makes a change visible: where nobody can tell whether it happened, say so.

    Raises:
        Unsure: scope store, for those errors that leave it open.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _UNCERTAIN:
            raise outcome_unknown(where, error) from error
        raise


def error_of(where: str, error: OSError) -> ExternalError:
    """The trouble that an error of the operating system is."""
    meaning = _MEANINGS.get(error.errno or 0, _UNFORESEEN)
    return meaning.error(
        where, scope=meaning.scope, expected=meaning.expected, found=describe_os_error(error), remedy=meaning.remedy
    )


def outcome_unknown(where: str, error: OSError) -> OutcomeUnknown:
    """The trouble of a change that may be visible and may not outlive a power cut."""
    return OutcomeUnknown(
        where,
        scope=ErrorScope.STORE,
        expected="a durable change",
        found=describe_os_error(error),
        remedy="look at the system's log",
    )


def describe_os_error(error: OSError) -> str:
    """An error in words: its symbol and the system's own text."""
    number = error.errno or 0
    return f"{errno.errorcode.get(number, number)} ({os.strerror(number)})"


# ── unsynced: Folders whose last change may not outlive a power cut

_NO_FOLDER_FSYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}
"""What file systems answer that know no sync of folders, as some network ones: there is nothing to wait for."""


class PendingFsyncs:
    """The folders that this process owes a sync, each of them once. For several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way: Counter[str] = Counter()
        # A value of its own for each debt: a sync pays none that came after it began.
        self._pending: dict[str, object] = {}

    @contextmanager
    def pending(self, folder: str) -> Iterator[None]:
        """The block changes a folder and syncs it: owed while it runs, for it may hang, and after an
        `OutcomeUnknown`.
        """
        with self._lock:
            self._under_way[folder] += 1
        try:
            yield
        except OutcomeUnknown:
            with self._lock:
                self._pending[folder] = object()
            raise
        finally:
            with self._lock:
                self._under_way -= Counter((folder,))

    def flush(self, folder: str, where: str) -> None:
        """Sync what is owed of a folder and of those right above it. One that is gone owes nothing.

        Args:
            folder: where something was found, or is to be changed.
            where: its name in messages.

        Raises:
            Unsure: what is visible there may still not outlive a power cut.
            OSError: a folder can't be opened.
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
    """Make what was made visible in a folder survive a power cut.

    Args:
        folder: its path.
        where: its name in messages.

    Raises:
        Unsure: it may not.
        OSError: the folder can't be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fsync_descriptor(descriptor, where)
    finally:
        os.close(descriptor)


def fsync_descriptor(descriptor: int, where: str) -> None:
    """As `sync`, for a folder that is open.

    Raises:
        Unsure: what was made visible may not survive a power cut.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FSYNC:
            raise outcome_unknown(where, error) from error


# ── folder: One folder of small files that are replaced whole

TEMPORARY_NAME = ".sfn-swap.tmp"
"""The one name under which a content is prepared in its folder."""
LOCK_NAME = ".sfn-swap.lock"
"""The file that is locked while something in its folder is changed."""
PRIVATE_NAMES = frozenset({TEMPORARY_NAME, LOCK_NAME})
"""Names that no key may have and no listing shows."""

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""With which files are opened: a pipe in a file's place is refused, not waited for."""
_LOCK_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LOCK_MODE = 0o666
"""Of the lock file, whatever the umask: NFS locks no file that is not open for writing. The file is empty."""
_LOCK_OPENINGS = 3
"""Attempts to open a lock file that others make and delete."""
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_PART = 64 * 1024
_TRIAL_CONTENT = bytes(4096)
"""A block, not an empty file: a full disk may still have room for a name."""
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK})
"""What file systems without locks answer; NFS without a lock service says ENOLCK."""
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EMLINK, errno.EXDEV})
"""What file systems without hard links answer; CIFS says EINVAL. The file is new, and linked in its own folder."""


def open_folder(path: str) -> int:
    """Open a folder wherever links lead."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def is_never_given_up() -> bool:
    """Of a call whose caller waits until it returns: it is never given up."""
    return False


class LockableFolder:
    """An open folder, to be locked before anything in it is changed.

    Two locks are held. One is an `flock` on the folder itself. The earlier version knows no other, and may run beside
    this one during an upgrade. The other is an `flock` on a regular file in the folder: on NFS the server holds it for
    all hosts, while the lock of a folder is the host's own. The kernel drops the locks with their holder. The holder
    deletes the file before it gives the locks back, so only a holder that died leaves the file, empty, to the next one.
    A content is prepared under the locks and removed before they are given back. So a process that holds the locks and
    finds a prepared file knows that its writer is dead, and removes it; no age needs to be guessed.

    Other programs that write here do not know the lock. Against them a creation is still atomic, a replacement is not.

    Args:
        path: the folder; no file in it may be a symbolic link.
        where: its name in messages.
        unsynced: told of every change until it is durable.
        given_up: whether nobody waits for a change any more. It is not made then, unless it was already on its way.
        opened: opens a folder by its path; says which links are followed.

    Raises:
        OSError: from every method, for whatever the system refuses.
    """

    def __init__(
        self,
        path: str,
        where: str,
        pending_fsync: PendingFsyncs,
        given_up: Callable[[], bool] = is_never_given_up,
        open_folder_at: Callable[[str], int] = open_folder,
    ) -> None:
        self._path = path
        self._where = where
        self._pending_fsync = pending_fsync
        self._given_up = given_up
        self._open = open_folder_at
        self._descriptor = open_folder_at(path)
        self._lock: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            # Before the lock is given back: who opened the file meanwhile finds out that it is another one by now.
            with suppress(OSError):
                os.unlink(LOCK_NAME, dir_fd=self._descriptor)
            os.close(self._lock)
        os.close(self._descriptor)

    def lock(self) -> bool:
        """Lock the folder until it is closed, and remove what a dead writer left. Never waits.

        Returns:
            False where somebody else holds the lock or has just given it back, or the folder has just been replaced by
            another: open it again.

        Raises:
            Permanent: scope store, where the file system has no locks.
        """
        if not self._has_locked_folder():
            return False
        lock, denied = self._lock_file()
        try:
            if not self._has_locked(lock, denied):
                return False
            self._lock, lock = lock, -1
        finally:
            if lock >= 0:
                os.close(lock)
        if not self._is_still_in_place():
            return False
        with suppress(FileNotFoundError):
            os.unlink(TEMPORARY_NAME, dir_fd=self._descriptor)
        return True

    def _has_locked_folder(self) -> bool:
        """Return True if no process of the earlier version has the folder, or the file system locks no folders."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return True

    def _lock_file(self) -> tuple[int, OSError | None]:
        """Open the lock file, or make it.

        A file that another user made may refuse to be written. Then it is opened as it is: local file systems lock a
        file that is open for reading, too.

        Returns:
            a descriptor, and why the file is not open for writing; None if it is.
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
        """Make the lock file, which all users may lock. A file that is there keeps its mode: it may be a link's."""
        lock = os.open(LOCK_NAME, _LOCK_FLAGS | os.O_CREAT | os.O_EXCL, _LOCK_MODE, dir_fd=self._descriptor)
        with suppress(OSError):
            os.fchmod(lock, _LOCK_MODE)
        return lock

    def _has_locked(self, lock: int, denied: OSError | None) -> bool:
        """Whether the lock of the file is ours, and the file is still the folder's.

        Args:
            denied: as of `_lock_file`.
        """
        _check_regular(os.fstat(lock))
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
        try:
            return os.path.samestat(os.stat(LOCK_NAME, dir_fd=self._descriptor, follow_symlinks=False), os.fstat(lock))
        except FileNotFoundError:
            return False

    def read_content(self, name: str) -> bytes | None:
        """At most `MAX_READ_BYTES` bytes of a file, None where there is none."""
        try:
            return read_content(os.open(name, READ_FLAGS, dir_fd=self._descriptor))
        except FileNotFoundError:
            return None

    def create(self, name: str, body: bytes) -> bool:
        """Make a file that is not there yet, durably. False where it is.

        Raises:
            Permanent: scope store, where the file system has no hard links.
            Unsure: it is there, and may not outlive a power cut.
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
        """Put a content in the place of a file's, durably; no reader sees anything between the two.

        Raises:
            Unsure: it may have been done, or may not outlive a power cut.
        """
        with self._prepared(body), self._pending_fsync.pending(self._path):
            self._check_still_wanted()
            with map_uncertain_errors(self._where):
                os.replace(TEMPORARY_NAME, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            self.fsync()

    def remove(self, name: str) -> None:
        """Delete a file, durably.

        Raises:
            Unsure: it may have been done, or may not outlive a power cut.
        """
        with self._pending_fsync.pending(self._path):
            self._check_still_wanted()
            with map_uncertain_errors(self._where):
                os.unlink(name, dir_fd=self._descriptor)
            self.fsync()

    def try_write(self) -> None:
        """Prepare a small content and remove it again: whether the file system lets a file be made here."""
        with self._prepared(_TRIAL_CONTENT):
            pass

    def fsync(self) -> None:
        """Make what was made visible here survive a power cut.

        Raises:
            Unsure: it may not.
        """
        fsync_descriptor(self._descriptor, self._where)

    @contextmanager
    def _prepared(self, body: bytes) -> Iterator[None]:
        """A content under the temporary name, synced, for as long as the block runs."""
        try:
            descriptor = os.open(TEMPORARY_NAME, _CREATE_FLAGS, 0o666, dir_fd=self._descriptor)
            try:
                _write_all(descriptor, body)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield
        finally:
            # Whether it can be removed changes nothing about the outcome: the next writer removes it too.
            with suppress(OSError):
                os.unlink(TEMPORARY_NAME, dir_fd=self._descriptor)

    def _check_still_wanted(self) -> None:
        """A file system may hang for hours: what was decided before must not be done when others have gone on since."""
        if self._given_up():
            raise Transient(
                self._where, scope=ErrorScope.STORE, expected="somebody who waits for a change", found="nobody"
            )

    def _is_still_in_place(self) -> bool:
        """A folder that was moved away while its lock was waited for is no longer the one that readers look into."""
        try:
            now = self._open(self._path)
        except FileNotFoundError:
            return False
        try:
            return os.path.samestat(os.fstat(now), os.fstat(self._descriptor))
        finally:
            os.close(now)

    def _unsupported(self, expected: str, error: OSError) -> Permanent:
        return Permanent(
            self._where,
            scope=ErrorScope.STORE,
            expected=expected,
            found=describe_os_error(error),
            remedy="keep the tables on a local file system, on NFS version 4 or in an object store",
        )


def read_content(descriptor: int, *, start: int = 0, most: int = MAX_READ_BYTES) -> bytes:
    """Bytes of an open regular file as it was at one moment; the file is closed.

    Args:
        descriptor: opened with `READ_FLAGS`.
        start: where they begin.
        most: how many.
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


def make_folder(
    path: str, where: str, pending_fsync: PendingFsyncs, open_folder_at: Callable[[str], int] = open_folder
) -> None:
    """Make a folder and, where that is missing too, the one that it lies in; durably, and nothing above.

    Two are what a table that exists can lack (`metadata/_sfn`, or `<namespace>/<table>` below a root). Where more is
    missing the table is not there: most likely its file system is not mounted, and what would be made below the mount
    point would hide the loss.

    Args:
        path: the folder.
        where: its name in messages.
        pending_fsync: told of every change until it is durable.
        open_folder_at: as of `LockableFolder`.

    Raises:
        Unsure: it may have been made, or may not outlive a power cut.
    """
    try:
        _make_one_folder(path, where, pending_fsync, open_folder_at)
    except FileNotFoundError:
        _make_one_folder(parent_folder(path), where, pending_fsync, open_folder_at)
        _make_one_folder(path, where, pending_fsync, open_folder_at)


def _make_one_folder(path: str, where: str, pending_fsync: PendingFsyncs, open_folder_at: Callable[[str], int]) -> None:
    # Opened first: between the two steps nothing else may fail.
    holder = open_folder_at(parent_folder(path))
    try:
        with suppress(FileExistsError), pending_fsync.pending(parent_folder(path)):
            with map_uncertain_errors(where):
                os.mkdir(base_name(path), dir_fd=holder)
            fsync_descriptor(holder, where)
    finally:
        os.close(holder)


def _read_all(descriptor: int, size: int, most: int) -> bytes:
    """What is left of a file of about this size, `most` bytes of it.

    Room is made for what is there, not for what there might be: many small bodies that are kept, each at the start of
    much room that was given back, leave a heap full of holes.
    """
    parts: list[bytes] = []
    room = max(size, 0) + 1
    while most > 0 and (part := os.read(descriptor, min(most, room))):
        parts.append(part)
        most -= len(part)
        room = room - len(part) or _PART
    return b"".join(parts)


def _write_all(descriptor: int, body: bytes) -> None:
    left = memoryview(body)
    while left:
        left = left[os.write(descriptor, left) :]
