"""The running sweeps of one worker, which may each take longer than any drain."""

from __future__ import annotations

import anyio

from sfn.words import Swept
from sfn.work.sweep import Sweep


class Sweeps:
    """Ended by a stop at once: what they told is told, and the next process begins them anew."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._stopped = False

    def stop(self) -> None:
        """End what runs, and whatever is begun from now on."""
        self._stopped = True
        for scope in self._scopes:
            scope.cancel()

    async def run(self, sweep: Sweep, jitter: float) -> Swept | None:
        """As `Sweep.run`; None where a stop ended it."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            # Its claim may have been on its way when the stop came.
            if self._stopped:
                scope.cancel()
            try:
                return await sweep.run(jitter)
            finally:
                self._scopes.remove(scope)
        return None
