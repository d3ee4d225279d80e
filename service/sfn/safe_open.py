"""Files below a folder, opened so that no link leads out of the folder: `open_below`.

A path without links is opened in one call if the system can refuse links (`openat2`). Every other path is opened
segment by segment, each in the folder that is already open and without following links (`openat` with `O_NOFOLLOW`).
So a link that another program creates meanwhile leads nowhere else. A link that stays inside is resolved by hand.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Sequence
from functools import cache
from typing import Final

_NUMBER: Final = 437
"""Number of the system call, on every architecture."""
_NOWHERE: Final = -100
"""`AT_FDCWD`, which an absolute path ignores."""
_NO_LINKS: Final = 0x04
"""`RESOLVE_NO_SYMLINKS`."""


class _How(ctypes.Structure):
    """`struct open_how`."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW_BYTES: Final = ctypes.sizeof(_How)


@cache
def _call() -> ctypes._NamedFuncPointer:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_How), ctypes.c_size_t)
    call.restype = ctypes.c_long
    return call


@cache
def _how(flags: int) -> ctypes._Pointer[_How]:
    # Cached, because ctypes takes longer to make it than the system takes to open a file. The system only reads it.
    return ctypes.pointer(_How(flags, 0, _NO_LINKS))


def open_without_links(path: str, flags: int) -> int | None:
    """Open an absolute path without `..`, and return the descriptor.

    Returns:
        None if one call cannot do it: the path may contain a link.

    Raises:
        FileNotFoundError: the path does not exist.
    """
    if not sys.platform.startswith("linux") or "\0" in path:
        return None
    descriptor = int(_call()(_NUMBER, _NOWHERE, os.fsencode(path), _how(flags), _HOW_BYTES))
    if descriptor >= 0:
        return descriptor
    if ctypes.get_errno() == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return None


TRAVERSE_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for folders on the way. With `O_PATH`, where the system has it, the right to search a folder is enough."""
DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for a folder that is listed or changed."""

MAX_LINKS: Final = 40
"""Links, including `..` in them, that one path may contain (Linux follows 40 links)."""
_PATH: Final = getattr(os, "O_PATH", 0)
_IS_LINK: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})
"""Errors of systems for a link that is not followed."""


class LinkRefused(Exception):
    """A link that is not followed.

    Attributes:
        link: path of the link; empty if there are too many links.
        target: target of the link.
        root: the folder that the link would lead out of; None if no link is allowed at all.
    """

    def __init__(self, link: str, target: str, root: str | None) -> None:
        super().__init__(link, target, root)
        self.link, self.target, self.root = link, target, root


def open_below(
    root: str, names: Sequence[str], flags: int, *, no_link_names: int = 0, other_roots: Sequence[str] = ()
) -> int:
    """Open a file or folder below a folder, and return the descriptor.

    Args:
        root: path of the folder, which may be a link.
        names: segments of the path; none is empty or dotted.
        flags: flags of `os.open`; the opened file or folder is never a link.
        no_link_names: how many of the last segments must not be links, whatever their targets.
        other_roots: paths of other folders that links may lead into.

    Raises:
        OSError: the path cannot be opened.
        LinkRefused: the path contains a link that may not be followed.
    """
    path = "/".join((root.rstrip("/"), *names)) or "/"
    if (descriptor := open_without_links(path, flags)) is not None:
        return descriptor
    return open_by_segments(root, names, flags, no_link_names=no_link_names, other_roots=other_roots)


def open_by_segments(
    root: str, names: Sequence[str], flags: int, *, no_link_names: int = 0, other_roots: Sequence[str] = ()
) -> int:
    """Open a path that may contain links; arguments, result and errors are those of `open_below`."""
    at: tuple[str, list[str]] = root, list(names)
    for _ in range(MAX_LINKS + 1):
        found = _walk(*at, flags | os.O_NOFOLLOW, no_link_names, other_roots)
        if isinstance(found, int):
            return found
        at = found
    raise LinkRefused("", "more, or a circle", root)


def _walk(
    root: str, names: Sequence[str], flags: int, plain: int, others: Sequence[str]
) -> int | tuple[str, list[str]]:
    """Return the descriptor; if the path contains a link, a folder, and the segments with the link resolved."""
    at = os.open(root, (TRAVERSE_FLAGS if names else flags) & ~os.O_NOFOLLOW)
    for number, name in enumerate(names):
        is_last = number == len(names) - 1
        if name == "..":
            # It comes from a link. The segments before it were opened, so they are no links.
            os.close(at)
            if number:
                return root, [*names[: number - 1], *names[number + 1 :]]
            return _resolve_target(_above(root, names), root, (*_paths_of(root), *others), link=f"{root}/..")
        try:
            inner = _open_name(name, flags if is_last else TRAVERSE_FLAGS, at)
        except OSError as error:
            target = _link(name, at) if error.errno in _IS_LINK else None
            if target is None or (plain and is_last and not flags & os.O_DIRECTORY):
                raise
            link = "/".join((root.rstrip("/"), *names[: number + 1]))
            if number >= len(names) - plain:
                raise LinkRefused(link, target, None) from error
            after = names[number + 1 :]
            if target.startswith("/"):
                return _resolve_target(
                    "/".join((target.rstrip("/"), *after)), root, (*_paths_of(root), *others), link=link
                )
            return root, [*names[:number], *_parts(target), *after]
        finally:
            os.close(at)
        at = inner
    return at


def _open_name(name: str, flags: int, folder: int) -> int:
    """Open a segment in a folder.

    Raises:
        OSError: see `os.open`; `ELOOP` if the segment is a link, even if the system opens the link itself (`O_PATH`).
    """
    descriptor = os.open(name, flags, dir_fd=folder)
    if flags & _PATH and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return descriptor


def _above(root: str, names: Sequence[str]) -> str:
    """Return the absolute path of segments that begin with `..`, relative to the folder's path without links."""
    ups = next((number for number, name in enumerate(names) if name != ".."), len(names))
    parts = _parts(os.path.realpath(root))
    return "/" + "/".join((*parts[: max(0, len(parts) - ups)], *names[ups:]))


def _resolve_target(path: str, root: str, folders: Sequence[str], *, link: str) -> tuple[str, list[str]]:
    """Return the folder that contains an absolute path, and the segments below it.

    Raises:
        LinkRefused: no folder contains the path.
    """
    for folder in folders:
        if path == folder or path.startswith(folder.rstrip("/") + "/"):
            # A path below the resolved root is below the root, too.
            return root if folder in _paths_of(root) else folder, _parts(path[len(folder.rstrip("/")) :])
    raise LinkRefused(link, path, root)


def _paths_of(root: str) -> tuple[str, str]:
    """Return the folder's path as given, and without links."""
    return root, os.path.realpath(root)


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def _link(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None
