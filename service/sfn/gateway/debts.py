"""Catalogs that must be swept, since a commit went through that the inbox did not take. In memory alone."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import anyio
import structlog

from sfn.domain.events import InboxMessage, Intent, Notification
from sfn.domain.identifiers import CatalogName
from sfn.errors import FatalError, Transient
from sfn.inbox import InboxWriter

RETRY_INTERVAL: Final = 1.0
"""Seconds from one try to the next."""
SENDER: Final = "gateway"
"""As whom debts are paid."""

_log = structlog.stdlib.get_logger(__name__)


class OwedSweeps:
    """What is owed to an inbox, and paid once it takes something again.

    Args:
        inbox: the inbox.
    """

    def __init__(self, inbox: InboxWriter) -> None:
        self._inbox = inbox
        self._owed: dict[str, str] = {}
        self._wakeup = anyio.Event()

    def add(self, catalog: str, intent_id: str) -> None:
        """Have a catalog swept as soon as can be, and when an intent of it is asked for.

        A first sweep may come too early: a replica of the catalog lags, or the commit is still on its way there.

        Args:
            intent_id: the intent's id, which nobody else has.
        """
        # The last one's: an earlier one may have been opened by a payment of which nobody knows.
        self._owed[catalog] = intent_id
        self._wakeup.set()

    async def run(self) -> None:
        """Pay whatever comes up, for ever.

        Raises:
            Broken: the inbox can't be trusted any more.
        """
        while True:
            await self._wakeup.wait()
            # Before looking: what is owed meanwhile rings again.
            self._wakeup = anyio.Event()
            if not await self.put_all():
                await anyio.sleep(RETRY_INTERVAL)
                self._wakeup.set()

    async def put_at_shutdown(self) -> None:
        """One more try, for a moment: the process ends, and what is owed still is forgotten with it."""
        with suppress(FatalError), anyio.move_on_after(RETRY_INTERVAL, shield=True):
            await self.put_all()
        if self._owed:
            _log.error("sweeps owed and forgotten", catalogs=sorted(self._owed), remedy="sfn reconcile")

    async def put_all(self) -> bool:
        """Whether nothing is owed any more."""
        owed = dict(self._owed)
        if not owed:
            return True
        messages: list[InboxMessage] = []
        for catalog, intent_id in sorted(owed.items()):
            subject = CatalogName(catalog)
            messages += [Intent(intent_id, (subject,), SENDER), Notification(subject, SENDER)]
        try:
            await self._inbox.put(messages)
        except Transient:
            return False
        # What came to be owed meanwhile has a number of its own.
        self._owed = dict(self._owed.items() - owed.items())
        _log.info("sweeps made up for commits that were not noted", catalogs=sorted(owed))
        return not self._owed
