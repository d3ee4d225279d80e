"""Directories that the service points at, read by readers that are not ours: as measured, and as the pages say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.readers.hints import Cell
from tests.integration.readers.matrix import EXPECTED, Matrix, installed, pages
from tests.integration.readers.readers import READERS, REFUSES, SAME, Place, Reader, Rows, outcome
from tests.integration.readers.steps import STEPS, Step
from tests.support.pages import ROOT, apart, differences

ANEW = "if that is as it should be: python -m tests.integration.readers"
PATIENCE = 240
"""Seconds for what takes a quarter of a minute alone on a machine."""
HERE = Place("orders", Path("/lake/orders"), Path("/lake/orders/metadata/_sfn/shop_orders_main.ver"))


def expected() -> Matrix:
    return Matrix.parse(EXPECTED.read_text())


def test_every_reader_shows_after_every_step_what_it_showed_when_it_was_measured(tmp_path: Path) -> None:
    found = Matrix.parse(apart("tests.integration.readers", tmp_path, PATIENCE))
    different = differences(expected(), found)
    assert not different, "\n".join([*different, ANEW])


def test_the_pages_say_what_was_measured() -> None:
    for shown in pages(expected()):
        assert shown.path.read_text() == shown.brought_up_to_date(), f"{shown.page}: {ANEW}"


def test_it_was_measured_with_what_is_installed() -> None:
    assert expected().versions == installed(), ANEW


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_who_goes_by_our_files_reads_the_table_or_refuses_where_it_has_left(step: Step) -> None:
    cells = {reader.name: expected().cells[step.name][reader.name] for reader in READERS if reader.led}
    assert [
        (name, cell) for name, cell in cells.items() if cell != SAME and not (step.left and cell.startswith(REFUSES))
    ] == []


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_who_lists_the_folder_does_not_trip_on_our_files(step: Step) -> None:
    cells = {reader.name: expected().cells[step.name][reader.name] for reader in READERS if not reader.led}
    assert [(name, cell) for name, cell in cells.items() if cell.startswith(REFUSES)] == []


def test_a_difference_names_its_cell() -> None:
    one = Matrix({"daft": "1"}, {"drop": {"Daft": "refuses: no", "Polars": SAME}})
    other = Matrix({"daft": "2"}, {"drop": {"Daft": "old rows", "Polars": SAME}, "undrop": {"Daft": SAME}})
    assert differences(one, other) == [
        "the version of daft: expected '1', found '2'",
        "Daft after drop: expected 'refuses: no', found 'old rows'",
        "Daft after undrop: expected 'nothing', found 'same rows'",
    ]


def reader(*rows: dict[str, Any]) -> Reader:
    """One that shows these rows."""
    return Reader("any", (), "", lambda _: list(rows))


ONE, TWO = {"id": 1, "item": "pear"}, {"id": 2, "item": None}


@pytest.mark.parametrize(
    ("shown", "cell"),
    [
        ([TWO, ONE], SAME),
        ([ONE], "old rows"),
        ([], "wrong rows: 0 too many, 2 missing"),
        ([ONE, ONE, TWO], "wrong rows: 1 too many, 0 missing"),
        ([ONE, {**TWO, "item": "fig"}], "wrong rows: 1 too many, 1 missing"),
        ([ONE, {"id": 2}], "wrong rows: 1 too many, 1 missing"),
    ],
)
def test_rows_are_compared_in_any_order_with_their_names_and_number(shown: Rows, cell: str) -> None:
    assert outcome(reader(*shown), HERE, [ONE, TWO], [ONE]) == cell


def test_a_refusal_is_told_without_what_is_another_in_each_run() -> None:
    def refuse(_: str) -> Rows:
        raise OSError(f"nothing in file://{HERE.directory}/x, {HERE.file} at 2026-01-02T03:04:05.678Z\nmore")

    assert outcome(Reader("any", (), "", refuse), HERE, [], []) == "refuses: nothing in <directory>/x, <file> at <time>"


ID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
USUAL = {"v3": "3", f"00003-{ID}": f"00003-{ID}", "v1700000000000": "1700000000000", "v3-a": "v3-a"}
"""Names that every reader finds, but ClickHouse those whose number is too large."""


@pytest.fixture(name="cells", scope="module")
def fixture_cells(tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    folder = tmp_path_factory.mktemp("hints")
    command = [sys.executable, "-m", "tests.integration.readers.hints", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return [Cell(**cell) for cell in json.loads(done.stdout.splitlines()[-1])]


def test_no_reader_opens_a_file_but_the_current_one(cells: list[Cell]) -> None:
    assert [cell for cell in cells if "another" in cell.shown.values()] == []


def test_every_reader_finds_the_names_that_writers_use(cells: list[Cell]) -> None:
    found = {cell.stem: cell for cell in cells if cell.beside == "none"}
    for stem, hint in USUAL.items():
        shown = {**found[stem].shown}
        if stem == "v1700000000000":
            del shown["ClickHouse"]
        assert (found[stem].hint, set(shown.values())) == (hint, {"current"})


def test_digits_are_hinted_whatever_lies_beside_the_file(cells: list[Cell]) -> None:
    assert {cell.hint for cell in cells if cell.stem == "v3"} == {"3"}


def test_duckdb_finds_every_name_that_has_a_hint(cells: list[Cell]) -> None:
    hinted = [cell for cell in cells if cell.hint is not None and not cell.stem.endswith(".gz")]
    assert {cell.shown["DuckDB"] for cell in hinted} == {"current"}
