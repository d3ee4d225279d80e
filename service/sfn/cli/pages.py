"""What a command says to a person, apart from how it gets to the screen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeAlias

from sfn.clock import format_duration

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Tone(StrEnum):
    """How a line sounds; the value is rich's style."""

    PLAIN = ""
    GOOD = "bold green"
    BAD = "bold red"
    WARNING = "yellow"
    QUIET = "dim"


@dataclass(frozen=True, slots=True)
class Line:
    """One line."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        columns: their heads; those of `numeric_columns` stand right.
        rows: as many cells each.
        wide_column: the column that a screen may cut off or wrap.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric_columns: frozenset[str] = frozenset()
    wide_column: str = ""

    @property
    def has_heads(self) -> bool:
        """Whether its columns have heads."""
        return any(name.strip() for name in self.columns)


Page: TypeAlias = Sequence[Line | Grid]


def to_plain_text(page: Page) -> str:
    """The text that goes into files and pipes: columns aligned, nothing cut off."""
    return "\n".join(line for part in page for line in _lines(part))


def escape(text: str) -> str:
    """A text of somebody else's as a terminal may have it: what would steer it, break the line, or
    can't be written is spelled out.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def pluralise(number: int, thing: str) -> str:
    """`1 table`, `1,204 tables`."""
    plural = thing if number == 1 else thing.removesuffix("y") + ("ies" if thing.endswith("y") else "s")
    return f"{number:,} {plural}"


def format_ago(at: datetime, now: datetime) -> str:
    """`45 s ago`, `in 45 s`."""
    return f"in {format_duration(at - now)}" if at > now else f"{format_duration(now - at)} ago"


def format_time(at: datetime) -> str:
    """`2026-11-22 18:43:36Z`, whatever the zone of the machine."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def _lines(part: Line | Grid) -> Iterable[str]:
    if isinstance(part, Line):
        return [part.text]
    rows = [part.columns, *part.rows] if part.has_heads else part.rows
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    sides = [">" if name in part.numeric_columns else "<" for name in part.columns]
    return ["  ".join(map(_padded, row, widths, sides)).rstrip() for row in rows]


def _padded(cell: str, width: int, side: str) -> str:
    return f"{cell:{side}{width}}"
