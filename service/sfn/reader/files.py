"""How a reader gets at files, and how one code serves callers with and without an event loop."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from typing_extensions import override

from sfn.sfnfile.locations import canonical

T = TypeVar("T")

FIRST_READ_SIZE: Final = 1 << 14
"""Bytes of a metadata file that tell whose it is, nearly always."""
PART_SIZE: Final = 1 << 20
"""Bytes of a large file that are read at a time."""


class FileReader(Protocol):
    """Read access to files, by canonical URL.

    Both verbs raise NotPermitted, NotInstalled or Unreachable where the answer can't be had.
    """

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        """A file's bytes from `start` on, `most` of them unless it ends before; None where there is no file."""
        ...

    async def list(self, prefix: str, limit: int) -> list[str]:
        """Keys of the files directly below a prefix that ends in `/`, in order, at most `limit`.

        What else lies there, such as folders, may be among them; none where there is no such folder.
        """
        ...


class FileSystem(FileReader, Protocol):
    """A whole file system or store, for those who look at more than SFN files."""

    async def size(self, key: str) -> int | None:
        """How many bytes a file has; None where there is no file."""
        ...

    async def is_folder(self, url: str) -> bool:
        """Whether a folder is there: on an object store, whether anything lies below."""
        ...


@dataclass(frozen=True, slots=True)
class FolderEntries:
    """What lies directly in a folder: names without slashes, in any order.

    Attributes:
        links: those of the folders that are links, to folders or to anything else.
    """

    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """What a store was asked.

    Attributes:
        gets: parts of files that were read.
        lists: folders that were listed.
    """

    gets: int
    lists: int

    @override
    def __str__(self) -> str:
        return f"{self.gets} GET, {self.lists} LIST"


class CountingFiles:
    """Files that count what they are asked."""

    def __init__(self, files: FileReader) -> None:
        self._files = files
        self._gets = self._lists = 0

    @property
    def requests(self) -> RequestCounts:
        """What was asked until now."""
        return RequestCounts(self._gets, self._lists)

    def read(self, key: str, most: int, start: int = 0) -> Coroutine[Any, Any, bytes | None]:
        self._gets += 1
        return self._files.read(key, most, start)

    def list(self, prefix: str, limit: int) -> Coroutine[Any, Any, list[str]]:
        self._lists += 1
        return self._files.list(prefix, limit)


async def read_parts(files: FileReader, key: str, first: bytes, most: int) -> AsyncIterator[bytes]:
    """A file, part by part, none empty.

    Args:
        first: what was read of it.
        most: how much was asked for.
    """
    part: bytes | None = first
    start = 0
    while part:
        yield part
        start += len(part)
        part = await files.read(key, PART_SIZE, start) if len(part) == most else None
        most = PART_SIZE


def run_synchronously(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends to its end, without an event loop.

    Raises:
        RuntimeError: it did suspend.
    """
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    message = "a blocking reader's files must not suspend"
    raise RuntimeError(message)


def directory_url(directory: str | os.PathLike[str]) -> str:
    """The canonical URL of a directory given as a path, relative or not, or as a URL.

    Dotted segments of a path lead where the system leads: `link/..` is above the link's target. Links stay as they are
    in a path without such segments, as the catalog may know the table by them.

    Raises:
        ValueError: it is empty.
    """
    text = os.fspath(directory)
    if not text:
        raise ValueError("a path or a URL of a directory: '' (a variable that is not set?); the working one is '.'")
    if ":" in text.split("/", 1)[0]:
        return canonical(text)
    path = text if text.startswith("/") else f"{Path.cwd()}/{text}"
    return canonical(os.path.realpath(path) if ".." in path.split("/") else os.path.normpath(path))
