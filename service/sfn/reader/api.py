"""The reader for programs: blocking, and from an event loop. Both run the same code."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeAlias, TypeVar
from uuid import UUID

from anyio import to_thread

from sfn.errors import DirectoryNotFound, NotFound
from sfn.reader import resolve as reading
from sfn.reader.files import FileSystem, FileSystemOptions, directory_url, run_synchronously
from sfn.reader.history import HistoryEntry
from sfn.reader.resolve import Question, Resolved
from sfn.sfnfile.document import parse_ordinal
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH

if TYPE_CHECKING:
    from pyarrow import Table
    from pyiceberg.expressions import BooleanExpression

P = ParamSpec("P")
T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = -62_135_596_800_000
_LAST: Final = 253_402_300_799_999
"""Unix milliseconds of the first and of the last moment that has a date."""
_ORDINAL: Final = re.compile(r"[0-9]{8}T[0-9]{6}(?:[0-9]{3})?Z?")
_MILLISECONDS: Final = re.compile("[0-9]{12,15}")
_ISO_TIME: Final = re.compile(r"[0-9-]{8,10}[ Tt]|[0-9]{4}-?W[0-9]{2}-?[0-9][ Tt]")
"""How an ISO 8601 text begins that has more than a date."""
_SHOWN: Final = 100
_EXPECTED_TIME: Final = (
    "a time: an entry of sfn.history, an Ordinal (form YYYYMMDDTHHMMSSmmm, UTC), Unix milliseconds, an aware datetime, "
    "or an ISO 8601 text with a time zone"
)

Time: TypeAlias = "HistoryEntry | str | int | datetime"
"""How a caller may say a time."""


def resolve(
    directory: str | os.PathLike[str],
    table: str | Sequence[str] | None = None,
    uuid: str | UUID | None = None,
    ref: str = MAIN_BRANCH,
    as_of: Time | None = None,
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
        as_of: what was current at that time: an entry of `history`, an Ordinal (`YYYYMMDDTHHMMSSmmm`, UTC), Unix
            milliseconds, an aware datetime, or an ISO 8601 text with a time zone.
        relative: take the metadata file where it lies relative to the SFN file: in a copy of the bucket, or on a mount.
        allowed: prefixes below which files may lead, beside the directory itself; without any, all of the directory's
            own bucket (`sfn.reader.metadata`).
        storage_options: what fsspec's driver is given, such as credentials.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        ValueError: `table` is no identifier.
        TypeError: `as_of` is no time; it says which forms there are. It is a ValueError, too.
    """
    question = Question(
        directory_url(directory),
        parse_identifier(table),
        None if uuid is None else str(uuid),
        ref,
        None if as_of is None else time_to_ordinal(as_of),
        relative,
        tuple(map(canonical, allowed)),
    )
    opening = FileSystemOptions(question.directory, storage_options or {}, question.allowed)
    files = opening.open_file_system()
    return _run(files, question.directory, reading.resolve_question(files, question, opening))


def history(
    directory: str | os.PathLike[str],
    table: str | Sequence[str] | None = None,
    uuid: str | UUID | None = None,
    *,
    limit: int = 1_000,
    relative: bool = False,
    allowed: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> list[HistoryEntry]:
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
    named = parse_identifier(table)
    question = Question(url, named, None if uuid is None else str(uuid), relative=relative, allowed=prefixes)
    files = FileSystemOptions(url, storage_options or {}, prefixes).open_file_system()
    return _run(files, url, reading.read_history(files, question, limit))


def read(
    directory: str | os.PathLike[str],
    table: str | Sequence[str] | None = None,
    uuid: str | UUID | None = None,
    ref: str = MAIN_BRANCH,
    as_of: Time | None = None,
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
        row_filter: which rows, as PyIceberg's `Table.scan` takes it (`docs/read/filters.md`); all without.
        selected_fields: which columns.
        limit: as many rows at most.
        properties: how PyIceberg opens data files, see `Resolved.table`.
        directory, table, uuid, ref, as_of, relative, allowed, storage_options: as of `resolve`.

    Raises:
        Unreadable: see `sfn.errors` for its kinds; NotInstalled where PyIceberg or PyArrow is missing.
        ValueError: as of `resolve`; or `row_filter` or `selected_fields` do not fit the table.
    """
    from sfn.reader.table import read_rows

    found = resolve(
        directory, table, uuid, ref, as_of, relative=relative, allowed=allowed, storage_options=storage_options
    )
    return read_rows(found, row_filter, tuple(selected_fields), limit, properties)


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


def parse_identifier(table: str | Sequence[str] | None) -> tuple[str, ...] | None:
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


class InvalidTime(TypeError, ValueError):
    """An argument that should say a time, and does not."""


def time_to_ordinal(time: Time) -> int:
    """Return the Unix milliseconds of a time, in any form that `resolve` takes.

    Raises:
        NotATime: another form or type, a time without a zone, or one that no Ordinal says.
    """
    match time:
        case HistoryEntry():
            return time.ordinal
        case datetime():
            return datetime_to_milliseconds(time)
        case str() if _ORDINAL.fullmatch(time):
            return _parse_or_refuse(parse_ordinal, time.removesuffix("Z"))
        case str() if _MILLISECONDS.fullmatch(time):
            return int(time)
        case str() if _ISO_TIME.match(time):
            return datetime_to_milliseconds(_parse_or_refuse(datetime.fromisoformat, time))
        case int() if not isinstance(time, bool) and 0 <= time <= _LAST:
            return time
        case _:
            return _refuse_time(time)


def datetime_to_milliseconds(time: datetime) -> int:
    """Return the Unix milliseconds of an aware datetime.

    Raises:
        NotATime: it has no time zone, or lies outside of the years 1 to 9999.
    """
    if time.utcoffset() is None:
        raise InvalidTime(f"a datetime with a time zone, such as datetime.now(UTC): {time!r} could be any of 24 hours")
    milliseconds = (time - _EPOCH) // timedelta(milliseconds=1)
    if not _FIRST <= milliseconds <= _LAST:
        raise InvalidTime(f"a time in the years 1 to 9999 of UTC: {time!r}")
    return milliseconds


def _parse_or_refuse(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidTime(f"{_EXPECTED_TIME}: {text!r}: {error}") from None


def _refuse_time(time: object) -> NoReturn:
    """Say what a time is, and what this is instead."""
    found = f"{time!r}"[:_SHOWN]
    match time:
        case bool():
            hint = "a truth value says no time"
        case int():
            hint = "Unix milliseconds are 0 or more and have at most 15 digits; a snapshot's id is no time"
        case float():
            hint = "give Unix milliseconds as an int"
        case date():
            hint = "a date is no moment: give a datetime with a time zone"
        case str():
            hint = "a date alone, a name or another text says no moment"
        case _:
            hint = f"its type is {type(time).__name__}"
    raise InvalidTime(f"{_EXPECTED_TIME}: {found}: {hint}")


def _run(files: FileSystem, url: str, work: Coroutine[Any, Any, T]) -> T:
    """The result; where nothing was found, whether there is a directory at all."""
    try:
        return run_synchronously(work)
    except NotFound:
        if run_synchronously(files.is_folder(url)):
            raise
        remedy = "check the path, and that its file system is mounted here; a bucket, that something lies below"
        raise DirectoryNotFound(url, expected="a table's directory", found="no such directory", remedy=remedy) from None
