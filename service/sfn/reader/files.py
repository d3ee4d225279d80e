"""Read access to files: local, in memory, or through fsspec; the same code serves callers with and without a loop."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from typing_extensions import override

from sfn import safe_open
from sfn.errors import NotPermitted, Unreachable, Unreadable, Unsafe
from sfn.safe_open import DIRECTORY_FLAGS, LinkRefused
from sfn.sfnfile.locations import canonical, is_below, scheme_of
from sfn.sfnfile.naming import depth_below_table

T = TypeVar("T")

FIRST_READ_SIZE: Final = 1 << 14
"""Bytes of a metadata file that nearly always contain its `table-uuid`."""
PART_SIZE: Final = 1 << 20
"""Bytes of a large file that are read at once."""


class FileReader(Protocol):
    """Read access to files, by canonical URL.

    Both methods raise NotPermitted, NotInstalled or Unreachable if they get no answer.
    """

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        """Return up to `most` bytes of a file from `start` on; None if there is no file."""
        ...

    async def list(self, prefix: str, limit: int) -> list[str]:
        """Return the keys of up to `limit` files directly below a prefix that ends in `/`, in order.

        The result may contain other entries, such as folders. It is empty if the folder does not exist.
        """
        ...


class FileSystem(FileReader, Protocol):
    """A whole file system or store, for callers that read more than SFN files."""

    async def size(self, key: str) -> int | None:
        """Return the size of a file in bytes; None if there is no file."""
        ...

    async def is_folder(self, url: str) -> bool:
        """Return whether a folder exists; on an object store, whether anything lies below."""
        ...


@dataclass(frozen=True, slots=True)
class FolderEntries:
    """The entries directly in a folder: names without slashes, in any order.

    Attributes:
        links: those of `folders` that are symbolic links, to folders or to anything else.
    """

    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """The number of requests to a store.

    Attributes:
        gets: reads of files or parts of files.
        lists: listings of folders.
    """

    gets: int
    lists: int

    @override
    def __str__(self) -> str:
        return f"{self.gets} GET, {self.lists} LIST"


class CountingFiles:
    """A `FileReader` that counts its requests."""

    def __init__(self, files: FileReader) -> None:
        self._files = files
        self._gets = self._lists = 0

    @property
    def requests(self) -> RequestCounts:
        """The requests until now."""
        return RequestCounts(self._gets, self._lists)

    def read(self, key: str, most: int, start: int = 0) -> Coroutine[Any, Any, bytes | None]:
        self._gets += 1
        return self._files.read(key, most, start)

    def list(self, prefix: str, limit: int) -> Coroutine[Any, Any, list[str]]:
        self._lists += 1
        return self._files.list(prefix, limit)


async def read_parts(files: FileReader, key: str, first: bytes, most: int) -> AsyncIterator[bytes]:
    """Yield a file part by part; no part is empty.

    Args:
        first: the part that was read already.
        most: the size that was requested for `first`.
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
        RuntimeError: the coroutine did suspend.
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
    """Return the canonical URL of a directory that is given as a path, relative or not, or as a URL.

    Dotted segments of a path are resolved as the system does: `link/..` is above the link's target. In a path without
    such segments links stay as they are, because the catalog may know the table by them.

    Raises:
        ValueError: the text is empty.
    """
    text = os.fspath(directory)
    if not text:
        raise ValueError("the directory is empty: is a variable not set? The working directory is '.'")
    if ":" in text.split("/", 1)[0]:
        return canonical(text)
    path = text if text.startswith("/") else f"{Path.cwd()}/{text}"
    return canonical(os.path.realpath(path) if ".." in path.split("/") else os.path.normpath(path))


