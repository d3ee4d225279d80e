"""Files of this machine: compare-and-swap by a lock, a comparison of contents and an atomic rename."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from time import monotonic
from typing import TypeVar

import anyio

from sfn import beneath
from sfn.beneath import FOLDER, LinkRefused
from sfn.errors import Permanent, Scope, SfnError, Transient, Unsure
from sfn.gathering import Gathering
from sfn.pointer.document import LIMIT
from sfn.pointer.location import below
from sfn.pointer.site import depth
from sfn.store import Gone, Guarantees, Moved
from sfn.store.content import READ_AT_MOST, check_length, tag_of
from sfn.store.folder import PRIVATE, READ, Folder, content, make, never
from sfn.store.looks import Looks, silent
from sfn.store.paths import above, named, spoken
from sfn.store.root import Root
from sfn.store.unsynced import Unsynced
from sfn.threads import GivenUp, Late, Threads
from sfn.words import Held

T = TypeVar("T")

THREADS = 8
"""Files that one store works on at the same time."""
TOGETHER = 256
"""Files read in one call: a thread for each would cost the loop more than it gains, by the interpreter's lock."""
PATIENCE = 10.0
"""Seconds that a change waits for others to give a folder's lock back."""
ANSWERED_WITHIN = 30.0
"""Seconds that a file system has for one call: a mount whose server is gone may never answer."""
_FILES = "file://"
_SHORTEST, _LONGEST = 0.001, 0.02
"""Seconds between two attempts to get a lock."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else holds the folder's lock just now, and nothing was done."""


