"""How the sources are that events are fetched from."""

from __future__ import annotations

from collections.abc import Collection

from prometheus_client import CollectorRegistry, Counter, Gauge


class PullMetrics:
    """How the sources are.

    Args:
        registry: where it is counted.
        sources: the configured ones, by name.
    """

    def __init__(self, registry: CollectorRegistry, sources: Collection[str]) -> None:
        self._connected = Gauge(
            "sfn_pull_connected", "Whether the source delivers what is published.", ("source",), registry=registry
        )
        self._dropped = Counter(
            "sfn_pull_dropped_total",
            "Messages that the inbox was too slow for and nobody keeps; the source's catalogs are swept instead.",
            ("source",),
            registry=registry,
        )
        for source in sources:
            self._connected.labels(source)
            self._dropped.labels(source)

    def set_connected(self, source: str, *, is_connected: bool) -> None:
        """There is a connection, or none any more."""
        self._connected.labels(source).set(is_connected)

    def count_dropped(self, source: str, count: int) -> None:
        """Messages were dropped."""
        self._dropped.labels(source).inc(count)
