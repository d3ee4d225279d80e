"""The trees that tables are looked up in: of this machine and of fsspec's drivers in threads, and of the service's own
stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from sfn.concurrency import AbandonableThreads, TimedOut
from sfn.errors import FORBIDDEN_ERRORS, ExternalError, NotPermitted, SfnError, Unauthenticated, Unreachable, Unsafe
from sfn.facade import FileTree
from sfn.facade.beneath import LocalTree
from sfn.reader.files import FolderEntries, run_synchronously
from sfn.reader.remote import FsspecFileSystem
from sfn.sfnfile.locations import is_below, scheme_of
from sfn.storage import StoreRouter

T = TypeVar("T")

MAX_CONCURRENT_CALLS: Final = 16
"""Files of a tree that are looked at at the same time."""
CALL_TIMEOUT: Final = 30.0
"""Seconds that a file system or store has for one call: a mount whose server is gone may never answer."""


class BlockingTree(Protocol):
    """The verbs of a `FileTree`, each of which returns once it has its answer."""

    def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        """As `Files.read`."""
        ...

    def entries(self, prefix: str) -> FolderEntries:
        """As `FileTree.entries`."""
        ...


class ThreadedTree:
    """Implements `FileTree`: no verb blocks the loop, and none waits for ever.

    Args:
        tree: does the work.
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
            expected, remedy = f"an answer within {CALL_TIMEOUT:g} s", "see whether a mount or the network hangs"
            raise Unreachable(name, expected=expected, found="none", remedy=remedy)
        return answer


class FsspecTree:
    """Implements `BlockingTree` with fsspec's drivers.

    Args:
        root: canonical location that all keys lie below.
        options: what the driver is given.
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
    """Implements `Files` with a store of the service, below a root and nowhere else.

    Args:
        root: canonical location that all keys lie below.
        stores: which one holds it.
    """

    def __init__(self, root: str, stores: StoreRouter) -> None:
        self._root, self._stores = root, stores

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        check_below(key, self._root)
        try:
            return await self._stores.store_for(key).read_range(key, start, most)
        except ExternalError as trouble:
            raise _to_read_error(trouble) from trouble

    async def list(self, prefix: str, limit: int) -> list[str]:
        check_below(prefix, self._root)
        try:
            return await self._stores.store_for(prefix).list(prefix, limit)
        except ExternalError as trouble:
            raise _to_read_error(trouble) from trouble


def open_tree(root: str, options: Mapping[str, Any]) -> FileTree:
    """The files below a root, of this machine or of a store that fsspec has a driver for.

    Args:
        options: what that driver is given.
    """
    return ThreadedTree(LocalTree(root) if scheme_of(root) == "file" else FsspecTree(root, options))


def check_below(key: str, root: str) -> None:
    """Refuse a key outside of a root.

    Raises:
        Unsafe: it is.
    """
    if not is_below(key.removesuffix("/"), root) or not {".", ".."}.isdisjoint(key.split("/")):
        raise Unsafe(key, expected=f"a place below {root}", found="one outside")


def _to_read_error(error: ExternalError) -> SfnError:
    """What a reader is told of a store's trouble."""
    kind = NotPermitted if isinstance(error, (*FORBIDDEN_ERRORS, Unauthenticated)) else Unreachable
    return kind(error.where, expected=error.expected, found=error.found, remedy=error.remedy)
