"""`python -m tests.faults.slow_service serve --config FILE`: the service on slow disks: a kill can be aimed at it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sfn.app import service
from sfn.inbox.sqlite import group_commit
from sfn.inbox.sqlite.group_commit import WriterJob, run_transaction
from sfn.inbox.sqlite.operations import SqliteOperations
from sfn.settings import load
from tests.faults.stores import SlowStore

HALF_A_CALL = 0.025
"""Seconds that the store takes before and after it does something."""
A_COMMIT = 0.01
"""Seconds that the inbox's disk takes: what is acknowledged before it is on disk is there to be lost."""


def transact_slowly(ledger: SqliteOperations, jobs: Sequence[WriterJob[Any]]) -> None:
    """One transaction, on a slow disk."""
    time.sleep(A_COMMIT)
    run_transaction(ledger, jobs)


if __name__ == "__main__":
    names = vars(group_commit)
    assert names["run_transaction"] is run_transaction, "the committer calls something else now, and would not be slow"
    names["run_transaction"] = transact_slowly
    raise SystemExit(service.run(load(Path(sys.argv[-1])), wrap_store=partial(SlowStore, seconds=HALF_A_CALL)))
