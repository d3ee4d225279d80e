"""A part of the story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.spark.tour.stage import Stage


@dataclass(frozen=True, slots=True)
class Chapter:
    """One file each, and a line in `chapters.CHAPTERS`.

    Attributes:
        name: what it is chosen by.
        title: what it tells.
        tell: tells it; an `SfnError` where something is not as it should be.
    """

    name: str
    title: str
    tell: Callable[[Stage], None]
