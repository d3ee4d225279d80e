"""Files below one folder of this machine. Nothing outside of it is ever opened, whatever is planted inside.

A path without links is opened at once where the system can refuse them (`openat2`). Every other one is opened name by
name, each in the folder that is open already and without following links (`openat` with `O_NOFOLLOW`): what somebody
swaps meanwhile leads nowhere else. A link that stays inside is resolved by hand.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from sfn.errors import TooManyFiles, Unsafe
from sfn.facade import openat2
from sfn.pointer.location import below
from sfn.reader.files import Entries
from sfn.reader.local import FLAGS, MISSING, content, refusal

MOST_LISTED: Final = 100_000
"""Files of a folder whose names are looked at."""

_SCHEME: Final = "file://"
_DETOURS: Final = 40
"""Links, and `..` in them, that one path may have (Linux follows 40 links)."""
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Of folders on the way, where the system can: it takes the right to pass alone."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = FLAGS | os.O_NOFOLLOW
_IS_LINK: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})
"""What systems say of a link that is not followed."""


class Beneath:
    """The verbs of a `Tree` as blocking calls. For several threads.

    Args:
        root: canonical location of the folder, a link itself if it likes.
    """

    def __init__(self, root: str) -> None:
        self._root, self._path = root, root.removeprefix(_SCHEME) or "/"

    def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        """As `Files.read`."""
        try:
            descriptor = self._opened(key, _FILE)
            try:
                return content(descriptor, most, start)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            if _is_missing(error):
                return None
            raise refusal(key, error) from error

    def entries(self, prefix: str) -> Entries:
        """As `Tree.entries`. Nobody looks where links lead; what is hidden is not shown.

        Raises:
            TooManyFiles: there are more than `MOST_LISTED`.
        """
        try:
            descriptor = self._opened(prefix.removesuffix("/"), _FOLDER)
            try:
                with os.scandir(descriptor) as found:
                    listed = list(islice(found, MOST_LISTED + 1))
                    links = [entry.name for entry in listed if entry.is_symlink()]
                    files = [entry.name for entry in listed if entry.is_file(follow_symlinks=False)]
                    folders = [entry.name for entry in listed if entry.is_dir(follow_symlinks=False)]
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            if _is_missing(error):
                return Entries()
            raise refusal(prefix, error) from error
        if len(listed) > MOST_LISTED:
            expected, remedy = f"at most {MOST_LISTED:,} files", "move out of the folder what is not ours"
            raise TooManyFiles(prefix, expected=expected, found="more", remedy=remedy)
        return Entries(_shown(files), _shown([*folders, *links]), _shown(links))

    def _opened(self, key: str, flags: int) -> int:
        """A descriptor of what lies at a key.

        Raises:
            OSError: it can't be opened.
            Unsafe: it lies outside, or a link leads there.
        """
        left = self._names(key)
        if (descriptor := openat2.opened(key.removeprefix(_SCHEME), flags)) is not None:
            return descriptor
        for _ in range(_DETOURS + 1):
            found = self._stepped(left, flags, key)
            if isinstance(found, int):
                return found
            left = found
        raise Unsafe(key, expected=f"at most {_DETOURS} links on the way", found="more, or a circle")

    def _names(self, key: str) -> list[str]:
        path = key.removeprefix(_SCHEME)
        names = path[len(self._path.rstrip("/")) :].strip("/").split("/")
        if not below(key, self._root) or not {".", ".."}.isdisjoint(names) or "" in names[1:]:
            raise Unsafe(key, expected=f"a place below {self._root}", found="one outside")
        return [name for name in names if name]

    def _stepped(self, names: Sequence[str], flags: int, key: str) -> int | list[str]:
        """The descriptor; where a link is on the way, the names with what it says in its place."""
        # The root may be a link.
        at = os.open(self._path, (_PASS if names else flags) & ~os.O_NOFOLLOW)
        for number, name in enumerate(names):
            if name == "..":
                # Of a link. What stands before it was walked through, and is none.
                os.close(at)
                return self._upwards(names, number, key)
            try:
                inner = os.open(name, flags if number == len(names) - 1 else _PASS, dir_fd=at)
            except OSError as error:
                target = _link(name, at) if error.errno in _IS_LINK else None
                if target is None:
                    raise
                return self._followed(names[:number], target, names[number + 1 :], key)
            finally:
                os.close(at)
            at = inner
        return at

    def _upwards(self, names: Sequence[str], number: int, key: str) -> list[str]:
        if number == 0:
            raise _outside(key, "..", self._root)
        return [*names[: number - 1], *names[number + 1 :]]

    def _followed(self, before: Sequence[str], target: str, after: Sequence[str], key: str) -> list[str]:
        """The names that a link stands for, from the root on.

        Raises:
            Unsafe: it leads outside.
        """
        if target.startswith("/"):
            root = next((root for root in self._roots() if below(target, root)), None)
            if root is None:
                raise _outside(key, target, self._root)
            before, target = (), target[len(root.rstrip("/")) :]
        return [*before, *(name for name in target.split("/") if name not in {"", "."}), *after]

    def _roots(self) -> tuple[str, str]:
        """As the folder is called, and as it is called without links."""
        return self._path, os.path.realpath(self._path)


def _link(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None


def _is_missing(error: OSError | ValueError) -> bool:
    """Whether there is nothing, nor can be: no file has a longer name than its system allows."""
    return isinstance(error, MISSING) or (isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG)


def _shown(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not name.startswith(".") and _is_text(name))


def _is_text(name: str) -> bool:
    """Whether a name can be part of a URL."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _outside(key: str, target: str, root: str) -> Unsafe:
    return Unsafe(key, expected=f"links that stay below {root}", found=f"one to {target}")
