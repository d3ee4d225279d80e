"""What of which table a reader on Spark asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

from sfn.pointer.location import canonical
from sfn.pointer.naming import MAIN_BRANCH
from sfn.reader.blocking import NotATime, Time, identifier_of, milliseconds_of, ordinal_of
from sfn.reader.files import directory_url
from sfn.reader.opening import Opening
from sfn.reader.resolve import Question
from sfn.reader.timeline import Entry

_ORDINAL: Final = re.compile(r"[0-9]{8}T[0-9]{6}(?:[0-9]{3})?")
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ Tt][0-9]{2}:?[0-9]{2}.*")
"""An ISO 8601 text that is no name of a tag: a date alone may be one."""


@dataclass(frozen=True, slots=True)
class Ref:
    """The head of a branch, with the table's schema, or of a tag, with that of its snapshot."""

    name: str = MAIN_BRANCH


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
        ref = self.state.name if isinstance(self.state, Ref) else MAIN_BRANCH
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
    as_of: Time | None = None,
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


def state_of(as_of: Time | None) -> State:
    """Return the state that `as_of` says: a snapshot's id, a time, an Ordinal, a commit, or else a branch or tag.

    Raises:
        NotATime: a time without a zone, no such moment, or of another type.
    """
    match as_of:
        case None:
            return Ref()
        case int() if not isinstance(as_of, bool):
            return SnapshotId(as_of)
        case Entry():
            return Ordinal(as_of.ordinal)
        case datetime():
            return Moment(milliseconds_of(as_of))
        case str() if _ORDINAL.fullmatch(as_of):
            return Ordinal(ordinal_of(as_of))
        case str() if _MOMENT.fullmatch(as_of):
            return Moment(ordinal_of(as_of))
        case str():
            return Ref(as_of)
        case _:
            forms = "a snapshot's id, a time, an Ordinal, an entry of sfn.history, a branch or a tag"
            raise NotATime(f"{forms}: {as_of!r} is a {type(as_of).__name__}")
