"""One thing that happens to tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sfn.sfnfile.naming import Placement
from tests.integration.scenarios.looks import Look
from tests.integration.scenarios.stage import Stage

Play = Callable[[Stage], Sequence[Look]]


class Telling(StrEnum):
    """How the service may learn of the changes, where it is not told of each as it happens."""

    LAST = "one event after an outage"
    NONE = "no event"


OUTAGE = (Telling.LAST,)
OUTAGE_OR_SILENCE = (Telling.LAST, Telling.NONE)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A row.

    Attributes:
        title: of its row.
        play: do it, and wait until the service has seen it through; who looks afterwards.
        again: how else the service learns of it, in a play of its own each.
        placement: where the service puts files.
        expires: whether tombstones go as soon as they may.
    """

    title: str
    play: Play
    again: Sequence[Telling] = ()
    placement: Placement = Placement.INSIDE
    expires: bool = False

    @property
    def key(self) -> str:
        """It, as a part of names."""
        return self.play.__name__
