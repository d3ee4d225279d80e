"""Typed access to a JSON object, for codecs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

_BITS: Final = 63
"""Of an integer's amount: as many as snapshot ids and times have."""


class JsonFields:
    """Typed access to a JSON object; every mismatch is a ValueError that names the key.

    Its strings can be written as UTF-8, and its integers have 64 bits.
    """

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    def text(self, key: str) -> str:
        value = self.raw.get(key)
        if not isinstance(value, str):
            message = f"{key} is {type(value).__name__}, not a string"
            raise ValueError(message)
        return _check_encodable(key, value)

    def optional_text(self, key: str) -> str | None:
        return None if self.raw.get(key) is None else self.text(key)

    def text_list(self, key: str) -> tuple[str, ...]:
        value = self.raw.get(key)
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            message = f"{key} is not an array of strings"
            raise ValueError(message)
        return tuple(_check_encodable(key, part) for part in value)

    def integer(self, key: str) -> int | None:
        value = self.raw.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            message = f"{key} is {type(value).__name__}, not an integer"
            raise ValueError(message)
        if value is not None and not -(1 << _BITS) <= value < 1 << _BITS:
            message = f"{key} is no integer of {_BITS + 1} bits"
            raise ValueError(message)
        return value

    def time(self, key: str) -> datetime:
        value = datetime.fromisoformat(self.text(key))
        if value.tzinfo is None:
            message = f"{key} has no time zone"
            raise ValueError(message)
        return value.astimezone(UTC)

    def count(self, key: str) -> int:
        value = self.integer(key) or 0
        if value < 0:
            message = f"{key} is negative"
            raise ValueError(message)
        return value

    def object(self, key: str) -> JsonFields | None:
        value = self.raw.get(key)
        if value is not None and not isinstance(value, dict):
            message = f"{key} is not an object"
            raise ValueError(message)
        return None if value is None else JsonFields(value)

    def tuples(self, key: str, names: tuple[str, ...]) -> list[JsonFields]:
        """An array of arrays, each as if it were an object with these keys."""
        value = self.raw.get(key)
        value = [] if value is None else value
        if not isinstance(value, list) or not all(isinstance(one, list) and len(one) == len(names) for one in value):
            message = f"{key} is not an array of arrays of {', '.join(names)}"
            raise ValueError(message)
        return [JsonFields(dict(zip(names, one, strict=True))) for one in value]


def _check_encodable(key: str, text: str) -> str:
    """A text without half surrogate pairs, which JSON can spell and UTF-8 can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        message = f"{key} has a lone surrogate in it"
        raise ValueError(message) from None
    return text
