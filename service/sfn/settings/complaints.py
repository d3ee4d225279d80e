"""What pydantic found wrong, in the words of a settings file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sfn.errors import SfnError
from sfn.settings.model import Settings
from sfn.settings.sources import Sources, variable

_SECRET: Final = frozenset({"token", "credential", "secrets", "headers", "properties", "uri", "oauth2_uri"})
"""Keys whose values no message may repeat."""

_TABLES: Final = frozenset({"model_type", "mapping_type", "dict_type"})
"""Errors of pydantic that ask for a table."""

_OF_THE_KEY: Final = "[key]"
"""What pydantic puts after a key that is itself wrong."""

_PREAMBLE: Final = re.compile(r"\w+ should (be|have) ")

_SHOWN: Final = 40
"""Most characters of a wrong value that a message repeats."""


def complaints(error: ValidationError, sources: Sources) -> Iterator[SfnError]:
    """One error for each thing that is wrong."""
    for details in error.errors(include_url=False):
        yield _complaint(details, sources)


def nearest(word: str, known: Sequence[str]) -> str:
    """A remedy for a name that is not known."""
    if close := get_close_matches(word.lower(), known, n=1):
        return f"did you mean {close[0]}?"
    return f"known here: {', '.join(known)}" if known else ""


def _complaint(details: ErrorDetails, sources: Sources) -> SfnError:
    kind = details["type"]
    # The place of an element is its array.
    keys = [part for part in takewhile(lambda part: isinstance(part, str), details["loc"]) if isinstance(part, str)]
    if kind == "extra_forbidden":
        return SfnError(
            sources.place(keys),
            expected="a key that this version supports",
            found=f"the unknown {keys[-1]}",
            remedy=nearest(keys[-1], _known(keys[:-1])),
        )
    if kind == "missing":
        remedy = f"set it there or as {variable(keys)}"
        return SfnError(sources.place(keys), expected="a value", found="none", remedy=remedy)
    if keys[-1] == _OF_THE_KEY:
        expected = "a name of letters, digits, '_', '-' and '.', at most 64"
        return SfnError(sources.place(keys[:-1]), expected=expected, found="another one")
    return SfnError(sources.place(keys), expected=_expected(details), found=_found(keys, kind, details["input"]))


def _expected(details: ErrorDetails) -> str:
    match details["type"]:
        case "value_error":
            return str(details.get("ctx", {}).get("error", details["msg"]))
        case kind if kind in _TABLES:
            return "a table"
        case _:
            return _PREAMBLE.sub("", details["msg"])


def _known(keys: Sequence[str]) -> list[str]:
    """The keys of a table; of the sections without any."""
    model: type[BaseModel] = Settings
    if keys:
        annotation = Settings.model_fields[keys[0]].annotation
        inner = [*get_args(annotation), annotation]
        model = next(part for part in inner if isinstance(part, type) and issubclass(part, BaseModel))
    return list(model.model_fields)


def _found(keys: Sequence[str], kind: str, value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an array"
    # A single value where a table belongs may be a secret in the wrong place.
    if _SECRET.intersection(keys) or kind in _TABLES or not isinstance(value, str | int | float):
        return "another value"
    # Before an @ a password may stand, in a URL at whatever key.
    if "@" in str(value):
        return "another value"
    return repr(value) if len(str(value)) <= _SHOWN else f"{str(value)[:_SHOWN]!r}…"
