"""The Python API of the reader: `resolve`, `history` and `read`, blocking or for an event loop."""

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
"""The first moment that Python's datetime can express, in Unix milliseconds."""
_LAST: Final = 253_402_300_799_999
"""The last moment that Python's datetime can express, in Unix milliseconds."""
_ORDINAL: Final = re.compile(r"[0-9]{8}T[0-9]{6}(?:[0-9]{3})?Z?")
_MILLISECONDS: Final = re.compile("[0-9]{12,15}")
_ISO_TIME: Final = re.compile(r"[0-9-]{8,10}[ Tt]|[0-9]{4}-?W[0-9]{2}-?[0-9][ Tt]")
"""The beginning of an ISO 8601 text that has a time besides its date."""
_SHOWN: Final = 100
_EXPECTED_TIME: Final = (
    "a time: an entry of sfn.history, an Ordinal (form YYYYMMDDTHHMMSSmmm, UTC), Unix milliseconds, an aware datetime, "
    "or an ISO 8601 text with a time zone"
)

Time: TypeAlias = "HistoryEntry | str | int | datetime"
"""The forms in which a caller may give a time."""


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
    """Find the current metadata file of the table in a directory.

    Args:
        directory: the table's location: a local path, relative or not, or a URL that fsspec has a driver for; or a root
            that holds SFN files.
        table: the table's identifier, as levels and name or joined by dots; needed if several tables share the
            directory. If the SFN file is called by the table's name, no listing is needed.
        uuid: the table's uuid, instead of the identifier or with it.
        ref: a branch or tag.
        as_of: find the state at this time: an entry of `history`, an Ordinal (`YYYYMMDDTHHMMSSmmm`, UTC), Unix
            milliseconds, an aware datetime, or an ISO 8601 text with a time zone.
        relative: take the metadata file from its place relative to the SFN file: in a copy of the bucket, or a mount.
        allowed: prefixes below which files may lead, besides the directory itself; if empty, the directory's whole
            bucket (`sfn.reader.metadata`).
        storage_options: options for fsspec's driver, such as credentials.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        ValueError: `table` is no identifier.
        TypeError: `as_of` is no time; the message lists the valid forms. The error is a ValueError, too.
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
    """Return the commits of the table in a directory, oldest first, as far as its files record them.

    If each commit has a file, the entries come from these files, also for a dropped table. Otherwise they come from the
    table's metadata-log. Each entry names its source.

    Args:
        limit: the maximum number of entries; the newest are returned.
        directory, table, uuid, relative, allowed, storage_options: as for `resolve`.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        ValueError: `table` is no identifier, or `limit` is less than 1.
    """
    if limit < 1:
        raise ValueError(f"`limit` must be 1 or more: {limit}")
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
    """Return the rows of the table in a directory, as an Arrow table.

    Args:
        row_filter: the condition for the rows, as PyIceberg's `Table.scan` takes it (`docs/read/filters.md`); default:
            all rows.
        selected_fields: the columns.
        limit: the maximum number of rows.
        properties: PyIceberg's properties for opening data files, see `Resolved.table`.
        directory, table, uuid, ref, as_of, relative, allowed, storage_options: as for `resolve`.

    Raises:
        Unreadable: see `sfn.errors` for its kinds; NotInstalled if PyIceberg or PyArrow is missing.
        ValueError: as for `resolve`; or `row_filter` or `selected_fields` do not fit the table.
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
    run.__doc__ = (
        f"Run `{work.__name__}` in a thread, so that the event loop is not blocked. Works on asyncio and trio."
    )
    return run


aresolve: Final = _in_thread(resolve)
ahistory: Final = _in_thread(history)
aread: Final = _in_thread(read)


def parse_identifier(table: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return namespace levels and name of an identifier; a string is split at its dots.

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
    """An argument that should be a time, and is not."""


def time_to_ordinal(time: Time) -> int:
    """Return the Unix milliseconds of a time, in any form that `resolve` takes.

    Raises:
        InvalidTime: another form or type, a time without a zone, or one outside of the range of Ordinals.
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
        InvalidTime: it has no time zone, or lies outside of the years 1 to 9999.
    """
    if time.utcoffset() is None:
        raise InvalidTime(f"a datetime with a time zone is needed, such as datetime.now(UTC): {time!r} has none")
    milliseconds = (time - _EPOCH) // timedelta(milliseconds=1)
    if not _FIRST <= milliseconds <= _LAST:
        raise InvalidTime(f"a time in the years 1 to 9999 of UTC is needed: {time!r}")
    return milliseconds


def _parse_or_refuse(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidTime(f"{_EXPECTED_TIME}: {text!r}: {error}") from None


def _refuse_time(time: object) -> NoReturn:
    """Raise the error for an argument that is no time, with the reason."""
    found = f"{time!r}"[:_SHOWN]
    match time:
        case bool():
            reason = "a boolean is no time"
        case int():
            reason = "Unix milliseconds are 0 or more and have at most 15 digits; a snapshot id is no time"
        case float():
            reason = "give Unix milliseconds as an int"
        case date():
            reason = "a date alone is not exact enough: give a datetime with a time zone"
        case str():
            reason = "a date alone, a name or another text is no time"
        case _:
            reason = f"its type is {type(time).__name__}"
    raise InvalidTime(f"{_EXPECTED_TIME}: {found}: {reason}")


def _run(files: FileSystem, url: str, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine; if nothing was found, distinguish an empty directory from a missing one."""
    try:
        return run_synchronously(work)
    except NotFound:
        if run_synchronously(files.is_folder(url)):
            raise
        remedy = "check the path, and that its file system is mounted here; for a bucket, that files lie below the path"
        raise DirectoryNotFound(url, expected="a table's directory", found="no such directory", remedy=remedy) from None
