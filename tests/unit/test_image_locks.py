"""The image's locks: all that it needs and no more, at the versions that the tests run with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.deployment import PROJECT
from tests.unit.locks import DEPLOY, closure, entries, here, runtime

IMAGE, BUILD, ALL = (DEPLOY / f"{name}.lock" for name in ("image", "build", "requirements"))


@pytest.mark.parametrize("lock", [IMAGE, BUILD], ids=["image", "build"])
def test_what_is_shipped_is_what_was_tested(lock: Path) -> None:
    tested = entries(ALL)
    assert {name: entry for name, entry in entries(lock).items() if tested.get(name) != entry} == {}


def test_the_image_has_what_the_service_needs_and_no_more() -> None:
    assert here(IMAGE) == closure(runtime())


def test_the_wheel_is_built_with_what_it_asks_for_and_no_more() -> None:
    assert here(BUILD) == closure(PROJECT["build-system"]["requires"])
