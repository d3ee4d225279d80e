"""The sweeps of one worker, which may each take longer than any drain."""

from __future__ import annotations

import anyio

from sfn.clock import Clock
from sfn.words import Swept
from sfn.work.report import Course, SweepReport
from sfn.work.sweep import Sweep


class Sweeps:
    """Ended by a stop at once: what they told is told, and the next process begins them anew.

    Args:
        clock: the wall clock.

    Attributes:
        latest: by catalog, the report of the sweep that runs, or of the last one.
    """

    def __init__(self, clock: Clock) -> None:
        self.latest: dict[str, SweepReport] = {}
        self._clock = clock
        self._scopes: set[anyio.CancelScope] = set()
        self._stopped = False

    def stop(self) -> None:
        """End what runs, and whatever is begun from now on."""
        self._stopped = True
        for scope in self._scopes:
            scope.cancel()

    async def run(self, sweep: Sweep, jitter: float) -> Swept | None:
        """As `Sweep.run`; None where a stop ended it."""
        report, catalog = sweep.report, sweep.subject.catalog
        report.before = self.latest.get(catalog)
        self.latest[catalog] = report
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            # Its claim may have been on its way when the stop came.
            if self._stopped:
                scope.cancel()
            try:
                swept = await sweep.run(jitter)
            except Exception as error:
                report.end(Course.FAILED, self._clock.now(), str(error))
                raise
            else:
                report.end(Course.ENDED, self._clock.now())
                return swept
            finally:
                self._scopes.remove(scope)
                if report.course is Course.RUNNING:
                    report.end(Course.STOPPED, self._clock.now())
        return None
