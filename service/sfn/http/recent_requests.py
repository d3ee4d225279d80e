"""`RecentRequests`: the last requests with events, accepted and refused, for operators. Nothing of it is durable.

It has no secrets and no bodies: only who sent how many events about which first table, and the answer.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from itertools import islice
from operator import attrgetter
from typing import Final

import msgspec

from sfn.clock import Clock, SystemClock
from sfn.domain.events import Notification, PutResult
from sfn.domain.identifiers import JobKey

MAX_REQUESTS: Final = 500
"""The most accepted requests, and the most refused ones, in memory."""
FADES_AFTER: Final = timedelta(minutes=10)
"""How long after its last 401 an address counts as refused."""
MIN_UNAUTHORIZED: Final = 3
"""Requests with 401 from which an address counts as refused: a scanner that tries once does not."""
_MAX_CLIENTS: Final = 100
"""The most addresses with counted requests."""
_MAX_REASON: Final = 300
"""The most characters of the reason of a refusal."""
_SYSTEM: Final = SystemClock()


class RecentRequest(msgspec.Struct, frozen=True, gc=False):
    """A request with events.

    Attributes:
        at: time of the answer.
        status: HTTP status of the answer; 202 for pulled events that were accepted.
        sender: the sender; None for one that was not identified.
        client: address of the client; None for pulled events, or if it is unknown.
        event_format: format of the events; None if it is unknown.
        subject: the table, or the catalog, of the first event.
        is_drop: the first event reports a drop.
        notifications: number of decoded notifications; a rename counts as two.
        stored: how many of them are new, and how many are duplicates.
        ignored: number of events that are not relevant.
        reason: why the request was refused; "" for an accepted one.
    """

    at: datetime
    status: int
    sender: str | None
    client: str | None
    event_format: str | None = None
    subject: JobKey | None = None
    is_drop: bool = False
    notifications: int = 0
    stored: PutResult = PutResult(0, 0)
    ignored: int = 0
    reason: str = ""

    @property
    def is_refused(self) -> bool:
        """True if no event of the request was stored."""
        return self.status >= HTTPStatus.BAD_REQUEST


class SenderActivity(msgspec.Struct):
    """The last requests of a sender to this process.

    Attributes:
        accepted: the last accepted request; None if there was none.
        refused: the last refused request of the identified sender; None if there was none.
    """

    accepted: RecentRequest | None = None
    refused: RecentRequest | None = None


class UnauthorizedClient(msgspec.Struct):
    """The requests with status 401 from one address, without a pause of `FADES_AFTER`.

    Attributes:
        client: the address; None if it is unknown.
        since: time of the first of them.
        last_at: time of the last of them.
        count: number of requests.
        reason: why the last of them was refused.
    """

    client: str | None
    since: datetime
    last_at: datetime
    count: int = 0
    reason: str = ""


class RecentRequests:
    """The last requests with events, in memory.

    Args:
        clock: the wall clock.
        senders: names of the configured senders and pull sources.
    """

    def __init__(self, clock: Clock = _SYSTEM, senders: Iterable[str] = ()) -> None:
        self._clock = clock
        # Two rings: many accepted requests must not push out the few that were refused.
        self._accepted: deque[RecentRequest] = deque(maxlen=MAX_REQUESTS)
        self._refused: deque[RecentRequest] = deque(maxlen=MAX_REQUESTS)
        self._activities = {name: SenderActivity() for name in senders}
        self._unauthorized: dict[str | None, UnauthorizedClient] = {}

    @property
    def activities(self) -> Mapping[str, SenderActivity]:
        """The last requests of each sender, by its name."""
        return self._activities

    def record_accepted(
        self,
        sender: str,
        client: str | None,
        event_format: str | None,
        notifications: Sequence[Notification],
        stored: PutResult,
        ignored: int,
    ) -> None:
        """Record an accepted request. Each event pays for this, so it makes one object."""
        subject, is_drop = (notifications[0].subject, notifications[0].drop) if notifications else (None, False)
        request = RecentRequest(
            self._clock.now(), 202, sender, client, event_format, subject, is_drop, len(notifications), stored, ignored
        )
        self._accepted.append(request)
        activity = self._activities.get(sender)
        if activity is None:
            activity = self._activities[sender] = SenderActivity()
        activity.accepted = request

    def record_refused(self, status: int, reason: str, sender: str | None, client: str | None) -> None:
        """Record a refused request.

        Args:
            status: HTTP status of the answer.
            reason: why it was refused, without a secret.
            sender: the identified sender; None if there is none.
            client: address of the client; None if it is unknown.
        """
        now = self._clock.now()
        request = RecentRequest(now, status, sender, client, reason=reason[:_MAX_REASON])
        self._refused.append(request)
        if sender is not None:
            self._activities.setdefault(sender, SenderActivity()).refused = request
        elif status == HTTPStatus.UNAUTHORIZED:
            self._count_unauthorized(client, now, request.reason)

    def latest(self, most: int, *, sender: str | None = None, refused_only: bool = False) -> list[RecentRequest]:
        """Return the newest requests, the newest first.

        Args:
            most: the most requests.
            sender: only those of this sender; "" for those without an identified sender; None for all.
            refused_only: only refused ones.
        """
        rings = (self._refused,) if refused_only else (self._refused, self._accepted)
        newest_first = heapq.merge(*map(reversed, rings), key=attrgetter("at"), reverse=True)
        return list(islice((one for one in newest_first if sender is None or (one.sender or "") == sender), most))

    def unauthorized(self) -> list[UnauthorizedClient]:
        """Return the addresses with repeated 401s, those with the most requests first.

        An address fades `FADES_AFTER` its last such request.
        """
        start = self._clock.now() - FADES_AFTER
        found = [one for one in self._unauthorized.values() if one.last_at >= start and one.count >= MIN_UNAUTHORIZED]
        return sorted(found, key=lambda one: -one.count)

    def senders_at(self, client: str | None) -> list[str]:
        """Return the senders with their last accepted request from an address."""
        if client is None:
            return []
        return [
            name
            for name, activity in self._activities.items()
            if activity.accepted is not None and activity.accepted.client == client
        ]

    def _count_unauthorized(self, client: str | None, now: datetime, reason: str) -> None:
        # Taken out and put back, so that the first of the dictionary is the one that has been silent the longest.
        one = self._unauthorized.pop(client, None)
        if one is None or one.last_at < now - FADES_AFTER:
            one = UnauthorizedClient(client, now, now)
        one.count, one.last_at, one.reason = one.count + 1, now, reason
        self._unauthorized[client] = one
        if len(self._unauthorized) > _MAX_CLIENTS:
            del self._unauthorized[next(iter(self._unauthorized))]
