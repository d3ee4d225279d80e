"""The locks beside that of the tests: the image has what it needs and no more, at its versions; Spark adds to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.unit.deployment import PROJECT
from tests.unit.locks import DEPLOY, closure, entries, here, runtime

IMAGE, BUILD, ALL, SPARK = (DEPLOY / f"{name}.lock" for name in ("image", "build", "requirements", "spark"))


@pytest.mark.parametrize("lock", [IMAGE, BUILD], ids=["image", "build"])
def test_what_is_shipped_is_what_was_tested(lock: Path) -> None:
    tested = entries(ALL)
    assert {name: entry for name, entry in entries(lock).items() if tested.get(name) != entry} == {}


def test_the_image_has_what_the_service_needs_and_no_more() -> None:
    assert here(IMAGE) == closure(runtime())


def test_the_wheel_is_built_with_what_it_asks_for_and_no_more() -> None:
    assert here(BUILD) == closure(PROJECT["build-system"]["requires"])


def test_what_spark_needs_is_in_two_locks_that_go_together() -> None:
    wanted = [Requirement(one) for one in PROJECT["project"]["optional-dependencies"]["spark"]]
    tested, added = entries(ALL), entries(SPARK)
    assert added.keys() == {"py4j", "pyspark"}
    assert added.keys().isdisjoint(tested)
    assert closure(map(str, wanted)) <= tested.keys() | added.keys()
    pinned = {name: entry.split()[0].split("==")[1] for name, entry in (tested | added).items()}
    assert [one.name for one in wanted if not one.specifier.contains(pinned[one.name])] == []


def test_ivy_comes_with_the_pyspark_that_tests_run() -> None:
    assert entries(DEPLOY / "rest-fixture" / "pyspark.lock") == {"pyspark": entries(SPARK)["pyspark"]}
