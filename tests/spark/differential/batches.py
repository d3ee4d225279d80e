"""Batches of seeds, each compared by a process of its own, and what came of each seed.

This module imports nothing of Spark's, so that a process without Spark starts at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final

_BATCH_SIZE: Final = 500
"""Tables per session, so that the memory of a session is bounded."""


@dataclass
class Report:
    """What came of a seed.

    Attributes:
        bad: differences, in words.
        trace: what was done to the table, and asked of it.
        counts: reads by engine and outcome.
    """

    seed: int
    bad: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def compare_in_batches(
    seeds: Sequence[int],
    processes: int,
    add: Callable[[Report], None],
    compare: Callable[[Sequence[int], Connection], None],
) -> None:
    """Compare the tables of some seeds.

    Args:
        processes: how many run at the same time.
        add: gets each report, from several threads.
        compare: runs in each process, and sends True once it has started, then the report of each seed.

    Raises:
        RuntimeError: Spark does not start.
    """
    size = min(_BATCH_SIZE, -(-len(seeds) // processes))
    batches = [seeds[start : start + size] for start in range(0, len(seeds), size)]
    with ThreadPoolExecutor(processes) as pool:
        for done in [pool.submit(_batch, batch, add, compare) for batch in batches]:
            done.result()


def _batch(
    seeds: Sequence[int], add: Callable[[Report], None], compare: Callable[[Sequence[int], Connection], None]
) -> None:
    """Compare the tables of a batch in one process, and in another one after a seed that ended the process."""
    context = get_context("spawn")
    while seeds:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=compare, args=(seeds, there))
        process.start()
        there.close()
        is_started = False
        with here, suppress(EOFError):
            is_started = here.recv()
            while seeds:
                add(here.recv())
                seeds = seeds[1:]
        process.join()
        if not is_started:
            raise RuntimeError(f"Spark does not start: exit code {process.exitcode}, see above")
        if seeds:
            add(Report(seeds[0], bad=[f"this seed ended the process: exit code {process.exitcode}, see above"]))
            seeds = seeds[1:]
