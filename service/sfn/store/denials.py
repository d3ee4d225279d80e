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

from sfn.errors import ErrorScope, Forbidden, ForbiddenForTable

PROPAGATION_SECONDS: Final = 60.0
"""Seconds until a change of permissions has reached all of a service. Before, one request passes and another does not.
"""
MAX_DENIED_FOLDERS: Final = 4096
"""Folders that are remembered because they were refused."""
MAX_WITNESSES: Final = 8
"""Folders that are remembered of each verb because it was carried out there."""
MAX_WITNESSES_TRIED: Final = 3
"""Witnesses that one refusal asks at most."""
SAME_ATTEMPT_SECONDS: Final = 5.0
"""Seconds within which refusals count as one: an attempt may ask again, with newer credentials."""
STALE_SECONDS: Final = 1800.0
"""Seconds after which an earlier refusal says nothing about a new one: a refused table is tried more often."""

HINT_FILE_NAME: Final = "version-hint.text"
_METADATA: Final = ".metadata.json"

_Operation: TypeAlias = tuple[str, str]
"""A verb and a kind of file: a policy may permit documents and deny hints, everywhere."""


class DenialReach(Enum):
    """How far a refusal reaches."""

    STORE = auto()
    """The whole store, as far as anybody can tell."""
    TABLE = auto()
    """One table: others are served. It may pass, as a change of permissions does not reach all of a store at once."""
    TABLE_LASTING = auto()
    """One table, for so long that it will not pass by itself."""


ERROR_BY_REACH: Final[Mapping[DenialReach, tuple[type[Forbidden | ForbiddenForTable], ErrorScope]]] = {
    DenialReach.STORE: (Forbidden, ErrorScope.STORE),
    DenialReach.TABLE: (Forbidden, ErrorScope.TABLE),
    DenialReach.TABLE_LASTING: (ForbiddenForTable, ErrorScope.TABLE),
}
"""The trouble that a missing permission is, by how far it reaches."""


@dataclass(slots=True)
class _Denial:
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


class PermissionTracker:
    """Judges refusals by what is carried out elsewhere. For several threads.

    Args:
        seconds: a clock that only goes forward.
        settled: as `PROPAGATION_SECONDS`, of this kind of store.
    """

    def __init__(self, seconds: Callable[[], float], propagation_seconds: float = PROPAGATION_SECONDS) -> None:
        self._seconds, self._settled = seconds, propagation_seconds
        self._lock = Lock()
        self._refused: OrderedDict[tuple[_Operation, str], _Denial] = OrderedDict()
        self._witnesses: dict[_Operation, OrderedDict[str, tuple[str, float]]] = {}

    def note_permitted(self, verb: str, key: str) -> None:
        """Note that a verb was carried out.

        Args:
            verb: `read`, `write`, `delete` or `list`.
            key: of which file, or the prefix that was listed.
        """
        operation, folder = _operation(verb, key), _folder(key)
        with self._lock:
            self._refused.pop((operation, folder), None)
            witnesses = self._witnesses.setdefault(operation, OrderedDict())
            witnesses[folder] = key, self._seconds()
            witnesses.move_to_end(folder)
            if len(witnesses) > MAX_WITNESSES:
                witnesses.popitem(last=False)

    def note_denied(self, verb: str, key: str) -> list[str]:
        """Note that a verb was refused.

        Returns:
            Keys in other folders where the verb was carried out before, the latest first. Whether it still is shows
            how far the refusal reaches.
        """
        operation, folder, now = _operation(verb, key), _folder(key), self._seconds()
        with self._lock:
            known = self._refused.get((operation, folder))
            if known is None or now > known.latest + STALE_SECONDS:
                self._refused[operation, folder] = _Denial(first=now, before=now, latest=now)
            elif now >= known.latest + SAME_ATTEMPT_SECONDS:
                known.before, known.latest = known.latest, now
            if len(self._refused) > MAX_DENIED_FOLDERS:
                self._refused.popitem(last=False)
            witnesses: Mapping[str, tuple[str, float]] = self._witnesses.get(operation, {})
            others = [
                witness
                for other, (witness, _) in witnesses.items()
                if other != folder and (operation, other) not in self._refused
            ]
            return others[: -MAX_WITNESSES_TRIED - 1 : -1]

    def judge(self, verb: str, key: str, *, elsewhere: bool | None) -> DenialReach:
        """Judge the refusal that was noted last.

        Args:
            elsewhere: whether the verb is carried out in another folder now; None where no witness could tell. Then
                the table counts as refused alone if others were served since its refusal before this one.
        """
        operation, folder, now = _operation(verb, key), _folder(key), self._seconds()
        with self._lock:
            denial = self._refused.get((operation, folder))
            if denial is None:
                return DenialReach.STORE
            if elsewhere is False:
                denial.first, denial.alone = now, None
                return DenialReach.STORE
            lasting = denial.alone is not None and now >= denial.alone + self._settled
            others = (at for other, (_, at) in self._witnesses.get(operation, {}).items() if other != folder)
            served_at = now if elsewhere else max(others, default=denial.before)
            if not elsewhere and served_at <= denial.before:
                return DenialReach.TABLE_LASTING if lasting else DenialReach.STORE
            if denial.alone is None and served_at >= denial.first + self._settled:
                denial.alone = now
            return DenialReach.TABLE_LASTING if lasting else DenialReach.TABLE


def _operation(verb: str, key: str) -> _Operation:
    name = key.rpartition("/")[2]
    if name == HINT_FILE_NAME:
        return verb, "hint"
    return verb, "metadata" if _METADATA in name else "pointer"


def _folder(key: str) -> str:
    return key.rpartition("/")[0]
