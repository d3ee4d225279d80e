"""Files of this machine."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from heapq import nsmallest
from io import BufferedReader
from typing import Final

from sfn import safe_open
from sfn.errors import NotPermitted, Unreachable, Unreadable, Unsafe
from sfn.safe_open import DIRECTORY_FLAGS, LinkRefused
from sfn.sfnfile.locations import is_below
from sfn.sfnfile.naming import depth_below_table

_SCHEME: Final = "file://"
NOT_FOUND_ERRORS: Final = (FileNotFoundError, NotADirectoryError)
"""What the system says of what is not there."""
OPEN_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""With which a file is opened: a pipe that lies in its place is refused, not waited for."""
_STAT_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC
"""Of what is only looked at: it takes no right to read."""


class LocalFileSystem:
    """The `FileSystem` of this machine. Its verbs never suspend, so `finish` can run what rests on them.

    No symbolic link in `metadata` or `_sfn` leads out of a table's directory: the directory's owner could show
    another table in its place. Other links are followed, and with `allowed` only into what is allowed.

    Args:
        directory: canonical URL of what is read.
        allowed: canonical prefixes that files may lie below, beside the directory; empty for the whole machine.
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
        """A file, open to be read.

        Raises:
            FileNotFoundError: there is none.
            Unreadable: it can't be opened, or a link leads where it may not.
        """
        try:
            return os.fdopen(self._open_descriptor(key, OPEN_FLAGS, depth_below_table(key)), "rb")
        except NOT_FOUND_ERRORS:
            raise
        except (OSError, ValueError) as error:
            raise to_reader_error(key, error) from error

    def _stat(self, key: str, ours: int) -> os.stat_result | None:
        try:
            descriptor = self._open_descriptor(key, _STAT_FLAGS, ours)
        except NOT_FOUND_ERRORS:
            return None
        except (OSError, ValueError) as error:
            raise to_reader_error(key, error) from error
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _open_descriptor(self, key: str, flags: int, ours: int) -> int:
        """A descriptor of what lies at a key.

        Args:
            ours: how many of the last names lie below the table's directory, as of `depth`.

        Raises:
            OSError: it can't be opened.
            ValueError: it is no path.
            Unsafe: a link leads where it may not.
        """
        path = _path(key)
        if "\0" in path:
            raise ValueError("embedded null byte")
        roots = [_path(bound) for bound in self._bounds if is_below(key, bound)]
        if self._bounds and not roots:
            raise Unsafe(key, expected=f"a place below {' or '.join(self._bounds)}", found="one outside")
        if ours > 1:
            roots.append(path.rsplit("/", ours)[0] or "/")
        root = max(roots, key=len, default="/")
        names = [name for name in path[len(root.rstrip("/")) :].split("/") if name]
        try:
            return safe_open.open_below(root, names, flags, other_roots=[_path(bound) for bound in self._bounds])
        except LinkRefused as refused:
            found = f"the link {refused.link} to {refused.target}" if refused.link else refused.target
            remedy = "read the directory that the link leads to, or have a folder put in its place"
            raise Unsafe(key, expected=f"links that stay below {root}", found=found, remedy=remedy) from refused


def read_descriptor(descriptor: int, most: int, start: int) -> bytes | None:
    """The bytes of an open file as of `Files.read`; None of a folder.

    Raises:
        OSError: it can't be read, or is a pipe or a device.
    """
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "a pipe or a device")
    # Memory is had for as much as there is, not for as much as there might be.
    left = min(most, found.st_size - start)
    body = os.pread(descriptor, left, start) if left > 0 else b""
    while len(body) < left and (more := os.pread(descriptor, left - len(body), start + len(body))):
        # A file system may give less than it is asked for.
        body += more
    return body


def _path(key: str) -> str:
    if not key.startswith("file:///"):
        raise Unreachable(key, expected="a path or a file: URL of this machine", found="another scheme or host")
    return key[len(_SCHEME) :]


def to_reader_error(key: str, error: OSError | ValueError) -> Unreadable:
    """What a reader is told of an error of the system's."""
    if isinstance(error, ValueError):
        found = "a lone surrogate in it" if isinstance(error, UnicodeEncodeError) else "a NUL in it"
        return Unreachable(key, expected="a path of this machine", found=found)
    found = f"{type(error).__name__}: {error.strerror or error}"
    if isinstance(error, PermissionError):
        remedy = "give the user who reads the right to read it and to pass through the folders above"
        return NotPermitted(key, expected="the permission to read it", found=found, remedy=remedy)
    return Unreachable(key, expected="a readable file or folder", found=found)
