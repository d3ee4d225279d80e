"""A catalog that holds a commit while the gateway is killed: it is found once it is made, whoever else commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import aiohttp
import anyio
import pytest

from sfn.clock import SystemClock
from sfn.inbox import intents
from tests.faults import asking_service
from tests.faults.fleet import ROUNDS
from tests.faults.holding import Holding
from tests.faults.lake import serving
from tests.faults.service import CATALOG, ROOT, Service, Setting, eventually, patched, started

SOONER = ("tests.faults.asking_service", asking_service.ASKS)
AS_IT_IS = ("sfn", intents.CHECK_DELAYS)
SCHEDULES = [SOONER, AS_IT_IS] if ROUNDS >= 60 else [SOONER]
"""The product's own takes two minutes."""
TABLE = "orders"
UNNOTED = ROOT / "tests" / "mutants" / "15-no-intents.patch"
Record = Callable[[str, object], None]


@pytest.mark.parametrize("other", [409, 200])
@pytest.mark.parametrize(("module", "asks"), SCHEDULES, ids=lambda value: value if isinstance(value, str) else "")
async def test_a_commit_that_is_made_long_after_its_gateway_was_killed_is_found(
    module: str, asks: Sequence[timedelta], other: int, tmp_path: Path, record_property: Record
) -> None:
    """Another client is told that it still runs, or commits to the same table in between."""
    lake, key = Holding(tmp_path / "warehouse"), str(uuid4())
    lake.create(TABLE)
    more = f'[gateway.{CATALOG}]\nupstream = "{lake.uri}"'
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, module=module, more=more)
    async with serving(lake), aiohttp.ClientSession() as session:
        with started(setting, session) as service:
            await service.ready()
            await _settled(service, lake)
            sent_at = SystemClock().now()
            await _killed_meanwhile(service, lake, key)
        asked = lake.asked["load"]
        with started(setting, session) as service:
            await service.ready()
            told = await service.commit(TABLE, key if other == 409 else "")
            assert (told.status, "RequestInProgress" in await told.text()) == (other, other == 409)
            await anyio.sleep(max(0.0, (sent_at + 3 * asks[0] - SystemClock().now()).total_seconds()))
            # The first ask has found nothing, and is not the last for that.
            await eventually(lambda: lake.asked["load"] > asked and not lake.wrong())
            lengths = lake.lengths()
            lake.release.set()
            await eventually(lambda: lake.lengths() != lengths)
            await eventually(lambda: not lake.wrong(), within=(asks[2] - 3 * asks[0]).total_seconds())
    document = lake.pointed(TABLE).document
    assert document is not None
    lag = (document.written_at - sent_at).total_seconds()
    ask = sum(lag >= pause.total_seconds() for pause in asks)
    record_property("held", {"lag": lag, "ask": ask})
    print("held:", {"schedule": module, "other": other, "lag": lag, "ask": ask})
    # The answer of 409 has the catalog asked too, at times of its own.
    assert ask >= (2 if other == 200 else 1)


@pytest.mark.parametrize("noted", [True, False])
async def test_nothing_but_its_note_tells_of_a_commit_that_was_cut_off(*, noted: bool, tmp_path: Path) -> None:
    """Of a gateway that notes nothing before a commit passes the file stays wrong: what finds it here is the note."""
    lake, asks = Holding(tmp_path / "warehouse"), asking_service.ASKS
    lake.create(TABLE)
    setting = Setting(
        tmp_path / "sfn",
        lake.uri,
        lake.warehouse,
        module="tests.faults.asking_service",
        source=None if noted else patched(tmp_path, UNNOTED),
        more=f'[gateway.{CATALOG}]\nupstream = "{lake.uri}"',
    )
    async with serving(lake), aiohttp.ClientSession() as session:
        with started(setting, session) as service:
            await service.ready()
            await _settled(service, lake)
            await _killed_meanwhile(service, lake, key="")
        lake.release.set()
        await eventually(lambda: bool(lake.wrong()))
        with started(setting, session) as service:
            await service.ready()
            with anyio.move_on_after(asks[1].total_seconds() + 2):
                await eventually(lambda: not lake.wrong(), within=asks[2].total_seconds())
    assert bool(lake.wrong()) is not noted


async def _settled(service: Service, lake: Holding) -> None:
    """Commit, until nothing of it is owed: a row that is still open after its file is written tells of the next too."""
    assert (await service.commit(TABLE)).status == 200
    await eventually(lambda: not lake.wrong() and service.told("done"))


async def _killed_meanwhile(service: Service, lake: Holding, key: str) -> None:
    """Commit, and have the gateway killed while the catalog holds it."""
    lake.held[TABLE] = 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cut_off, service, key)
        await lake.entered.wait()
        service.process.kill()


async def _cut_off(service: Service, key: str) -> None:
    with pytest.raises(aiohttp.ClientError):
        await service.commit(TABLE, key)
