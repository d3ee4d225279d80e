"""How often the disk is synced for an event before it is acknowledged, as the system sees it."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.events import event, telling
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import Setting, refusing, service
from tests.bench.wrk import installed

GOAL: Final = Goal("value", ">=", 1)
REQUESTS: Final = 200

_CALL: Final = re.compile(
    r"(\d+) +(\d+\.\d+) f(?:data)?sync\(\d+<(.*)>(?:\) += (-?\d+).*<(\d+\.\d+)>| <unfinished \.\.\.>)"
)
_RESUMED: Final = re.compile(r"(\d+) +\d+\.\d+ <\.\.\. f(?:data)?sync resumed>\) += (-?\d+).*<(\d+\.\d+)>")


@dataclass(frozen=True, slots=True)
class Sync:
    """One call that synced a file, successfully.

    Attributes:
        path: the file.
        began, ended: Unix seconds.
    """

    path: str
    began: float
    ended: float


def measure(requests: int, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Send events one after the other, each as soon as the last one is acknowledged: so each is a commit of its own.

    Raises:
        Unmeasured: there is no strace, or it may not trace.
    """
    _check_allowed()
    trace, warehouse = folder / "trace", folder / "warehouse"
    warehouse.mkdir(parents=True)
    launcher = [installed("strace"), "-f", "-ttt", "-T", "-y", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
    with refusing() as uri:
        setting = Setting(folder / "sfn", uri, warehouse, launcher=launcher)
        with service(setting) as running, telling(running.url) as teller:
            spans = [_told(teller.tell, f"t{number}") for number in range(requests)]
    syncs = [sync for sync in parse(trace.read_text().splitlines()) if sync.path == f"{setting.inbox.resolve()}-wal"]
    say(f"fsyncs: {len(syncs)} of the inbox's log for {requests} events, each a commit")
    return [
        Figure(
            name="fsyncs_per_commit",
            unit="fsyncs",
            runs=[Run(float(min(within(syncs, spans))))],
            goal=GOAL,
            short=requests < REQUESTS,
            note=f"the least of {requests} events, between request and answer",
        )
    ]


def parse(lines: Iterable[str]) -> list[Sync]:
    """What strace told of, but for calls that failed (`-f -ttt -T -y`)."""
    syncs: list[Sync] = []
    open_calls: dict[str, tuple[str, float]] = {}
    for line in lines:
        if (call := _CALL.match(line)) is not None:
            thread, began, path, result, took = call.groups()
            if result is None:
                open_calls[thread] = (path, float(began))
            elif result == "0":
                syncs.append(Sync(path, float(began), float(began) + float(took)))
        elif (resumed := _RESUMED.match(line)) is not None:
            path, start = open_calls.pop(resumed[1])
            if resumed[2] == "0":
                syncs.append(Sync(path, start, start + float(resumed[3])))
    return syncs


def within(syncs: Sequence[Sync], spans: Sequence[tuple[float, float]]) -> list[int]:
    """For each span of time, how many syncs began and ended in it."""
    return [sum(began <= sync.began and sync.ended <= ended for sync in syncs) for began, ended in spans]


def _told(tell: Callable[[bytes], None], name: str) -> tuple[float, float]:
    """Send an event: when, and when it was acknowledged."""
    body = event(name)
    # The clock that strace reads, too.
    began = time.clock_gettime(time.CLOCK_REALTIME)
    tell(body)
    return began, time.clock_gettime(time.CLOCK_REALTIME)


def _check_allowed() -> None:
    told = subprocess.run([installed("strace"), "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise Unmeasured(
            f"strace may not trace here: {told.stderr.strip()}; a container needs `--cap-add=SYS_PTRACE` for it"
        )
