"""What of which table a reader on Spark asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

from sfn.pointer.location import canonical
from sfn.pointer.naming import MAIN
from sfn.reader.blocking import identifier_of, ordinal_of
from sfn.reader.files import directory_url
from sfn.reader.opening import Opening
from sfn.reader.resolve import Question

_ORDINAL: Final = re.compile(r"\d{8}T\d{6}(?:\d{3})?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Ref:
    """The head of a branch, with the table's schema, or of a tag, with that of its snapshot."""

    name: str = MAIN


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """A snapshot, with its schema."""

    number: int


@dataclass(frozen=True, slots=True)
class Moment:
    """The snapshot that was current then by the table's own history, with its schema (Iceberg's `TIMESTAMP AS OF`).

    Attributes:
        milliseconds: Unix time.
    """

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Ordinal:
    """The whole table as it was then by its SFN files.

    Attributes:
        milliseconds: Unix time.
    """

    milliseconds: int


State: TypeAlias = Ref | SnapshotId | Moment | Ordinal


@dataclass(frozen=True, slots=True)
class Asked:
    """A table, and in which state.

    Attributes:
        directory: canonical URL.
        state: as which it is read.
        table: namespace levels and name; None where the directory holds one table only.
        uuid: its uuid, instead or as well.
        allowed: canonical prefixes below which files may lead, see `sfn.reader.trust`.
        options: what fsspec's driver is given; may hold secrets.
        row_filter: rows that it does not hold for may be left out; None for all.
    """

    directory: str
    state: State = Ref()
    table: tuple[str, ...] | None = None
    uuid: str | None = None
    allowed: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    row_filter: str | None = None

    @property
    def question(self) -> Question:
        """What the reader of SFN files is asked: which metadata file has that state."""
        ref = self.state.name if isinstance(self.state, Ref) else MAIN
        as_of = self.state.milliseconds if isinstance(self.state, Ordinal) else None
        return Question(self.directory, self.table, self.uuid, ref, as_of, allowed=self.allowed)

    @property
    def opening(self) -> Opening:
        """How its files are opened."""
        return Opening(self.directory, self.options, self.allowed)


def asked(
    directory: str | os.PathLike[str],
    table: str | Sequence[str] | None = None,
    uuid: str | UUID | None = None,
    ref: str | None = None,
    as_of: int | str | datetime | None = None,
    *,
    allowed: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    row_filter: str | None = None,
) -> Asked:
    """What a caller asks for; arguments as of `sfn.spark.read`.

    Raises:
        ValueError: one of them has no such form, or both `ref` and `as_of` are given.
    """
    if ref is not None and as_of is not None:
        raise ValueError(f"either ref or as_of, not both: ref={ref!r}, as_of={as_of!r}")
    return Asked(
        directory_url(directory),
        Ref(ref) if ref is not None else state_of(as_of),
        identifier_of(table),
        None if uuid is None else str(uuid),
        tuple(map(canonical, allowed)),
        dict(storage_options or {}),
        row_filter,
    )


def state_of(as_of: int | str | datetime | None) -> State:
    """What `as_of` says: a snapshot's id, a time, an Ordinal (`YYYYMMDDTHHMMSSmmm`) or else a branch or tag.

    Raises:
        ValueError: a time without a zone, or no such moment.
    """
    match as_of:
        case None:
            return Ref()
        case bool():
            raise ValueError(f"a snapshot's id, a time, an Ordinal, a branch or a tag: {as_of!r}")
        case int():
            return SnapshotId(as_of)
        case datetime():
            if as_of.tzinfo is None:
                raise ValueError(f"a datetime with a time zone: {as_of!r}")
            return Moment((as_of - _EPOCH) // timedelta(milliseconds=1))
        case str():
            return Ordinal(ordinal_of(as_of)) if _ORDINAL.fullmatch(as_of) else Ref(as_of)
