"""What traces cost: events accepted a second without a collector, with one trace in a hundred, and with all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench.accept import Extent, Taken, idle
from tests.bench.record import Figure, Goal, Run
from tests.bench.servers import uvicorn

RATIOS: Final = {"off": None, "one in a hundred": 0.01, "all": 1.0}
"""`telemetry.traces_sample_ratio`, None for no collector."""
SAMPLED_GOAL: Final = Goal("ratio", ">=", 0.95)
_COLLECTOR: Final = "tests.bench.accept:raw"
"""It answers each request at once, as a collector that only stores what it gets."""

Say = Callable[[str], None]


def measure(extent: Extent, folder: Path, say: Say) -> list[Figure]:
    """In each run the service is loaded without traces, with some and with all, and the next time in reverse.

    Raises:
        Unmeasured: as of `accept.measure`.
    """
    taken: dict[str, list[Taken]] = {name: [] for name in RATIOS}
    with uvicorn(_COLLECTOR, folder / "collector") as collector:
        for number in range(extent.runs):
            for name in sorted(RATIOS, key=list(RATIOS).index, reverse=number % 2 == 1):
                place = folder / f"{number}-{name.replace(' ', '-')}"
                taken[name].append(idle(place, extent, more=_settings(collector, RATIOS[name])))
                say(f"traces {number + 1}/{extent.runs}: {name} {taken[name][-1].rate:,.0f}/s")

    def figure(name: str, traced: str, goal: Goal | None) -> Figure:
        runs = [Run(one.rate, other.rate) for one, other in zip(taken[traced], taken["off"], strict=True)]
        note = f"CPU time an event: {_cpu(taken[traced])} µs, without traces {_cpu(taken['off'])} µs"
        return Figure(
            name=name,
            unit="events/s",
            runs=runs,
            compared_with="the same without traces",
            goal=goal,
            short=extent.short,
            note=note,
        )

    return [
        figure("accept_with_traces_of_one_in_a_hundred", "one in a hundred", SAMPLED_GOAL),
        figure("accept_with_all_traces", "all", None),
    ]


def _settings(collector: str, ratio: float | None) -> str:
    return "" if ratio is None else f'traces_endpoint = "{collector}"\ntraces_sample_ratio = {ratio}\n'


def _cpu(some: Sequence[Taken]) -> int:
    return round(median(one.cpu for one in some))
