"""Files below one root: a local folder, a location of fsspec, or a store of the service.

Nothing outside of the root is ever opened, not even if somebody plants malicious links in the folder. Links that stay
inside the root are followed (`sfn.safe_open`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from sfn.concurrency import AbandonableThreads, TimedOut
from sfn.errors import (
    FORBIDDEN_ERRORS,
    ExternalError,
    NotPermitted,
    SfnError,
    TooManyFiles,
    Unauthenticated,
    Unreachable,
    Unsafe,
)
from sfn.facade import FileTree
from sfn.reader.files import (
    NOT_FOUND_ERRORS,
    OPEN_FLAGS,
    FolderEntries,
    read_descriptor,
    run_synchronously,
    to_reader_error,
)
from sfn.reader.remote_files import FsspecFileSystem
from sfn.safe_open import DIRECTORY_FLAGS, MAX_LINKS, LinkRefused, open_below
from sfn.sfnfile.locations import is_below, scheme_of
from sfn.storage import StoreRouter

MAX_LISTED_FILES: Final = 100_000
"""Maximum number of files in a folder."""

_SCHEME: Final = "file://"
_FILE: Final = OPEN_FLAGS | os.O_NOFOLLOW


class LocalTree:
    """A `BlockingTree` of local files; thread-safe.

    Args:
        root: canonical location of the folder, which may itself be a symbolic link.
    """

    def __init__(self, root: str) -> None:
        self._root, self._path = root, root.removeprefix(_SCHEME) or "/"

    def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        """Read a range of a file; return None if the file does not exist."""
        try:
            descriptor = self._open(key, _FILE)
            try:
                return read_descriptor(descriptor, most, start)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            if _is_missing(error):
                return None
            raise to_reader_error(key, error) from error

    def entries(self, prefix: str) -> FolderEntries:
        """Return the entries of a folder. Hidden entries are omitted, and links count as folders.

        Raises:
            TooManyFiles: the folder has more than `MAX_LISTED_FILES` files.
        """
        try:
            descriptor = self._open(prefix.removesuffix("/"), DIRECTORY_FLAGS)
            try:
                with os.scandir(descriptor) as found:
                    listed = list(islice(found, MAX_LISTED_FILES + 1))
                    links = [entry.name for entry in listed if entry.is_symlink()]
                    files = [entry.name for entry in listed if entry.is_file(follow_symlinks=False)]
                    folders = [entry.name for entry in listed if entry.is_dir(follow_symlinks=False)]
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            if _is_missing(error):
                return FolderEntries()
            raise to_reader_error(prefix, error) from error
        if len(listed) > MAX_LISTED_FILES:
            expected, remedy = f"at most {MAX_LISTED_FILES:,} files", "move other files out of the folder"
            raise TooManyFiles(prefix, expected=expected, found="more", remedy=remedy)
        return FolderEntries(_visible(files), _visible([*folders, *links]), _visible(links))

    def _open(self, key: str, flags: int) -> int:
        """Open a key and return its descriptor.

        Raises:
            OSError: the file cannot be opened.
            Unsafe: the key is outside of the root, or a link leads outside.
        """
        # Raises UnicodeEncodeError, a ValueError, for a name that is not UTF-8: no client can request it.
        key.encode()
        try:
            return open_below(self._path, self._names(key), flags)
        except LinkRefused as refused:
            if not refused.link:
                raise Unsafe(key, expected=f"at most {MAX_LINKS} links on the way", found=refused.target) from refused
            found = f"one to {refused.target}"
            raise Unsafe(key, expected=f"links that stay below {self._root}", found=found) from refused

    def _names(self, key: str) -> list[str]:
        path = key.removeprefix(_SCHEME)
        names = path[len(self._path.rstrip("/")) :].strip("/").split("/")
        if not is_below(key, self._root) or not {".", ".."}.isdisjoint(names) or "" in names[1:]:
            raise Unsafe(key, expected=f"a place below {self._root}", found="one outside")
        return [name for name in names if name]


def _is_missing(error: OSError | ValueError) -> bool:
    """Return True if the file does not exist, or cannot exist because its name is too long for the file system."""
    return isinstance(error, NOT_FOUND_ERRORS) or (isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG)


def _visible(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not name.startswith(".") and _is_text(name))


def _is_text(name: str) -> bool:
    """Return True if a name can be part of a URL."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