_SCHEME: Final = "file://"
NOT_FOUND_ERRORS: Final = (FileNotFoundError, NotADirectoryError)
"""The system's errors for a file that does not exist."""
OPEN_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Flags to open a file with: opening a pipe must not block."""
_STAT_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC
"""Flags to read only the status of a file: they need no permission to read."""


class LocalFileSystem:
    """The `FileSystem` of the local machine. Its methods never suspend, so `run_synchronously` can run their callers.

    A symbolic link in `metadata` or `_sfn` must not lead out of the table's directory: otherwise the directory's owner
    could show another table in its place. Other links are followed; if `allowed` is given, only to allowed places.

    Args:
        directory: canonical URL of the directory.
        allowed: canonical prefixes that files may lie below, besides the directory; if empty, the whole machine.
    """

    def __init__(self, directory: str = f"{_SCHEME}/", allowed: Sequence[str] = ()) -> None:
        bounds = (directory, *allowed) if allowed else ()
        self._bounds = tuple(bound for bound in bounds if bound.startswith(_SCHEME))

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        try:
            descriptor = self._open_descriptor(key, OPEN_FLAGS, depth_below_table(key))
        except NOT_FOUND_ERRORS:
            return None
        except (OSError, ValueError) as error:
            raise to_reader_error(key, error) from error
        try:
            return read_descriptor(descriptor, most, start)
        except OSError as error:
            raise to_reader_error(key, error) from error
        finally:
            os.close(descriptor)

    async def list(self, prefix: str, limit: int) -> list[str]:
        try:
            descriptor = self._open_descriptor(
                prefix.rstrip("/"), DIRECTORY_FLAGS, depth_below_table(f"{prefix}file") - 1
            )
        except NOT_FOUND_ERRORS:
            return []
        except (OSError, ValueError) as error:
            raise to_reader_error(prefix, error) from error
        try:
            with os.scandir(descriptor) as entries:
                names = nsmallest(limit, (entry.name for entry in entries if not entry.name.startswith(".")))
        except OSError as error:
            raise to_reader_error(prefix, error) from error
        finally:
            os.close(descriptor)
        return [prefix + name for name in names]

    async def size(self, key: str) -> int | None:
        found = self._stat(key, depth_below_table(key))
        return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else None

    async def is_folder(self, url: str) -> bool:
        found = self._stat(url, 0)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def open_file(self, key: str) -> BufferedReader:
        """Open a file for reading.

        Raises:
            FileNotFoundError: there is no file.
            Unreadable: the file can't be opened, or a link leads to a place that is not allowed.
        """
        try:
            return os.fdopen(self._open_descriptor(key, OPEN_FLAGS, depth_below_table(key)), "rb")
        except NOT_FOUND_ERRORS:
            raise
        except (OSError, ValueError) as error:
            raise to_reader_error(key, error) from error

    def _stat(self, key: str, depth: int) -> os.stat_result | None:
        try:
            descriptor = self._open_descriptor(key, _STAT_FLAGS, depth)
        except NOT_FOUND_ERRORS:
            return None
        except (OSError, ValueError) as error:
            raise to_reader_error(key, error) from error
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _open_descriptor(self, key: str, flags: int, depth: int) -> int:
        """Return a file descriptor for a key.

        Args:
            depth: the number of trailing path segments below the table's directory, from `depth_below_table`.

        Raises:
            OSError: the file can't be opened.
            ValueError: the key is no path.
            Unsafe: a link leads to a place that is not allowed.
        """
        path = _path(key)
        if "\0" in path:
            raise ValueError("embedded null byte")
        roots = [_path(bound) for bound in self._bounds if is_below(key, bound)]
        if self._bounds and not roots:
            raise Unsafe(key, expected=f"a place below {' or '.join(self._bounds)}", found="one outside")
        if depth > 1:
            roots.append(path.rsplit("/", depth)[0] or "/")
        root = max(roots, key=len, default="/")
        names = [name for name in path[len(root.rstrip("/")) :].split("/") if name]
        try:
            return safe_open.open_below(root, names, flags, other_roots=[_path(bound) for bound in self._bounds])
        except LinkRefused as refused:
            found = f"the link {refused.link} to {refused.target}" if refused.link else refused.target
            remedy = "read the directory that the link leads to, or replace the link by a folder"
            raise Unsafe(key, expected=f"links that stay below {root}", found=found, remedy=remedy) from refused


def read_descriptor(descriptor: int, most: int, start: int) -> bytes | None:
    """Return bytes of an open file as `FileReader.read` does; None for a folder.

    Raises:
        OSError: the file can't be read, or is a pipe or a device.
    """
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "a pipe or a device")
    # Allocate memory for the bytes that exist, not for the maximum.
    left = min(most, found.st_size - start)
    body = os.pread(descriptor, left, start) if left > 0 else b""
    while len(body) < left and (more := os.pread(descriptor, left - len(body), start + len(body))):
        # A file system may return fewer bytes than requested.
        body += more
    return body


def _path(key: str) -> str:
    if not key.startswith("file:///"):
        raise Unreachable(key, expected="a path or a file: URL of this machine", found="another scheme or host")
    return key[len(_SCHEME) :]


def to_reader_error(key: str, error: OSError | ValueError) -> Unreadable:
    """Return the reader's error for an error of the system."""
    if isinstance(error, ValueError):
        found = "a lone surrogate in it" if isinstance(error, UnicodeEncodeError) else "a NUL in it"
        return Unreachable(key, expected="a path of this machine", found=found)
    found = f"{type(error).__name__}: {error.strerror or error}"
    if isinstance(error, PermissionError):
        remedy = "give the user who reads the permission to read it and to enter the folders above"
        return NotPermitted(key, expected="the permission to read it", found=found, remedy=remedy)
    return Unreachable(key, expected="a readable file or folder", found=found)


