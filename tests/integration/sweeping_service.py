"""`python -m tests.integration.sweeping_service serve --config FILE`: the service, that sweeps a catalog again at once.

How long two sweeps of one are kept apart is a constant of the product, and longer than a test wishes to wait.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sfn.cli import main
from sfn.inbox import transitions

SWEEP_PAUSE: Final = timedelta(seconds=1)

if __name__ == "__main__":
    assert transitions.SWEEP_PAUSE > SWEEP_PAUSE, "they are kept apart by less: this module does nothing any more"
    vars(transitions)["SWEEP_PAUSE"] = SWEEP_PAUSE
    main.main()
