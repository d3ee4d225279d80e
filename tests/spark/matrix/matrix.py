"""The matrix: what each engine reads of each state of each table, and how the page shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self

from pyspark.sql import DataFrame, SparkSession

import sfn.spark
from sfn.errors import NotSupported, SfnError
from sfn.spark.read_table import ENGINES
from sfn.spark.request import Engine
from tests.spark.matrix.deletes import EQUALITY_DELETES, ROW_CHANGES
from tests.spark.matrix.layout import IMPORTS, LOCATIONS, PARTITIONS
from tests.spark.matrix.schemas import EVOLUTIONS, FORMATS, TYPES
from tests.spark.matrix.snapshots import MAINTENANCE, REFS
from tests.spark.matrix.table import BEFORE, Feature, Result, State, Table, open_lake
from tests.support.pages import Shown

EXPECTED: Final = Path(__file__).with_name("expected.json")
PACKAGES: Final = ("pyspark", "pyiceberg", "pyarrow")
FEATURES: Final[Sequence[Feature]] = (
    *FORMATS,
    *TYPES,
    *EVOLUTIONS,
    *PARTITIONS,
    *ROW_CHANGES,
    *EQUALITY_DELETES,
    *REFS,
    *MAINTENANCE,
    *LOCATIONS,
    *IMPORTS,
)
SLOW: Final = "sfn"
"""An engine that takes three times as long as the others: where time is short it reads fewer states."""
AT_A_TIME: Final = 4
"""Tables that are written and read at the same time: much of their time they wait."""


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


def installed_versions() -> dict[str, str]:
    """The versions of what reads."""
    return {package: version(package) for package in PACKAGES}


def measure(
    spark: SparkSession, folder: Path, features: Sequence[Feature] = FEATURES, *, thorough: bool = True
) -> Matrix:
    """Write each table, and let each engine read it.

    Args:
        spark: has the real catalog as `lake`, with no namespace `matrix` in it.
        folder: an empty one.
        thorough: read all states of a table with `SLOW` too, also the one of one commit ago.

    Raises:
        ExceptionGroup: what kept tables from being written.
    """
    lake = open_lake(spark, folder)

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
    return Matrix(installed_versions(), {title: row for future in futures for title, row in future.result().items()})


def _rows(spark: SparkSession, feature: Feature, table: Table, *, thorough: bool) -> dict[str, dict[str, str]]:
    states = list(feature.write(table))
    table.publish()
    return {
        feature.title if not state.title else f"{feature.title}: {state.title}": _row(
            spark, table, state, [one for one in ENGINES if thorough or one.name != SLOW or state.title != BEFORE]
        )
        for state in states
    }


def _row(spark: SparkSession, table: Table, state: State, engines: Sequence[Engine]) -> dict[str, str]:
    outcomes = {
        engine.name: outcome(
            partial(sfn.spark.read, spark, table.directory, engine=engine.name, **state.arguments), state.truth
        )
        for engine in engines
    }
    return check_remedies(outcomes, state.truth)


SAME: Final = "same"
REFUSES: Final = "refuses"
WRONG: Final = "wrong"
_MAX_LENGTH: Final = 200
_PATH: Final = re.compile(r"(?:file:)?/[^\s'\"]+")
_WORD: Final = re.compile(r"\w+")


def outcome(read: Callable[[], DataFrame], truth: Result | None) -> tuple[str, str]:
    """Return what an engine reads, and the remedy where it refuses.

    Args:
        read: reads with the engine.
        truth: what the catalog shows; None where no reader can read it.

    Returns:
        `same`, `refuses: what`, or `wrong: why`.
    """
    try:
        found = Result.by(read())
    except NotSupported as refusal:
        return f"{REFUSES}: {_first_line(refusal.found)}", refusal.remedy
    except SfnError as error:
        return f"{WRONG}: {type(error).__name__}: {_first_line(str(error))}", ""
    except Exception as error:  # noqa: BLE001 - whatever else comes out of an engine is one it should have said itself
        return f"{WRONG}: {type(error).__name__}: {_first_line(str(error))}", ""
    if truth is None:
        return f"{WRONG}: what Iceberg's own library can't read was read", ""
    if found.columns != truth.columns:
        return f"{WRONG}: columns {_difference(found.columns, truth.columns)}", ""
    if found.rows != truth.rows:
        more, less = found.rows - truth.rows, truth.rows - found.rows
        return f"{WRONG}: rows {_difference(sorted(more.elements()), sorted(less.elements()))}", ""
    return SAME, ""


def check_remedies(row: Mapping[str, tuple[str, str]], truth: Result | None) -> dict[str, str]:
    """Outcomes by engine; a refusal that names no engine that can is wrong, unless none can."""
    able = {engine for engine, (cell, _) in row.items() if cell == SAME}
    return {
        engine: f"{WRONG}: {cell}, and names no engine that can: {remedy!r}"
        if cell.startswith(REFUSES) and truth is not None and not _names_one(remedy, able)
        else cell
        for engine, (cell, remedy) in row.items()
    }


def _names_one(remedy: str, able: Collection[str]) -> bool:
    """Whether the remedy names one of these engines."""
    return not set(able).isdisjoint(_WORD.findall(remedy))


def _difference(found: Collection[str], wanted: Collection[str]) -> str:
    return _first_line(f"{list(found)}, not {list(wanted)}")


def _first_line(text: str) -> str:
    """The first line without places, not too long."""
    line = _PATH.sub("<file>", text.strip().partition("\n")[0])
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"


_MODULE: Final = "tests.spark.matrix"
LEGEND: Final = (
    "✓: rows, names and types are those that Iceberg's own library shows through the catalog. refuses: `NotSupported`, "
    "which says what it is and names an engine that can, if one can."
)


def pages(matrix: Matrix) -> list[Shown]:
    """Return the parts of pages that show the matrix."""
    return [Shown("docs/evidence/spark.md", _MODULE, render_matrix(matrix))]


def render_matrix(matrix: Matrix) -> str:
    """Return the table of the page: a row for each state of a table, a column for each engine."""
    versions = ", ".join(f"{package} {number}" for package, number in matrix.versions.items())
    names = [engine.name for engine in ENGINES]
    rows = ([title, *(_short(row[name]) for name in names)] for title, row in matrix.cells.items())
    return f"\n{LEGEND} Measured with {versions}.\n\n{_table(['the table', *(f'`{name}`' for name in names)], rows)}\n"


def _short(cell: str) -> str:
    if cell == SAME:
        return "✓"
    return cell if cell.startswith(REFUSES) else f"**{cell}**"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
