"""`python -m tests.bench [PART …]`: measure, print a table, keep the figures; 1 where a goal is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from sfn.clock import SystemClock
from tests.bench import accept, backlog, freshness, gateway, operators, publish, readers, sizing, soak, stores, traces
from tests.bench.record import ROOT, Figure, Record, Unmeasured, say, shown

Say = Callable[[str], None]
Part = Callable[[Path, Say], list[Figure]]


def main() -> int:
    """Measure."""
    chosen = _arguments()
    parts = _parts(chosen)
    wanted = chosen.parts or [name for name in parts if name != "soak"]
    record = Record(chosen.record, SystemClock())
    figures: list[Figure] = []
    failed = False
    with TemporaryDirectory(dir=chosen.folder) as folder:
        for name in wanted:
            try:
                found = _alone(parts[name], Path(folder) / name)
            except Unmeasured as error:
                failed = True
                say(f"{name}: {error}\n")
            else:
                record.add(found)
                figures += found
    say("")
    shown(figures)
    return failed or any(figure.kept is False and not figure.short for figure in figures)


def _alone(part: Part, folder: Path) -> list[Figure]:
    """Measure in a process of its own, which has nothing in memory from an earlier part."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as process:
        return process.submit(part, folder, say).result()


def _parts(chosen: argparse.Namespace) -> Mapping[str, Part]:
    """What can be measured, and how much of it."""
    extent = accept.Extent(chosen.runs, chosen.seconds, chosen.warm_up)
    return {
        "accept": partial(accept.measure, extent),
        "postgres": partial(accept.measure_postgres, extent),
        "freshness": partial(freshness.measure, freshness.Extent(chosen.runs, chosen.commits)),
        "fsyncs": partial(accept.measure_fsyncs, accept.REQUESTS),
        "coalescing": partial(publish.measure_coalescing, chosen.events),
        "burst": partial(publish.measure_burst, chosen.burst),
        "backlog": partial(backlog.measure, chosen.letters),
        "resolve": partial(readers.measure_resolve, chosen.resolve_runs),
        "publish": partial(publish.measure, chosen.runs),
        "store": partial(stores.measure, chosen.runs, stores.ROUNDS),
        "gateway": partial(gateway.measure, gateway.Extent(chosen.runs, chosen.passing_commits, chosen.seconds)),
        "facade": partial(readers.measure_facade, readers.Extent(chosen.runs, chosen.seconds)),
        "page": partial(
            operators.measure, operators.Extent(chosen.runs, chosen.seconds, chosen.page_tables, chosen.page_pause)
        ),
        "memory": partial(operators.measure_memory, [*operators.MEMORY]),
        "traces": partial(traces.measure, extent),
        "filling": partial(publish.measure_filling, publish.FILLING_COMMITS),
        "sizing": partial(sizing.measure, chosen.sizing_tables),
        "soak": partial(soak.measure, chosen.soak_seconds),
    }


def _arguments() -> argparse.Namespace:
    whole, fresh = accept.Extent(), freshness.Extent()
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measure, print a table, keep the figures. 1 where a goal is missed or something went wrong.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    timed = ["accept", "postgres", "freshness", "fsyncs", "coalescing", "burst", "backlog", "resolve", "publish"]
    names = [*timed, "store", "gateway", "facade", "page", "memory", "traces", "filling", "sizing", "soak"]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}; without any all but the last")
    parser.add_argument("--runs", type=int, default=whole.runs, help="paired runs")
    parser.add_argument(
        "--seconds", type=int, default=whole.seconds, help="of each run of accept, postgres, gateway and facade"
    )
    parser.add_argument("--warm-up", type=int, default=whole.warm_up, help="seconds before each of accept and postgres")
    parser.add_argument("--commits", type=int, default=fresh.commits, help="of each run of freshness")
    parser.add_argument("--passing-commits", type=int, default=gateway.COMMITS, help="of each run of gateway")
    parser.add_argument("--events", type=int, default=publish.EVENTS, help="of coalescing")
    parser.add_argument("--burst", type=int, default=publish.BURST, help="events of burst")
    parser.add_argument("--letters", type=int, default=backlog.LETTERS, help="of backlog")
    parser.add_argument("--resolve-runs", type=int, default=readers.RESOLVE_RUNS, help="paired runs of resolve")
    parser.add_argument("--page-pause", type=float, default=operators.PAUSE, help="seconds between two of its pages")
    parser.add_argument("--page-tables", type=int, default=operators.TABLES, help="that the service of page knows")
    parser.add_argument(
        "--sizing-tables", type=int, nargs="+", default=sizing.TABLES, help="of the catalogs that sizing sweeps"
    )
    parser.add_argument("--soak-seconds", type=float, default=soak.SECONDS, help="of soak")
    parser.add_argument("--record", type=Path, default=ROOT / "build" / "bench.json", help="the file of figures")
    parser.add_argument("--folder", type=Path, help="the disk to measure on; by default that of temporary files")
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - set(names):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
