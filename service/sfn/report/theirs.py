"""What PyIceberg, and the drivers below it, raise of a report's place: as one line that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyiceberg import exceptions

from sfn.errors import SfnError

_SHOWN: Final = 500
"""Characters of what was raised that are told."""

# PyIceberg's have no base of their own. What cannot be reached is an OSError, and garbage a ValueError.
_RAISED: Final[tuple[type[Exception], ...]] = (
    OSError,
    ValueError,
    *(kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception)),
)


@contextmanager
def told(where: str, remedy: str) -> Iterator[None]:
    """Whatever is raised inside of a report that cannot be had, or not be written, as an error of ours.

    Args:
        where: what the report is called.
        remedy: what to do about it.

    Raises:
        SfnError: in place of theirs.
    """
    try:
        yield
    except _RAISED as error:
        said = " ".join(str(error).split())[:_SHOWN]
        found = f"{type(error).__name__}: {said}" if said else type(error).__name__
        raise SfnError(
            f"report {where}", expected="a catalog or store that takes it", found=found, remedy=remedy
        ) from error
