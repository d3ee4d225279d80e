"""The request of a reader on Spark, and the protocol of the engines."""

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

_ORDINAL: Final = re.compile(r"[0-9]{8}T[0-9]{6}(?:[0-9]{3})?")
_ISO_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ Tt][0-9]{2}:?[0-9]{2}.*")
"""An ISO 8601 text that is no name of a tag; a date alone may be one."""


@dataclass(frozen=True, slots=True)
class AsOfRef:
    """The head of a branch, with the table's schema, or of a tag, with the schema of its snapshot."""

    name: str = MAIN_BRANCH


@dataclass(frozen=True, slots=True)
class AsOfSnapshot:
    """A snapshot, with its schema."""

    number: int


@dataclass(frozen=True, slots=True)
class AsOfTime:
    """The snapshot that the table's own history has for a time (Iceberg's `TIMESTAMP AS OF`), with its schema.

    Attributes:
        milliseconds: Unix time.
    """

    milliseconds: int


@dataclass(frozen=True, slots=True)
class AsOfOrdinal:
    """The whole table at a time, by its SFN files.

    Attributes:
        milliseconds: Unix time.
    """

    milliseconds: int


AsOf: TypeAlias = AsOfRef | AsOfSnapshot | AsOfTime | AsOfOrdinal


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A table, and the state in which to read it.

    Attributes:
        directory: canonical URL.
        as_of: the state.
        table: namespace levels and name; None if the directory holds one table only.
        uuid: its uuid, instead of the identifier or with it.
        allowed: canonical prefixes below which files may lead, see `sfn.reader.metadata`.
        options: options for fsspec's driver; they may contain secrets.
        row_filter: a filter; rows for which it is not true may be left out. None for all rows.
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
        """The question for `sfn.reader.resolve`: which metadata file has that state."""
        ref = self.as_of.name if isinstance(self.as_of, AsOfRef) else MAIN_BRANCH
        as_of = self.as_of.milliseconds if isinstance(self.as_of, AsOfOrdinal) else None
        return Question(self.directory, self.table, self.uuid, ref, as_of, allowed=self.allowed)

    @property
    def file_system_options(self) -> FileSystemOptions:
        """The options to open the table's files with."""
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
    """Check and convert the arguments of `sfn.spark.read`.

    Raises:
        ValueError: an argument is not valid, or both `ref` and `as_of` are given.
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
    """Return the state that `as_of` names: a snapshot's id, a time, an Ordinal, a commit, or else a branch or tag.

    Raises:
        InvalidTime: a time without a zone, an impossible time, or another type.
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


class Engine(Protocol):
    """One way to read. All engines return the same rows, names and types, or refuse.

    The types are those of Iceberg's own library on Spark: `uuid` is a string, `time` is refused, columns are nullable
    as in the table's schema. Comments of columns may differ.
    """

    @property
    def name(self) -> str:
        """The engine's name, by which callers choose it."""
        ...

    def missing_requirement(self, spark: SparkSession) -> str:
        """Return what the session lacks for this engine, as text; empty if it can be used."""
        ...

    def read(self, spark: SparkSession, request: ReadRequest) -> DataFrame:
        """Return the rows. Their state is fixed now; they are read when the DataFrame is evaluated.

        Raises:
            NotSupported: this engine can't read the table; the remedy names engines that can.
            Unreadable: see `sfn.errors` for its other kinds.
        """
        ...
