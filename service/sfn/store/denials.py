"""Decides how far a store's refusal reaches: a service or a file system says the same of one table and of all.

A refusal counts as the store's until the store is seen to carry out the same verb in another folder. So a store that
became read-only opens its circuit breaker, and no table becomes a dead letter for it. A table that alone is refused,
while others are served, has trouble of its own: its attempts count, and after a while it becomes a dead letter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from threading import Lock
from typing import Final, TypeAlias

from sfn.errors import DeniedHere, DeniedNow, Scope

SETTLED: Final = 60.0
"""Seconds until a change of permissions has reached all of a service. Before, one request passes and another does not.
"""
KEPT: Final = 4096
"""Folders that are remembered because they were refused."""
WITNESSES: Final = 8
"""Folders that are remembered of each verb because it was carried out there."""
ASKED: Final = 3
"""Witnesses that one refusal asks at most."""
ATTEMPT: Final = 5.0
"""Seconds within which refusals count as one: an attempt may ask again, with newer credentials."""
STALE: Final = 1800.0
"""Seconds after which an earlier refusal says nothing about a new one: a refused table is tried more often."""

HINT: Final = "version-hint.text"
_METADATA: Final = ".metadata.json"

_What: TypeAlias = tuple[str, str]
"""A verb and a kind of file: a policy may permit documents and deny hints, everywhere."""


class Reach(Enum):
    """How far a refusal reaches."""

    STORE = auto()
    """The whole store, as far as anybody can tell."""
    TABLE = auto()
    """One table: others are served. It may pass, as a change of permissions does not reach all of a store at once."""
    LASTING = auto()
    """One table, for so long that it will not pass by itself."""


DENIED_BY: Final[Mapping[Reach, tuple[type[DeniedNow | DeniedHere], Scope]]] = {
    Reach.STORE: (DeniedNow, Scope.STORE),
    Reach.TABLE: (DeniedNow, Scope.TABLE),
    Reach.LASTING: (DeniedHere, Scope.TABLE),
}
"""The trouble that a missing permission is, by how far it reaches."""


@dataclass(slots=True)
class _Refused:
    """One verb in one folder.

    Attributes:
        first: when it was refused there first, in seconds.
        before: when it was refused there the last time before this one.
        latest: when it was refused there last.
        alone: when it was refused there although it was carried out elsewhere, long after `first`; None before.
    """

    first: float
    before: float
    latest: float
    alone: float | None = None


class Denials:
    """Judges refusals by what is carried out elsewhere. For several threads.

    Args:
        seconds: a clock that only goes forward.
        settled: as `SETTLED`, of this kind of store.
    """

    def __init__(self, seconds: Callable[[], float], settled: float = SETTLED) -> None:
        self._seconds, self._settled = seconds, settled
        self._lock = Lock()
        self._refused: OrderedDict[tuple[_What, str], _Refused] = OrderedDict()
        self._witnesses: dict[_What, OrderedDict[str, tuple[str, float]]] = {}

    def permitted(self, verb: str, key: str) -> None:
        """Note that a verb was carried out.

        Args:
            verb: `read`, `write`, `delete` or `list`.
            key: of which file, or the prefix that was listed.
        """
        what, folder = _what(verb, key), _folder(key)
        with self._lock:
            self._refused.pop((what, folder), None)
            witnesses = self._witnesses.setdefault(what, OrderedDict())
            witnesses[folder] = key, self._seconds()
            witnesses.move_to_end(folder)
            if len(witnesses) > WITNESSES:
                witnesses.popitem(last=False)

    def denied(self, verb: str, key: str) -> list[str]:
        """Note that a verb was refused.

        Returns:
            Keys in other folders where the verb was carried out before, the latest first. Whether it still is shows
            how far the refusal reaches.
        """
        what, folder, now = _what(verb, key), _folder(key), self._seconds()
        with self._lock:
            known = self._refused.get((what, folder))
            if known is None or now > known.latest + STALE:
                self._refused[what, folder] = _Refused(first=now, before=now, latest=now)
            elif now >= known.latest + ATTEMPT:
                known.before, known.latest = known.latest, now
            if len(self._refused) > KEPT:
                self._refused.popitem(last=False)
            witnesses: Mapping[str, tuple[str, float]] = self._witnesses.get(what, {})
            others = [
                witness
                for other, (witness, _) in witnesses.items()
                if other != folder and (what, other) not in self._refused
            ]
            return others[: -ASKED - 1 : -1]

    def reach(self, verb: str, key: str, *, elsewhere: bool | None) -> Reach:
        """Judge the refusal that was noted last.

        Args:
            elsewhere: whether the verb is carried out in another folder now; None where no witness could tell. Then
                the table counts as refused alone if others were served since its refusal before this one.
        """
        what, folder, now = _what(verb, key), _folder(key), self._seconds()
        with self._lock:
            refused = self._refused.get((what, folder))
            if refused is None:
                return Reach.STORE
            if elsewhere is False:
                refused.first, refused.alone = now, None
                return Reach.STORE
            lasting = refused.alone is not None and now >= refused.alone + self._settled
            others = (at for other, (_, at) in self._witnesses.get(what, {}).items() if other != folder)
            seen = now if elsewhere else max(others, default=refused.before)
            if not elsewhere and seen <= refused.before:
                return Reach.LASTING if lasting else Reach.STORE
            if refused.alone is None and seen >= refused.first + self._settled:
                refused.alone = now
            return Reach.LASTING if lasting else Reach.TABLE


def _what(verb: str, key: str) -> _What:
    name = key.rpartition("/")[2]
    if name == HINT:
        return verb, "hint"
    return verb, "metadata" if _METADATA in name else "pointer"


def _folder(key: str) -> str:
    return key.rpartition("/")[0]