T = TypeVar("T")

MAX_CONCURRENT_CALLS: Final = 16
"""Maximum number of concurrent calls for one root."""
CALL_TIMEOUT: Final = 30.0
"""Seconds for one call to a file system or store, because a mount with a dead server may never answer."""


class BlockingTree(Protocol):
    """The operations of a `FileTree` as blocking calls."""

    def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        """Read a range of a file, as `FileReader.read` does."""
        ...

    def entries(self, prefix: str) -> FolderEntries:
        """Return the entries of a folder, as `FileTree.entries` does."""
        ...


class ThreadedTree:
    """A `FileTree` that runs blocking calls in threads, with a time limit.

    Args:
        tree: blocking operations.
    """

    def __init__(self, tree: BlockingTree) -> None:
        self._tree = tree
        self._threads = AbandonableThreads(MAX_CONCURRENT_CALLS, CALL_TIMEOUT, read_only=True)

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        return await self._run(f"read {key}", partial(self._tree.read, key, most, start))

    async def list(self, prefix: str, limit: int) -> list[str]:
        found = await self.entries(prefix)
        return sorted(prefix + name for name in (*found.files, *found.folders))[:limit]

    async def entries(self, prefix: str) -> FolderEntries:
        return await self._run(f"list {prefix}", partial(self._tree.entries, prefix))

    async def _run(self, name: str, call: Callable[[], T]) -> T:
        answer = await self._threads.run(name, lambda _: call())
        if isinstance(answer, TimedOut):
            expected, remedy = f"an answer within {CALL_TIMEOUT:g} s", "check whether a mount or the network hangs"
            raise Unreachable(name, expected=expected, found="none", remedy=remedy)
        return answer


class FsspecTree:
    """A `BlockingTree` with a driver of fsspec.

    Args:
        root: canonical location; all keys must be below.
        options: options of the driver.
    """

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        self._root, self._files = root, FsspecFileSystem(scheme_of(root), options)

    def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        check_below(key, self._root)
        return run_synchronously(self._files.read(key, most, start))

    def entries(self, prefix: str) -> FolderEntries:
        check_below(prefix, self._root)
        return run_synchronously(self._files.entries(prefix))


class StoreFiles:
    """A `FileReader` of files in the service's stores, below one root.

    Args:
        root: canonical location; all keys must be below.
        stores: stores of the service.
    """

    def __init__(self, root: str, stores: StoreRouter) -> None:
        self._root, self._stores = root, stores

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        check_below(key, self._root)
        try:
            return await self._stores.store_for(key).read_range(key, start, most)
        except ExternalError as error:
            raise _to_read_error(error) from error

    async def list(self, prefix: str, limit: int) -> list[str]:
        check_below(prefix, self._root)
        try:
            return await self._stores.store_for(prefix).list(prefix, limit)
        except ExternalError as error:
            raise _to_read_error(error) from error


def open_tree(root: str, options: Mapping[str, Any]) -> FileTree:
    """Return the files below a root: local files, or those of a store with a driver of fsspec.

    Args:
        root: canonical location.
        options: options of the driver.
    """
    return ThreadedTree(LocalTree(root) if scheme_of(root) == "file" else FsspecTree(root, options))


def check_below(key: str, root: str) -> None:
    """Refuse a key outside of a root.

    Raises:
        Unsafe: the key is outside.
    """
    if not is_below(key.removesuffix("/"), root) or not {".", ".."}.isdisjoint(key.split("/")):
        raise Unsafe(key, expected=f"a place below {root}", found="one outside")


def _to_read_error(error: ExternalError) -> SfnError:
    """Return the reader's error for an error of a store."""
    kind = NotPermitted if isinstance(error, (*FORBIDDEN_ERRORS, Unauthenticated)) else Unreachable
    return kind(error.where, expected=error.expected, found=error.found, remedy=error.remedy)
