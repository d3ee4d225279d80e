"""Paths as texts.

`pathlib` interns each part of each path, and CPython's table of interned texts keeps the place of each one that is gone
until whichever thread comes to it makes it anew, MiB large: with many files a minute each thread's heap has held one.
"""

from __future__ import annotations

import os


def parent_folder(path: str) -> str:
    """The folder that something lies in, of an absolute path without empty segments; the root lies in itself."""
    return path.rpartition("/")[0] or "/"


def base_name(path: str) -> str:
    """The last segment of a path."""
    return path.rpartition("/")[2]


def decode_name(name: str) -> str | None:
    """A file's name as the end of a key; None for what cannot be one."""
    try:
        return os.fsencode(name).decode()
    except UnicodeDecodeError:
        return None
