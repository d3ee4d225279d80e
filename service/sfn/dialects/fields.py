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
CONTROL_CHARACTERS: Final = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
"""Characters that no text may hold, as a class of a regular expression: they end lines and turn what is read around."""

_CONTROL: Final = re.compile(f"[{CONTROL_CHARACTERS}]")


def require_text(value: object, at: str, key: str | int, limit: int = MAX_NAME, *, status: int = 422) -> str:
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
        raise field_error(at, key, "a string", json_kind(value), status=status)
    if not value:
        raise field_error(at, key, "a string that is not empty", "an empty one", status=status)
    if len(value) > limit:
        raise field_error(at, key, f"at most {limit} characters", str(len(value)), status=status)
    # Nearly every name is plain: only the others are worth a search.
    if not (value.isascii() and value.isprintable()) and (control := _CONTROL.search(value)) is not None:
        raise field_error(at, key, "a string without control characters", f"U+{ord(control[0]):04X}", status=status)
    return value


def optional_text(content: Mapping[str, object], key: str, at: str, limit: int = MAX_NAME) -> str | None:
    """A text that may be absent, or null; arguments and errors as of `checked`."""
    value = content.get(key)
    return None if value is None else require_text(value, at, key, limit)


def require_object(value: object, at: str, key: str) -> Mapping[str, object]:
    """The value as an object; arguments and errors as of `checked`."""
    if not isinstance(value, dict):
        raise field_error(at, key, "an object", json_kind(value))
    return value


def namespace_levels(value: object, at: str, key: str, expected: str = "an array of strings") -> tuple[str, ...]:
    """The levels of a namespace, from an array of them; arguments and errors as of `checked`."""
    if not isinstance(value, list):
        raise field_error(at, key, expected, json_kind(value))
    if len(value) > MAX_LEVELS:
        raise field_error(at, key, f"at most {MAX_LEVELS} levels", "more")
    return tuple(require_text(level, f"{at}/{key}", index) for index, level in enumerate(value))


def split_namespace(value: str, separator: str, at: str, key: str) -> tuple[str, ...]:
    """The levels of a namespace, from one text of them; arguments and errors as of `checked`."""
    parts = value.split(separator, MAX_LEVELS)
    if len(parts) > MAX_LEVELS:
        raise field_error(at, key, f"at most {MAX_LEVELS} levels", "more")
    return tuple(require_text(level, at, key) for level in parts)


def identifier_from_array(value: object, at: str, key: str) -> tuple[tuple[str, ...], str]:
    """A namespace's levels and a name, from one array of all of them; arguments and errors as of `checked`."""
    if not isinstance(value, list) or not value:
        raise field_error(
            at, key, "an array of a namespace's levels and a name", json_kind(value) if value else "nothing"
        )
    name = require_text(value[-1], f"{at}/{key}", len(value) - 1)
    return namespace_levels(value[:-1], at, key), name


def identifier_from_object(value: object, at: str, key: str) -> tuple[tuple[str, ...], str]:
    """A namespace's levels and a name, from an object of both; arguments and errors as of `checked`."""
    content, place = require_object(value, at, key), f"{at}/{key}"
    return namespace_levels(content.get("namespace"), place, "namespace"), require_text(
        content.get("name"), place, "name"
    )


def is_too_deep(value: object, most: int) -> bool:
    """Whether arrays and objects lie in each other on more than so many levels; without recursion."""
    inside = [value]
    for _ in range(most + 1):
        holders = [one for one in inside if isinstance(one, dict | list)]
        if not holders:
            return False
        inside = [part for one in holders for part in (one.values() if isinstance(one, dict) else one)]
    return True


def field_error(at: str, key: str | int, expected: str, found: str, *, status: int = 422) -> Rejected:
    """The refusal of one value."""
    return Rejected(f"{at}/{key}", status=status, expected=expected, found=found)


def json_kind(value: object) -> str:
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
