"""The reader for programs: blocking, and from an event loop. Both run the same code."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar
from uuid import UUID

from anyio import to_thread

from sfn.errors import NoDirectory, NotFound
from sfn.pointer.document import parse_ordinal
from sfn.pointer.location import canonical
from sfn.pointer.naming import MAIN
from sfn.reader import resolve as reading
from sfn.reader.files import Storage, directory_url, finish
from sfn.reader.opening import Opening
from sfn.reader.resolve import Question, Resolved
from sfn.reader.timeline import Entry

if TYPE_CHECKING:
    from pyarrow import Table
    from pyiceberg.expressions import BooleanExpression

P = ParamSpec("P")
T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def resolve(
    directory: str | os.PathLike[str],
    table: str | Sequence[str] | None = None,
    uuid: str | UUID | None = None,
    ref: str = MAIN,
    as_of: str | datetime | None = None,
    *,
    relative: bool = False,
    allowed: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Resolved:
    """Where the current metadata file of the table in a directory is.

    Args:
        directory: the table's location: a path of this machine, relative or not, or a URL that fsspec has a driver for;
            or a root of one's own that SFN files are kept below.
        table: its identifier, as levels and name or joined by dots; needed where several tables share the directory.
            With it the table is found without a listing, where its file has its name.
        uuid: the table's uuid, instead or as well.
        ref: a branch or tag.
        as_of: what was current at that time: an Ordinal (`YYYYMMDDTHHMMSSmmm`, UTC) or an aware datetime.
        relative: take the metadata file where it lies relative to the SFN file: in a copy of the bucket, or on a mount.
        allowed: prefixes below which files may lead, beside the directory itself; without any, all of the directory's
            own bucket (`sfn.reader.trust`).
        storage_options: what fsspec's driver is given, such as credentials.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        ValueError: `table` is no identifier, or `as_of` no time.
    """
    question = Question(
        directory_url(directory),
        identifier_of(table),
        None if uuid is None else str(uuid),
        ref,
        None if as_of is None else ordinal_of(as_of),
        relative,
        tuple(map(canonical, allowed)),
    )
    opening = Opening(question.directory, storage_options or {})
    files = opening.storage()
    return _finish(files, question.directory, reading.answer(files, question, opening))


def history(
    directory: str | os.PathLike[str],
    table: str | Sequence[str] | None = None,
    uuid: str | UUID | None = None,
    *,
    limit: int = 1_000,
    relative: bool = False,
    allowed: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> list[Entry]:
    """The commits of the table in a directory, oldest first, as far as anything there tells of them.

    Each entry says what tells of it. Where each commit has a file, these do, also of a table that was dropped since;
    elsewhere the table's own metadata-log does.

    Args:
        limit: as many of the newest.
        directory, table, uuid, relative, allowed, storage_options: as of `resolve`.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        ValueError: `table` is no identifier, or `limit` is less than 1.
    """
    if limit < 1:
        raise ValueError(f"a limit of 1 or more: {limit}")
    url = directory_url(directory)
    prefixes = tuple(map(canonical, allowed))
    named = identifier_of(table)
    question = Question(url, named, None if uuid is None else str(uuid), relative=relative, allowed=prefixes)
    files = Opening(url, storage_options or {}).storage()
    return _finish(files, url, reading.history(files, question, limit))


def read(
    directory: str | os.PathLike[str],
    table: str | Sequence[str] | None = None,
    uuid: str | UUID | None = None,
    ref: str = MAIN,
    as_of: str | datetime | None = None,
    *,
    row_filter: str | BooleanExpression | None = None,
    selected_fields: Sequence[str] = ("*",),
    limit: int | None = None,
    relative: bool = False,
    allowed: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """The rows of the table in a directory, as an Arrow table.

    Args:
        row_filter: which rows, as PyIceberg's `Table.scan` takes it (`READING.md`, "Filters"); all without.
        selected_fields: which columns.
        limit: as many rows at most.
        properties: how PyIceberg opens data files, see `Resolved.table`.
        directory, table, uuid, ref, as_of, relative, allowed, storage_options: as of `resolve`.

    Raises:
        Unreadable: see `sfn.errors` for its kinds; NotInstalled where PyIceberg or PyArrow is missing.
        ValueError: as of `resolve`; or `row_filter` or `selected_fields` do not fit the table.
    """
    from sfn.reader.table import rows

    found = resolve(
        directory, table, uuid, ref, as_of, relative=relative, allowed=allowed, storage_options=storage_options
    )
    return rows(found, row_filter, tuple(selected_fields), limit, properties)


def _in_thread(work: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    @wraps(work)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await to_thread.run_sync(partial(work, *args, **kwargs), abandon_on_cancel=True)

    run.__name__ = run.__qualname__ = f"a{work.__name__}"
    run.__doc__ = f"As `{work.__name__}`, in a thread: the loop is never blocked. Runs on asyncio and trio."
    return run


aresolve: Final = _in_thread(resolve)
ahistory: Final = _in_thread(history)
aread: Final = _in_thread(read)


def identifier_of(table: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Namespace levels and name of an identifier; a string is split at its dots.

    Raises:
        ValueError: a part is empty.
    """
    if table is None:
        return None
    parts = tuple(table.split(".")) if isinstance(table, str) else tuple(table)
    if not parts or not all(parts):
        raise ValueError(f"an identifier such as sales.orders, without empty parts: {table!r}")
    return parts


def ordinal_of(time: str | datetime) -> int:
    """Unix milliseconds of an Ordinal or of an aware datetime.

    Raises:
        ValueError: another form, or a datetime without a zone.
    """
    if isinstance(time, str):
        return parse_ordinal(time)
    if time.tzinfo is None:
        raise ValueError(f"a datetime with a time zone: {time!r}")
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _finish(files: Storage, url: str, work: Coroutine[Any, Any, T]) -> T:
    """The result; where nothing was found, whether there is a directory at all."""
    try:
        return finish(work)
    except NotFound:
        if finish(files.is_folder(url)):
            raise
        remedy = "check the path, and that its file system is mounted here; a bucket, that something lies below"
        raise NoDirectory(url, expected="a table's directory", found="no such directory", remedy=remedy) from None
