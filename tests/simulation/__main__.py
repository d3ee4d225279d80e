"""`python -m tests.simulation [N] [--from SEED] [--kind KIND] [--show SEED]`: N histories, and what was bad in them."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from functools import partial

from tests.simulation.histories import KINDS, history, history_in_brief, kind_of
from tests.simulation.settings import Report

CHUNK = 4
CHUNKS = 25
"""After so many chunks of histories a worker is replaced."""


def main() -> int:
    """Run them on all processors; 1 when any was bad."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("histories", nargs="?", type=int, default=200)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only histories of this kind; else in turn")
    parser.add_argument("--show", type=int, help="replay one seed and print all that happened")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    chosen = parser.parse_args()
    if chosen.show is not None:
        report = history(chosen.show, chosen.kind)
        print(*report.trace, *report.bad, sep="\n")
        return bool(report.bad)
    began = time.perf_counter()
    seeds = range(chosen.first, chosen.first + chosen.histories)
    # Processes that were killed in a history never end there, and keep all that they refer to: hence new workers.
    with multiprocessing.get_context("spawn").Pool(chosen.processes, maxtasksperchild=CHUNKS) as pool:
        reports = []
        for report in pool.imap(partial(history_in_brief, kind=chosen.kind), seeds, chunksize=CHUNK):
            reports.append(report)
            if report.bad:
                print(f"\n{_brief(report, chosen.kind)}", file=sys.stderr, flush=True)
            _tell(reports, len(seeds))
    return _print(reports, time.perf_counter() - began, chosen.kind)


def _tell(reports: list[Report], expected: int) -> None:
    """How far it is: on a terminal in one line that is written anew, elsewhere now and then."""
    bad, is_last = sum(bool(report.bad) for report in reports), len(reports) == expected
    if sys.stderr.isatty():
        print(f"\r{len(reports)} of {expected}, {bad} bad", end="\n" if is_last else "", file=sys.stderr, flush=True)
    elif len(reports) % 200 == 0 and not is_last:
        print(f"{len(reports)} of {expected}, {bad} bad", file=sys.stderr, flush=True)


def _print(reports: list[Report], seconds: float, kind: str | None) -> int:
    bad = [report for report in reports if report.bad]
    totals: Counter[str] = Counter()
    for report in reports:
        totals += report.counts
    stated = sum(report.stated for report in reports)
    print(f"{len(reports)} histories in {seconds:.0f} s: {len(bad)} bad; {stated} looks at what is stated")
    print(", ".join(f"{what} {count}" for what, count in sorted(totals.items())))
    kinds: Counter[str] = Counter(broken for report in bad for broken in {what for what, _ in report.bad})
    for broken, count in kinds.most_common():
        print(f"  {count:4d} {broken}")
    for report in bad:
        print(_brief(report, kind))
    return bool(bad)


def _brief(report: Report, kind: str | None) -> str:
    what, detail = report.bad[0]
    return f"  --show {report.seed} ({kind or kind_of(report.seed)}): {what}: {detail[:300]}"


if __name__ == "__main__":
    sys.exit(main())
