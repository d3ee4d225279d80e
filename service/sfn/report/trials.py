"""How long is waited for a catalog, or a store, that does not answer, and how often one table is tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from sfn.errors import ErrorScope, ExternalError, Permanent

T = TypeVar("T")

MAX_TRIES: Final = 3
"""Looks at a table whose own trouble may pass."""
FIRST_PATIENCE: Final = 10.0
"""Seconds that are waited for what has not answered yet."""
_MIN_PAUSE: Final = 0.1
_MAX_PAUSE: Final = 5.0


class CatalogRetries:
    """What is asked of one catalog and of the stores of its tables.

    Once it was waited for in vain nothing more is asked: each of the others of its tables, perhaps of hundreds of
    thousands, would wait as long.

    Args:
        patience: seconds that are waited for what has answered before.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: float | None = None
        self._has_answered = False
        self.final_error: ExternalError | None = None

    async def call(self, ask: Callable[[], Awaitable[T]]) -> T:
        """An answer, asked for as often as it takes.

        Raises:
            Trouble: scope table: this table's alone; any other: nothing is asked of that catalog any more.
        """
        tried, pause = 0, _MIN_PAUSE
        while self.final_error is None:
            try:
                found = await ask()
            except ExternalError as trouble:
                tried += 1
                if self._is_final(trouble, tried):
                    raise
            else:
                self._since, self._has_answered = None, True
                return found
            await anyio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
        raise self.final_error.with_traceback(None)

    def _is_final(self, trouble: ExternalError, tried: int) -> bool:
        if trouble.scope is ErrorScope.TABLE:
            return isinstance(trouble, Permanent) or tried >= MAX_TRIES
        now = anyio.current_time()
        self._since = now if self._since is None else self._since
        patience = self._patience if self._has_answered else min(FIRST_PATIENCE, self._patience)
        if now - self._since < patience:
            return False
        self.final_error = trouble
        return True
