"""What a DataFrame shows: names, types and rows, to be compared with another's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pyspark.sql import DataFrame, Row
from pyspark.sql.types import VariantVal


@dataclass(frozen=True, slots=True)
class Shown:
    """Everything that is promised to be the same with every engine.

    Attributes:
        columns: name, type and nullability of each; comments are no part of it.
        rows: in any order, and how often each is there.
    """

    columns: tuple[str, ...]
    rows: Counter[str]

    @classmethod
    def by(cls, frame: DataFrame) -> Self:
        columns = tuple(map(str, _uncommented(frame.schema.jsonValue())["fields"]))
        return cls(columns, Counter(map(_told, frame.collect())))


def _uncommented(schema: Any) -> Any:  # noqa: ANN401 - JSON
    match schema:
        case dict():
            return {key: _uncommented(value) for key, value in schema.items() if key != "metadata"}
        case list():
            return [_uncommented(value) for value in schema]
        case _:
            return schema


def _told(value: object) -> str:
    """A value; equal ones in the same words, of which NaN is one."""
    match value:
        case Row():
            return f"{{{', '.join(f'{name}: {_told(it)}' for name, it in zip(value.__fields__, value, strict=True))}}}"
        case list():
            return f"[{', '.join(map(_told, value))}]"
        case Mapping():
            return f"{{{', '.join(sorted(f'{_told(key)} -> {_told(it)}' for key, it in value.items()))}}}"
        case VariantVal():
            return value.toJson()
        case _:
            return repr(value)
