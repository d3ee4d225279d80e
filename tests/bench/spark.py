"""How long Spark takes to read a table by its directory, beside Iceberg's own library with a catalog."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from statistics import median
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sfn.spark import read
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.spark.beside import beside
from tests.spark.tables import opened

ROWS: Final = 10_000_000
FILES: Final = 100
RUNS: Final = 9
GOALS: Final = {"files_engine_vs_jvm": Goal("ratio", "<=", 1.1)}
ENGINES: Final = {"files_engine_vs_jvm": "files"}
"""By the name of the figure: what is measured. Columns may be named for one that can't find out which are needed."""

_TABLE: Final = "bench.orders"
_WARM_UP: Final = 3
"""Runs before those that count: the JVM compiles."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    runs: int = RUNS
    rows: int = ROWS


def _count(frame: DataFrame) -> object:
    return frame.count()


def _sum(frame: DataFrame) -> object:
    return round(frame.agg(f.sum("amount")).collect()[0][0], 2)


def _hash(frame: DataFrame) -> object:
    return frame.agg(f.bit_xor(f.xxhash64(*frame.columns))).collect()[0][0]


def _filter(frame: DataFrame) -> object:
    return tuple(frame.where("region = 'region-3'").agg(f.count("*"), f.sum("id")).collect()[0])


QUERIES: Final[Mapping[str, Callable[[DataFrame], object]]] = {
    "count": _count,
    "sum": _sum,
    "hash": _hash,
    "filter": _filter,
}
