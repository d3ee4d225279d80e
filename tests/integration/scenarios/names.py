"""Names that are hard on files, URLs and readers."""

from __future__ import annotations

from tests.integration.scenarios.looks import Look, everywhere
from tests.integration.scenarios.scenario import Scenario
from tests.integration.scenarios.stage import Stage


def _named(stage: Stage, name: str) -> list[Look]:
    return everywhere(stage.filled(name, at=stage.place("t")))


def letters(stage: Stage) -> list[Look]:
    return _named(stage, "Größe_表_кот")


def emoji(stage: Stage) -> list[Look]:
    return _named(stage, "🐻‍❄️")


def dots(stage: Stage) -> list[Look]:
    return _named(stage, "a.b..c")


def slashes(stage: Stage) -> list[Look]:
    return _named(stage, "a/b")


def percent(stage: Stage) -> list[Look]:
    return _named(stage, "100% of a b")


def long(stage: Stage) -> list[Look]:
    return _named(stage, "n" * 300)


SCENARIOS = (
    Scenario("a name of letters of many scripts", letters),
    Scenario("a name of emoji", emoji),
    Scenario("a name with dots", dots),
    Scenario("a name with a slash", slashes),
    Scenario("a name with a percent sign and spaces", percent),
    Scenario("a name of 300 bytes", long),
)
