"""Reads an Iceberg table's current pointer from the files beside it, with no catalog in the path.

    import sfn

    sfn.resolve("/warehouse/sales/orders").metadata_location
    sfn.read("s3://lake/sales/orders", ref="audit")
    sfn.history("/warehouse/sales/orders")

What lies here is the public interface; it is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sfn.errors import (
        Ambiguous,
        CommitNotFound,
        DirectoryNotFound,
        Dropped,
        MalformedDocument,
        MalformedMetadata,
        NameTaken,
        NotFound,
        NotInstalled,
        NotPermitted,
        NotRelative,
        NotSupported,
        RefNotFound,
        SfnError,
        Stale,
        TooManyFiles,
        TooManyHops,
        UnknownFormatVersion,
        Unreachable,
        Unreadable,
        Unsafe,
        WrongTable,
    )
    from sfn.reader.api import ahistory, aread, aresolve, history, read, resolve
    from sfn.reader.history import HistoryEntry
    from sfn.reader.resolve import Resolved

__all__ = [
    "Ambiguous",
    "CommitNotFound",
    "DirectoryNotFound",
    "Dropped",
    "HistoryEntry",
    "MalformedDocument",
    "MalformedMetadata",
    "NameTaken",
    "NotFound",
    "NotInstalled",
    "NotPermitted",
    "NotRelative",
    "NotSupported",
    "RefNotFound",
    "Resolved",
    "SfnError",
    "Stale",
    "TooManyFiles",
    "TooManyHops",
    "UnknownFormatVersion",
    "Unreachable",
    "Unreadable",
    "Unsafe",
    "WrongTable",
    "ahistory",
    "aread",
    "aresolve",
    "history",
    "read",
    "resolve",
]

_MODULES: Final = {
    "HistoryEntry": "sfn.reader.history",
    "Resolved": "sfn.reader.resolve",
    **dict.fromkeys(("ahistory", "aread", "aresolve", "history", "read", "resolve"), "sfn.reader.api"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_MODULES.get(name, "sfn.errors")), name)
    # The next time it is found at once.
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
