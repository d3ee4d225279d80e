"""Real readers open the current metadata file by our version hint, or refuse: whatever it is called, and beside it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.integration.readers.hints import Cell
from tests.support.pages import ROOT

PATIENCE = 240
"""Seconds for what takes a quarter of a minute alone on a machine."""
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


def test_no_reader_opens_another_file_than_the_current_one(cells: list[Cell]) -> None:
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
