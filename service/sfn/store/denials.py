"""Whether a permission is missing for one table, or for all: a service says the same in both cases."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from sfn.errors import Scope

SETTLED: Final = 60.0
"""Seconds after which a change of permissions has reached all of a service: before, one request passes, another not."""
KEPT: Final = 4096
"""Folders that are remembered."""


class Denials:
    """Judges refusals by what is permitted elsewhere.

    A policy that was changed by mistake denies everything, and must not make every table a dead letter. So a refusal
    is the store's, until the same is permitted in another folder long enough after it.

    Args:
        seconds: a clock that only goes forward.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._first: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._permitted: dict[str, float] = {}

    def permitted(self, verb: str, folder: str) -> None:
        """A verb was carried out in a folder."""
        self._first.pop((verb, folder), None)
        self._permitted[verb] = self._seconds()

    def denied(self, verb: str, folder: str) -> Scope:
        """A verb was denied in a folder: whose trouble it is."""
        first = self._first.setdefault((verb, folder), self._seconds())
        if len(self._first) > KEPT:
            self._first.popitem(last=False)
        last = self._permitted.get(verb)
        return Scope.TABLE if last is not None and last >= first + SETTLED else Scope.STORE
