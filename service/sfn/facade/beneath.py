"""Files below one folder of this machine. Nothing outside of it is ever opened, whatever is planted inside.

A path is opened name by name, each in the folder that is open already and without following links (`openat` with
`O_NOFOLLOW`): what somebody swaps meanwhile leads nowhere else. A link that stays inside is resolved by hand.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from sfn.errors import Unsafe
from sfn.pointer.location import below
from sfn.reader.files import Entries
from sfn.reader.local import FLAGS, MISSING, content, refusal

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
        except MISSING:
            return None
        except (OSError, ValueError) as error:
            raise refusal(key, error) from error

    def entries(self, prefix: str) -> Entries:
        """As `Tree.entries`. Links are shown as what they lead to, if that is inside."""
        try:
            descriptor = self._opened(prefix.removesuffix("/"), _FOLDER)
            try:
                with os.scandir(descriptor) as found:
                    kinds = [(entry.name, self._is_folder(prefix, entry)) for entry in found if _is_text(entry.name)]
            finally:
                os.close(descriptor)
        except MISSING:
            return Entries()
        except (OSError, ValueError) as error:
            raise refusal(prefix, error) from error
        files = tuple(name for name, is_folder in kinds if is_folder is False)
        return Entries(files, tuple(name for name, is_folder in kinds if is_folder))

    def _is_folder(self, prefix: str, entry: os.DirEntry[str]) -> bool | None:
        if not entry.is_symlink():
            return entry.is_dir(follow_symlinks=False)
        with suppress(OSError, Unsafe):
            os.close(self._opened(f"{prefix}{entry.name}", _FOLDER))
            return True
        return None

    def _opened(self, key: str, flags: int) -> int:
        """A descriptor of what lies at a key.

        Raises:
            OSError: it can't be opened.
            Unsafe: it lies outside, or a link leads there.
        """
        left = self._names(key)
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


def _is_text(name: str) -> bool:
    """Whether a name can be part of a URL."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _outside(key: str, target: str, root: str) -> Unsafe:
    return Unsafe(key, expected=f"links that stay below {root}", found=f"one to {target}")
