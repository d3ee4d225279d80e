"""The fields of what somebody else wrote: what every dialect checks alike, and how it says what is wrong.

It belongs to no dialect, so that each may import it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sfn.errors import Rejected

MAX_LEVELS: Final = 64
"""Most levels of a namespace."""
MAX_NAME: Final = 512
"""Most characters of a level, a name, a ref, an event id, a catalog."""
MAX_LOCATION: Final = 4_096
"""Most characters of a location."""
CONTROL: Final = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
"""Characters that no text may hold, as a class of a regular expression: they end lines and turn what is read around."""

_CONTROL: Final = re.compile(f"[{CONTROL}]")


def checked(value: object, at: str, key: str | int, limit: int = MAX_NAME, *, status: int = 422) -> str:
    """The value as a text: not empty, not too long, without control characters.

    Args:
        value: what was found.
        at: the place of what holds it.
        key: which of its values it is.
        limit: most characters.
        status: that of the refusal.

    Raises:
        Rejected: it is not; the place of the value is named.
    """
    if not isinstance(value, str):
        raise wrong(at, key, "a string", kind(value), status=status)
    if not value:
        raise wrong(at, key, "a string that is not empty", "an empty one", status=status)
    if len(value) > limit:
        raise wrong(at, key, f"at most {limit} characters", str(len(value)), status=status)
    # Nearly every name is plain: only the others are worth a search.
    if not (value.isascii() and value.isprintable()) and (control := _CONTROL.search(value)) is not None:
        raise wrong(at, key, "a string without control characters", f"U+{ord(control[0]):04X}", status=status)
    return value


def text(content: Mapping[str, object], key: str, at: str, limit: int = MAX_NAME) -> str | None:
    """A text that may be absent, or null; arguments and errors as of `checked`."""
    value = content.get(key)
    return None if value is None else checked(value, at, key, limit)


def mapping(value: object, at: str, key: str) -> Mapping[str, object]:
    """The value as an object; arguments and errors as of `checked`."""
    if not isinstance(value, dict):
        raise wrong(at, key, "an object", kind(value))
    return value


def levels(value: object, at: str, key: str, expected: str = "an array of strings") -> tuple[str, ...]:
    """The levels of a namespace, from an array of them; arguments and errors as of `checked`."""
    if not isinstance(value, list):
        raise wrong(at, key, expected, kind(value))
    if len(value) > MAX_LEVELS:
        raise wrong(at, key, f"at most {MAX_LEVELS} levels", "more")
    return tuple(checked(level, f"{at}/{key}", index) for index, level in enumerate(value))


def split(value: str, separator: str, at: str, key: str) -> tuple[str, ...]:
    """The levels of a namespace, from one text of them; arguments and errors as of `checked`."""
    parts = value.split(separator, MAX_LEVELS)
    if len(parts) > MAX_LEVELS:
        raise wrong(at, key, f"at most {MAX_LEVELS} levels", "more")
    return tuple(checked(level, at, key) for level in parts)


def identifier(value: object, at: str, key: str) -> tuple[tuple[str, ...], str]:
    """A namespace's levels and a name, from one array of all of them; arguments and errors as of `checked`."""
    if not isinstance(value, list) or not value:
        raise wrong(at, key, "an array of a namespace's levels and a name", kind(value) if value else "nothing")
    name = checked(value[-1], f"{at}/{key}", len(value) - 1)
    return levels(value[:-1], at, key), name


def named(value: object, at: str, key: str) -> tuple[tuple[str, ...], str]:
    """A namespace's levels and a name, from an object of both; arguments and errors as of `checked`."""
    content, place = mapping(value, at, key), f"{at}/{key}"
    return levels(content.get("namespace"), place, "namespace"), checked(content.get("name"), place, "name")


def too_deep(value: object, most: int) -> bool:
    """Whether arrays and objects lie in each other on more than so many levels; without recursion."""
    inside = [value]
    for _ in range(most + 1):
        holders = [one for one in inside if isinstance(one, dict | list)]
        if not holders:
            return False
        inside = [part for one in holders for part in (one.values() if isinstance(one, dict) else one)]
    return True


def wrong(at: str, key: str | int, expected: str, found: str, *, status: int = 422) -> Rejected:
    """The refusal of one value."""
    return Rejected(f"{at}/{key}", status=status, expected=expected, found=found)


def kind(value: object) -> str:
    """What JSON calls a value, in words: what is wrong is not repeated."""
    match value:
        case None:
            return "none"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"
