"""Whether this process wants traffic."""

from __future__ import annotations

from typing import Final

DRAINING: Final = "draining"


class Readiness:
    """Why the process is not ready; it is ready when no reason is left.

    Args:
        waiting_for: reasons that hold from the start.
    """

    def __init__(self, *waiting_for: str) -> None:
        self._reasons = dict.fromkeys(waiting_for)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What stands against it, in the order in which it came up."""
        return tuple(self._reasons)

    @property
    def is_draining(self) -> bool:
        """Whether the process is on its way out: nothing new is taken."""
        return DRAINING in self._reasons

    def add_reason(self, reason: str) -> None:
        """Something stands against it."""
        self._reasons[reason] = None

    def clear_reason(self, reason: str) -> None:
        """It does no longer. There is no way back from draining."""
        if reason != DRAINING:
            self._reasons.pop(reason, None)

    def drain(self) -> None:
        """Take nothing new from here on."""
        self.add_reason(DRAINING)
