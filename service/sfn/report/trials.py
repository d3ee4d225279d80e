"""How long is waited for a catalog, or a store, that does not answer, and how often one table is tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from sfn.errors import Permanent, Scope, Trouble

T = TypeVar("T")

TRIES: Final = 3
"""Looks at a table whose own trouble may pass."""
AT_FIRST: Final = 10.0
"""Seconds that are waited for what has not answered yet."""
_SHORTEST: Final = 0.1
_LONGEST: Final = 5.0


class Trials:
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
        self.given_up: Trouble | None = None

    async def of(self, ask: Callable[[], Awaitable[T]]) -> T:
        """An answer, asked for as often as it takes.

        Raises:
            Trouble: scope table: this table's alone; any other: nothing is asked of that catalog any more.
        """
        tried, pause = 0, _SHORTEST
        while self.given_up is None:
            try:
                found = await ask()
            except Trouble as trouble:
                tried += 1
                if self._is_over(trouble, tried):
                    raise
            else:
                self._since, self._has_answered = None, True
                return found
            await anyio.sleep(pause)
            pause = min(2 * pause, _LONGEST)
        raise self.given_up.with_traceback(None)

    def _is_over(self, trouble: Trouble, tried: int) -> bool:
        if trouble.scope is Scope.TABLE:
            return isinstance(trouble, Permanent) or tried >= TRIES
        now = anyio.current_time()
        self._since = now if self._since is None else self._since
        patience = self._patience if self._has_answered else min(AT_FIRST, self._patience)
        if now - self._since < patience:
            return False
        self.given_up = trouble
        return True
