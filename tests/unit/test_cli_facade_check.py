"""What `sfn check` finds of the facade."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.cli.check_config import Severity
from sfn.cli.check_findings import facade_findings
from tests.unit.settings_ground import CATALOG, Ground

STORE = '[stores.lake]\nprefix = "/warehouse"\n'
ELSEWHERE = '[listener]\nhost = "0.0.0.0"\n[senders.ci]\nsecrets = { first = "another-long-text" }\n'
SHUT = '[facade]\ntoken = "a-long-random-text"\n'


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def found(ground: Ground, text: str) -> list[tuple[Severity, str]]:
    return [(one.severity, one.text) for one in facade_findings(ground.load(CATALOG + STORE + text))]


def test_nothing_is_said_of_none(ground: Ground) -> None:
    assert found(ground, "") == []


def test_it_is_told_what_it_shows(ground: Ground) -> None:
    assert found(ground, SHUT) == [(Severity.OK, "below /iceberg of the listener: tables below file:///warehouse")]
    narrow = f'{SHUT}roots = ["/warehouse/sales"]\n'
    assert found(ground, narrow)[0][1].endswith("tables below file:///warehouse/sales")


@pytest.mark.parametrize(
    ("text", "said"), [(SHUT, "travel in clear text"), ("[facade]\nopen = true\n", "everybody who reaches 0.0.0.0")]
)
def test_who_else_could_read_is_told(ground: Ground, text: str, said: str) -> None:
    _, (severity, warning) = found(ground, ELSEWHERE + text)
    assert severity is Severity.WARNING
    assert said in warning
