"""The kinds of histories that are run, and one history by its seed."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import replace

from structlog.testing import capture_logs

from sfn.sfnfile.naming import ORDINAL, UUID, Placement
from tests.simulation.events import BY_UUID, CONVERGING, IN_ORDER, TELLABLE
from tests.simulation.gateway import PASSING
from tests.simulation.operations import BRANCHES, OPERATIONS, RETURNS, SWITCHES
from tests.simulation.settings import UNSWEPT, Files, Report, Setting
from tests.simulation.world import World


def _only(*names: str) -> dict[str, float]:
    return {name: OPERATIONS[name] for name in names}


BY_UUID_NAMED: Files = {"naming": UUID}
COMMITS: Files = {"naming": ORDINAL}
FEW_COMMITS: Files = {"naming": ORDINAL, "keep_commits": 3}
BRANCHED: Files = {"branches": ("main", "r-*")}
ALONGSIDE: Files = {"placement": Placement.ALONGSIDE}
BELOW_ROOT: Files = {"placement": Placement.ROOT, "root": "s3://lake/sfn"}

GROWING = {"create": 6.0, "commit": 3.0}
PLAIN = _only("create", "commit", "drop", "recreate")
RENAMES = _only("create", "commit", "rename", "swap", "blue_green")
SHARED = _only("create", "commit", "drop", "recreate", "rename")
CATALOGS = _only("create", "commit", "relocate", "drop", "rename")
LOST = _only("create", "commit", "rename", "drop", "recreate", "relocate")

KINDS = {
    "everything": Setting(),
    "plain": Setting(PLAIN, names=2, places=3),
    "renames": Setting(RENAMES, names=3, places=3),
    "relocations": Setting(_only("create", "commit", "relocate", "drop", "recreate"), names=2, places=3),
    "rollbacks": Setting(_only("create", "commit", "rollback"), names=2, places=3),
    "shared": Setting(SHARED, places=2, shared=True),
    "catalogs": Setting(CATALOGS, names=3, places=3, catalogs=2),
    "blank": Setting(_only("create", "commit", "rename", "drop", "recreate"), outage="blank", max_drops=3),
    "emptied": Setting(GROWING, names=10, places=10, outage="emptied", max_drops=None, steps=(6, 24)),
    "any-case": Setting(any_case=True, outage="unlisted"),
    "any-case-uuid": Setting(LOST, any_case=True, outage="unlisted", inbox_lost=True, policies=(BY_UUID_NAMED,)),
    "down": Setting(outage="down", store_outage=True),
    "read-only": Setting(read_only=True, busy=900.0),
    "uuid-down": Setting(OPERATIONS | BRANCHES, outage="down", store_outage=True, policies=(BY_UUID_NAMED | BRANCHED,)),
    "commits-down": Setting(outage="down", store_outage=True, policies=(COMMITS,)),
    "lost": Setting(LOST, inbox_lost=True),
    "no-delete": Setting(conditional_delete=False),
    "twice": Setting(inboxes=2),
    "switched": Setting(OPERATIONS | SWITCHES),
    "slow": Setting(slow_inbox=True),
    "power": Setting(power_cuts=True),
    "power-blank": Setting(
        _only("create", "commit", "rename", "drop", "recreate"), outage="blank", max_drops=3, power_cuts=True
    ),
    "power-event-only": Setting(CONVERGING, event_only=BY_UUID, power_cuts=True),
    "poison": Setting(crashes=2),
    "event-only": Setting(CONVERGING, event_only=BY_UUID),
    "event-only-in-order": Setting(TELLABLE, event_only=IN_ORDER, store_outage=True),
    "uuid": Setting(OPERATIONS | BRANCHES, policies=(BY_UUID_NAMED | BRANCHED,)),
    "uuid-renames": Setting(RENAMES, names=3, places=3, policies=(BY_UUID_NAMED,)),
    "uuid-shared": Setting(SHARED, places=2, shared=True, policies=(BY_UUID_NAMED,)),
    "uuid-catalogs": Setting(CATALOGS, names=3, places=3, catalogs=2, policies=(BY_UUID_NAMED,)),
    "uuid-lost": Setting(LOST, inbox_lost=True, policies=(BY_UUID_NAMED,)),
    "uuid-event-only": Setting(CONVERGING, event_only=BY_UUID, policies=(BY_UUID_NAMED,)),
    "commits": Setting(PLAIN, names=2, places=3, policies=(COMMITS,)),
    "commits-everything": Setting(policies=(FEW_COMMITS,)),
    "commits-shared": Setting(SHARED, places=2, shared=True, policies=(FEW_COMMITS,)),
    "commits-catalogs": Setting(CATALOGS, names=3, places=3, catalogs=2, policies=(FEW_COMMITS,)),
    "commits-lost": Setting(LOST, inbox_lost=True, policies=(FEW_COMMITS,)),
    "commits-event-only": Setting(TELLABLE, event_only=IN_ORDER, policies=(FEW_COMMITS,)),
    "branches": Setting(OPERATIONS | BRANCHES, policies=(BRANCHED,)),
    "branches-shared": Setting(SHARED | BRANCHES, places=2, shared=True, policies=(BRANCHED,)),
    "branches-lost": Setting(LOST | BRANCHES, inbox_lost=True, policies=(BRANCHED,)),
    "alongside": Setting(policies=(ALONGSIDE,)),
    "root": Setting(policies=(BELOW_ROOT,)),
    "root-uuid": Setting(policies=(BELOW_ROOT | BY_UUID_NAMED,)),
    "root-commits": Setting(policies=(BELOW_ROOT | FEW_COMMITS,)),
    "cleaned": Setting(cleaned=True),
    "cleaned-alongside": Setting(cleaned=True, policies=(ALONGSIDE,)),
    "cleaned-uuid": Setting(OPERATIONS | BRANCHES, cleaned=True, policies=(BY_UUID_NAMED | BRANCHED,)),
    "cleaned-commits": Setting(cleaned=True, policies=(FEW_COMMITS,)),
    "cleaned-away": Setting(cleaned=True, away=True),
    "cleaned-away-commits": Setting(cleaned=True, away=True, policies=(FEW_COMMITS,)),
    "returns": Setting(OPERATIONS | RETURNS),
    "returns-shared": Setting(SHARED | RETURNS, places=2, shared=True),
    "uuid-returns": Setting(OPERATIONS | RETURNS | BRANCHES, policies=(BY_UUID_NAMED | BRANCHED,)),
    "commits-returns": Setting(OPERATIONS | RETURNS, policies=(FEW_COMMITS,)),
    "resettled": Setting(OPERATIONS | BRANCHES, policies=(BRANCHED, BY_UUID_NAMED | ALONGSIDE, FEW_COMMITS, {})),
}

REPLICAS = Setting(replicas=2, lost=0.1, pace=2.5, busy=100, briefly=True)
KINDS |= {
    "replicas": replace(REPLICAS, operations=PLAIN, names=2, places=3),
    "replicas-everything": replace(REPLICAS, replicas=3),
    "replicas-renames": replace(REPLICAS, operations=RENAMES, names=3, places=3, replicas=3),
    "replicas-shared": replace(REPLICAS, operations=SHARED, places=2, shared=True),
    "replicas-commits": replace(REPLICAS, operations=PLAIN, names=2, places=3, replicas=3, policies=(COMMITS,)),
    "replicas-event-only": replace(REPLICAS, operations=CONVERGING, event_only=BY_UUID, replicas=3),
    "replicas-swept": replace(REPLICAS, lost=0.8, replicas=3),
    "replicas-blank": replace(REPLICAS, operations=KINDS["blank"].operations, outage="blank", max_drops=3, replicas=3),
    "replicas-any-case": replace(REPLICAS, operations=CATALOGS, any_case=True, outage="unlisted"),
    "replicas-emptied": replace(
        REPLICAS, operations=GROWING, names=10, places=10, outage="emptied", max_drops=None, steps=(6, 24), busy=200
    ),
    "replicas-down": replace(REPLICAS, outage="down", store_outage=True, busy=150),
    "replicas-poison": replace(REPLICAS, crashes=2),
}

GATEWAY = Setting(
    PASSING, gateway="refuse", names=3, places=4, busy=150, steps=(6, 14), briefly=True, policies=(UNSWEPT,)
)
KINDS |= {
    "gateway": GATEWAY,
    "gateway-passing": replace(GATEWAY, gateway="pass", inbox_full=True),
    "gateway-slow": replace(GATEWAY, gateway="pass", slow_inbox=True),
    "gateway-power": replace(GATEWAY, power_cuts=True),
    "gateway-replicas": replace(GATEWAY, gateway="pass", replicas=2, busy=100, pace=2.0),
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
