"""Files below a folder of this machine, opened so that no link leads out of the folder.

A path without links is opened at once where the system can refuse links (`openat2`). Every other path is opened name by
name, each in the folder that is open already and without following links (`openat` with `O_NOFOLLOW`). Therefore a link
that somebody swaps in meanwhile leads nowhere else. A link that stays inside is resolved by hand.
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

# ── openat2: Linux's `openat2`

_NUMBER: Final = 437
"""Of the call, on every architecture."""
_NOWHERE: Final = -100
"""`AT_FDCWD`: of an absolute path no folder is asked."""
_NO_LINKS: Final = 0x04
"""`RESOLVE_NO_SYMLINKS`."""


class _How(ctypes.Structure):
    """`struct open_how`."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _call() -> ctypes._NamedFuncPointer:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_How), ctypes.c_size_t)
    call.restype = ctypes.c_long
    return call


def open_without_links(path: str, flags: int) -> int | None:
    """A descriptor of what lies at an absolute path without `..`.

    Returns:
        None where the system can't tell in one call: a link may be on the way.

    Raises:
        FileNotFoundError: nothing lies there.
    """
    if not sys.platform.startswith("linux") or "\0" in path:
        return None
    how = _How(flags, 0, _NO_LINKS)
    descriptor = int(_call()(_NUMBER, _NOWHERE, os.fsencode(path), how, ctypes.sizeof(how)))
    if descriptor >= 0:
        return descriptor
    if ctypes.get_errno() == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return None


# ── beneath: Files below a folder of this machine

TRAVERSE_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Of folders on the way, where the system can: it takes the right to pass alone."""
DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Of a folder that is listed or changed."""

MAX_LINKS: Final = 40
"""Links, and `..` in them, that one path may have (Linux follows 40 links)."""
_PATH: Final = getattr(os, "O_PATH", 0)
_IS_LINK: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})
"""What systems say of a link that is not followed."""


class LinkRefused(Exception):
    """A link that is not followed.

    Attributes:
        link: its path; empty where there are too many links to name one.
        target: what it says.
        root: the folder that it would lead out of; None where no link at all may be.
    """

    def __init__(self, link: str, target: str, root: str | None) -> None:
        super().__init__(link, target, root)
        self.link, self.target, self.root = link, target, root


def open_below(
    root: str, names: Sequence[str], flags: int, *, no_link_names: int = 0, other_roots: Sequence[str] = ()
) -> int:
    """Open what lies below a folder.

    Args:
        root: path of the folder, which may be a link.
        names: of the folders on the way, and of what is opened; none is empty or dotted.
        flags: of `os.open`; what is opened is never a link.
        no_link_names: how many of the last names must not be links, wherever these lead.
        other_roots: paths of other folders that links may lead into.

    Returns:
        A descriptor.

    Raises:
        OSError: it can't be opened.
        LinkRefused: a link is on the way that may not be followed.
    """
    path = "/".join((root.rstrip("/"), *names)) or "/"
    if (descriptor := open_without_links(path, flags)) is not None:
        return descriptor
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
    """The descriptor; where a link is on the way, a folder, and the names with what the link says in its place."""
    at = os.open(root, (TRAVERSE_FLAGS if names else flags) & ~os.O_NOFOLLOW)
    for number, name in enumerate(names):
        is_last = number == len(names) - 1
        if name == "..":
            # Of a link. What stands before it was walked through, and is none.
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
    """Open a name in a folder.

    Raises:
        OSError: as of `os.open`; `ELOOP` if the name is a link, also where the system opens the link itself (`O_PATH`).
    """
    descriptor = os.open(name, flags, dir_fd=folder)
    if flags & _PATH and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return descriptor


def _above(root: str, names: Sequence[str]) -> str:
    """The absolute path of names that begin with `..`, seen from the folder as it is called without links."""
    ups = next((number for number, name in enumerate(names) if name != ".."), len(names))
    parts = _parts(os.path.realpath(root))
    return "/" + "/".join((*parts[: max(0, len(parts) - ups)], *names[ups:]))


def _resolve_target(path: str, root: str, folders: Sequence[str], *, link: str) -> tuple[str, list[str]]:
    """The folder that an absolute path lies below, and the names below it.

    Raises:
        LinkRefused: it lies below none.
    """
    for folder in folders:
        if path == folder or path.startswith(folder.rstrip("/") + "/"):
            # By what the root is called without links its files are below the root all the same.
            return root if folder in _paths_of(root) else folder, _parts(path[len(folder.rstrip("/")) :])
    raise LinkRefused(link, path, root)


def _paths_of(root: str) -> tuple[str, str]:
    """As the folder is called, and as it is called without links."""
    return root, os.path.realpath(root)


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def _link(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None
