"""One odd table, read in every way, compared."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pyiceberg import types
from pyspark.sql import SparkSession

from tests.spark.differential.filters import Filter, some_filter
from tests.spark.differential.reading import (
    ENGINES,
    Refused,
    attempted,
    by_python,
    by_source,
    by_spark,
    counted,
    oracle,
    publish,
    schema_of,
)
from tests.spark.differential.tables import Maker

FILTERS = 4
"""Of each table; half of them are asked of Spark."""

KNOWN = ["Type not recognized: decimal_"]
"""What PyIceberg refuses: an Avro file that has a type of decimals twice."""


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


def compared(spark: SparkSession, folder: Path, seed: int, most: int | None = None) -> Report:
    """Return what was different.

    Args:
        folder: gets the table, for as long as it is compared.
        most: steps that make the table, at most.
    """
    report = Report(seed)
    try:
        _compare(spark, folder, report, most)
    finally:
        shutil.rmtree(folder / f"t{seed}", ignore_errors=True)
    return report


def _compare(spark: SparkSession, folder: Path, report: Report, most: int | None) -> None:
    table = Maker(spark, folder, report.seed, most).make()
    report.trace = table.trace
    publish(table)
    schema = schema_of(spark, table)
    names = [one.name for one in schema.fields]
    rng = Random(f"filters {report.seed}")
    filters = [some_filter(rng, schema) for _ in range(FILTERS)]
    try:
        rows = oracle(spark, table, schema)
    except Exception as error:  # noqa: BLE001 - Java's
        report.counts["oracle failed"] += 1
        report.trace.append(f"oracle: {error}"[:2_000])
        return
    report.trace += [f"row {list(row.values())}" for row in rows]

    def expected(which: Filter | None, chosen: list[str]) -> Counter[str]:
        return counted((row for row in rows if which is None or which.holds(row) is True), chosen)

    def check(engine: str, what: str, read: Callable[[], Counter[str]], right: Counter[str]) -> None:
        try:
            found = attempted(read)
        except Exception as error:  # noqa: BLE001 - whatever it is, no reader of ours may raise it
            found = Refused(type(error).__name__, _cause(f"{error}"))
        _judge(report, engine, what, found, right)

    for which in (None, *filters):
        what = which.text if which else "all"
        chosen = names if which is None or rng.random() < 0.4 else rng.sample(names, rng.randrange(1, len(names) + 1))
        check(
            "read",
            f"{what}, {chosen}",
            lambda w=which, c=chosen: by_python(table, schema, w, c),
            expected(which, chosen),
        )
    check("source", "all", lambda: by_source(table, schema), expected(None, names))
    odd = {
        one.name
        for one in schema.fields
        if isinstance(one.field_type, types.UUIDType) or one.initial_default is not None
    }
    for engine in ENGINES:
        # Iceberg's own library loses rows where it compares these with the bounds of files.
        asked = [None, *(one for one in filters[: FILTERS // 2] if engine != "iceberg" or not one.columns & odd)]
        if engine == "iceberg" and table.has_milliseconds:
            continue
        try:
            founds: Any = by_spark(spark, table, schema, engine, asked)
        except Exception as error:  # noqa: BLE001 - each is asked again by itself, to be told apart
            del error
            for which in asked:
                what = which.text if which else "all"
                check(
                    engine,
                    what,
                    lambda w=which, e=engine: by_spark(spark, table, schema, e, [w])[0],
                    expected(which, names),
                )
            continue
        for which, found in zip(asked, founds, strict=True):
            _judge(report, engine, which.text if which else "all", found, expected(which, names))


def _cause(text: str) -> str:
    """Return the innermost of Java's exceptions, or what there is."""
    return text.rpartition("Caused by: ")[2].partition("\n\tat")[0][:600]


def _judge(report: Report, engine: str, what: str, found: Counter[str] | Refused, right: Counter[str]) -> None:
    if isinstance(found, Refused):
        is_fair = (found.kind == "NotSupported" and (engine != "read" or found.found == "equality deletes")) or any(
            known in found.found for known in KNOWN
        )
        report.counts[f"{engine}: {'refused' if is_fair else 'failed'}"] += 1
        if not is_fair:
            report.bad.append(f"{engine}, {what}: {found.kind}: {found.found}")
        else:
            report.trace.append(f"{engine} refused: {found.found}")
    elif found != right:
        report.counts[f"{engine}: different"] += 1
        report.bad.append(f"{engine}, {what}: lost {dict(right - found)}, made up {dict(found - right)}")
    else:
        report.counts[f"{engine}: alike"] += 1
