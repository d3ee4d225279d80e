"""What is counted and timed of what passes through gateways."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

_KINDS: Final = {True: "commit", False: "other"}
_ANSWERS: Final = ("2xx", "3xx", "4xx", "5xx", "none")
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class GatewayMetrics:
    """The counters of all gateways.

    Args:
        registry: where they are read.
        names: the configured gateways.
    """

    def __init__(self, registry: CollectorRegistry, names: Collection[str]) -> None:
        self._requests = Counter(
            "sfn_gateway_requests_total",
            "Requests that passed to a catalog, by whether they may change a table, and the catalog's answer, if any.",
            ("gateway", "kind", "answer"),
            registry=registry,
        )
        self._seconds = Histogram(
            "sfn_gateway_seconds",
            "From the request to the header of the catalog's answer; of a commit without its note before.",
            ("gateway", "kind"),
            registry=registry,
            buckets=_SECONDS,
        )
        self._unnoted = Counter(
            "sfn_gateway_unnoted_total",
            "Commits that passed without a note, as the inbox took none: their catalog is swept instead.",
            ("gateway",),
            registry=registry,
        )
        self._unmapped = Counter(
            "sfn_gateway_unmapped_total",
            "Commits that passed under a prefix that gateway.NAME.catalogs does not have: left to the sweep.",
            ("gateway",),
            registry=registry,
        )
        self._gateways = {
            name: GatewayCounters(name, self._requests, self._seconds, self._unnoted, self._unmapped) for name in names
        }

    def get(self, name: str) -> GatewayCounters:
        """The counters of one gateway."""
        return self._gateways[name]


class GatewayCounters:
    """The counters of one gateway, looked up once: that takes longer than to count."""

    def __init__(self, name: str, requests: Counter, seconds: Histogram, unnoted: Counter, unmapped: Counter) -> None:
        self._requests = {
            (change, answer): requests.labels(name, kind, answer)
            for change, kind in _KINDS.items()
            for answer in _ANSWERS
        }
        self._seconds = {change: seconds.labels(name, kind) for change, kind in _KINDS.items()}
        self._unnoted, self._unmapped = unnoted.labels(name), unmapped.labels(name)

    def answered(self, *, change: bool, status: int | None, seconds: float) -> None:
        """The header of an answer came after so long; None: none did.

        Args:
            change: the request may change a table.
            status: HTTP status.
        """
        answer = "none" if status is None else f"{status // 100}xx"
        self._requests[change, answer if answer in _ANSWERS else "none"].inc()
        self._seconds[change].observe(seconds)

    def count_unrecorded(self) -> None:
        """A commit passed that the inbox did not take."""
        self._unnoted.inc()

    def count_unmapped(self) -> None:
        """A commit passed under a prefix that belongs to no catalog of ours."""
        self._unmapped.inc()
