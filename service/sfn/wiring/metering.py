"""The metrics of one process: from the settings and the parts that are asked to what `/metrics` answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from fastapi import APIRouter

from sfn.admin.operators import ProcessInfo
from sfn.clock import Clock
from sfn.formats import FORMAT_NAMES
from sfn.http.app import metrics_router
from sfn.settings import Settings
from sfn.telemetry.gauges import LabelNames, ScrapedStats
from sfn.telemetry.metrics import Metrics
from sfn.telemetry.scrape import Scrape, ScrapeSources


class MetricsWiring:
    """What is counted, and who reads it.

    Args:
        settings: all of them.
        version: of this service.
        clock: the wall clock.
        sources: that this process fetches events from.

    Attributes:
        metrics: for those who count.
    """

    def __init__(self, settings: Settings, version: str, clock: Clock, sources: Collection[str] = ()) -> None:
        self._settings, self._clock = settings, clock
        self.metrics = Metrics(
            version=version,
            catalogs=settings.catalogs,
            event_formats=FORMAT_NAMES,
            gateways=settings.gateway,
            sources=sources,
        )

    def routes(
        self,
        queue_stats: Callable[[], Awaitable[ScrapedStats]],
        process: ProcessInfo,
        admit: Callable[[bytes | None], bool] | None,
    ) -> APIRouter:
        """The route of the metrics.

        Args:
            queue_stats: the inbox in numbers.
            process: the rest.
            admit: whether an `Authorization` header opens the route; None for everybody.
        """
        settings = self._settings
        files: dict[str, Path] = {}
        if settings.inbox.path is not None:
            # SQLite puts its log beside the file that a link leads to.
            database = settings.inbox.path.resolve()
            files = {"db": database, "wal": database.with_name(f"{database.name}-wal")}
        observed = ScrapeSources(
            queue_stats, files, lambda: not process.not_ready_reasons(), process.catalog_ids, process.breakers
        )
        return metrics_router(Scrape(self.metrics.registry, observed, metric_bounds(settings), self._clock), admit)


def metric_bounds(settings: Settings) -> LabelNames:
    """What the metrics are told of the configuration."""
    stores = {one.prefix: name for name, one in settings.stores.items()}
    every, queried = settings.sweep.every, [name for name, one in settings.catalogs.items() if not one.is_event_only]
    swept = {} if every is None else dict.fromkeys(queried, every.total_seconds())
    return LabelNames(tuple(settings.catalogs), stores, swept)
