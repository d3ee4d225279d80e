"""The faults of a simulated world: of its processes, stores and inboxes, and of requests to a catalog's server."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from sfn.storage import PROPAGATION_SECONDS
from tests.simulation.settings import Setting

SILENT: Final = float("inf")
CUT: Final = 0
"""In the place of a status: nothing is said, and the connection ends."""
UNTOLD: Final = (408, 409, 429, 499, 500, 502, 503, 504, CUT)
"""Answers that say nothing of what became of a request."""
REFUSED: Final = (400, 401, 403)
LONGEST: Final = 1790.0
"""Seconds for which a server tries to do what it was asked for: Iceberg's own up to half an hour."""


@dataclass(slots=True)
class Faults:
    """How bad the world is.

    Attributes:
        kill: the chance that a port's call never returns, before or after its effect.
        stop: the chance that it returns very late.
        fail: the chance that a call of catalog or store fails.
        lag: how far replicas of the catalog may be behind, in seconds.
        least_lag: how far those that lag are behind at least.
        lagging: the chance that a lagging replica answers.
        conditional_delete: whether the store can delete on a condition.
        store_down: spells without a store.
        read_only: spells in which a policy denies every change; each folder learns of it a while later.
        inbox_full: spells in which the inbox takes nothing.
        slow: the chance that a transaction of the inbox takes as long as its disk hangs; all others wait for it.
        cut: the chance that a statement to a shared inbox ends the connection.
        unheard: the chance that a process is not told what another one tells all.
        calm: nothing is killed, stopped or fails any more; replicas still lag.
        is_still: whoever is told something hears it, and looks seldom.
    """

    kill: float = 0.008
    stop: float = 0.008
    fail: float = 0.04
    lag: float = 4.0
    least_lag: float = 0.0
    lagging: float = 0.25
    conditional_delete: bool = True
    store_down: list[tuple[float, float]] = field(default_factory=list)
    read_only: list[tuple[float, float]] = field(default_factory=list)
    inbox_full: list[tuple[float, float]] = field(default_factory=list)
    slow: float = 0.0
    cut: float = 0.0
    unheard: float = 0.0
    calm: bool = False
    is_still: bool = False

    def is_read_only(self, key: str, now: float) -> bool:
        """Whether a file may not be written or deleted now."""
        folder = key.rpartition("/")[0]
        late = zlib.crc32(folder.encode()) / 2**32 * 0.9 * PROPAGATION_SECONDS
        return any(start + late <= now < end + late for start, end in self.read_only)


def faults_of(setting: Setting) -> Faults:
    """The faults of a random history."""
    if setting.replicas:
        return Faults(kill=0.012, cut=0.003, unheard=0.3, conditional_delete=setting.conditional_delete)
    usual = Faults(conditional_delete=setting.conditional_delete, slow=0.01 if setting.slow_inbox else 0.0)
    # Who is killed all the time lives to pay no debt.
    return replace(usual, kill=usual.kill / 3, stop=usual.stop / 3) if setting.gateway else usual


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one request.

    Attributes:
        done: seconds until it is done, if it can be then; None: it never is.
        ended: seconds until it is answered; `SILENT` for never.
        status: what is answered, or `CUT`; None: what came of it, once that is known.
        twice: what stands before the server sends it once more as soon as it was done, and hands on that answer.
        whole: the body of the answer does not break off.
    """

    done: float | None = 0.1
    ended: float = 0.1
    status: int | None = None
    twice: bool = False
    whole: bool = True


def drawn(rng: random.Random) -> Fate:
    """The fate of a request in a random history."""
    fate: Callable[[random.Random], Fate] = rng.choices(list(_FATES), list(_FATES.values()))[0]
    return fate(rng)


def _plain(rng: random.Random) -> Fate:
    return Fate(rng.uniform(0, 0.3), rng.uniform(0, 0.5), whole=rng.random() < 0.9)


def _slow(rng: random.Random) -> Fate:
    return Fate(rng.uniform(1, 90))


def _refused(rng: random.Random) -> Fate:
    return Fate(None, rng.uniform(0, 1), rng.choice(REFUSED))


def _failed(rng: random.Random) -> Fate:
    return Fate(None, _sometime(rng), rng.choice(UNTOLD))


def _hidden(rng: random.Random) -> Fate:
    return Fate(rng.uniform(0, 5), _sometime(rng), rng.choice(UNTOLD))


def _held(rng: random.Random) -> Fate:
    return Fate(rng.uniform(5, LONGEST), _sometime(rng), rng.choice(UNTOLD))


def _twice(rng: random.Random) -> Fate:
    return Fate(rng.uniform(0, 0.3), twice=True)


def _sometime(rng: random.Random) -> float:
    return rng.choice([rng.uniform(0, 1), rng.uniform(1, 60), SILENT])


_FATES: Final = {_plain: 5.0, _slow: 1.0, _refused: 0.7, _failed: 1.0, _hidden: 2.0, _held: 2.5, _twice: 1.5}
