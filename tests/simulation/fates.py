"""What becomes of a request that reaches a catalog's server: whether and when it is done, and what is said of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SILENT: Final = float("inf")
CUT: Final = 0
"""In the place of a status: nothing is said, and the connection ends."""
UNTOLD: Final = (408, 409, 429, 499, 500, 502, 503, 504, CUT)
"""Answers that say nothing of what became of a request."""
REFUSED: Final = (400, 401, 403)
LONGEST: Final = 1790.0
"""Seconds for which a server tries to do what it was asked for: Iceberg's own up to half an hour."""


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
