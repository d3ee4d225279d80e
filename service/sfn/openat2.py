"""Linux's `openat2`: a whole path opened by one system call, which refuses links on the way.

Each call that Python makes gives the interpreter's lock away, and waits for it anew: name by name a path takes twice as
long as all the rest of an answer.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from typing import Final

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
