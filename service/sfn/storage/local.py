"""Local files: compare-and-swap with a lock, a comparison of contents and an atomic rename."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from time import monotonic
from typing import Final, Protocol, TypeVar

import anyio

from sfn import safe_open
from sfn.concurrency import AbandonableThreads, Batcher, IsAbandoned, TimedOut, run_all
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, ExternalError, OutcomeUnknown, Permanent, SfnError, Transient
from sfn.safe_open import DIRECTORY_FLAGS, LinkRefused
from sfn.sfnfile.document import MAX_DOCUMENT_BYTES
from sfn.sfnfile.locations import is_below
from sfn.sfnfile.naming import depth_below_table
from sfn.storage import (
    ERROR_BY_REACH,
    MAX_READ_BYTES,
    Deleted,
    GroupAnswers,
    Guarantees,
    PermissionTracker,
    PreconditionFailed,
    ReadGroup,
    base_name,
    check_length,
    content_etag,
    decode_name,
    parent_folder,
)
from sfn.storage.atomic_files import (
    PRIVATE_NAMES,
    READ_FLAGS,
    LockableFolder,
    OpenAt,
    PendingFsyncs,
    describe_os_error,
    error_of,
    is_never_given_up,
    make_folder,
    map_os_errors,
    read_content,
)
from sfn.telemetry import tracing

T = TypeVar("T")


class BlockingFiles(Protocol):
    """Blocking reads of a store."""

    def read_all(self, keys: Sequence[str]) -> Sequence[StoredObject | None] | SfnError:
        """Return the file of each key, or the error of the first one that cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class BlockingReads:
    """Reads on threads. The class does not refer to the store, so that a discarded store releases its threads at once.

    Attributes:
        files: the blocking reads.
        threads: the threads.
        limit: seconds that the file system has for one call.
    """

    files: BlockingFiles
    threads: AbandonableThreads
    limit: float

    async def run(self, name: str, call: Callable[[IsAbandoned], T]) -> T:
        """Return the result of a read.

        Args:
            name: the operation and its object, for messages.

        Raises:
            Transient: scope store; the file system does not answer.
        """
        answer = await self.threads.run(name, call)
        if isinstance(answer, TimedOut):
            raise no_answer_error(Transient, name, self.limit)
        return answer

    async def run_batch(self, requested: Sequence[Sequence[str]]) -> Sequence[Sequence[StoredObject | None] | SfnError]:
        """Return the files of several callers, read in one call; raises as `run`."""
        name = f"read {requested[0][0]} and others"
        return await self.run(name, lambda _: [self.files.read_all(keys) for keys in requested])


def no_answer_error(kind: type[Transient], name: str, limit: float) -> Transient:
    """Return the error of a file system that does not answer."""
    return kind(
        name,
        scope=ErrorScope.STORE,
        expected=f"an answer of the file system within {limit:g} s",
        found="none",
        remedy="check whether its mount hangs: its server may be gone",
    )


PROPAGATION_SECONDS: Final = 5.0
"""See `PermissionTracker`. A change of modes or of a mount holds at once, but a `chmod -R` takes a while."""

