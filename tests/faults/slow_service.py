"""`python -m tests.faults.slow_service serve --config FILE`: the service on a slow store: a kill can be aimed at it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from sfn import daemon
from sfn.settings import load
from tests.faults.stores import SlowStore

HALF_A_CALL = 0.025

if __name__ == "__main__":
    raise SystemExit(daemon.run(load(Path(sys.argv[-1])), through=partial(SlowStore, seconds=HALF_A_CALL)))
