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
from sfn.telemetry.gauges import Bounds, Breaker, Figures, Moment, gauges

PATIENCE: Final = 1.0
"""Seconds that the inbox may take: a scrape has 10 s, and may be the only one who tells that a disk hangs."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Whom a scrape asks. But for the first one nothing of it may wait.

    Attributes:
        figures: the inbox in numbers; an `SfnError` is no answer.
        files: those of the inbox; one that is not there has no bytes.
        ready: whether the process wants traffic.
        reached: which catalogs have answered.
        breakers: those that are not closed.
    """

    figures: Callable[[], Awaitable[Figures]]
    files: Mapping[str, Path]
    ready: Callable[[], bool]
    reached: Callable[[], Collection[str]]
    breakers: Callable[[], Collection[Breaker]]


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
        watched: what is read at that moment.
        bounds: the configured names.
        clock: the wall clock.
        patience: seconds that the inbox is waited for; then what it said last is what there is.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        watched: Watched,
        bounds: Bounds,
        clock: Clock,
        patience: float = PATIENCE,
    ) -> None:
        self._registry, self._watched, self._bounds, self._clock = registry, watched, bounds, clock
        self._patience = patience
        self._asking, self._asked = anyio.Lock(), 0
        self._writing = anyio.CapacityLimiter(1)
        self._figures: Figures | None = None
        self._sizes: Mapping[str, int] = {}
        self._answers = False

    async def __call__(self, accept: str) -> Exposition:
        """The metrics in the format that the client likes best.

        Args:
            accept: its `Accept` header, may be empty.
        """
        await self._ask()
        # In a thread: where there are many catalogs the text takes longer to write than a request may wait.
        return await anyio.to_thread.run_sync(self._written, accept, self._moment(), limiter=self._writing)

    async def _ask(self) -> None:
        """Ask the inbox. Who came while it was being asked shares the next answer: a flood asks one at a time."""
        arrived = self._asked
        async with self._asking:
            if self._asked > arrived:
                return
            self._asked += 1
            self._answers = False
            with anyio.move_on_after(self._patience):
                try:
                    self._figures = await self._watched.figures()
                except SfnError:
                    return
                # Only of a disk that just answered: this call can't be given up.
                self._sizes = {name: _size(file) for name, file in self._watched.files.items()}
                self._answers = True

    def _moment(self) -> Moment:
        watched = self._watched
        return Moment(
            now=self._clock.now(),
            figures=self._figures,
            answers=self._answers,
            sizes=self._sizes,
            ready=watched.ready(),
            reached=frozenset(watched.reached()),
            breakers=tuple(watched.breakers()),
        )

    def _written(self, accept: str, moment: Moment) -> Exposition:
        encode, media_type = negotiated(accept)
        return Exposition(media_type, encode(_Page(self._registry, gauges(moment, self._bounds))))


def negotiated(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """How a page is written, and its media type.

    Args:
        accept: a header, whatever it says.
    """
    try:
        return choose_encoder(accept)
    except TypeError:
        # The library's answer to a version that is no number.
        return choose_encoder("")


class _Page:
    """Implements the library's `Collector`: what was counted, then how things stand."""

    def __init__(self, registry: CollectorRegistry, standing: Iterable[Metric]) -> None:
        self._registry, self._standing = registry, standing

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
        yield from self._standing


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
