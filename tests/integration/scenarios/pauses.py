"""All scenarios of a batch stop the service together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Barrier

from tests.integration.scenarios.service import PATIENCE, Service


class Pauses:
    """Stops a service once the last scenario wants it stopped, and starts it once the last one is through.

    Args:
        service: it.
        parties: how many scenarios there are, each in a thread of its own.
    """

    def __init__(self, service: Service, parties: int) -> None:
        self._stop = Barrier(parties, service.stop, PATIENCE)
        self._start = Barrier(parties, service.start, PATIENCE)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """While it is open nothing is published."""
        self._stop.wait()
        yield
        self._start.wait()

    def give_up(self) -> None:
        """Have nobody wait for a scenario that failed."""
        self._stop.abort()
        self._start.abort()