class InMemoryFileSystem:
    """The `FileSystem` of a mapping from canonical URLs to contents."""

    def __init__(self, bodies: Mapping[str, bytes]) -> None:
        self._bodies = bodies

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        body = self._bodies.get(key)
        return None if body is None else body[start : start + most]

    async def list(self, prefix: str, limit: int) -> list[str]:
        return sorted(key for key in self._bodies if key.startswith(prefix) and "/" not in key[len(prefix) :])[:limit]

    async def size(self, key: str) -> int | None:
        body = self._bodies.get(key)
        return None if body is None else len(body)

    async def is_folder(self, url: str) -> bool:
        return any(key.startswith(f"{url}/") for key in self._bodies)


if TYPE_CHECKING:
    from sfn.reader.remote_files import FsspecFileSystem


@dataclass(frozen=True, slots=True)
class FileSystemOptions:
    """The options to open a directory with.

    Attributes:
        url: the directory's canonical URL.
        options: options for fsspec's driver of the URL's scheme; they may contain secrets.
        allowed: canonical prefixes that files may lie below, besides the directory; if empty, no restriction.
    """

    url: str = "file:///"
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    allowed: tuple[str, ...] = ()

    def open_file_system(self) -> FileSystem:
        """Open the file system for the directory, and for the files that it leads to."""
        return RoutedFileSystem(scheme_of(self.url), self.options, LocalFileSystem(self.url, self.allowed))


class RoutedFileSystem:
    """The `FileSystem` for local files and for every scheme that fsspec has a driver for.

    Args:
        scheme: the URL scheme that the options are for.
        options: fsspec's `storage_options`.
        local: access to local files; default: to all of them.
    """

    def __init__(self, scheme: str, options: Mapping[str, Any], local: LocalFileSystem | None = None) -> None:
        self._scheme, self._options, self._local = scheme, options, local or LocalFileSystem()
        self._others: FsspecFileSystem | None = None

    def read(self, key: str, most: int, start: int = 0) -> Coroutine[Any, Any, bytes | None]:
        return self._file_system_of(key).read(key, most, start)

    def list(self, prefix: str, limit: int) -> Coroutine[Any, Any, list[str]]:
        return self._file_system_of(prefix).list(prefix, limit)

    def size(self, key: str) -> Coroutine[Any, Any, int | None]:
        return self._file_system_of(key).size(key)

    def is_folder(self, url: str) -> Coroutine[Any, Any, bool]:
        return self._file_system_of(url).is_folder(url)

    def _file_system_of(self, key: str) -> FileSystem:
        if key.startswith("file:"):
            return self._local
        if self._others is None:
            # Importing fsspec is slow, and local files do not need it.
            from sfn.reader.remote_files import FsspecFileSystem

            self._others = FsspecFileSystem(self._scheme, self._options)
        return self._others
