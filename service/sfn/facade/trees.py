"""The trees that tables are looked up in: of this machine and of fsspec's drivers in threads, and of the service's own
stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from sfn.errors import DENIED, NotPermitted, SfnError, Trouble, Unaccepted, Unreachable, Unsafe
from sfn.facade import Tree
from sfn.facade.beneath import Beneath
from sfn.pointer.location import is_below, scheme_of
from sfn.reader.files import Entries, finish
from sfn.reader.remote import FsspecFiles
from sfn.store import StoreRouter
from sfn.threads import Late, Threads

T = TypeVar("T")

AT_ONCE: Final = 16
"""Files of a tree that are looked at at the same time."""
ANSWERED_WITHIN: Final = 30.0
"""Seconds that a file system or store has for one call: a mount whose server is gone may never answer."""


class Blocking(Protocol):
    """The verbs of a `Tree`, each of which returns once it has its answer."""

    def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        """As `Files.read`."""
        ...

    def entries(self, prefix: str) -> Entries:
        """As `Tree.entries`."""
        ...


class Threaded:
    """Implements `Tree`: no verb blocks the loop, and none waits for ever.

    Args:
        tree: does the work.
    """

    def __init__(self, tree: Blocking) -> None:
        self._tree = tree
        self._threads = Threads(AT_ONCE, ANSWERED_WITHIN, only_looks=True)

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        return await self._run(f"read {key}", partial(self._tree.read, key, most, start))

    async def list(self, prefix: str, limit: int) -> list[str]:
        found = await self.entries(prefix)
        return sorted(prefix + name for name in (*found.files, *found.folders))[:limit]

    async def entries(self, prefix: str) -> Entries:
        return await self._run(f"list {prefix}", partial(self._tree.entries, prefix))

    async def _run(self, name: str, call: Callable[[], T]) -> T:
        answer = await self._threads.run(name, lambda _: call())
        if isinstance(answer, Late):
            expected, remedy = f"an answer within {ANSWERED_WITHIN:g} s", "see whether a mount or the network hangs"
            raise Unreachable(name, expected=expected, found="none", remedy=remedy)
        return answer


class Remote:
    """Implements `Blocking` with fsspec's drivers.

    Args:
        root: canonical location that all keys lie below.
        options: what the driver is given.
    """

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        self._root, self._files = root, FsspecFiles(scheme_of(root), options)

    def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        check(key, self._root)
        return finish(self._files.read(key, most, start))

    def entries(self, prefix: str) -> Entries:
        check(prefix, self._root)
        return finish(self._files.entries(prefix))


class Stored:
    """Implements `Files` with a store of the service, below a root and nowhere else.

    Args:
        root: canonical location that all keys lie below.
        stores: which one holds it.
    """

    def __init__(self, root: str, stores: StoreRouter) -> None:
        self._root, self._stores = root, stores

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        check(key, self._root)
        try:
            return await self._stores.store_for(key).read_range(key, start, most)
        except Trouble as trouble:
            raise _told(trouble) from trouble

    async def list(self, prefix: str, limit: int) -> list[str]:
        check(prefix, self._root)
        try:
            return await self._stores.store_for(prefix).list(prefix, limit)
        except Trouble as trouble:
            raise _told(trouble) from trouble


def tree(root: str, options: Mapping[str, Any]) -> Tree:
    """The files below a root, of this machine or of a store that fsspec has a driver for.

    Args:
        options: what that driver is given.
    """
    return Threaded(Beneath(root) if scheme_of(root) == "file" else Remote(root, options))


def check(key: str, root: str) -> None:
    """Refuse a key outside of a root.

    Raises:
        Unsafe: it is.
    """
    if not is_below(key.removesuffix("/"), root) or not {".", ".."}.isdisjoint(key.split("/")):
        raise Unsafe(key, expected=f"a place below {root}", found="one outside")


def _told(trouble: Trouble) -> SfnError:
    """What a reader is told of a store's trouble."""
    kind = NotPermitted if isinstance(trouble, (*DENIED, Unaccepted)) else Unreachable
    return kind(trouble.where, expected=trouble.expected, found=trouble.found, remedy=trouble.remedy)
