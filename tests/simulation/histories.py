"""The kinds of histories that are run, and one history by its seed."""

from __future__ import annotations

import traceback
from collections import Counter

from structlog.testing import capture_logs

from tests.simulation.life import OPERATIONS, SWITCHES
from tests.simulation.setting import Report, Setting
from tests.simulation.telling import BY_UUID, CONVERGING, IN_ORDER, TELLABLE
from tests.simulation.world import World


def _only(*names: str) -> dict[str, float]:
    return {name: OPERATIONS[name] for name in names}


KINDS = {
    "everything": Setting(),
    "plain": Setting(_only("create", "commit", "drop", "recreate"), names=2, places=3),
    "renames": Setting(_only("create", "commit", "rename", "swap", "blue_green"), names=3, places=3),
    "relocations": Setting(_only("create", "commit", "relocate", "drop", "recreate"), names=2, places=3),
    "rollbacks": Setting(_only("create", "commit", "rollback"), names=2, places=3),
    "shared": Setting(_only("create", "commit", "drop", "recreate", "rename"), places=2, shared=True),
    "catalogs": Setting(_only("create", "commit", "relocate", "drop", "rename"), names=3, places=3, catalogs=2),
    "blank": Setting(_only("create", "commit", "rename", "drop", "recreate"), outage="blank", max_drops=3),
    "down": Setting(outage="down", store_outage=True),
    "lost": Setting(_only("create", "commit", "rename", "drop", "recreate", "relocate"), inbox_lost=True),
    "no-delete": Setting(conditional_delete=False),
    "twice": Setting(inboxes=2),
    "switched": Setting(OPERATIONS | SWITCHES),
    "slow": Setting(slow_inbox=True),
    "poison": Setting(crashes=2),
    "told": Setting(CONVERGING, told=BY_UUID),
    "told-in-order": Setting(TELLABLE, told=IN_ORDER, store_outage=True),
}


def kind_of(seed: int) -> str:
    """The kind that a seed has when none is asked for."""
    return list(KINDS)[seed % len(KINDS)]


def history(seed: int, kind: str | None = None) -> Report:
    """Run one."""
    world = World(seed, KINDS[kind or kind_of(seed)])
    try:
        # A history has a trace of its own: what the service logs would be printed.
        with capture_logs():
            return world.run()
    except Exception:  # noqa: BLE001 - a history that breaks down is a bad one, and says how
        return Report(seed, [("exception", traceback.format_exc()[-1500:])], 0, Counter(), world.trace)


def history_in_brief(seed: int, kind: str | None) -> Report:
    """A history without its trace, to be sent between processes."""
    report = history(seed, kind)
    report.trace.clear()
    return report
