"""Every engine shows what Iceberg's own library shows through the catalog, or refuses as written down."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sfn.errors import NotSupported
from sfn.spark.read_table import ENGINES
from tests.spark.matrix.matrix import (
    EXPECTED,
    FEATURES,
    REFUSES,
    SAME,
    WRONG,
    Matrix,
    check_remedies,
    installed_versions,
    measure,
    outcome,
    pages,
)
from tests.spark.matrix.table import Result
from tests.support.pages import differences

MEASURE_AGAIN = "if that is as it should be: python -m tests.spark.matrix"


def expected() -> Matrix:
    return Matrix.parse(EXPECTED.read_text())


def test_every_engine_reads_every_table_as_it_did_when_it_was_measured(spark: SparkSession, tmp_path: Path) -> None:
    found = measure(spark, tmp_path, thorough=False)
    assert found.cells.keys() == expected().cells.keys()
    different = differences(expected().of(found), found)
    assert not different, "\n".join([*different, MEASURE_AGAIN])


def test_no_engine_shows_anything_else_than_the_catalog() -> None:
    cells = {(title, engine): cell for title, row in expected().cells.items() for engine, cell in row.items()}
    assert {at: cell for at, cell in cells.items() if cell != SAME and not cell.startswith(REFUSES)} == {}


def test_every_engine_was_measured_of_every_table() -> None:
    cells = expected().cells
    assert {title: [*row] for title, row in cells.items()} == {title: [one.name for one in ENGINES] for title in cells}
    titles = [feature.title for feature in FEATURES]
    assert [one for one in titles if titles.count(one) > 1 or not any(title.startswith(one) for title in cells)] == []


def test_the_page_says_what_was_measured() -> None:
    for part in pages(expected()):
        assert part.path.read_text() == part.brought_up_to_date(), f"{part.page}: {MEASURE_AGAIN}"


def test_it_was_measured_with_what_is_installed() -> None:
    assert expected().versions == installed_versions(), MEASURE_AGAIN


@pytest.fixture(name="truth")
def fixture_truth(spark: SparkSession) -> Result:
    return Result.by(spark.sql("SELECT 1 AS id, double('NaN') AS n, map('a', 1, 'b', 2) AS m"))


@pytest.mark.parametrize(
    ("query", "cell"),
    [
        ("SELECT 1 AS id, double('NaN') AS n, map('b', 2, 'a', 1) AS m", SAME),
        ("SELECT 1L AS id, double('NaN') AS n, map('a', 1, 'b', 2) AS m", f"{WRONG}: columns"),
        ("SELECT int(NULL) AS id, double('NaN') AS n, map('a', 1, 'b', 2) AS m", f"{WRONG}: columns"),
        ("SELECT 2 AS id, double('NaN') AS n, map('a', 1, 'b', 2) AS m", f"{WRONG}: rows"),
        ("SELECT 1 AS id, double('NaN') AS n, map('a', 1, 'b', 2) AS m WHERE false", f"{WRONG}: rows []"),
        ("SELECT raise_error('no') AS id", f"{WRONG}: SparkRuntimeException"),
    ],
)
def test_rows_names_types_and_nullability_are_compared(
    spark: SparkSession, truth: Result, query: str, cell: str
) -> None:
    assert outcome(lambda: spark.sql(query), truth)[0].startswith(cell)


def test_what_nobody_can_read_must_be_refused(spark: SparkSession) -> None:
    assert outcome(lambda: spark.sql("SELECT 1"), None)[0].startswith(WRONG)


def test_a_refusal_tells_what_it_is_and_where_to_go() -> None:
    def refuse() -> DataFrame:
        raise NotSupported("/t", expected="no lists", found="lists\nof lists", remedy="use engine='sfn'")

    assert outcome(refuse, None) == (f"{REFUSES}: lists", "use engine='sfn'")


@pytest.mark.parametrize(
    ("remedy", "other", "cell"),
    [
        ("use engine='sfn'", SAME, "refuses: x"),
        ("use engine='sfn'", "refuses: y", f"{WRONG}: refuses: x, and names no engine that can: \"use engine='sfn'\""),
        ("give up", SAME, f"{WRONG}: refuses: x, and names no engine that can: 'give up'"),
    ],
)
def test_a_refusal_that_names_no_engine_that_can_is_wrong(remedy: str, other: str, cell: str) -> None:
    row = {"files": (f"{REFUSES}: x", remedy), "sfn": (other, "use engine='iceberg'"), "iceberg": (SAME, "")}
    assert check_remedies(row, Result((), Counter()))["files"] == cell


def test_what_nobody_can_read_needs_no_engine_that_can() -> None:
    assert check_remedies({"files": (f"{REFUSES}: x", "")}, None) == {"files": "refuses: x"}
