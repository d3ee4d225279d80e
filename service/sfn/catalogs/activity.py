"""When a catalog was last asked, and whether it answered: what operators see of a catalog without asking it again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NoReturn, Protocol, runtime_checkable

import anyio

from sfn.clock import Clock
from sfn.errors import ExternalError

SLOW_ANSWER: Final = timedelta(seconds=10)
"""After so long a request without an answer is shown to operators; a healthy catalog answers within a second."""
PING_INTERVAL: Final = timedelta(seconds=30)
"""A catalog that answered nothing for so long is asked, so that an outage is seen although nothing is committed."""


FORGOTTEN_AFTER: Final = timedelta(minutes=10)
"""A failure of one kind of request is forgotten after so long, if other kinds have been answered since."""


@dataclass(frozen=True, slots=True)
class CatalogAnswers:
    """What is known of a catalog's answers at one time.

    Attributes:
        answered_at: when the last useful answer came; None if none did since the process started.
        failing_since: start of the first request of the outage; None if no kind of request fails.
        error: why its last request failed; empty if none did.
        asked_at: start of the oldest request that waits for an answer, and that no answer of its kind came after; None
            if there is none.
        waiting_for: that request, for operators; empty if there is none.
    """

    answered_at: datetime | None = None
    failing_since: datetime | None = None
    error: str = ""
    asked_at: datetime | None = None
    waiting_for: str = ""

    def unanswered_since(self, now: datetime) -> datetime | None:
        """Return since when the catalog has not answered; None if it answers."""
        if self.failing_since is not None:
            return self.failing_since
        return self.asked_at if self.asked_at is not None and now - self.asked_at >= SLOW_ANSWER else None

    def cause(self, now: datetime) -> str | None:
        """Return why the catalog has not answered; None if it answers."""
        if self.unanswered_since(now) is None:
            return None
        return self.error or f"no answer yet to {self.waiting_for or 'a request'}"


class Request:
    """A request that waits for its answer.

    Attributes:
        kind: what it asks for. A catalog may answer one kind, such as its configuration, and no other.
        what: the request, for operators.
        started_at: when it was sent.
        failure: why its answer is of no use, set by the adapter; None if it is useful.
        is_neutral: True if its answer says nothing about the catalog as a whole.
    """

    def __init__(self, kind: str, what: str, started_at: datetime) -> None:
        self.kind, self.what, self.started_at = kind, what, started_at
        self.failure: str | None = None
        self.is_neutral = False


@dataclass(frozen=True, slots=True)
class _KindAnswers:
    """The answers to one kind of request: the last useful one, and the failures since.

    Attributes:
        answered_at: when the last useful answer came.
        failing_since: start of the first request that failed since then.
        failed_at: when the last of them failed.
        error: why.
    """

    answered_at: datetime | None = None
    failing_since: datetime | None = None
    failed_at: datetime | None = None
    error: str = ""


class CatalogActivity:
    """The requests to one catalog, recorded by its adapter.

    Args:
        clock: the wall clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[Request, None] = {}
        self._kinds: defaultdict[str, _KindAnswers] = defaultdict(_KindAnswers)

    @property
    def answers(self) -> CatalogAnswers:
        """What is known now."""
        answered = [one.answered_at for one in self._kinds.values() if one.answered_at is not None]
        answered_at = max(answered, default=None)
        first: _KindAnswers | None = None
        for one in self._kinds.values():
            if one.failing_since is None or self._is_forgotten(one, answered_at):
                continue
            if first is None or first.failing_since is None or one.failing_since < first.failing_since:
                first = one
        waiting = next((one for one in self._waiting if self._is_news(one)), None)
        return CatalogAnswers(
            answered_at,
            first.failing_since if first is not None else None,
            first.error if first is not None else "",
            waiting.started_at if waiting is not None else None,
            waiting.what if waiting is not None else "",
        )

    @property
    def is_idle(self) -> bool:
        """True if nothing was answered for `PING_INTERVAL`, and nothing is asked now."""
        answers, now = self.answers, self._clock.now()
        answered_long_ago = answers.answered_at is None or now - answers.answered_at >= PING_INTERVAL
        return answered_long_ago and answers.asked_at is None

    @contextmanager
    def request(self, kind: str = "", what: str = "") -> Iterator[Request]:
        """Record a request, which lasts as long as the block.

        One that is cancelled, or that fails without a `failure`, says nothing about the catalog.

        Args:
            kind: what it asks for; see `Request`.
            what: the request, for operators.
        """
        request = Request(kind, what, self._clock.now())
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
        known, now = self._kinds[request.kind], self._clock.now()
        if request.is_neutral:
            return
        if request.failure is None:
            self._kinds[request.kind] = _KindAnswers(now)
        elif self._is_news(request):
            since = known.failing_since or request.started_at
            self._kinds[request.kind] = _KindAnswers(known.answered_at, since, now, request.failure)

    def _is_news(self, request: Request) -> bool:
        """Return whether no answer to its kind came after a request was sent: else its failure is its own."""
        answered_at = self._kinds[request.kind].answered_at if request.kind in self._kinds else None
        return answered_at is None or answered_at <= request.started_at

    def _is_forgotten(self, kind: _KindAnswers, answered_at: datetime | None) -> bool:
        """Return whether a kind failed long ago, and others are answered: it may never be asked for again."""
        if kind.failed_at is None or answered_at is None:
            return False
        return answered_at > kind.failed_at and self._clock.now() - kind.failed_at >= FORGOTTEN_AFTER


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
