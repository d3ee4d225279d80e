"""Several tables in one directory, and two environments that share one."""

from __future__ import annotations

from tests.integration.scenarios.looks import Look, by_rivals_letter, everywhere
from tests.integration.scenarios.rivals import rival_of
from tests.integration.scenarios.scenario import Scenario
from tests.integration.scenarios.stage import SCHEMA, Stage


def shared(stage: Stage) -> list[Look]:
    a, b = stage.filled("a", at=stage.place("both")), stage.filled("b", at=stage.place("both"))
    return [*everywhere(a, "a"), *everywhere(b, "b")]


def unshared(stage: Stage) -> list[Look]:
    a = stage.filled("a", at=stage.place("both"))
    stage.filled("b", at=stage.place("both"))
    dropped = stage.drop("b")
    return [*everywhere(a, "a"), *everywhere(dropped, "b")]


def collision(stage: Stage) -> list[Look]:
    """`x_a`.`b` and `x`.`a_b`: the plain names of their files are the same."""
    place = stage.place("both")
    one = stage.filled((stage.beside("a"), "b"), at=place)
    other = stage.filled("a_b", at=place)
    return [*everywhere(one, "x_a.b"), *everywhere(other, "x.a_b")]


def registered_twice(stage: Stage) -> list[Look]:
    """In the catalog of another environment too, under the same name; both go on committing."""
    table = stage.filled("t")
    with rival_of(stage) as rival:
        theirs = rival.register_table(table.identifier, table.pointer)
        stage.append_to(theirs)
        stage.tell_rival(theirs)
    return [*everywhere(stage.append("t")), by_rivals_letter(table)]


def two_of_one_name(stage: Stage) -> list[Look]:
    """Another environment's own table of the same name in the same directory."""
    table = stage.filled("t")
    with rival_of(stage) as rival:
        theirs = rival.create_table(table.identifier, SCHEMA, f"file://{table.directory}")
        stage.append_to(theirs)
        stage.tell_rival(theirs)
    return [*everywhere(stage.append("t")), by_rivals_letter(table)]


SCENARIOS = (
    Scenario("two tables in one directory", shared),
    Scenario("… and one is dropped", unshared),
    Scenario("two tables in one directory with the same plain file name", collision),
    Scenario("two environments: one table registered in both", registered_twice),
    Scenario("two environments: a table of one name and directory in each", two_of_one_name),
)
