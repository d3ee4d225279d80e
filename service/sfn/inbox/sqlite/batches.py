"""Many rows in few statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_SIZES: Final = (8, 4, 2, 1)
"""More rows at once cost SQLite more, not less."""


def batches(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Rows in their order, in batches of a few sizes, so that a few statements are prepared for all.

    With each statement the interpreter's lock changes hands twice, and the other threads wait for it with every one:
    that costs more than the row does.
    """
    start = 0
    for size in _SIZES:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size
