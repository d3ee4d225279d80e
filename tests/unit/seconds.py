"""Time for what looks at files now and then."""

from __future__ import annotations

from sfn.watched import LOOK_AFTER


class Seconds:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_one_look(self) -> None:
        self.now += LOOK_AFTER
