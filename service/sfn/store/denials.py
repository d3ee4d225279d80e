"""Whether a permission is missing for one table, or for all: a service says the same in both cases."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sfn.errors import Scope

SETTLED: Final = 60.0
"""Seconds after which a change of permissions has reached all of a service: before, one request passes, another not."""
KEPT: Final = 4096
"""Folders that are remembered."""


@dataclass(slots=True)
class _Denied:
    """One verb in one folder.

    Attributes:
        first: when it was denied there first, in seconds.
        alone: when it was denied there although it had been permitted elsewhere long after that; None before.
    """

    first: float
    alone: float | None = None


class Denials:
    """Judges refusals by what is permitted elsewhere.

    A policy that was changed by mistake denies everything, and must not make every table a dead letter. So a refusal
    is the store's, until the same was permitted in another folder long enough after it. That may have been how the
    mistake ended, which does not reach all folders at once either: so it must be refused as long after that, too.

    Args:
        seconds: a clock that only goes forward.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._denied: OrderedDict[tuple[str, str], _Denied] = OrderedDict()
        self._permitted: dict[str, float] = {}

    def permitted(self, verb: str, folder: str) -> None:
        """A verb was carried out in a folder."""
        self._denied.pop((verb, folder), None)
        self._permitted[verb] = self._seconds()

    def denied(self, verb: str, folder: str) -> Scope:
        """A verb was denied in a folder: whose trouble it is."""
        now = self._seconds()
        denied = self._denied.setdefault((verb, folder), _Denied(now))
        if len(self._denied) > KEPT:
            self._denied.popitem(last=False)
        last = self._permitted.get(verb)
        if denied.alone is None and last is not None and last >= denied.first + SETTLED:
            denied.alone = now
        return Scope.TABLE if denied.alone is not None and now >= denied.alone + SETTLED else Scope.STORE
