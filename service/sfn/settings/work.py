"""The sections `worker`, `retry` and `sweep`: how hints become files, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from sfn.settings.kinds import AtLeastOne
from sfn.settings.quantities import Duration, DurationOrOff, PositiveDuration, duration_between
from sfn.settings.section import Section


class WorkerSettings(Section):
    """How hints become files.

    Attributes:
        concurrency: publishes at a time.
        lease: how long a publish may be silent before its row is taken from it.
    """

    concurrency: AtLeastOne = 32
    lease: Annotated[Duration, duration_between("1s", "36500d")] = timedelta(seconds=30)


class RetrySettings(Section):
    """How often a table in trouble is tried.

    Attributes:
        base: the first delay; each further one is twice as long.
        cap: the longest delay.
        budget: the age since the first failure at which a table becomes a dead letter.
        max_attempts: the attempts after which it does.
    """

    base: PositiveDuration = timedelta(seconds=1)
    cap: PositiveDuration = timedelta(minutes=5)
    budget: PositiveDuration = timedelta(hours=24)
    # A pause is three quarters of the cap on average: 24 h are some 390 attempts. So it is the age that ends them, and
    # the number only where somebody made the pauses shorter.
    max_attempts: AtLeastOne = 500


class SweepSettings(Section):
    """How often each catalog is walked over.

    Attributes:
        every: from one walk to the next, None for never (`off`).
    """

    every: Annotated[DurationOrOff, duration_between("1s", "36500d")] = timedelta(minutes=15)
