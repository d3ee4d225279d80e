"""A chapter of the tour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.spark.tour.stage import Stage


@dataclass(frozen=True, slots=True)
class Chapter:
    """A chapter of the tour: a module, and an entry in `chapters.CHAPTERS`.

    Attributes:
        name: the name on the command line.
        title: the printed title.
        run: runs and prints the steps; raises `SfnError` if a check fails.
    """

    name: str
    title: str
    run: Callable[[Stage], None]
