"""Catalogs that must be swept, since a commit went through that the inbox did not take. In memory alone."""

from __future__ import annotations

from typing import Final

import anyio
import structlog

from sfn.errors import Transient
from sfn.inbox import Intake
from sfn.words import CatalogName, Hint

AGAIN: Final = 1.0
"""Seconds from one try to the next."""

_log = structlog.stdlib.get_logger(__name__)


class Debts:
    """What is owed to an inbox, and paid once it takes something again.

    Args:
        intake: the inbox.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._owed: set[str] = set()
        self._bell = anyio.Event()

    def owe(self, catalog: str) -> None:
        """Have a catalog swept as soon as can be."""
        self._owed.add(catalog)
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

    async def pay_once(self) -> bool:
        """Whether nothing is owed any more."""
        catalogs, self._owed = self._owed, set()
        if not catalogs:
            return True
        try:
            await self._intake.put([Hint(CatalogName(catalog), "gateway") for catalog in sorted(catalogs)])
        except Transient:
            self._owed |= catalogs
            return False
        _log.info("sweeps made up for commits that were not noted", catalogs=sorted(catalogs))
        return not self._owed
