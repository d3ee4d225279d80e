"""The reader for programs: blocking, and from an event loop. Both run the same code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from anyio import to_thread

from sfn.errors import NotFound
from sfn.reader import resolve as reading
from sfn.reader.files import LocalFiles, directory_url, finish, is_directory
from sfn.reader.resolve import Resolved


def resolve(directory: str | os.PathLike[str], table: str | Sequence[str] | None = None) -> Resolved:
    """Where the current metadata file of the table in a directory is.

    Args:
        directory: the table's location: a path of this machine, relative or not, or a `file:` URL.
        table: its identifier, as levels and name or joined by dots; needed where several tables share the directory.

    Raises:
        Unreadable: NotFound, Ambiguous, Dropped, NameTaken, Malformed, Stale: see `sfn.errors`.
        ValueError: `table` is no identifier.
    """
    identifier = None if table is None else identifier_of(table)
    url = directory_url(directory)
    try:
        return finish(reading.resolve(LocalFiles(), url, identifier))
    except NotFound:
        if is_directory(url):
            raise
        remedy = "check the path, and that its file system is mounted here"
        raise NotFound(url, expected="a table's directory", found="no such directory", remedy=remedy) from None


async def aresolve(directory: str | os.PathLike[str], table: str | Sequence[str] | None = None) -> Resolved:
    """As `resolve`, in a thread: the loop is never blocked. Runs on asyncio and trio."""
    return await to_thread.run_sync(partial(resolve, directory, table), abandon_on_cancel=True)


def identifier_of(table: str | Sequence[str]) -> tuple[str, ...]:
    """Namespace levels and name of an identifier; a string is split at its dots.

    Raises:
        ValueError: a part is empty.
    """
    parts = tuple(table.split(".")) if isinstance(table, str) else tuple(table)
    if not parts or not all(parts):
        raise ValueError(f"an identifier such as sales.orders, without empty parts: {table!r}")
    return parts
