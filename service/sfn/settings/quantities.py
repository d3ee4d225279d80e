"""Durations and sizes as people write them: `30s`, `10m`, `1MiB`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

DURATION_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
SIZE_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}

MAX_DURATION: Final = timedelta(days=36_500)
"""Of all durations: so long from now is still a date."""

_ZERO: Final = ("0", 0)
"""What needs no unit. No set, for a value of a wrong type may have no hash."""

_QUANTITY: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?([A-Za-z]{1,3})", re.ASCII)


def parse_duration(text: object) -> timedelta:
    """A duration of one number and one unit. A bare 0 needs no unit.

    Raises:
        ValueError: it is none.
    """
    if isinstance(text, timedelta):
        return text
    if text in _ZERO and not isinstance(text, bool):
        return timedelta()
    number, unit = _split_quantity(text)
    if unit not in DURATION_UNITS:
        raise ValueError(f"a duration such as 30s: a number and one of {', '.join(DURATION_UNITS)}")
    # Before they are multiplied: the product may be more than a timedelta holds.
    if float(number) > MAX_DURATION / DURATION_UNITS[unit]:
        raise ValueError(f"a duration of at most {MAX_DURATION.days}d")
    return float(number) * DURATION_UNITS[unit]


def parse_duration_or_off(text: object) -> timedelta | None:
    """A duration, or None for `off`.

    Raises:
        ValueError: it is neither.
    """
    return None if text is None or text == "off" else parse_duration(text)


def duration_between(shortest: str, longest: str) -> AfterValidator:
    """Refuses other durations; none at all (`off`) passes.

    Args:
        shortest, longest: as people write them.
    """
    least, most = parse_duration(shortest), parse_duration(longest)

    def check(value: timedelta | None) -> timedelta | None:
        if value is not None and not least <= value <= most:
            raise ValueError(f"a duration from {shortest} to {longest}")
        return value

    return AfterValidator(check)


def parse_size(text: object) -> int:
    """Bytes, of one number and one unit.

    Raises:
        ValueError: it is none, or no whole number of bytes.
    """
    number, unit = _split_quantity(text)
    if unit not in SIZE_UNITS:
        raise ValueError(f"a size such as 1MiB: a number and one of {', '.join(SIZE_UNITS)}")
    count = float(number) * SIZE_UNITS[unit]
    if not count.is_integer():
        raise ValueError("a whole number of bytes")
    return int(count)


def _split_quantity(text: object) -> tuple[str, str]:
    found = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    return ("", "") if found is None else (found[1], found[2])


Duration: TypeAlias = Annotated[timedelta, BeforeValidator(parse_duration)]
PositiveDuration: TypeAlias = Annotated[timedelta, Field(gt=timedelta()), BeforeValidator(parse_duration)]
DurationOrOff: TypeAlias = Annotated[timedelta | None, BeforeValidator(parse_duration_or_off)]
Size: TypeAlias = Annotated[int, Field(gt=0), BeforeValidator(parse_size)]