_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_PER_FOLDER: Final = _FORBIDDEN | {
    errno.EDQUOT,
    errno.EHOSTDOWN,
    errno.EIO,
    errno.ENODEV,
    errno.ENOSPC,
    errno.ENOTCONN,
    errno.EREMOTEIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
"""Errors that may concern one folder (a mode, a mount, a project's quota, a bad sector) or the whole file system."""


class StoreRoot:
    """The folder that contains all keys of a store. Thread-safe.

    The listener never creates the root. A missing root means that its file system is not mounted, so its files are not
    absent but out of reach. If the system forbids to read or search the root (expired credentials of a mount, the mode
    of a whole mount), a denial below it is not the table's fault. The right to write in the root is not checked, since
    another program may create the tables' folders.

    A denial below a healthy root concerns the store until the same operation succeeds elsewhere in the store: a file
    system may be mounted read-only.

    Args:
        location: canonical. `file://` is the whole machine and no folder of the store, so its state says nothing.
        repeat: repeats an operation at a key where it succeeded before, and changes nothing.
        seconds: a monotonic clock.
    """

    def __init__(
        self, location: str, repeat: Callable[[str, str], None], seconds: Callable[[], float] = monotonic
    ) -> None:
        self.location = location
        self._repeat, self._permissions = repeat, PermissionTracker(seconds, PROPAGATION_SECONDS)
        self._path = location.removeprefix("file://") or "/"
        self._is_whole_machine = self._path.rstrip("/") == ""

    @contextmanager
    def map_os_errors(self, where: str, verb: str) -> Iterator[None]:
        """Turn every `OSError` of the block into an error of that file or folder, or of the whole store.

        Args:
            where: the file or folder.
            verb: see `PermissionTracker`.

        Raises:
            ExternalError: see `sfn.storage.atomic_files`; with the scope that `PermissionTracker` finds, where it
                depends on the folder.
            Transient: scope store; the block was denied something, and the root is denied, too.
        """
        with map_os_errors(where):
            try:
                yield
            except PermissionError as error:
                self._check_permitted(where, error)
                raise self._error(where, verb, error) from error
            except OSError as error:
                if error.errno in _PER_FOLDER:
                    raise self._error(where, verb, error) from error
                raise

    def note_permitted(self, verb: str, key: str) -> None:
        """Note that an operation succeeded; see `PermissionTracker`."""
        self._permissions.note_permitted(verb, key)

    def _error(self, where: str, verb: str, error: OSError) -> ExternalError:
        """Return the error, of the table or of the store."""
        witnesses = self._permissions.note_denied(verb, where)
        reach = self._permissions.judge(verb, where, elsewhere=self._is_permitted_at(witnesses, verb))
        denied, scope = ERROR_BY_REACH[reach]
        kind = denied if error.errno in _FORBIDDEN else Transient
        as_table_error = error_of(where, error)
        return kind(
            where,
            scope=scope,
            expected=as_table_error.expected,
            found=as_table_error.found,
            remedy=as_table_error.remedy,
        )

    def _is_permitted_at(self, witnesses: list[str], verb: str) -> bool | None:
        answer = None
        for witness in witnesses:
            try:
                self._repeat(verb, witness)
            except OSError as error:
                if error.errno in _PER_FOLDER:
                    answer = False
            except ExternalError:
                # Another writer is at work there, or the file system lacks a feature: neither answers the question.
                continue
            else:
                return True
        return answer

    def check_exists(self) -> None:
        """Check that the root exists.

        Raises:
            Transient: scope store; the root is missing.
            OSError: the check failed.
        """
        try:
            os.stat(self._path)
        except FileNotFoundError as error:
            raise Transient(
                self.location,
                scope=ErrorScope.STORE,
                expected="the folder of the store",
                found="nothing",
                remedy="mount its file system, or correct `[stores.NAME] prefix`",
            ) from error

    def _check_permitted(self, where: str, refusal: PermissionError) -> None:
        """Check that the root is not denied as well.

        Raises:
            Transient: scope store; the root is denied.
            OSError: the check failed; the root's error then counts for the files below.
        """
        if self._is_whole_machine:
            return
        try:
            self.check_exists()
            # Opened, not only checked: a network file system may answer a check from its cache.
            os.close(os.open(self._path, os.O_RDONLY | os.O_DIRECTORY))
        except PermissionError as error:
            raise self._forbidden("read", where, error) from error
        if not os.access(self._path, os.X_OK, effective_ids=True):
            raise self._forbidden("search", where, refusal)

    def _forbidden(self, what: str, where: str, error: OSError) -> Transient:
        return Transient(
            self.location,
            scope=ErrorScope.STORE,
            expected=f"a folder of the store that the service's user may {what}",
            found=f"{describe_os_error(error)} for the user {os.geteuid()}, met at {where}",
            remedy="renew the credentials of its mount, or let that user read and search the folder",
        )


MAX_THREADS = 8
"""Files that one store works on at the same time."""
MAX_BATCH = 256
"""Files read in one call. A thread for each would cost the loop more than it gains, because of the interpreter lock."""
MAX_GROUP = 16
"""Questions of one publish that one call answers. A slow file system must answer all of them within the time limit."""
LOCK_TIMEOUT = 10.0
"""Seconds that a change waits for a folder's lock."""
FILE_SYSTEM_TIMEOUT = 30.0
"""Seconds that a file system has for one call. A mount with a lost server may never answer."""
_SCHEME = "file://"
_MIN_PAUSE, _MAX_PAUSE = 0.001, 0.02
"""Seconds between two attempts to get a lock."""


@dataclass(frozen=True, slots=True)
class LockBusy:
    """The answer if another process holds the folder's lock; nothing was done."""


class BlockingLocalStore:
    """The methods of a store as blocking calls. They wait for the file system, but never for another process.

    A key is `file://` and an absolute path in UTF-8; a percent sign is a character of the file's name. Below a table's
    location symbolic links are refused, because the table's owner could redirect a write into another table with one.
    Every file must be a regular one. Above the location, links are followed within the folder that the table belongs
    to.

    If the fsync of a folder failed, it is repeated before any answer about the folder: a writer that finds its own
    change there takes it for done.

    Args:
        root: canonical location that contains all keys; see `StoreRoot`.
        bounds: canonical locations of folders that tables belong to, if these are narrower than the root.
        links_to: canonical locations of other folders that links above a table's location may lead into.
        seconds: see `StoreRoot`.
    """

    def __init__(
        self,
        root: str = "file://",
        bounds: Collection[str] = (),
        links_to: Collection[str] = (),
        seconds: Callable[[], float] = monotonic,
    ) -> None:
        self._root = StoreRoot(root, self._repeat, seconds)
        self._bounds = (root, *(bound for bound in bounds if is_below(bound, root)))
        self._links_to = tuple(map(_path_of, links_to))
        self._pending_fsync = PendingFsyncs()

    def read(self, key: str) -> StoredObject | None:
        """Return a file, without a lock."""
        path = self._path(key)
        with self._root.map_os_errors(key, "read"):
            body = self._content(path, key)
            self._pending_fsync.flush(parent_folder(path), key)
            return None if body is None else StoredObject(body, content_etag(body))

    def read_all(self, keys: Sequence[str]) -> Sequence[StoredObject | None] | SfnError:
        """Return the file of each key, or the error of the first one that cannot be read."""
        try:
            return [self.read(key) for key in keys]
        except SfnError as error:
            return error

    def read_group(self, group: ReadGroup) -> GroupAnswers:
        """Return the answers, found one after the other, without a lock."""
        return GroupAnswers(
            {key: self.read(key) for key in group.contents},
            {key: self.read_range(key, 0, 1) is not None for key in group.existence},
            {prefix: self.list(prefix, group.limit) for prefix in group.folders},
        )

    def read_range(self, key: str, start: int, length: int) -> bytes | None:
        """Return a part of a file, without a lock."""
        path = self._path(key)
        with self._root.map_os_errors(key, "read"):
            return self._content(path, key, start=start, most=length)

    def write(
        self, key: str, body: bytes, replacing: StoredObject | None, given_up: IsAbandoned = is_never_given_up
    ) -> StoredObject | PreconditionFailed | LockBusy:
        """Write a file. Its mode is that of a new file, under the process's umask.

        Args:
            given_up: see `LockableFolder`.
        """
        check_length(key, body)
        path = self._path(key)
        with self._root.map_os_errors(key, "write"):
            folder = self._folder(parent_folder(path), key, given_up, missing_ok=replacing is not None)
            if folder is None:
                return PreconditionFailed()
            with folder:
                if not folder.lock():
                    return LockBusy()
                self._pending_fsync.flush(parent_folder(path), key)
                written = _compare_and_swap(folder, base_name(path), key, body, replacing)
                if isinstance(written, StoredObject):
                    self._root.note_permitted("write", key)
                return written

    def delete(
        self, key: str, expected: StoredObject, given_up: IsAbandoned = is_never_given_up
    ) -> Deleted | PreconditionFailed | LockBusy:
        """Delete a file; an emptied folder stays.

        Args:
            given_up: see `LockableFolder`.
        """
        path = self._path(key)
        with self._root.map_os_errors(key, "delete"):
            folder = self._folder(parent_folder(path), key, given_up, missing_ok=True)
            if folder is None:
                return Deleted()
            with folder:
                if not folder.lock():
                    return LockBusy()
                self._pending_fsync.flush(parent_folder(path), key)
                gone = _remove(folder, base_name(path), key, expected)
                if gone:
                    self._root.note_permitted("delete", key)
                return PreconditionFailed() if gone is None else Deleted()

    def list(self, prefix: str, limit: int) -> list[str]:
        """Return the keys of all entries except folders and the files that a writer prepares."""
        path = self._path(prefix.removesuffix("/"))
        with self._root.map_os_errors(prefix, "list"):
            try:
                with self._scan(path, prefix) as entries:
                    files = (entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
                    names = (decode_name(name) for name in files if name not in PRIVATE_NAMES)
                    found = nsmallest(limit, (prefix + name for name in names if name is not None))
            except FileNotFoundError:
                self._root.check_exists()
                return []
            self._pending_fsync.flush(path, prefix)
            self._root.note_permitted("list", prefix)
            return found

    def _repeat(self, verb: str, key: str) -> None:
        """Repeat an operation where it succeeded before, without a change.

        Raises:
            OSError: the operation is denied here, too; or the file is gone, or another writer is at work.
            Permanent: scope store; the file system has no locks.
        """
        path = self._path(key.removesuffix("/"))
        if verb == "read":
            read_content(self._open(path, READ_FLAGS, depth_below_table(key)), most=1)
        elif verb == "list":
            with self._scan(path, key) as entries:
                next(entries, None)
        else:
            with self._open_folder(parent_folder(path), key, is_never_given_up) as folder:
                if not folder.lock():
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
                folder.try_write()

    @contextmanager
    def _scan(self, path: str, prefix: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        descriptor = self._open(path, DIRECTORY_FLAGS, depth_below_table(f"{prefix}file") - 1)
        try:
            with os.scandir(descriptor) as entries:
                yield entries
        finally:
            os.close(descriptor)

    def _folder(self, path: str, key: str, given_up: IsAbandoned, *, missing_ok: bool) -> LockableFolder | None:
        try:
            return self._open_folder(path, key, given_up)
        except FileNotFoundError:
            self._root.check_exists()
            if missing_ok:
                return None
        make_folder(path, key.rpartition("/")[0], self._pending_fsync, self._opener(path, key))
        return self._open_folder(path, key, given_up)

    def _open_folder(self, path: str, key: str, given_up: IsAbandoned) -> LockableFolder:
        return LockableFolder(path, key.rpartition("/")[0], self._pending_fsync, given_up, self._opener(path, key))

    def _opener(self, path: str, key: str) -> OpenAt:
        """Return the function that opens the folder of a key, which is `path`, its parent, or a file in the folder."""
        names_below_table = depth_below_table(key) - 1

        def open_by_path(place: str, flags: int) -> int:
            return self._open(place, flags, names_below_table + (len(place) > len(path)) - (len(place) < len(path)))

        return open_by_path

    def _content(self, path: str, key: str, start: int = 0, most: int = MAX_READ_BYTES) -> bytes | None:
        try:
            body = read_content(self._open(path, READ_FLAGS, depth_below_table(key)), start=start, most=most)
        except FileNotFoundError:
            self._root.check_exists()
            return None
        self._root.note_permitted("read", key)
        return body

    def _open(self, path: str, flags: int, names_below_table: int) -> int:
        """Open a path below the root and return the descriptor.

        Args:
            names_below_table: how many of the last segments lie below the table's location.

        Raises:
            Permanent: scope table; the path contains a link that may not be followed.
        """
        if (descriptor := safe_open.open_without_links(path, flags)) is not None:
            return descriptor
        bound = _path_of(max((one for one in self._bounds if is_below(f"{_SCHEME}{path}", one)), key=len))
        names = [name for name in path[len(bound.rstrip("/")) :].split("/") if name]
        try:
            return safe_open.open_by_segments(
                bound,
                names,
                flags,
                no_link_names=max(0, min(names_below_table, len(names))),
                other_roots=self._links_to,
            )
        except LinkRefused as refused:
            raise _link_refused(refused) from refused

    def _path(self, key: str) -> str:
        path, root = key.removeprefix("file://"), self._root.location
        segments = path.split("/")
        if not is_below(key, root) or segments[0] or not {"", ".", ".."}.isdisjoint(segments[1:]) or "\0" in key:
            raise _key_refused(key, f"a key below {root} without empty, `.` or `..` segments")
        if segments[-1] in PRIVATE_NAMES:
            raise _key_refused(key, "a name other than those of the lock and of prepared files")
        try:
            return os.fsdecode(path.encode()) or "/"
        except UnicodeEncodeError as error:
            raise _key_refused(key, "a key that is valid UTF-8") from error


class LocalStore:
    """An `ObjectStore` on threads: no method blocks the event loop, and none waits for ever.

    A cancelled read is abandoned. A cancelled change is completed first, unless the file system does not answer. Such
    a change may still happen much later, as if its process had been suspended.

    Args:
        root: see `BlockingLocalStore`.
        bounds, links_to: see `BlockingLocalStore`.
        threads: files worked on at the same time.
        lock_timeout: seconds that a change waits for a folder's lock.
        limit: seconds that the file system has for one call.
        seconds: see `StoreRoot`.
    """

    def __init__(
        self,
        root: str = "file://",
        *,
        bounds: Collection[str] = (),
        links_to: Collection[str] = (),
        threads: int = MAX_THREADS,
        lock_timeout: float = LOCK_TIMEOUT,
        limit: float = FILE_SYSTEM_TIMEOUT,
        seconds: Callable[[], float] = monotonic,
    ) -> None:
        self._blocking = BlockingLocalStore(root, bounds, links_to, seconds)
        self._threads = AbandonableThreads(threads, limit)
        self._lock_timeout, self._limit = lock_timeout, limit
        self._blocking_reads = BlockingReads(self._blocking, self._threads, limit)
        self._batcher = Batcher(self._blocking_reads.run_batch, weight=len, max_weight=MAX_BATCH)

    async def read(self, key: str) -> StoredObject | None:
        with tracing.span("read file"):
            return await self._blocking_reads.run(f"read {key}", lambda _: self._blocking.read(key))

    async def read_all(self, keys: Sequence[str]) -> Sequence[StoredObject | None]:
        with tracing.span("read files"):
            found = await self._batcher(keys)
        if isinstance(found, SfnError):
            raise found
        return found

    async def read_group(self, group: ReadGroup) -> GroupAnswers:
        answers = GroupAnswers()

        async def read(part: ReadGroup) -> None:
            first, *others = (*part.contents, *part.existence, *part.folders)
            name = f"read {first} and others" if others else f"read {first}"
            answers.update(await self._blocking_reads.run(name, lambda _: self._blocking.read_group(part)))

        with tracing.span("read files"):
            await run_all([partial(read, part) for part in group.split(MAX_GROUP)])
        return answers

    async def read_range(self, key: str, start: int, length: int) -> bytes | None:
        return await self._blocking_reads.run(f"read {key}", lambda _: self._blocking.read_range(key, start, length))

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        with tracing.span("write file"):
            return await self._change("write", key, partial(self._blocking.write, key, body, replacing))

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        with tracing.span("delete file"):
            return await self._change("delete", key, partial(self._blocking.delete, key, expected))

    async def list(self, prefix: str, limit: int) -> list[str]:
        with tracing.span("list files"):
            return await self._blocking_reads.run(f"list {prefix}", lambda _: self._blocking.list(prefix, limit))

    async def probe(self, key: str) -> Guarantees:
        # The conditions are this program's own: it compares contents under a lock of their folder.
        return Guarantees(swap=True, conditional_delete=True)

    async def _change(self, verb: str, key: str, change: Callable[[IsAbandoned], T | LockBusy]) -> T:
        """Make a change once the lock is free. The loop waits for the lock, not a thread: other calls need the threads.

        Raises:
            Transient: scope table, after `lock_timeout`; scope store, if all threads hang and nothing was begun.
            OutcomeUnknown: scope store; the file system does not answer.
        """
        name = f"{verb} {key}"
        give_up_at = anyio.current_time() + self._lock_timeout
        pause = _MIN_PAUSE
        while isinstance(answer := await self._threads.run(name, change, shielded=True), LockBusy):
            if anyio.current_time() >= give_up_at:
                raise Transient(
                    key,
                    scope=ErrorScope.TABLE,
                    expected="the lock of its folder",
                    found=f"another process that has held it for {self._lock_timeout} s",
                    remedy="run `lslocks` to see which process holds it",
                )
            await anyio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
        if isinstance(answer, TimedOut):
            raise no_answer_error(OutcomeUnknown if answer.may_still_run else Transient, name, self._limit)
        return answer


def _compare_and_swap(
    folder: LockableFolder, name: str, key: str, body: bytes, replacing: StoredObject | None
) -> StoredObject | PreconditionFailed:
    present = folder.read_content(name)
    if _tag(key, present) != (None if replacing is None else replacing.etag):
        return PreconditionFailed()
    if present is None:
        return StoredObject(body, content_etag(body)) if folder.create(name, body) else PreconditionFailed()
    folder.replace(name, body)
    return StoredObject(body, content_etag(body))


def _remove(folder: LockableFolder, name: str, key: str, expected: StoredObject) -> bool | None:
    """Delete a file and return True; return False if there is none, None if it is another version."""
    tag = _tag(key, folder.read_content(name))
    if tag is None:
        # A deletion may have removed it without an fsync, in a process that has ended since.
        folder.fsync()
        return False
    if tag != expected.etag:
        return None
    folder.remove(name)
    return True


def _tag(key: str, present: bytes | None) -> str | None:
    if present is None:
        return None
    if len(present) > MAX_DOCUMENT_BYTES:
        # Only its beginning was read, so its etag is unknown.
        raise _key_refused(key, f"a file of at most {MAX_DOCUMENT_BYTES} bytes", "a longer one")
    return content_etag(present)


def _link_refused(refused: LinkRefused) -> Permanent:
    """Return the error of a link that is not followed."""
    if refused.root is None:
        expected = "folders and files below a table's location, and no symbolic link"
        remedy = "put a folder in its place, or mount one there; or keep the SFN files below a `root`"
    else:
        expected = f"symbolic links that stay below {refused.root}"
        remedy = "if the link is intended, add the folder that it leads to to `[stores.NAME] links_to`"
    found = f"one to {refused.target}" if refused.link else refused.target
    where = refused.link or str(refused.root)
    return Permanent(where, scope=ErrorScope.TABLE, expected=expected, found=found, remedy=remedy)


def _path_of(location: str) -> str:
    return location.removeprefix(_SCHEME) or "/"


def _key_refused(key: str, expected: str, found: str = "another") -> Permanent:
    return Permanent(key, scope=ErrorScope.TABLE, expected=expected, found=found)
