"""A page of metrics: who is asked for it, and what it says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from sfn.inbox import QueueStats
from sfn.telemetry.metrics import Metrics
from sfn.telemetry.scrape import LabelNames, Scrape, ScrapeSources
from sfn.worker.capacity import CircuitBreakerState
from tests.support.clock import HandClock

BOUNDS = LabelNames(("prod", "dev"), {"file:///warehouse": "lake"}, {"prod": 900.0, "dev": 60.0})
NOTHING = QueueStats({}, {}, {}, frozenset())


@dataclass
class Standing:
    """How things stand, as a scrape finds them.

    Attributes:
        figures: what the inbox says.
        failure: what it raises instead.
        asked: how often it was asked.
        wait: what each answer waits for.
    """

    figures: QueueStats = NOTHING
    failure: Exception | None = None
    asked: int = 0
    wait: Callable[[], Awaitable[object]] | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    ready: bool = True
    reached: Collection[str] = ()
    breakers: Collection[CircuitBreakerState] = ()

    async def ask(self) -> QueueStats:
        self.asked += 1
        if self.wait is not None:
            await self.wait()
        if self.failure is not None:
            raise self.failure
        return self.figures

    def scrape(self, metrics: Metrics, clock: HandClock, patience: float = 10.0) -> Scrape:
        watched = ScrapeSources(self.ask, self.files, lambda: self.ready, lambda: self.reached, lambda: self.breakers)
        return Scrape(metrics.registry, watched, BOUNDS, clock, patience)


class Page:
    """What one scrape said in the plain text format."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families: list[Metric] = list(text_string_to_metric_families(text))
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def value(self, series: str, /, **labels: str) -> float | None:
        """Of one series; None where there is none."""
        return self._values.get((series, frozenset(labels.items())))

    def of(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """All series of a name that are not 0, by the values of some labels."""
        said = [(dict(pairs), value) for (series, pairs), value in self._values.items() if series == name and value]
        return {tuple(pairs[label] for label in labels): value for pairs, value in said}


async def read(scrape: Scrape) -> Page:
    """One scrape."""
    return Page((await scrape("")).content.decode())


def overdue(since: datetime, catalog: str = "prod") -> QueueStats:
    """An inbox with one table that has waited since then."""
    return QueueStats({(catalog, "due"): 1}, {catalog: since}, {}, frozenset())
