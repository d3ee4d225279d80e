"""How a reader gets at files, and how one code serves callers with and without an event loop."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sfn.errors import Unreadable
from sfn.pointer.location import canonical

T = TypeVar("T")
_SCHEME = "file://"


class Files(Protocol):
    """Read access to a directory's files, by canonical URL."""

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        """A file's bytes from `start` on, `most` of them unless it ends before; None where there is no file."""
        ...

    async def list(self, prefix: str, limit: int) -> list[str]:
        """Keys directly below a prefix that ends in `/`, in order, at most `limit`."""
        ...


class LocalFiles:
    """Files of this machine. Its verbs never suspend, so `finish` can run what rests on them."""

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        return _content(key, most, start)

    async def list(self, prefix: str, limit: int) -> list[str]:
        try:
            with os.scandir(_path(prefix)) as entries:
                names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unreadable(prefix, error) from error
        return [prefix + name for name in names[:limit]]


def finish(work: Coroutine[Any, Any, T]) -> T:
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
    """The canonical URL of a directory given as a path, relative or not, or as a URL."""
    text = os.fspath(directory)
    if ":" in text.split("/", 1)[0]:
        return canonical(text)
    return canonical(str(Path(text).absolute()))


def is_directory(url: str) -> bool:
    """Whether a directory lies at a canonical URL."""
    return _path(url).is_dir()


def _content(key: str, most: int, start: int) -> bytes | None:
    try:
        with open(_path(key), "rb", opener=_opened) as file:
            file.seek(start)
            return file.read(most)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(key, error) from error


def _opened(path: str, flags: int) -> int:
    """Open without waiting: a pipe that lies where a file should is empty, not a reader that hangs."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _path(key: str) -> Path:
    if not key.startswith(f"{_SCHEME}/"):
        raise Unreadable(key, expected="a path or a file: URL of this machine", found="another scheme or host")
    if "\0" in key:
        raise Unreadable(key, expected="a path", found="a NUL in it")
    try:
        os.fsencode(key)
    except UnicodeEncodeError as error:
        raise Unreadable(key, expected="a path of this machine", found="a lone surrogate in it") from error
    return Path(key.removeprefix(_SCHEME))


def _unreadable(key: str, error: OSError) -> Unreadable:
    found = f"{type(error).__name__}: {error.strerror or error}"
    return Unreadable(key, expected="a readable file or folder", found=found)
