"""Which partition fields a caller's mappings of values make of a table's columns.

    "order_ts=days, customer_id=bucket[8]"
    {"order_ts": "days", "customer_id": ["bucket[8]", "truncate[100]"]}

A row has one value of a mapping, that of one of its columns (1-1, identity) or one that many of these share (n-1).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, count
from typing import Final, TypeAlias

from typing_extensions import override

from sfn.errors import suggest_name
from sfn.spark.managing.transforms import TIME_TRANSFORMS, Transform, fitting_transforms, list_choices, parse_transform

PartitionMappings: TypeAlias = str | Mapping[str, str | Sequence[str]]
ColumnPath: TypeAlias = tuple[str, ...]
"""A column's name, below those of the structs that it is in."""

_PIECE: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^=`]+?))\s*=\s*(.*?)\s*", re.DOTALL)
_OPENING, _CLOSING = "[(", "])"


class InvalidMappings(ValueError):
    """Mappings that no partition fields can be made of.

    Attributes:
        problems: each says of which mapping it is, and what would do.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class MappingField:
    """A partition field.

    Attributes:
        path: the column.
        transform: of that.
        name: its own, where Iceberg would call it as another column is called.
    """

    path: ColumnPath
    transform: Transform
    name: str = ""

    @override
    def __str__(self) -> str:
        return f"{_dotted(self.path)}={self.transform}"

    @property
    def sql(self) -> str:
        """The field as `ALTER TABLE … ADD PARTITION FIELD` takes it."""
        added = self.transform.applied_to(quote_name(*self.path))
        return f"{added} AS {quote_name(self.name)}" if self.name else added


def parse_partition_fields(
    mappings: PartitionMappings, columns: Mapping[ColumnPath, str], partitioned: Collection[str] = ()
) -> tuple[MappingField, ...]:
    """The fields to add, checked all together.

    Args:
        mappings: the mappings, a text or of each column.
        columns: each with its type, as Spark calls it.
        partitioned: the columns that the table's partitions are made of already.

    Raises:
        Unfit: some of the mappings are none, or do not fit their columns or each other.
    """
    problems: list[str] = []
    found: list[MappingField] = []
    for column, text in _pairs(mappings, problems):
        try:
            found.append(_field(column, text, columns, partitioned))
        except ValueError as problem:
            problems.append(f"{column}={text}: {problem}")
    problems.extend(_clashes(found))
    if problems:
        raise InvalidMappings(problems)
    return tuple(found)


def quote_name(*names: str) -> str:
    """A name of several parts, in Spark's SQL."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def _pairs(mappings: PartitionMappings, problems: list[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(mappings, str):
        for column, texts in mappings.items():
            for text in [texts] if isinstance(texts, str) else texts:
                yield column, text
        return
    for piece in _pieces(mappings) if mappings.strip() else ():
        if found := _PIECE.fullmatch(piece):
            yield found[1].replace("``", "`") if found[1] else found[2], found[3]
        else:
            problems.append(f"{piece.strip()!r} has not the form column=transform")


def _pieces(text: str) -> Sequence[str]:
    """What stands between commas, but for those within brackets or backquotes."""
    pieces, depth, inside = [""], 0, False
    for character in text:
        inside ^= character == "`"
        if not inside:
            depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth <= 0 and not inside:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces


def _field(column: str, text: str, columns: Mapping[ColumnPath, str], partitioned: Collection[str]) -> MappingField:
    """A field by itself.

    Raises:
        ValueError: it is none; the message says why.
    """
    path = _path(column, columns)
    already = {(name,) for name in partitioned}
    if path in already:
        others = [
            _dotted(other) for other, kind in columns.items() if fitting_transforms(kind) and other not in already
        ]
        instead = f" or take {', '.join(others)}" if others else ""
        raise ValueError(f"the table is partitioned by this column already, leave it out{instead}")
    transform = parse_transform(text)
    names = fitting_transforms(columns[path])
    if transform.name not in names:
        raise ValueError(
            f"{columns[path]} takes {list_choices(names)}" if names else f"no transform fits {columns[path]}"
        )
    taken = {_dotted(other) for other in columns if other != path}
    usual = f"{_dotted(path)}{transform.suffix()}"
    name = next(name for name in chain([usual], (f"{usual}_{number}" for number in count(1))) if name not in taken)
    return MappingField(path, transform, "" if name == usual else name)


def _path(column: str, columns: Mapping[ColumnPath, str]) -> ColumnPath:
    names = {_dotted(path): path for path in columns}
    if column in names:
        return names[column]
    alike = [path for name, path in names.items() if name.lower() == column.lower()]
    if len(alike) == 1:
        # Spark does not care, and Iceberg does.
        return alike[0]
    raise ValueError(f"no such column, {suggest_name(column, list(names))}")


def _dotted(path: ColumnPath) -> str:
    return ".".join(path)


def _clashes(found: Sequence[MappingField]) -> Iterator[str]:
    """Where a field says nothing that another one does not: Iceberg's `PartitionSpec` refuses it."""
    for one, other in combinations(found, 2):
        if one.path != other.path:
            continue
        if one.transform == other.transform:
            yield f"{one}: told twice, leave one out"
        elif one.transform.name in TIME_TRANSFORMS and other.transform.name in TIME_TRANSFORMS:
            coarse, fine = sorted((one, other), key=lambda field: TIME_TRANSFORMS.index(field.transform.name))
            yield f"{fine}: each {fine.transform} lies in one {coarse.transform}, keep it or {coarse}"
