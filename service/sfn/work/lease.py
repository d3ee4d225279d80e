"""Leases of running claims: renewed at a third of their life; a claim whose lease was lost is cancelled."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import anyio

from sfn.clock import Clock
from sfn.domain.jobs import LeasedJob
from sfn.errors import ExternalError
from sfn.inbox import JobQueue
from sfn.inbox.troubles import InboxErrorLog

RETRY_PAUSE: Final = 1.0
"""Seconds until leases that could not be renewed are tried again."""


class Leases:
    """The running claims of one worker.

    Args:
        worklist: renews them.
        clock: the wall clock.
        lease: how long one lasts unless it is renewed.
        troubles: told when the inbox fails.
    """

    def __init__(self, queue: JobQueue, clock: Clock, lease: timedelta, error_log: InboxErrorLog) -> None:
        self._queue, self._clock, self._lease, self._error_log = queue, clock, lease, error_log
        self._scopes: dict[tuple[object, int], anyio.CancelScope] = {}
        self._claims: dict[tuple[object, int], LeasedJob] = {}
        self._idle, self._busy = anyio.Event(), anyio.Event()
        self._idle.set()

    def add(self, claim: LeasedJob) -> None:
        """A claim begins."""
        if not self._claims:
            self._idle = anyio.Event()
            self._busy.set()
        self._claims[_lease_key(claim)] = claim
        self._scopes[_lease_key(claim)] = anyio.CancelScope()

    def scope(self, claim: LeasedJob) -> anyio.CancelScope:
        """What its work runs in: cancelled when the lease is lost."""
        return self._scopes[_lease_key(claim)]

    def running(self) -> list[LeasedJob]:
        """What is worked on: as long as anything is claimed for it, this process is alive."""
        return list(self._claims.values())

    def remove(self, claim: LeasedJob) -> None:
        """A claim ended."""
        del self._claims[_lease_key(claim)], self._scopes[_lease_key(claim)]
        if not self._claims:
            self._idle.set()
            self._busy = anyio.Event()

    async def wait_until_idle(self) -> None:
        """Return once no claim is running."""
        await self._idle.wait()

    async def run(self) -> None:
        """Renew for ever; who has no claim is not woken."""
        third = self._lease.total_seconds() / 3
        pause = third
        while True:
            await self._busy.wait()
            await anyio.sleep(pause)
            # A call that waited in vain for long leaves little of the lease.
            pause = third if await self.renew_once() is not None else min(RETRY_PAUSE, third)

    async def renew_once(self) -> int | None:
        """Renew all leases once; how many were lost. None: the inbox is in trouble, nothing is renewed or lost yet."""
        claims = dict(self._claims)
        if not claims:
            return 0
        try:
            with self._error_log.log_errors():
                renewed = {_lease_key(claim) for claim in await self._queue.renew(list(claims.values()))}
        except ExternalError:
            return None
        lost = [key for key in claims if key not in renewed and key in self._scopes]
        for key in lost:
            self._scopes[key].cancel()
        return len(lost)


def _lease_key(claim: LeasedJob) -> tuple[object, int]:
    return claim.subject, claim.fencing_token