class LocalFiles:
    """The verbs of a store as blocking calls. None of them waits for another process, but all for the file system.

    A key is `file://` and an absolute path in UTF-8; a percent sign is a character of the file's name. Below a table's
    location nothing may be a symbolic link, as the table's owner could make us write into another table with it, and
    every file is a regular one. Above it links are followed as far as they stay in the folder that the table belongs
    to.

    Nothing is answered about a folder whose last change could not be made durable before that is made up for: whoever
    finds their own change there takes it for done.

    Args:
        root: canonical location that all keys lie below, as of `Root`.
        bounds: canonical locations of folders that tables belong to, where these are narrower than the root.
        links_to: canonical locations of other folders that links above a table's location may lead into.
        seconds: as of `Root`.
    """

    def __init__(
        self,
        root: str = "file://",
        bounds: Collection[str] = (),
        links_to: Collection[str] = (),
        seconds: Callable[[], float] = monotonic,
    ) -> None:
        self._root = Root(root, self._redone, seconds)
        self._bounds = (root, *(bound for bound in bounds if below(bound, root)))
        self._links_to = tuple(map(_path_of, links_to))
        self._unsynced = Unsynced()

    def read(self, key: str) -> Held | None:
        """As `PointerStore.read`; takes no lock."""
        path = self._path(key)
        with self._root.refusals(key, "read"):
            body = self._content(path, key)
            self._unsynced.settle(above(path), key)
            return None if body is None else Held(body, tag_of(body))

    def read_all(self, keys: Sequence[str]) -> Sequence[Held | None] | SfnError:
        """As `read` of each, or why that can't be."""
        try:
            return [self.read(key) for key in keys]
        except SfnError as error:
            return error

    def part(self, key: str, start: int, most: int) -> bytes | None:
        """As `PointerStore.part`; takes no lock."""
        path = self._path(key)
        with self._root.refusals(key, "read"):
            return self._content(path, key, start=start, most=most)

    def write(self, key: str, body: bytes, replacing: Held | None, given_up: GivenUp = never) -> Held | Moved | Busy:
        """As `PointerStore.write`. A file's mode is that of a new file, under the process's umask.

        Args:
            given_up: as of `Folder`.
        """
        check_length(key, body)
        path = self._path(key)
        with self._root.refusals(key, "write"):
            folder = self._folder(above(path), key, given_up, missing_ok=replacing is not None)
            if folder is None:
                return Moved()
            with folder:
                if not folder.lock():
                    return Busy()
                self._unsynced.settle(above(path), key)
                written = _swap(folder, named(path), key, body, replacing)
                if isinstance(written, Held):
                    self._root.permitted("write", key)
                return written

    def delete(self, key: str, expected: Held, given_up: GivenUp = never) -> Gone | Moved | Busy:
        """As `PointerStore.delete`; an emptied folder stays.

        Args:
            given_up: as of `Folder`.
        """
        path = self._path(key)
        with self._root.refusals(key, "delete"):
            folder = self._folder(above(path), key, given_up, missing_ok=True)
            if folder is None:
                return Gone()
            with folder:
                if not folder.lock():
                    return Busy()
                self._unsynced.settle(above(path), key)
                gone = _remove(folder, named(path), key, expected)
                if gone:
                    self._root.permitted("delete", key)
                return Moved() if gone is None else Gone()

    def list(self, prefix: str, limit: int) -> list[str]:
        """As `PointerStore.list`: every entry that is no folder, and none that a writer is preparing."""
        path = self._path(prefix.removesuffix("/"))
        with self._root.refusals(prefix, "list"):
            try:
                with self._listed(path, prefix) as entries:
                    files = (entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
                    names = (spoken(name) for name in files if name not in PRIVATE)
                    found = nsmallest(limit, (prefix + name for name in names if name is not None))
            except FileNotFoundError:
                self._root.check()
                return []
            self._unsynced.settle(path, prefix)
            self._root.permitted("list", prefix)
            return found

    def _redone(self, verb: str, key: str) -> None:
        """Do a verb once more where it was done before, without changing anything.

        Raises:
            OSError: it is refused there too; or nothing lies there any more, or another writer is at work.
            Permanent: scope store, where the file system has no locks.
        """
        path = self._path(key.removesuffix("/"))
        if verb == "read":
            content(self._opened(path, READ, depth(key)), most=1)
        elif verb == "list":
            with self._listed(path, key) as entries:
                next(entries, None)
        else:
            with self._existing(above(path), key, never) as folder:
                if not folder.lock():
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
                folder.rehearse()

    @contextmanager
    def _listed(self, path: str, prefix: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        descriptor = self._opened(path, FOLDER, depth(f"{prefix}file") - 1)
        try:
            with os.scandir(descriptor) as entries:
                yield entries
        finally:
            os.close(descriptor)

    def _folder(self, path: str, key: str, given_up: GivenUp, *, missing_ok: bool) -> Folder | None:
        try:
            return self._existing(path, key, given_up)
        except FileNotFoundError:
            self._root.check()
            if missing_ok:
                return None
        make(path, key.rpartition("/")[0], self._unsynced, self._opener(path, key))
        return self._existing(path, key, given_up)

    def _existing(self, path: str, key: str, given_up: GivenUp) -> Folder:
        return Folder(path, key.rpartition("/")[0], self._unsynced, given_up, self._opener(path, key))

    def _opener(self, path: str, key: str) -> Callable[[str], int]:
        """What opens the folder of a key, which lies at `path`, or the one above it."""
        ours = depth(key) - 1
        return lambda folder: self._opened(folder, FOLDER, ours - (len(path) > len(folder)))

    def _content(self, path: str, key: str, start: int = 0, most: int = READ_AT_MOST) -> bytes | None:
        try:
            body = content(self._opened(path, READ, depth(key)), start=start, most=most)
        except FileNotFoundError:
            self._root.check()
            return None
        self._root.permitted("read", key)
        return body

    def _opened(self, path: str, flags: int, ours: int) -> int:
        """A descriptor of what lies at a path below the root.

        Args:
            ours: how many of the last names lie below the table's location.

        Raises:
            Permanent: scope table; a link is on the way that may not be followed.
        """
        bound = _path_of(max((one for one in self._bounds if below(f"{_FILES}{path}", one)), key=len))
        names = [name for name in path[len(bound.rstrip("/")) :].split("/") if name]
        try:
            return beneath.opened(bound, names, flags, plain=max(0, min(ours, len(names))), others=self._links_to)
        except LinkRefused as refused:
            raise _linked(refused) from refused

    def _path(self, key: str) -> str:
        path, root = key.removeprefix("file://"), self._root.location
        segments = path.split("/")
        if not below(key, root) or segments[0] or not {"", ".", ".."}.isdisjoint(segments[1:]) or "\0" in key:
            raise _refused(key, f"a key below {root} without empty, `.` or `..` segments")
        if segments[-1] in PRIVATE:
            raise _refused(key, "another name than those that contents are prepared and locked under")
        try:
            return os.fsdecode(path.encode()) or "/"
        except UnicodeEncodeError as error:
            raise _refused(key, "a key of whole characters") from error


class LocalStore:
    """Implements `PointerStore` with threads: no verb blocks the loop, and none waits for ever.

    A cancelled look is left alone. A cancelled change is carried through first, but for one that the file system does
    not answer: that one may still happen, long after others have gone on, as if its process had been suspended.

    Args:
        root: as of `LocalFiles`.
        threads: files worked on at the same time.
        patience: seconds that a change waits for a folder's lock.
        limit: seconds that the file system has for one call.
        seconds: as of `Root`.
        bounds, links_to: as of `LocalFiles`.
    """

    def __init__(
        self,
        root: str = "file://",
        *,
        bounds: Collection[str] = (),
        links_to: Collection[str] = (),
        threads: int = THREADS,
        patience: float = PATIENCE,
        limit: float = ANSWERED_WITHIN,
        seconds: Callable[[], float] = monotonic,
    ) -> None:
        self._files = LocalFiles(root, bounds, links_to, seconds)
        self._threads = Threads(threads, limit)
        self._patience, self._limit = patience, limit
        self._looks = Looks(self._files, self._threads, limit)
        self._gathering = Gathering(self._looks.together, weight=len, most=TOGETHER)

    async def read(self, key: str) -> Held | None:
        return await self._looks.at(f"read {key}", lambda _: self._files.read(key))

    async def read_all(self, keys: Sequence[str]) -> Sequence[Held | None]:
        found = await self._gathering(keys)
        if isinstance(found, SfnError):
            raise found
        return found

    async def part(self, key: str, start: int, most: int) -> bytes | None:
        return await self._looks.at(f"read {key}", lambda _: self._files.part(key, start, most))

    async def write(self, key: str, body: bytes, replacing: Held | None) -> Held | Moved:
        return await self._changed("write", key, partial(self._files.write, key, body, replacing))

    async def delete(self, key: str, expected: Held) -> Gone | Moved:
        return await self._changed("delete", key, partial(self._files.delete, key, expected))

    async def list(self, prefix: str, limit: int) -> list[str]:
        return await self._looks.at(f"list {prefix}", lambda _: self._files.list(prefix, limit))

    async def prove(self, key: str) -> Guarantees:
        # The conditions are this program's own: contents are compared under a lock of their folder.
        return Guarantees(swap=True, conditional_delete=True)

    async def _changed(self, verb: str, key: str, change: Callable[[GivenUp], T | Busy]) -> T:
        """Make a change once the lock is free. The loop waits for it, not a thread: others need those.

        Raises:
            Transient: scope table, after `patience`; scope store, where all threads hang and nothing was begun.
            Unsure: scope store, where the file system does not answer.
        """
        name = f"{verb} {key}"
        give_up_at = anyio.current_time() + self._patience
        pause = _SHORTEST
        while isinstance(answer := await self._threads.run(name, change, shielded=True), Busy):
            if anyio.current_time() >= give_up_at:
                raise Transient(
                    key,
                    scope=Scope.TABLE,
                    expected="the lock of its folder",
                    found=f"another process that has held it for {self._patience} s",
                    remedy="see with `lslocks` who holds it",
                )
            await anyio.sleep(pause)
            pause = min(2 * pause, _LONGEST)
        if isinstance(answer, Late):
            raise silent(Unsure if answer.begun else Transient, name, self._limit)
        return answer


def _swap(folder: Folder, name: str, key: str, body: bytes, replacing: Held | None) -> Held | Moved:
    present = folder.content(name)
    if _tag(key, present) != (None if replacing is None else replacing.tag):
        return Moved()
    if present is None:
        return Held(body, tag_of(body)) if folder.create(name, body) else Moved()
    folder.replace(name, body)
    return Held(body, tag_of(body))


def _remove(folder: Folder, name: str, key: str, expected: Held) -> bool | None:
    """Whether the file was removed: False where there was none, None where it is another one."""
    tag = _tag(key, folder.content(name))
    if tag is None:
        # It may be gone by a deletion that could not be made durable, of a process that has ended since.
        folder.sync()
        return False
    if tag != expected.tag:
        return None
    folder.remove(name)
    return True


def _tag(key: str, present: bytes | None) -> str | None:
    if present is None:
        return None
    if len(present) > LIMIT:
        # Only its beginning is known, and so not its tag.
        raise _refused(key, f"a file of at most {LIMIT} bytes", "a longer one")
    return tag_of(present)


def _linked(refused: LinkRefused) -> Permanent:
    """What an operator is told of a link that is not followed."""
    if refused.root is None:
        expected = "folders and files below a table's location, and no symbolic link"
        remedy = "put a folder in its place, or mount one there; or keep the SFN files below a `root`"
    else:
        expected = f"symbolic links that stay below {refused.root}"
        remedy = "if it is right, name the folder that it leads to in `[stores.NAME] links_to`"
    found = f"one to {refused.target}" if refused.link else refused.target
    where = refused.link or str(refused.root)
    return Permanent(where, scope=Scope.TABLE, expected=expected, found=found, remedy=remedy)


def _path_of(location: str) -> str:
    return location.removeprefix(_FILES) or "/"


def _refused(key: str, expected: str, found: str = "another") -> Permanent:
    return Permanent(key, scope=Scope.TABLE, expected=expected, found=found)
