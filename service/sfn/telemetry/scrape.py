"""One look at everything, in the text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from sfn.clock import Clock
from sfn.errors import SfnError
from sfn.telemetry.gauges import LabelNames, ScrapedBreaker, ScrapedStats, ServiceState, gauges

INBOX_TIMEOUT: Final = 1.0
"""Seconds that the inbox may take: a scrape has 10 s, and may be the only one who tells that a disk hangs."""


@dataclass(frozen=True, slots=True)
class ScrapeSources:
    """Whom a scrape asks. But for the first one nothing of it may wait.

    Attributes:
        stats: the inbox in numbers; an `SfnError` is no answer.
        files: those of the inbox; one that is not there has no bytes.
        is_ready: whether the process wants traffic.
        reached_catalogs: which catalogs have answered.
        breakers: those that are not closed.
    """

    stats: Callable[[], Awaitable[ScrapedStats]]
    files: Mapping[str, Path]
    is_ready: Callable[[], bool]
    reached_catalogs: Callable[[], Collection[str]]
    breakers: Callable[[], Collection[ScrapedBreaker]]


@dataclass(frozen=True, slots=True)
class Exposition:
    """What a scrape gets.

    Attributes:
        media_type: a value of `Content-Type`.
        content: the text.
    """

    media_type: str
    content: bytes


class Scrape:
    """Answers scrapes, whatever hangs.

    Args:
        registry: what was counted.
        sources: what is read at that moment.
        names: the configured names.
        clock: the wall clock.
        inbox_timeout: seconds that the inbox is waited for; then what it said last is what there is.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        sources: ScrapeSources,
        names: LabelNames,
        clock: Clock,
        inbox_timeout: float = INBOX_TIMEOUT,
    ) -> None:
        self._registry, self._sources, self._names, self._clock = registry, sources, names, clock
        self._inbox_timeout = inbox_timeout
        self._lock, self._answers_begun = anyio.Lock(), 0
        self._writing = anyio.CapacityLimiter(1)
        self._stats: ScrapedStats | None = None
        self._sizes: Mapping[str, int] = {}
        self._answers = False

    async def __call__(self, accept: str) -> Exposition:
        """The metrics in the format that the client likes best.

        Args:
            accept: its `Accept` header, may be empty.
        """
        await self._ask()
        # In a thread: where there are many catalogs the text takes longer to write than a request may wait.
        return await anyio.to_thread.run_sync(self._write, accept, self._state(), limiter=self._writing)

    async def _ask(self) -> None:
        """Ask the inbox. Who came while it was being asked shares the next answer: a flood asks one at a time."""
        arrived = self._answers_begun
        async with self._lock:
            if self._answers_begun > arrived:
                return
            self._answers_begun += 1
            self._answers = False
            with anyio.move_on_after(self._inbox_timeout):
                try:
                    self._stats = await self._sources.stats()
                except SfnError:
                    return
                # Only of a disk that just answered: this call can't be given up.
                self._sizes = {name: _size(file) for name, file in self._sources.files.items()}
                self._answers = True

    def _state(self) -> ServiceState:
        sources = self._sources
        return ServiceState(
            now=self._clock.now(),
            stats=self._stats,
            inbox_answers=self._answers,
            file_sizes=self._sizes,
            is_ready=sources.is_ready(),
            reached_catalogs=frozenset(sources.reached_catalogs()),
            breakers=tuple(sources.breakers()),
        )

    def _write(self, accept: str, state: ServiceState) -> Exposition:
        encode, media_type = negotiate_format(accept)
        return Exposition(media_type, encode(_ScrapeCollector(self._registry, gauges(state, self._names))))


def negotiate_format(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """How a page is written, and its media type.

    Args:
        accept: a header, whatever it says.
    """
    try:
        return choose_encoder(accept)
    except TypeError:
        # The library's answer to a version that is no number.
        return choose_encoder("")


class _ScrapeCollector:
    """Implements the library's `Collector`: what was counted, then how things stand."""

    def __init__(self, registry: CollectorRegistry, current: Iterable[Metric]) -> None:
        self._registry, self._current = registry, current

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
        yield from self._current


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
