"""What pydantic found wrong, in the words of a settings file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Final, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sfn.errors import SfnError, nearest
from sfn.settings.model import Settings
from sfn.settings.sources import Sources, variable
from sfn.settings.texts import Unknown

_SECRET: Final = frozenset({"token", "credential", "secrets", "headers", "properties", "uri", "oauth2_uri", "servers"})
"""Keys whose values no message may repeat."""

_TABLES: Final = frozenset({"model_type", "mapping_type", "dict_type"})
"""Errors of pydantic that ask for a table."""

_SECTION: Final = 2
"""Keys that lead to a section of a name, such as `catalogs.prod`."""

_NAMED: Final = {"secrets": "first", "headers": "X-Tenant", "properties": "type", "catalogs": "theirs"}
"""Keys of a section that are tables of names, each with such a name."""

_URLS: Final = frozenset({"uri", "oauth2_uri"})

_NO_SCHEME: Final = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}(/[A-Za-z0-9./_-]*)?")
"""A host and its port, which are no secret."""

_OF_THE_KEY: Final = "[key]"
"""What pydantic puts after a key that is itself wrong."""

_PREAMBLE: Final = re.compile(r"\w+ should (be|have) ")

_SHOWN: Final = 40
"""Most characters of a wrong value that a message repeats."""


def complaints(error: ValidationError, sources: Sources) -> Iterator[SfnError]:
    """One error for each thing that is wrong."""
    for details in error.errors(include_url=False):
        yield _complaint(details, sources)


def _complaint(details: ErrorDetails, sources: Sources) -> SfnError:
    kind = details["type"]
    # The place of an element is its array.
    keys = [part for part in takewhile(lambda part: isinstance(part, str), details["loc"]) if isinstance(part, str)]
    if kind == "extra_forbidden":
        return SfnError(
            sources.place(keys),
            expected="a key that this version supports",
            found=f"the unknown {keys[-1]}",
            remedy=_meant(keys[-1], keys[:-1]),
        )
    if kind == "missing":
        remedy = f"set it there or as {variable(keys)}"
        return SfnError(sources.place(keys), expected="a value", found="none", remedy=remedy)
    if keys[-1] == _OF_THE_KEY:
        expected = "a name of letters, digits, '_', '-' and '.', at most 64"
        return SfnError(sources.place(keys[:-1]), expected=expected, found="another one")
    error = details.get("ctx", {}).get("error")
    if isinstance(error, Unknown):
        return SfnError(sources.place(keys), expected=str(error), found=error.found, remedy=error.remedy)
    found = _found(keys, kind, details["input"])
    return SfnError(sources.place(keys), expected=_expected(details), found=found, remedy=_remedy(details, keys))


def _remedy(details: ErrorDetails, keys: Sequence[str]) -> str:
    """What to write instead, where that can be told."""
    key, kind, value = keys[-1], details["type"], details["input"]
    if kind in _TABLES and len(keys) == _SECTION and key in _known(keys[:1]):
        # Such as `uri` right below [catalogs].
        return f"{key} is a key of {_title(keys[0])}"
    if len(keys) > _SECTION and (name := _NAMED.get(key)) is not None:
        return f'it is a table of names: {key} = {{ {name} = "…" }}'
    if key in _URLS and isinstance(value, str) and _NO_SCHEME.fullmatch(value):
        return f"did you mean http://{value}?"
    return ""


def _expected(details: ErrorDetails) -> str:
    match details["type"]:
        case "value_error":
            return str(details.get("ctx", {}).get("error", details["msg"]))
        case kind if kind in _TABLES:
            return "a table"
        case _:
            return _PREAMBLE.sub("", details["msg"])


def _meant(word: str, above: Sequence[str]) -> str:
    """A remedy for a key that its table does not have: the nearest that it has, or whose else it is."""
    known = _known(above)
    close = get_close_matches(word.lower(), known, n=1)
    hints = [f"did you mean {close[0]}?"] if close else []
    owners = [_title(section) for section in Settings.model_fields if word.lower() in _known([section])]
    if owners:
        hints.append(f"{word.lower()} is a key of {' and '.join(owners)}")
    return " ".join(hints) or _meant_elsewhere(word) or nearest(word, known)


def _meant_elsewhere(word: str) -> str:
    others = {key: _title(section) for section in Settings.model_fields for key in _known([section])}
    close = get_close_matches(word.lower(), others, n=1)
    return f"did you mean {close[0]} of {others[close[0]]}?" if close else ""


def _title(section: str) -> str:
    """A section as it is written in a file."""
    named = get_origin(Settings.model_fields[section].annotation) is Mapping
    return f"[{section}.NAME]" if named else f"[{section}]"


def _known(keys: Sequence[str]) -> list[str]:
    """The keys of a table; of the sections without any."""
    models = _models(Settings.model_fields[keys[0]].annotation) if keys else [Settings]
    return list(dict.fromkeys(key for model in models for key in model.model_fields))


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _found(keys: Sequence[str], kind: str, value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an array"
    # A single value where a table belongs may be a secret in the wrong place.
    if _SECRET.intersection(keys) or kind in _TABLES or not isinstance(value, str | int | float):
        return "another value"
    # Before an @ a password may stand, in a URL at whatever key; and in one of a database behind its name.
    if "@" in str(value) or "password" in str(value):
        return "another value"
    return repr(value) if len(str(value)) <= _SHOWN else f"{str(value)[:_SHOWN]!r}…"
