"""Directed histories of days on which nothing happens, but that somebody cleans up.

Each is killed by a patch in `tests/mutants`, which is what shows that it can fail.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sfn.sfnfile.naming import ORDINAL, UUID, Placement
from tests.simulation.disasters import Disasters
from tests.simulation.script import ELSEWHERE, Stage
from tests.simulation.setting import Setting
from tests.simulation.times import DAY

LAYOUTS: dict[str, dict[str, Any]] = {
    "identifier": {"branches": ("main", "r-*")},
    "alongside": {"placement": Placement.ALONGSIDE},
    "uuid": {"naming": UUID},
    "commits": {"naming": ORDINAL},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_of_ours_grows_old_enough_to_be_cleaned_away(layout: str) -> None:
    """Rule 14: live files, those of commits and branches, hints and tombstones."""
    stage = Stage(setting=Setting(policies=(LAYOUTS[layout] | {"expire_after": 5 * DAY},)))

    async def act() -> None:
        for name, place in (("a", "s3://lake/0"), ("b", ELSEWHERE)):
            stage.create(name, place)
            await stage.hint(name)
        await asyncio.sleep(20)
        stage.commit("a", branches={"r-1": 7})
        await stage.hint("a")
        stage.drop("b")
        await stage.hint("b", drop=True)
        for _ in range(12):
            await asyncio.sleep(DAY.total_seconds() / 4)
            Disasters(stage.world).clean()

    assert stage.run(act, briefly=True) == []
    assert stage.states(["a", "b"])["dropped"] == 1
