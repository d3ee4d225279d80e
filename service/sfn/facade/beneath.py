"""Files below one folder of this machine. Nothing outside of it is ever opened, whatever is planted inside.

Links that stay inside are followed, see `sfn.safe_open`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from itertools import islice
from typing import Final

from sfn.errors import TooManyFiles, Unsafe
from sfn.reader.files import FolderEntries
from sfn.reader.local import NOT_FOUND_ERRORS, OPEN_FLAGS, read_descriptor, to_reader_error
from sfn.safe_open import DIRECTORY_FLAGS, MAX_LINKS, LinkRefused, open_below
from sfn.sfnfile.locations import is_below

MAX_LISTED_FILES: Final = 100_000
"""Files of a folder whose names are looked at."""

_SCHEME: Final = "file://"
_FILE: Final = OPEN_FLAGS | os.O_NOFOLLOW


class LocalTree:
    """The verbs of a `FileTree` as blocking calls. For several threads.

    Args:
        root: canonical location of the folder, a link itself if it likes.
    """

    def __init__(self, root: str) -> None:
        self._root, self._path = root, root.removeprefix(_SCHEME) or "/"

    def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        """As `Files.read`."""
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
        """As `FileTree.entries`. Nobody looks where links lead; what is hidden is not shown.

        Raises:
            TooManyFiles: there are more than `MAX_LISTED_FILES`.
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
            expected, remedy = f"at most {MAX_LISTED_FILES:,} files", "move out of the folder what is not ours"
            raise TooManyFiles(prefix, expected=expected, found="more", remedy=remedy)
        return FolderEntries(_visible(files), _visible([*folders, *links]), _visible(links))

    def _open(self, key: str, flags: int) -> int:
        """A descriptor of what lies at a key.

        Raises:
            OSError: it can't be opened.
            Unsafe: it lies outside, or a link leads there.
        """
        # A key is text: bytes that are none of UTF-8 are no name that a client can ask for.
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
    """Whether there is nothing, nor can be: no file has a longer name than its system allows."""
    return isinstance(error, NOT_FOUND_ERRORS) or (isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG)


def _visible(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not name.startswith(".") and _is_text(name))


def _is_text(name: str) -> bool:
    """Whether a name can be part of a URL."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
