"""Catalogs that must be swept, since a commit went through that the inbox did not take. In memory alone."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import anyio
import structlog

from sfn.errors import Broken, Transient
from sfn.inbox import Intake
from sfn.words import CatalogName, Hint, Intent, Note

AGAIN: Final = 1.0
"""Seconds from one try to the next."""
SENDER: Final = "gateway"
"""As whom debts are paid."""

_log = structlog.stdlib.get_logger(__name__)


class Debts:
    """What is owed to an inbox, and paid once it takes something again.

    Args:
        intake: the inbox.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._owed: dict[str, str] = {}
        self._bell = anyio.Event()

    def owe(self, catalog: str, number: str) -> None:
        """Have a catalog swept as soon as can be, and when an intent of it is asked for.

        A first sweep may come too early: a replica of the catalog lags, or the commit is still on its way there.

        Args:
            number: the intent's id, which nobody else has.
        """
        # The last one's: an earlier one may have been opened by a payment of which nobody knows.
        self._owed[catalog] = number
        self._bell.set()

    async def pay(self) -> None:
        """Pay whatever comes up, for ever.

        Raises:
            Broken: the inbox can't be trusted any more.
        """
        while True:
            await self._bell.wait()
            # Before looking: what is owed meanwhile rings again.
            self._bell = anyio.Event()
            if not await self.pay_once():
                await anyio.sleep(AGAIN)
                self._bell.set()

    async def pay_at_last(self) -> None:
        """One more try, for a moment: the process ends, and what is owed still is forgotten with it."""
        with suppress(Broken), anyio.move_on_after(AGAIN, shield=True):
            await self.pay_once()
        if self._owed:
            _log.error("sweeps owed and forgotten", catalogs=sorted(self._owed), remedy="sfn reconcile")

    async def pay_once(self) -> bool:
        """Whether nothing is owed any more."""
        owed = dict(self._owed)
        if not owed:
            return True
        notes: list[Note] = []
        for catalog, number in sorted(owed.items()):
            subject = CatalogName(catalog)
            notes += [Intent(number, (subject,), SENDER), Hint(subject, SENDER)]
        try:
            await self._intake.put(notes)
        except Transient:
            return False
        # What came to be owed meanwhile has a number of its own.
        self._owed = dict(self._owed.items() - owed.items())
        _log.info("sweeps made up for commits that were not noted", catalogs=sorted(owed))
        return not self._owed
