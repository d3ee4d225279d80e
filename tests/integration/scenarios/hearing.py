"""How the service learns of what happens: plays that begin together have it stopped, or sweep, together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Barrier

from sfn.sfnfile.naming import NAMINGS
from tests.integration.scenarios.service import PATIENCE, Service
from tests.integration.scenarios.stage import Stage


class Told:
    """It is told of each change as it happens."""

    @contextmanager
    def changes(self, stage: Stage) -> Iterator[None]:
        yield

    def give_up(self) -> None:
        """Nobody waits for anybody."""


class Outage:
    """It is stopped while tables change, and told of each play's last change alone once it runs again.

    It sweeps when it starts, and is told meanwhile; what is absent must be so after another sweep too.

    Args:
        service: it.
        parties: how many plays there are, each in a thread of its own.
    """

    def __init__(self, service: Service, parties: int) -> None:
        self._stop = Barrier(parties, service.stop, PATIENCE)
        self._start = Barrier(parties, service.start, PATIENCE)
        sweeps = (service.first_sweep, service.sweep)
        self._sweeps = [Barrier(parties, partial(sweep, [*NAMINGS]), PATIENCE) for sweep in sweeps]

    @contextmanager
    def changes(self, stage: Stage) -> Iterator[None]:
        self._stop.wait()
        with stage.muted():
            yield
        self._start.wait()
        stage.tell_last()
        for sweep in self._sweeps:
            stage.until_looked_at()
            sweep.wait()
        stage.settle()

    def give_up(self) -> None:
        """Have nobody wait for a play that failed."""
        for barrier in (self._stop, self._start, *self._sweeps):
            barrier.abort()


class Silence:
    """Nobody tells it of a change: sweeps find what has become of the tables.

    Two of them: what is absent counts as dropped once a sweep came between two looks at it.

    Args:
        service: it.
        parties: how many plays there are, each in a thread of its own.
    """

    def __init__(self, service: Service, parties: int) -> None:
        self._sweeps = [Barrier(parties, partial(service.sweep, [*NAMINGS]), PATIENCE) for _ in range(2)]

    @contextmanager
    def changes(self, stage: Stage) -> Iterator[None]:
        with stage.muted():
            yield
        for sweep in self._sweeps:
            sweep.wait()
            stage.until_looked_at()
        stage.settle()

    def give_up(self) -> None:
        """Have nobody wait for a play that failed."""
        for sweep in self._sweeps:
            sweep.abort()
