"""Texts for people: stretches of time, numbers of things, columns, and what must not steer a terminal."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest

from sfn.cli.render import Grid, Line, escape, format_time, print_json, to_plain_text
from sfn.clock import format_ago, format_duration
from sfn.errors import pluralise
from tests.unit.admin_server import NOON


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3_605, "1 h"),
        (3_661, "1 h 1 min"),
        (86_399, "23 h 59 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_stretch_of_time_is_said_by_its_two_largest_units(seconds: float, said: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == said


def test_a_moment_is_behind_or_ahead() -> None:
    assert format_ago(NOON - timedelta(seconds=5), NOON) == "5 s ago"
    assert format_ago(NOON + timedelta(seconds=5), NOON) == "in 5 s"


def test_a_moment_is_said_in_utc_and_whole_seconds() -> None:
    there = NOON.replace(microsecond=999_999).astimezone(timezone(timedelta(hours=2)))
    assert format_time(there) == "2026-08-21 12:00:00Z"


@pytest.mark.parametrize(
    ("number", "thing", "said"), [(1, "table", "1 table"), (1_204, "table", "1,204 tables"), (2, "entry", "2 entries")]
)
def test_things_are_counted(number: int, thing: str, said: str) -> None:
    assert pluralise(number, thing) == said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sales.ördérs", "sales.ördérs"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x9b\u2028\u202e", r"\x9b\u2028\u202e"),
        ("a\udcff", r"a\udcff"),
    ],
)
def test_what_would_steer_a_terminal_is_spelled_out(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_columns_are_aligned_and_nothing_is_cut_off() -> None:
    grid = Grid(("NAME", "N", "WHY"), [("a", "1", "x" * 200), ("long name", "1,204", "")], frozenset({"N"}))
    assert to_plain_text([Line("first"), grid]).splitlines() == [
        "first",
        "NAME           N  WHY",
        "a              1  " + "x" * 200,
        "long name  1,204",
    ]


def test_columns_without_heads_have_no_row_of_them() -> None:
    assert to_plain_text([Grid(("", " "), [("a", "b")])]) == "a  b"


def test_one_of_several_documents_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        print_json({"tables": [{"name": "a"}]}, on_one_line=True)
    assert capsys.readouterr().out == '{"tables": [{"name": "a"}]}\n' * 2
