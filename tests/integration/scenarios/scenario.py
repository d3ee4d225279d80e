"""One thing that happens to tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sfn.pointer.site import Placement
from tests.integration.scenarios.looks import Look
from tests.integration.scenarios.stage import Stage

Play = Callable[[Stage], Sequence[Look]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A row.

    Attributes:
        title: of its row.
        play: do it, and wait until the service has seen it through; who looks afterwards.
        stops: whether the service is stopped meanwhile.
        placement: where the service puts files.
    """

    title: str
    play: Play
    stops: bool = False
    placement: Placement = Placement.INSIDE

    @property
    def key(self) -> str:
        """It, as a part of names."""
        return self.play.__name__
