"""What PyIceberg, and the drivers below it, raise of a report's place: as one line that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sfn.errors import SfnError

_MAX_SHOWN: Final = 500
"""Characters of what was raised that are told."""


@contextmanager
def map_report_errors(where: str, remedy: str) -> Iterator[None]:
    """Whatever is raised inside of a report that cannot be had, or not be written, as an error of ours.

    Args:
        where: what the report is called.
        remedy: what to do about it.

    Raises:
        SfnError: in place of theirs.
    """
    try:
        yield
    except Exception as error:
        if not _is_external(error):
            raise
        said = " ".join(str(error).split())[:_MAX_SHOWN]
        found = f"{type(error).__name__}: {said}" if said else type(error).__name__
        raise SfnError(
            f"report {where}", expected="a catalog or store that takes it", found=found, remedy=remedy
        ) from error


def _is_external(error: Exception) -> bool:
    """Whether it is not an error of this program: PyIceberg's, and those of SQL and of stores, have no common base."""
    package = type(error).__module__.partition(".")[0]
    return package not in {"builtins", "sfn"} or (package == "builtins" and isinstance(error, OSError | ValueError))
