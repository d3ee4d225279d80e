"""When a catalog was last asked, and whether it answered: what operators see of a catalog without asking it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NoReturn, Protocol, runtime_checkable

import anyio

from sfn.clock import Clock
from sfn.errors import ExternalError

SLOW_ANSWER: Final = timedelta(seconds=10)
"""After so long a request without an answer is shown to operators; a healthy catalog answers within a second."""
PING_INTERVAL: Final = timedelta(seconds=30)
"""A catalog that answered nothing for so long is asked, so that an outage is seen although nothing is committed."""


@dataclass(frozen=True, slots=True)
class CatalogAnswers:
    """What is known of a catalog's answers at one time.

    Attributes:
        answered_at: when the last useful answer came; None if none did since the process started.
        failing_since: start of the first of the requests that failed since then; None if the last one succeeded.
        error: why the last of them failed; empty if none did.
        asked_at: start of the oldest request that waits for an answer, and that no answer came after; None if there is
            none.
    """

    answered_at: datetime | None = None
    failing_since: datetime | None = None
    error: str = ""
    asked_at: datetime | None = None

    def unanswered_since(self, now: datetime) -> datetime | None:
        """Return since when the catalog has not answered; None if it answers."""
        if self.failing_since is not None:
            return self.failing_since
        return self.asked_at if self.asked_at is not None and now - self.asked_at >= SLOW_ANSWER else None


class Request:
    """A request that waits for its answer.

    Attributes:
        started_at: when it was sent.
        failure: why its answer is of no use, set by the adapter; None if it is useful.
        is_neutral: True if its answer says nothing about the catalog as a whole.
    """

    def __init__(self, started_at: datetime) -> None:
        self.started_at = started_at
        self.failure: str | None = None
        self.is_neutral = False


class CatalogActivity:
    """The requests to one catalog, recorded by its adapter.

    Args:
        clock: the wall clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[Request, None] = {}
        self._answers = CatalogAnswers()

    @property
    def answers(self) -> CatalogAnswers:
        """What is known now."""
        waiting = (one.started_at for one in self._waiting if self._is_news(one))
        return replace(self._answers, asked_at=next(waiting, None))

    @property
    def is_idle(self) -> bool:
        """True if nothing was answered for `PING_INTERVAL`, and nothing is asked now."""
        answers, now = self.answers, self._clock.now()
        answered_long_ago = answers.answered_at is None or now - answers.answered_at >= PING_INTERVAL
        return answered_long_ago and answers.asked_at is None

    @contextmanager
    def request(self) -> Iterator[Request]:
        """Record a request, which lasts as long as the block.

        One that is cancelled, or that fails without a `failure`, says nothing about the catalog.
        """
        request = Request(self._clock.now())
        self._waiting[request] = None
        try:
            yield request
        except Exception:
            if request.failure is not None:
                self._record(request)
            raise
        else:
            self._record(request)
        finally:
            del self._waiting[request]

    def _record(self, request: Request) -> None:
        known = self._answers
        if request.is_neutral:
            return
        if request.failure is None:
            self._answers = CatalogAnswers(answered_at=self._clock.now())
        elif self._is_news(request):
            since = known.failing_since or request.started_at
            self._answers = CatalogAnswers(known.answered_at, since, request.failure)

    def _is_news(self, request: Request) -> bool:
        """Return whether no answer came after a request was sent: else its failure is not the whole catalog's."""
        return self._answers.answered_at is None or self._answers.answered_at <= request.started_at


@runtime_checkable
class ObservableCatalog(Protocol):
    """A catalog that is asked over a network."""

    @property
    def activity(self) -> CatalogActivity:
        """The requests so far."""
        ...

    async def ping(self) -> None:
        """Send a cheap query, to learn whether the catalog answers.

        Raises:
            Transient, Permanent: it does not.
        """
        ...


async def keep_pinging(catalog: ObservableCatalog) -> NoReturn:
    """Ping a catalog each time it is idle."""
    while True:
        if catalog.activity.is_idle:
            with suppress(ExternalError):
                await catalog.ping()
        await anyio.sleep(PING_INTERVAL.total_seconds() / 2)
