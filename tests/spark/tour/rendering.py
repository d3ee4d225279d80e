"""Statements and rows as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Final

from pyspark.sql import Row

WIDTH: Final = 100
_CELL: Final = 80
_ROWS: Final = 8


def statement(sql: str) -> list[str]:
    """Return a statement, wrapped."""
    return textwrap.wrap(sql, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield the first rows below the names of the columns."""
    shown = [[*columns], *([_cell(value) for value in row] for row in rows[:_ROWS])]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for line in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
    if len(rows) > _ROWS:
        yield f"… and {len(rows) - _ROWS} more"


def _cell(value: object) -> str:
    match value:
        case None:
            text = "null"
        case Row():
            text = " ".join(f"{key}={_cell(one)}" for key, one in value.asDict().items())
        case datetime():
            text = f"{value:%Y-%m-%d %H:%M:%S}"
        case date():
            text = value.isoformat()
        case _:
            text = f"{value}"
    return text if len(text) <= _CELL else f"…{text[-_CELL + 1 :]}"
