"""Reads an Iceberg table's current pointer from the files beside it, with no catalog in the path.

    import sfn

    sfn.resolve("/warehouse/sales/orders").metadata_location

What lies here is the public interface; it is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sfn.errors import Ambiguous, Dropped, Malformed, NameTaken, NotFound, SfnError, Stale, Unreadable
    from sfn.reader.blocking import aresolve, resolve
    from sfn.reader.resolve import Resolved

__all__ = [
    "Ambiguous",
    "Dropped",
    "Malformed",
    "NameTaken",
    "NotFound",
    "Resolved",
    "SfnError",
    "Stale",
    "Unreadable",
    "aresolve",
    "resolve",
]

_ELSEWHERE: Final = {
    "Resolved": "sfn.reader.resolve",
    "aresolve": "sfn.reader.blocking",
    "resolve": "sfn.reader.blocking",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE.get(name, "sfn.errors")), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
