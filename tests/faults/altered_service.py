"""The service with one property changed: `python -m tests.faults.altered_service CHANGE serve --config FILE`.

All else is as in the product. The changes:

- `asking`: the catalog is asked for open intents thirty times sooner, after 1, 4, 20 and 70 seconds. In the product the
  last ask comes after 35 minutes.
- `hurried`: a request to a store may take one second. The product allows half a minute.
- `slow`: the store and the inbox's disk are slow, so that a kill can be aimed at a moment.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from sfn.app import service
from sfn.cli import main
from sfn.inbox import intents
from sfn.inbox.sqlite_writer import SqliteWriter
from sfn.settings import load
from sfn.storage import remote_store
from tests.faults.stores import SlowStore

ASKING: Final = "tests.faults.altered_service asking"
HURRIED: Final = "tests.faults.altered_service hurried"
SLOW: Final = "tests.faults.altered_service slow"
"""Values of `Setting.module`, one for each change."""

SOONER: Final = 30
ASKS: Final = tuple(pause / SOONER for pause in intents.CHECK_DELAYS)

ANSWERED_WITHIN: Final = 1.0
"""Seconds for one request to a store of a `hurried` service."""

HALF_A_CALL: Final = 0.025
"""Seconds that the store takes before and after it does something."""
A_COMMIT: Final = 0.01
"""Seconds that the inbox's disk takes: what is acknowledged before it is on disk is there to be lost."""


def _ask_sooner() -> None:
    assert vars(intents)["MERGE_WINDOW"] is intents.MERGE_WINDOW, (
        "it is looked up elsewhere now, and would not be shorter"
    )
    vars(intents)["CHECK_DELAYS"] = ASKS
    vars(intents)["MERGE_WINDOW"] = intents.MERGE_WINDOW / SOONER
    main.main()


def _hurry() -> None:
    defaults = remote_store.HttpPool.__init__.__kwdefaults__
    assert defaults == {"limit": remote_store.REQUEST_TIMEOUT}, "the pool's patience is set elsewhere now"
    defaults["limit"] = ANSWERED_WITHIN
    main.main()


def _slow_down() -> None:
    run_transaction = SqliteWriter._run  # noqa: SLF001 - a slow disk is none of the product's settings

    def run_slowly(writer: SqliteWriter, *calls: Any, **options: Any) -> None:  # noqa: ANN401 - as it is called
        time.sleep(A_COMMIT)
        run_transaction(writer, *calls, **options)

    SqliteWriter._run = run_slowly  # type: ignore[method-assign, assignment] # noqa: SLF001
    raise SystemExit(service.run(load(Path(sys.argv[-1])), wrap_store=partial(SlowStore, seconds=HALF_A_CALL)))


if __name__ == "__main__":
    {"asking": _ask_sooner, "hurried": _hurry, "slow": _slow_down}[sys.argv.pop(1)]()
