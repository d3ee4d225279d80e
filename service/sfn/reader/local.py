"""Files of this machine."""

from __future__ import annotations

import errno
import os
import stat
from heapq import nsmallest
from pathlib import Path
from typing import Final

from sfn.errors import NotPermitted, Unreachable, Unreadable

_SCHEME: Final = "file://"
MISSING: Final = (FileNotFoundError, NotADirectoryError)
"""What the system says of what is not there."""
FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""With which a file is opened: a pipe that lies in its place is refused, not waited for."""


class LocalFiles:
    """The `Storage` of this machine. Its verbs never suspend, so `finish` can run what rests on them."""

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        try:
            descriptor = os.open(_path(key), FLAGS)
        except MISSING:
            return None
        except (OSError, ValueError) as error:
            raise refusal(key, error) from error
        try:
            return content(descriptor, most, start)
        except OSError as error:
            raise refusal(key, error) from error
        finally:
            os.close(descriptor)

    async def list(self, prefix: str, limit: int) -> list[str]:
        try:
            with os.scandir(_path(prefix)) as entries:
                names = nsmallest(limit, (entry.name for entry in entries if not entry.name.startswith(".")))
        except MISSING:
            return []
        except (OSError, ValueError) as error:
            raise refusal(prefix, error) from error
        return [prefix + name for name in names]

    async def size(self, key: str) -> int | None:
        found = _stat(key)
        return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else None

    async def is_folder(self, url: str) -> bool:
        found = _stat(url)
        return found is not None and stat.S_ISDIR(found.st_mode)


def content(descriptor: int, most: int, start: int) -> bytes | None:
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


def _stat(key: str) -> os.stat_result | None:
    try:
        return Path(_path(key)).stat()
    except MISSING:
        return None
    except (OSError, ValueError) as error:
        raise refusal(key, error) from error


def _path(key: str) -> str:
    if not key.startswith("file:///"):
        raise Unreachable(key, expected="a path or a file: URL of this machine", found="another scheme or host")
    return key[len(_SCHEME) :]


def refusal(key: str, error: OSError | ValueError) -> Unreadable:
    """What a reader is told of an error of the system's."""
    if isinstance(error, ValueError):
        found = "a lone surrogate in it" if isinstance(error, UnicodeEncodeError) else "a NUL in it"
        return Unreachable(key, expected="a path of this machine", found=found)
    found = f"{type(error).__name__}: {error.strerror or error}"
    if isinstance(error, PermissionError):
        remedy = "give the user who reads the right to read it and to pass through the folders above"
        return NotPermitted(key, expected="the permission to read it", found=found, remedy=remedy)
    return Unreachable(key, expected="a readable file or folder", found=found)
