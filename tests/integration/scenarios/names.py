"""Names that are hard on files, URLs and readers."""

from __future__ import annotations

from tests.integration.scenarios.looks import Look, everywhere
from tests.integration.scenarios.rivals import rival_of
from tests.integration.scenarios.scenario import Scenario
from tests.integration.scenarios.stage import SCHEMA, Known, Stage


def _named(stage: Stage, name: str) -> list[Look]:
    return everywhere(stage.filled(name, at=stage.place("t")))


def letters(stage: Stage) -> list[Look]:
    return _named(stage, "Größe_表_кот")


def emoji(stage: Stage) -> list[Look]:
    return _named(stage, "🐻‍❄️")


def dots(stage: Stage) -> list[Look]:
    return _named(stage, "a.b..c")


def signs(stage: Stage) -> list[Look]:
    """All but those that a server of Java's refuses in a path, however they are encoded: slash, backslash, percent."""
    return _named(stage, "a b?c#d&e=f, [g] |h'")


def slash(stage: Stage) -> list[Look]:
    """Those others, in the other environment: its catalog is no server, and takes them."""
    name = (stage.namespace, "a/b\\c 50%2F")
    with rival_of(stage) as rival:
        table = rival.create_table(name, SCHEMA, f"file://{stage.place('t')}")
        stage.append_to(table)
        stage.tell_rival(table)
    return everywhere(Known(name, stage.place("t"), str(table.metadata.table_uuid), str(table.metadata_location)))


def long(stage: Stage) -> list[Look]:
    return _named(stage, "n" * 300)


SCENARIOS = (
    Scenario("a name of letters of many scripts", letters),
    Scenario("a name of emoji", emoji),
    Scenario("a name with dots", dots),
    Scenario("a name with spaces and signs", signs),
    Scenario("a name with slash, backslash and percent sign, in the other environment", slash),
    Scenario("a name of 300 bytes", long),
)
