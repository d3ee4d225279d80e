"""The whole life of a table by a real catalog and writer: what readers see is as measured, and as the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.pointer.naming import NAMINGS
from tests.integration.measuring import apart
from tests.integration.scenarios.matrix import EXPECTED, SCENARIOS, Matrix
from tests.integration.scenarios.rendering import pages, rendered

ANEW = "if that is as it should be: python -m tests.integration.scenarios"
PATIENCE = 400
"""Seconds for what takes a minute alone on a machine."""


def expected() -> Matrix:
    return Matrix.parse(EXPECTED.read_text())


def test_every_reader_sees_what_it_saw_when_it_was_measured_and_nothing_untrue(tmp_path: Path) -> None:
    found = Matrix.parse(apart("tests.integration.scenarios", tmp_path, PATIENCE))
    differences = expected().differences(found)
    assert not differences, "\n".join([*differences, ANEW])


def test_the_pages_say_what_was_measured() -> None:
    for shown in pages(expected()):
        assert shown.path.read_text() == shown.brought_up_to_date(), f"{shown.page}: {ANEW}"


def test_every_scenario_was_measured_in_every_naming() -> None:
    assert {title: [*row] for title, row in expected().cells.items()} == {one.title: [*NAMINGS] for one in SCENARIOS}


def test_scenarios_do_not_get_into_each_others_namespaces() -> None:
    keys = [one.key for one in SCENARIOS]
    assert [key for key in keys if keys.count(key) > 1] == []


def test_a_difference_names_its_cell() -> None:
    one = Matrix({"drop": {"uuid": {"name": "Dropped"}}})
    other = Matrix({"drop": {"uuid": {"name": "t"}}, "undrop": {"uuid": {"hint": "t"}}})
    assert one.differences(other) == [
        "drop, uuid naming, by name: expected 'Dropped', found 't'",
        "undrop, uuid naming, by hint: expected 'nothing', found 't'",
    ]


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ({"directory": "t", "name": "t", "uuid": "t", "hint": "t"}, "✓ t"),
        ({"directory": "Dropped", "name": "Dropped", "uuid": "→ t", "hint": "none"}, "D N Dropped, U → t, H none"),
        ({"hint": "t", "old: name": "→ t", "history": "1 of 1"}, "H t, history: 1 of 1<br>old: N → t"),
        ({"name": "a|b"}, r"N a\|b"),
        ({"uuid": "t", "ref x": "t", "ref y": "t"}, "U ref x and ref y: t"),
    ],
)
def test_looks_that_show_the_same_are_told_together(cell: dict[str, str], told: str) -> None:
    page = rendered(Matrix({"it": dict.fromkeys(NAMINGS, cell)}))
    assert page.splitlines()[-2] == f"| it | {told} | same | same |"
