"""A table's timeline as rows: what stands behind `format("sfn-log")`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeAlias

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from sfn.errors import nearest
from sfn.pointer.document import parse_ordinal, render_ordinal
from sfn.reader.blocking import history
from sfn.reader.lookup import LISTED
from sfn.reader.timeline import Entry
from sfn.spark.asked import Asked
from sfn.spark.source.options import Options

NAME: Final = "sfn-log"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

SCHEMA: Final = StructType(
    [
        StructField("ordinal", StringType(), nullable=False),
        StructField("committed_at", TimestampType(), nullable=False),
        StructField("metadata_location", StringType(), nullable=False),
        StructField("snapshot_id", LongType()),
        StructField("gap", LongType(), nullable=False),
        StructField("written_at", TimestampType()),
        StructField("state", StringType(), nullable=False),
        StructField("source", StringType(), nullable=False),
    ]
)
"""`ordinal` is `YYYYMMDDTHHMMSSmmm`, and `committed_at` the same as a time; the others are as of `sfn.Entry`."""

Row: TypeAlias = tuple[str | int | datetime | None, ...]

_KNOWN: Final = ("startingOrdinal", "failOnDataLoss")


class Timeline:
    """One `load`.

    Args:
        given: options as Spark gives them.

    Attributes:
        start: an Ordinal, in Unix milliseconds, or `earliest` or `latest`; None where nothing was said.
        is_strict: refuse to go on where commits may have been removed that were not read.

    Raises:
        ValueError: an option is not known, or has no such form.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        options = Options(given, _KNOWN, NAME)
        self._asked = options.asked
        self.start = _start(options.get("startingOrdinal"))
        self.is_strict = options.flag("failOnDataLoss", default=True)

    @property
    def asked(self) -> Asked:
        """Of which table."""
        return self._asked

    def newest(self, limit: int = LISTED) -> list[Entry]:
        """The newest commits, the oldest of them first.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
        """
        asked = self._asked
        return history(
            asked.directory,
            asked.table,
            asked.uuid,
            limit=limit,
            allowed=asked.allowed,
            storage_options=asked.options,
        )


def rendered(entry: Entry, names: tuple[str, ...]) -> Row:
    """A commit as a row of some columns."""
    row: dict[str, str | int | datetime | None] = {
        "ordinal": render_ordinal(entry.ordinal),
        "committed_at": entry.at,
        "metadata_location": entry.metadata_location,
        "snapshot_id": entry.snapshot_id,
        "gap": entry.gap,
        "written_at": entry.written_at,
        "state": entry.state.value,
        "source": entry.source.value,
    }
    return tuple(row[name] for name in names)


def checked(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema.

    Raises:
        ValueError: one is none of the timeline's, or of another type.
    """
    own = {field.name: field.dataType for field in SCHEMA}
    for field in schema:
        if field.name not in own:
            raise ValueError(f"a column of {NAME}: {field.name!r} is none; {nearest(field.name, list(own))}")
        if field.dataType != own[field.name]:
            types = f"{own[field.name].simpleString()}, not {field.dataType.simpleString()}"
            raise ValueError(f"a schema that only chooses columns: {field.name} is of type {types}")
    return tuple(schema.names)


def _start(text: str | None) -> int | str | None:
    if text is None or text.lower() in {EARLIEST, LATEST}:
        return text and text.lower()
    return parse_ordinal(text)
