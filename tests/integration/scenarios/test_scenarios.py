"""The whole life of a table by a real catalog and writer: what readers see is as measured, and as the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.sfnfile.naming import NAMINGS
from tests.integration.scenarios.looks import Telling
from tests.integration.scenarios.matrix import EXPECTED, SCENARIOS, Matrix, pages, rendered
from tests.support.pages import apart, differences

ANEW = "if that is as it should be: python -m tests.integration.scenarios"
PATIENCE = 400
"""Seconds for what takes a minute alone on a machine."""


def expected() -> Matrix:
    return Matrix.parse(EXPECTED.read_text())


def test_every_reader_sees_what_it_saw_when_it_was_measured_and_nothing_untrue(tmp_path: Path) -> None:
    found = Matrix.parse(apart("tests.integration.scenarios", tmp_path, PATIENCE))
    different = differences(expected(), found)
    assert not different, "\n".join([*different, ANEW])


def test_the_pages_say_what_was_measured() -> None:
    for shown in pages(expected()):
        assert shown.path.read_text() == shown.brought_up_to_date(), f"{shown.page}: {ANEW}"


def test_every_scenario_was_measured_in_every_naming() -> None:
    assert {title: [*row] for title, row in expected().cells.items()} == {one.title: [*NAMINGS] for one in SCENARIOS}


def test_scenarios_do_not_get_into_each_others_namespaces() -> None:
    keys = [one.key for one in SCENARIOS]
    assert [key for key in keys if keys.count(key) > 1] == []


def test_a_difference_names_its_cell() -> None:
    one = Matrix({"drop": {"uuid": {"name": "Dropped"}}}, {"no event": {}})
    silence = {"no event": {"drop": {"ordinal": {"name": "Dropped"}}}}
    other = Matrix({"drop": {"uuid": {"name": "t"}}, "undrop": {"uuid": {"hint": "t"}}}, silence)
    assert differences(one, other) == [
        "drop, uuid naming, by name: expected 'Dropped', found 't'",
        "undrop, uuid naming, by hint: expected 'nothing', found 't'",
        "drop, no event, ordinal naming, by name: expected 'nothing', found 'Dropped'",
    ]


def test_however_the_service_learns_of_it_readers_see_the_same_but_for_names_and_commits_that_it_never_saw() -> None:
    found = expected()
    wrong = [
        (title, telling, naming, how, seen)
        for telling, rows in found.otherwise.items()
        for title, row in rows.items()
        for naming, cell in row.items()
        for how, seen in cell.items()
        if not _may_differ(how, found.cells[title][naming][how], seen)
    ]
    assert wrong == []


def _may_differ(how: str, told: str, seen: str) -> bool:
    """Where a commit has its file, and what refuses one who asks for a name that the service never saw."""
    if how.rpartition(": ")[2] == "history":
        return "commits by commit file" in told and "commits by commit file" in seen
    refusals = {"Dropped", "NotFound"}
    was_led_on = told.startswith("→ ") and seen == "NotFound"
    return how.rpartition(": ")[2] == "name" and (was_led_on or {told, seen} == refusals)


def test_every_other_way_to_learn_of_it_was_measured() -> None:
    found = {telling: {title: [*row] for title, row in rows.items()} for telling, rows in expected().otherwise.items()}
    assert found == {
        telling: {one.title: [*NAMINGS] for one in SCENARIOS if telling in one.again} for telling in Telling
    }


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ({"directory": "t", "name": "t", "uuid": "t", "hint": "t"}, "✓ t"),
        ({"directory": "Dropped", "name": "Dropped", "uuid": "→ t", "hint": "none"}, "D N Dropped, U → t, H none"),
        ({"hint": "t", "old: name": "→ t", "history": "1 of 1"}, "H t, history: 1 of 1<br>old: N → t"),
        ({"name": "a|b"}, r"N a\|b"),
        ({"uuid": "t", "ref x": "t", "ref y": "t"}, "U and ref x and ref y: t"),
    ],
)
def test_looks_that_show_the_same_are_told_together(cell: dict[str, str], told: str) -> None:
    page = rendered(Matrix({"it": dict.fromkeys(NAMINGS, cell)}, {}))
    assert page.splitlines()[-2] == f"| it | {told} | same | same |  |  |"


def test_what_is_otherwise_is_told_with_the_namings_in_which_it_is() -> None:
    seen: dict[str, dict[str, str]] = {"identifier": {"name": "t"}, "ordinal": {"name": "t"}, "uuid": {}}
    page = rendered(Matrix({"it": {naming: {"name": "u"} for naming in NAMINGS}}, {Telling.LAST: {"it": seen}}))
    assert page.splitlines()[-2].endswith("| identifier and ordinal: N t |  |")
