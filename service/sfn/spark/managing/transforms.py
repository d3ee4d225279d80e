"""Iceberg's partition transforms, as its spec has them, and which of them fit a type of Spark's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from typing_extensions import override

IDENTITY: Final = "identity"
TIME_TRANSFORMS: Final = ("year", "month", "day", "hour")
"""Each contains the next: Iceberg has one of them for a column."""

MAX_WIDTH: Final = 2**31 - 1

_LETTERS: Final[Mapping[str, str]] = MappingProxyType({"bucket": "N", "truncate": "W"})
_NAMES: Final = (IDENTITY, *_LETTERS, *TIME_TRANSFORMS)
_SHORT: Final[Mapping[str, str]] = MappingProxyType({"truncate": "trunc"})

_WRITTEN: Final = re.compile(r"(\w+)\s*(?:\[\s*(.*?)\s*\])?")
_CUT: Final = (IDENTITY, "truncate", "bucket")
_CLOCK: Final = (IDENTITY, "bucket", *TIME_TRANSFORMS)
TRANSFORMS_BY_TYPE: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "boolean": (IDENTITY,),
        "tinyint": _CUT,
        "smallint": _CUT,
        "int": _CUT,
        "bigint": _CUT,
        "float": (IDENTITY,),
        "double": (IDENTITY,),
        "decimal": _CUT,
        "string": _CUT,
        "binary": _CUT,
        "date": _CLOCK[:-1],
        "timestamp": _CLOCK,
        "timestamp_ntz": _CLOCK,
    }
)
"""The transforms of a column of a type, which is called as Spark calls it."""


@dataclass(frozen=True, slots=True)
class Transform:
    """What a partition's value is of a column's.

    Attributes:
        name: as the spec has it, which has no plurals.
        width: the number of buckets, or how much is left.
    """

    name: str
    width: int | None = None

    @override
    def __str__(self) -> str:
        return self.name if self.width is None else f"{self.name}[{self.width}]"

    def suffix(self) -> str:
        """What Iceberg's own name of a field has behind the column's."""
        if self.name == IDENTITY:
            return ""
        short = _SHORT.get(self.name, self.name)
        return f"_{short}" if self.width is None else f"_{short}_{self.width}"

    def applied_to(self, column: str) -> str:
        """The transform of a column, in Spark's SQL."""
        if self.name == IDENTITY:
            return column
        return f"{self.name}s({column})" if self.width is None else f"{self.name}({self.width}, {column})"


def fitting_transforms(kind: str) -> Sequence[str]:
    """The names of those that fit a type, such as `decimal(9,2)`."""
    found = re.match(r"\w+", kind)
    return () if found is None else TRANSFORMS_BY_TYPE.get(found[0], ())


def list_choices(names: Sequence[str] = _NAMES) -> str:
    """Transforms, as they are written."""
    *others, last = (f"{name}[{_LETTERS[name]}]" if name in _LETTERS else name for name in names)
    return f"{', '.join(others)} or {last}" if others else last


def parse_transform(text: str) -> Transform:
    """A transform from `day`, `days`, `bucket[8]`.

    Raises:
        ValueError: it is none; the message says why.
    """
    found = _WRITTEN.fullmatch(text.strip())
    word = "" if found is None else found[1].lower()
    name = word.removesuffix("s") if word.removesuffix("s") in TIME_TRANSFORMS else word
    if found is None or name not in _NAMES:
        # Iceberg's metadata has a transform of one column for each field, and these alone.
        one_to_one, many_to_one = list_choices(_NAMES[:1]), list_choices(_NAMES[1:])
        raise ValueError(f"a mapping is 1-1, {one_to_one}, or n-1, {many_to_one}, which {text.strip()!r} is not")
    number = found[2]
    if name not in _LETTERS:
        if number is not None:
            raise ValueError(f"{name} takes no number")
        return Transform(name)
    if number is None:
        raise ValueError(f"{list_choices([name])} says how {'many' if name == 'bucket' else 'wide'}")
    if not re.fullmatch(r"[0-9]{1,10}", number) or not 1 <= int(number) <= MAX_WIDTH:
        raise ValueError(
            f"{_LETTERS[name]} of {list_choices([name])} is a number from 1 to {MAX_WIDTH}, not {number!r}"
        )
    return Transform(name, int(number))
