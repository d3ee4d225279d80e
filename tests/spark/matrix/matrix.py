"""All that was measured: each engine, of each look at each table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self

from pyspark.sql import SparkSession

import sfn.spark
from sfn.spark.read_table import ENGINES
from sfn.spark.request import Engine
from tests.spark.matrix import (
    changes,
    equality,
    formats,
    imported,
    kinds,
    partitions,
    places,
    refs,
    schemas,
    upkeep,
)
from tests.spark.matrix.feature import Feature
from tests.spark.matrix.lake import founded
from tests.spark.matrix.outcome import checked, outcome
from tests.spark.matrix.table import BEFORE, Look, Table

EXPECTED: Final = Path(__file__).with_name("expected.json")
PACKAGES: Final = ("pyspark", "pyiceberg", "pyarrow")
_THEMES: Final = (formats, kinds, schemas, partitions, changes, equality, refs, upkeep, places, imported)
FEATURES: Final[Sequence[Feature]] = tuple(feature for theme in _THEMES for feature in theme.FEATURES)
SLOW: Final = "sfn"
"""An engine that takes three times as long as the others: where time is short it is shown less."""
AT_A_TIME: Final = 4
"""Tables that are written and read beside each other: much of their time they wait."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """What was measured.

    Attributes:
        versions: of the packages it was measured with.
        cells: outcomes by row and engine.
    """

    versions: Mapping[str, str]
    cells: Mapping[str, Mapping[str, str]]

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    def of(self, other: Self) -> Self:
        """Of these cells those that the other has, too."""
        cells = {
            title: {engine: cell for engine, cell in row.items() if engine in other.cells.get(title, {})}
            for title, row in self.cells.items()
        }
        return replace(self, cells=cells)

    def named(self) -> Iterator[tuple[str, str]]:
        """Cells, and what names each."""
        yield from ((f"the version of {package}", number) for package, number in self.versions.items())
        for title, row in self.cells.items():
            yield from ((f"{title}, by {engine}", cell) for engine, cell in row.items())


def installed() -> dict[str, str]:
    """The versions of what reads."""
    return {package: version(package) for package in PACKAGES}


def measured(
    spark: SparkSession, folder: Path, features: Sequence[Feature] = FEATURES, *, thorough: bool = True
) -> Matrix:
    """Write each table, and let each engine read it.

    Args:
        spark: has the real catalog as `lake`, with no namespace `matrix` in it.
        folder: an empty one.
        thorough: show all states of a table to `SLOW_SECONDS` too, also what it was one commit ago.

    Raises:
        ExceptionGroup: what kept tables from being written.
    """
    lake = founded(spark, folder)

    def rows(number: int, feature: Feature) -> dict[str, dict[str, str]]:
        try:
            table = Table(lake, feature.name or f"t{number}", feature.namespace, feature.catalog)
            return _rows(spark, feature, table, thorough=thorough)
        except Exception as error:
            error.add_note(f"in {feature.title!r}")
            raise

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        futures = [pool.submit(rows, number, feature) for number, feature in enumerate(features)]
    wrong = [error for future in futures if isinstance(error := future.exception(), Exception)]
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} of {len(features)} tables", wrong)
    return Matrix(installed(), {title: row for future in futures for title, row in future.result().items()})


def _rows(spark: SparkSession, feature: Feature, table: Table, *, thorough: bool) -> dict[str, dict[str, str]]:
    looks = list(feature.write(table))
    table.publish()
    return {
        feature.title if not look.title else f"{feature.title}: {look.title}": _row(
            spark, table, look, [one for one in ENGINES if thorough or one.name != SLOW or look.title != BEFORE]
        )
        for look in looks
    }


def _row(spark: SparkSession, table: Table, look: Look, engines: Sequence[Engine]) -> dict[str, str]:
    seen = {
        engine.name: outcome(
            partial(sfn.spark.read, spark, table.directory, engine=engine.name, **look.asked), look.truth
        )
        for engine in engines
    }
    return checked(seen, look.truth)
