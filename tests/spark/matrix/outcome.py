"""What comes of reading with an engine, in words that are the same on each day and machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

from pyspark.sql import DataFrame

from sfn.errors import NotSupported, SfnError
from tests.spark.matrix.shown import Shown

SAME: Final = "same"
REFUSES: Final = "refuses"
WRONG: Final = "wrong"
_LONGEST: Final = 200
_PLACE: Final = re.compile(r"(?:file:)?/[^\s'\"]+")
_WORD: Final = re.compile(r"\w+")


def outcome(read: Callable[[], DataFrame], truth: Shown | None) -> tuple[str, str]:
    """What is seen, and the remedy where it is a refusal.

    Args:
        read: reads with the engine.
        truth: what the catalog shows; None where nobody can read it.

    Returns:
        `same`, `refuses: what`, or `wrong: why`.
    """
    try:
        found = Shown.by(read())
    except NotSupported as refusal:
        return f"{REFUSES}: {_line(refusal.found)}", refusal.remedy
    except SfnError as error:
        return f"{WRONG}: {type(error).__name__}: {_line(str(error))}", ""
    except Exception as error:  # noqa: BLE001 - whatever else comes out of an engine is one it should have said itself
        return f"{WRONG}: {type(error).__name__}: {_line(str(error))}", ""
    if truth is None:
        return f"{WRONG}: what Iceberg's own library can't read was read", ""
    if found.columns != truth.columns:
        return f"{WRONG}: columns {_apart(found.columns, truth.columns)}", ""
    if found.rows != truth.rows:
        more, less = found.rows - truth.rows, truth.rows - found.rows
        return f"{WRONG}: rows {_apart(sorted(more.elements()), sorted(less.elements()))}", ""
    return SAME, ""


def checked(row: Mapping[str, tuple[str, str]], truth: Shown | None) -> dict[str, str]:
    """Outcomes by engine; a refusal that names no engine that can is wrong, unless none can."""
    able = {engine for engine, (cell, _) in row.items() if cell == SAME}
    return {
        engine: f"{WRONG}: {cell}, and names no engine that can: {remedy!r}"
        if cell.startswith(REFUSES) and truth is not None and not _names_one(remedy, able)
        else cell
        for engine, (cell, remedy) in row.items()
    }


def _names_one(remedy: str, able: Collection[str]) -> bool:
    """Whether the remedy names one of these engines."""
    return not set(able).isdisjoint(_WORD.findall(remedy))


def _apart(found: Collection[str], wanted: Collection[str]) -> str:
    return _line(f"{list(found)}, not {list(wanted)}")


def _line(text: str) -> str:
    """The first line without places, not too long."""
    line = _PLACE.sub("<file>", text.strip().partition("\n")[0])
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
