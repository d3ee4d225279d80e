"""The sweeps of one worker, which may each take longer than any drain."""

from __future__ import annotations

import anyio

from sfn.clock import Clock
from sfn.domain.jobs import SweepCompleted
from sfn.work.report import SweepPhase, SweepReport
from sfn.work.sweep import CatalogSweep


class SweepRunner:
    """Ended by a stop at once: what they told is told, and the next process begins them anew.

    Args:
        clock: the wall clock.

    Attributes:
        latest_reports: by catalog, the report of the sweep that runs, or of the last one.
    """

    def __init__(self, clock: Clock) -> None:
        self.latest_reports: dict[str, SweepReport] = {}
        self._clock = clock
        self._scopes: set[anyio.CancelScope] = set()
        self._stopped = False

    def stop(self) -> None:
        """End what runs, and whatever is begun from now on."""
        self._stopped = True
        for scope in self._scopes:
            scope.cancel()

    async def run(self, sweep: CatalogSweep, jitter: float) -> SweepCompleted | None:
        """As `Sweep.run`; None where a stop ended it."""
        report, catalog = sweep.report, sweep.subject.catalog
        report.previous = self.latest_reports.get(catalog)
        self.latest_reports[catalog] = report
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            # Its claim may have been on its way when the stop came.
            if self._stopped:
                scope.cancel()
            try:
                swept = await sweep.run(jitter)
            except Exception as error:
                report.finish(SweepPhase.FAILED, self._clock.now(), str(error))
                raise
            else:
                report.finish(SweepPhase.ENDED, self._clock.now())
                return swept
            finally:
                self._scopes.remove(scope)
                if report.phase is SweepPhase.RUNNING:
                    report.finish(SweepPhase.STOPPED, self._clock.now())
        return None
