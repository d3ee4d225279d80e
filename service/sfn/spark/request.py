"""What of which table a reader on Spark asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from sfn.reader.api import InvalidTime, Time, datetime_to_milliseconds, parse_identifier, time_to_ordinal
from sfn.reader.files import FileSystemOptions, directory_url
from sfn.reader.history import HistoryEntry
from sfn.reader.resolve import Question
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH

# ── asked: What of which table a reader on Spark asks for

_ORDINAL: Final = re.compile(r"[0-9]{8}T[0-9]{6}(?:[0-9]{3})?")
_ISO_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ Tt][0-9]{2}:?[0-9]{2}.*")
"""An ISO 8601 text that is no name of a tag: a date alone may be one."""


@dataclass(frozen=True, slots=True)
class AsOfRef:
    """The head of a branch, with the table's schema, or of a tag, with that of its snapshot."""

    name: str = MAIN_BRANCH


@dataclass(frozen=True, slots=True)
class AsOfSnapshot:
    """A snapshot, with its schema."""

    number: int


@dataclass(frozen=True, slots=True)
class AsOfTime:
    """The snapshot that was current then by the table's own history, with its schema (Iceberg's `TIMESTAMP AS OF`).

    Attributes:
        milliseconds: Unix time.
    """

    milliseconds: int


@dataclass(frozen=True, slots=True)
class AsOfOrdinal:
    """The whole table as it was then by its SFN files.

    Attributes:
        milliseconds: Unix time.
    """

    milliseconds: int


AsOf: TypeAlias = AsOfRef | AsOfSnapshot | AsOfTime | AsOfOrdinal


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A table, and in which state.

    Attributes:
        directory: canonical URL.
        as_of: as which it is read.
        table: namespace levels and name; None where the directory holds one table only.
        uuid: its uuid, instead or as well.
        allowed: canonical prefixes below which files may lead, see `sfn.reader.metadata`.
        options: what fsspec's driver is given; may hold secrets.
        row_filter: rows that it does not hold for may be left out; None for all.
    """

    directory: str
    as_of: AsOf = AsOfRef()
    table: tuple[str, ...] | None = None
    uuid: str | None = None
    allowed: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    row_filter: str | None = None

    @property
    def question(self) -> Question:
        """What the reader of SFN files is asked: which metadata file has that state."""
        ref = self.as_of.name if isinstance(self.as_of, AsOfRef) else MAIN_BRANCH
        as_of = self.as_of.milliseconds if isinstance(self.as_of, AsOfOrdinal) else None
        return Question(self.directory, self.table, self.uuid, ref, as_of, allowed=self.allowed)

    @property
    def file_system_options(self) -> FileSystemOptions:
        """How its files are opened."""
        return FileSystemOptions(self.directory, self.options, self.allowed)


def make_read_request(
    directory: str | os.PathLike[str],
    table: str | Sequence[str] | None = None,
    uuid: str | UUID | None = None,
    ref: str | None = None,
    as_of: Time | None = None,
    *,
    allowed: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    row_filter: str | None = None,
) -> ReadRequest:
    """What a caller asks for; arguments as of `sfn.spark.read`.

    Raises:
        ValueError: one of them has no such form, or both `ref` and `as_of` are given.
    """
    if ref is not None and as_of is not None:
        raise ValueError(f"either ref or as_of, not both: ref={ref!r}, as_of={as_of!r}")
    return ReadRequest(
        directory_url(directory),
        AsOfRef(ref) if ref is not None else parse_as_of(as_of),
        parse_identifier(table),
        None if uuid is None else str(uuid),
        tuple(map(canonical, allowed)),
        dict(storage_options or {}),
        row_filter,
    )


def parse_as_of(as_of: Time | None) -> AsOf:
    """Return the state that `as_of` says: a snapshot's id, a time, an Ordinal, a commit, or else a branch or tag.

    Raises:
        NotATime: a time without a zone, no such moment, or of another type.
    """
    match as_of:
        case None:
            return AsOfRef()
        case int() if not isinstance(as_of, bool):
            return AsOfSnapshot(as_of)
        case HistoryEntry():
            return AsOfOrdinal(as_of.ordinal)
        case datetime():
            return AsOfTime(datetime_to_milliseconds(as_of))
        case str() if _ORDINAL.fullmatch(as_of):
            return AsOfOrdinal(time_to_ordinal(as_of))
        case str() if _ISO_TIME.fullmatch(as_of):
            return AsOfTime(time_to_ordinal(as_of))
        case str():
            return AsOfRef(as_of)
        case _:
            forms = "a snapshot's id, a time, an Ordinal, an entry of sfn.history, a branch or a tag"
            raise InvalidTime(f"{forms}: {as_of!r} is a {type(as_of).__name__}")


# ── engine: The port to what reads a table's rows into a DataFrame


class Engine(Protocol):
    """One way to read. All of them give the same rows, names and types, or refuse.

    The types are those of Iceberg's own library on Spark: `uuid` is a string, `time` a refusal, columns are nullable
    as the table's schema says. Column comments are no part of the promise.
    """

    @property
    def name(self) -> str:
        """What callers choose it by."""
        ...

    def missing_requirement(self, spark: SparkSession) -> str:
        """What the session lacks for it, for people; empty where it can be used."""
        ...

    def read(self, spark: SparkSession, request: ReadRequest) -> DataFrame:
        """The rows; which they are is settled now, and read when the DataFrame is.

        Raises:
            NotSupported: the table has what this engine can't read; the remedy names engines that can.
            Unreadable: see `sfn.errors` for its other kinds.
        """
        ...
