"""What `sfn check` says of tables whose metadata files are soon deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from sfn.admin.schemas import CatalogModel, DifferingTable
from sfn.cli.check_catalogs import Lag, assumed_lag, observed_lag, refresh_findings
from sfn.cli.check_config import CheckFinding, Severity
from tests.unit.operators import ENDED, NOON, PROD, copied
from tests.unit.settings_ground import CATALOG, Ground
from tests.unit.test_cli_catalog_check import LOCAL, ORDERS, World

pytestmark = pytest.mark.anyio


@pytest.fixture(name="world")
def fixture_world(tmp_path: Path) -> World:
    """One with a table of a commit every two seconds, of which twenty metadata files stay."""
    world = World(tmp_path)
    version = [world.catalog.commit(ORDERS) for _ in range(100)][-1]
    world.catalog.amend(ORDERS, replace(version, previous_versions_max=20))
    return world


async def test_a_table_that_forgets_within_the_time_of_a_sweep_is_warned_of(world: World) -> None:
    finding = await world.wrong()
    assert finding == CheckFinding(
        "catalogs.prod: sales.orders",
        Severity.WARNING,
        "its metadata files are deleted 40 s after the next commit (write.metadata.delete-after-commit.enabled, "
        "20 previous files), and ours may be late by up to 15 min (sweep.every, where no event comes): readers may be "
        "led to one that is gone",
        "raise the table's write.metadata.previous-versions-max, or set write.metadata.delete-after-commit.enabled to "
        "false; or be in time: send events, shorten sweep.every",
    )


async def test_without_sweeps_files_may_be_late_without_bound(world: World) -> None:
    finding = await world.wrong(f"{LOCAL}[sweep]\nevery = 'off'\n")
    assert "ours may be late without bound (sweep.every is off)" in finding.text


async def test_what_lives_as_long_as_files_are_late_is_fine(world: World) -> None:
    world.lag = Lag(timedelta(seconds=40), "measured")
    assert {one.severity for one in await world.found()} == {Severity.OK}
    world.lag = Lag(timedelta(seconds=41), "measured")
    assert "(measured)" in (await world.wrong()).text


async def test_a_table_that_keeps_all_its_metadata_files_is_fine(world: World) -> None:
    version = world.catalog.current(ORDERS)
    assert version is not None
    world.catalog.amend(ORDERS, replace(version, previous_versions_max=None))
    assert {one.severity for one in await world.found(f"{LOCAL}[sweep]\nevery = 'off'\n")} == {Severity.OK}


def swept(*kinds: str) -> CatalogModel:
    differed = [DifferingTable(table=f"n.t{number}", kind=kind) for number, kind in enumerate(kinds)]
    return copied(PROD, sweep=copied(ENDED, differences=differed))


@pytest.mark.parametrize(
    ("standing", "lag"),
    [
        (PROD, Lag(timedelta(), "nothing waits in the running service")),
        (swept("new", "absent"), Lag(timedelta(), "nothing waits in the running service")),
        (
            copied(PROD, sweep=None),
            Lag(timedelta(minutes=15), "sweep.every, as no sweep has yet looked for what no event told of"),
        ),
        (
            copied(PROD, oldest_due_at=NOON - timedelta(seconds=90)),
            Lag(timedelta(seconds=90), "so long the oldest waits in the running service"),
        ),
        (
            swept("changed", "new", "changed"),
            Lag(timedelta(minutes=15), "sweep.every, and the last sweep found 2 tables that no event had told of"),
        ),
    ],
)
def test_the_lag_is_what_a_running_service_says(tmp_path: Path, standing: CatalogModel, lag: Lag) -> None:
    assert observed_lag(standing, Ground(tmp_path).load(CATALOG), NOON) == lag


def test_the_lag_is_a_sweeps_where_none_runs(tmp_path: Path) -> None:
    settings = Ground(tmp_path).load(f"{CATALOG}[sweep]\nevery = '2h'\n")
    assert assumed_lag(settings) == Lag(timedelta(hours=2), "sweep.every, where no event comes")


@pytest.mark.parametrize(("every", "warned"), [("11h", 0), ("12h", 1), ("43h", 1)])
def test_files_that_cleaners_may_take_for_orphans_are_warned_of(tmp_path: Path, every: str, warned: int) -> None:
    settings = Ground(tmp_path).load(f"{CATALOG}refresh_after = '{every}'\n")
    found = list(refresh_findings("prod", settings.catalogs["prod"]))
    assert [one.where for one in found] == ["catalogs.prod.refresh_after"] * warned
    assert all((one.severity, "refuses less than 24 h" in one.text) == (Severity.WARNING, True) for one in found)
