"""`python -m tests.faults.hurried_service serve --config FILE`: the service with little patience for its stores."""

from __future__ import annotations

from typing import Final

from sfn.cli import main
from sfn.storage import remote_store

ANSWERED_WITHIN: Final = 1.0
"""Seconds for one request to a store: half a minute is too long for a test of what never answers."""


if __name__ == "__main__":
    defaults = remote_store.HttpPool.__init__.__kwdefaults__
    assert defaults == {"limit": remote_store.REQUEST_TIMEOUT}, "the pool's patience is set elsewhere now"
    defaults["limit"] = ANSWERED_WITHIN
    main.main()
