"""Faults around the gateway: it is killed while commits pass or are held, or its inbox takes nothing."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import aiohttp
import anyio
import anyio.to_thread
import pytest

from sfn.clock import SystemClock
from sfn.demo.environment import RestCatalogServer
from sfn.inbox import intents
from tests.faults import fleet, inspection
from tests.faults.altered_service import ASKING, ASKS
from tests.faults.committers import ON_ONE_TABLE, Committers, Shop, Truth, truth
from tests.faults.inspection import Observer
from tests.faults.lake import NAMESPACE, Holding, serving
from tests.faults.service import CATALOG, ROOT, Service, Setting, eventually, filled, patched, running, small, started
from tests.servers.postgres import Postgres
from tests.support.programs import runtime

ROUNDS = fleet.rounds(6)
COMMITS_A_ROUND = 34
"""2,000 in sixty rounds."""
OUTAGE_EVERY = 6
"""Rounds: in one of so many the catalog is stopped too."""
AWAY = 1.0
PUBLISHED_WITHIN = 10.0
"""Seconds after an ask: the catalog may have been in trouble a moment before."""
STARTED_WITHIN = 90.0
Record = Callable[[str, object], None]

SOONER = (ASKING, ASKS)
AS_IT_IS = ("sfn", intents.CHECK_DELAYS)
SCHEDULES = [SOONER, AS_IT_IS] if fleet.ROUNDS >= 60 else [SOONER]
"""The product's own takes two minutes."""
TABLE = "orders"
UNNOTED = ROOT / "tests" / "mutants" / "15-no-intents.patch"

TABLES = ("orders", "customers")
COMMITS = 5
"""To each table, while nothing is noted."""


@dataclass
class Figures:
    """What the rounds came to.

    Attributes:
        kills, outages: of the service, and of the catalog.
        answered, conflicts, refused: see `Committers`.
        cut_off: commits of which nobody was told.
        made: those of them that the catalog made.
        halved: those of them whose table had another writer that was told of all its commits.
        wrong: tables whose files differ from the catalog in the end.
        steps: how often a file was seen to go on.
        moved_back: how often to go back.
        letters: dead letters by reason.
        by_ask: of the commits that were made and cut off, the tables' files by the ask that they were written after; 0
            for those that were written before the first one.
        longest_lag: seconds from such a commit until its table's file said it.
        healed_in: seconds from the last word of the writers until no file was wrong.
    """

    kills: int = 0
    outages: int = 0
    answered: int = 0
    conflicts: int = 0
    refused: int = 0
    cut_off: int = 0
    made: int = 0
    halved: int = 0
    wrong: list[str] = field(default_factory=list)
    steps: int = 0
    moved_back: int = 0
    letters: dict[str, int] = field(default_factory=dict)
    by_ask: dict[int, int] = field(default_factory=dict)
    longest_lag: float = 0.0
    healed_in: float = 0.0


async def test_no_commit_is_lost_however_often_the_gateway_is_killed(tmp_path: Path, record_property: Record) -> None:
    figures = await _rounds(tmp_path, ROUNDS, within=ASKS[-1].total_seconds() + PUBLISHED_WITHIN)
    record_property("gateway kills", asdict(figures))
    print("gateway kills:", figures)
    assert figures.wrong == []
    assert (figures.moved_back, figures.letters) == (0, {})
    assert figures.answered + figures.cut_off >= COMMITS_A_ROUND * ROUNDS
    # The kills were aimed: that all is right in the end says something.
    assert figures.made >= ROUNDS
    # Of two writers of one table one was answered and the other cut off: in a few rounds it may not come to that.
    assert figures.halved >= ROUNDS // 10


async def _rounds(folder: Path, rounds: int, *, within: float) -> Figures:
    """Kills, and what came of them.

    Args:
        within: seconds from the last word of the writers until every file must be right.
    """
    figures, catalog = Figures(), RestCatalogServer(folder / "catalog", runtime())
    shop, setting = Shop(folder / "catalog" / "warehouse" / NAMESPACE), _setting(folder, catalog)
    stop, observer = anyio.Event(), Observer(shop)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        committers = Committers(shop, session, random.Random(rounds))
        try:
            await anyio.to_thread.run_sync(catalog.start)
            async with session.post(f"{catalog.uri}/v1/namespaces", json={"namespace": [NAMESPACE]}) as answer:
                answer.raise_for_status()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(observer.watch)
                tasks.start_soon(committers.run, stop)
                for number in range(rounds):
                    stopped = catalog if number % OUTAGE_EVERY == 1 else None
                    with started(setting, session) as service:
                        await _round(service, committers, stopped, figures)
                with started(setting, session) as service:
                    await service.ready(STARTED_WITHIN)
                    stop.set()
                    committers.service = service
                    await _healed(committers, catalog, within, figures)
                    assert service.process.terminate(10) == 0, service.tail()
                tasks.cancel_scope.cancel()
        finally:
            await anyio.to_thread.run_sync(catalog.stop)
    figures.steps, figures.moved_back = observer.steps, len(observer.back)
    figures.letters = inspection.letters(setting.database)
    return figures


def _setting(folder: Path, catalog: RestCatalogServer) -> Setting:
    return Setting(
        folder / "sfn",
        catalog.uri,
        folder / "catalog" / "warehouse",
        # What was answered is published before the next commit: of that one nothing but its note tells.
        interval="0s",
        module=ASKING,
        more=f'[gateway.{CATALOG}]\nupstream = "{catalog.uri}"',
    )


async def _round(service: Service, committers: Committers, catalog: RestCatalogServer | None, figures: Figures) -> None:
    """One life of a process, from its start to its kill.

    Args:
        catalog: is stopped and started meanwhile; None: it is left alone.
    """
    await service.ready(STARTED_WITHIN)
    before = _commits(committers)
    committers.service = service
    if catalog is not None:
        await eventually(lambda: _commits(committers) >= before + COMMITS_A_ROUND // 2, within=STARTED_WITHIN)
        await anyio.to_thread.run_sync(catalog.stop)
        await anyio.sleep(AWAY)
        await anyio.to_thread.run_sync(catalog.start)
        figures.outages += 1
    await eventually(lambda: _commits(committers) >= before + COMMITS_A_ROUND, within=STARTED_WITHIN)
    await anyio.sleep(committers.chance.uniform(0, 0.2))
    while not committers.in_flight:  # noqa: ASYNC110 - a moment, whichever it is
        await anyio.sleep(0.001)
    committers.service = None
    service.process.kill()
    figures.kills += 1


def _commits(committers: Committers) -> int:
    return committers.answered + len(committers.cut_off)


async def _healed(committers: Committers, catalog: RestCatalogServer, within: float, figures: Figures) -> None:
    """The last life: nobody commits any more, and by the last ask nothing may differ."""
    shop, began = committers.shop, anyio.current_time()
    # Whoever waits for an answer is given one, and the catalog has made what it was asked for.
    await eventually(lambda: not committers.in_flight)
    await anyio.sleep(1)
    found = await truth(committers.session, catalog.uri, shop.names)

    def wrong() -> list[str]:
        return [name for name, pointer in found.pointers.items() if not shop.pointed(name).says(pointer)]

    with anyio.move_on_after(within):
        await eventually(lambda: not wrong(), within=2 * within)
    figures.wrong, figures.healed_in = wrong(), round(anyio.current_time() - began, 2)
    figures.answered, figures.conflicts, figures.refused = committers.answered, committers.conflicts, committers.refused
    _count_cut_off(committers, found, figures)


def _count_cut_off(committers: Committers, found: Truth, figures: Figures) -> None:
    made, lags = [one for one in committers.cut_off if found.has(one)], dict[str, float]()
    for one in made:
        document = committers.shop.pointed(one.table).document
        if document is not None and one.table not in figures.wrong:
            lags[one.table] = (document.written_at - one.sent_at).total_seconds()
    shared = Counter(one.table for one in made if one.snapshot and one.writer < ON_ONE_TABLE)
    figures.cut_off, figures.made = len(committers.cut_off), len(made)
    figures.halved = sum(writers == 1 for writers in shared.values())
    figures.longest_lag = round(max(lags.values(), default=0.0), 2)
    asks = Counter(sum(lag >= ask.total_seconds() for ask in ASKS) for lag in lags.values())
    figures.by_ask = dict(sorted(asks.items()))


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
    lake, asks = Holding(tmp_path / "warehouse"), ASKS
    lake.create(TABLE)
    setting = Setting(
        tmp_path / "sfn",
        lake.uri,
        lake.warehouse,
        module=ASKING,
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


@pytest.fixture(name="server", scope="module")
def fixture_server() -> Iterator[Postgres]:
    """One that no other test is troubled by."""
    with Postgres() as server:
        yield server


@pytest.fixture(name="dsn")
def fixture_dsn(server: Postgres) -> Iterator[str]:
    with server.database() as name:
        yield server.dsn(name)


@pytest.fixture(name="lake")
def fixture_lake(tmp_path: Path) -> Holding:
    lake = Holding(tmp_path / "warehouse")
    for name in TABLES:
        lake.create(name)
    return lake


def _gateway(lake: Holding, on_failure: str) -> str:
    return f'[gateway.{CATALOG}]\nupstream = "{lake.uri}"\non_inbox_failure = "{on_failure}"'


async def test_commits_pass_while_the_database_is_away_and_are_found_by_a_sweep(
    server: Postgres, dsn: str, lake: Holding, tmp_path: Path, record_property: Record
) -> None:
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, url=dsn, more=_gateway(lake, "pass"))
    async with serving(lake), running(setting) as service:
        await _published(service, lake)
        await anyio.to_thread.run_sync(server.stop)
        await _committed_unnoted(service, lake)
        unnoted = await _unnoted(service)
        began = anyio.current_time()
        await anyio.to_thread.run_sync(server.start)
        await eventually(lambda: not lake.wrong())
        found_in = round(anyio.current_time() - began, 2)
    record_property("unnoted", {"unnoted": unnoted, "found_in": found_in})
    print("unnoted:", {"unnoted": unnoted, "found_in": found_in})
    assert unnoted == len(TABLES) * COMMITS


async def test_commits_are_refused_while_the_database_is_away_and_the_catalog_never_hears_of_them(
    server: Postgres, dsn: str, lake: Holding, tmp_path: Path
) -> None:
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, url=dsn, more=_gateway(lake, "refuse"))
    async with serving(lake), running(setting) as service:
        await _published(service, lake)
        await anyio.to_thread.run_sync(server.stop)
        before = dict(lake.commits)
        answer = await service.commit("orders")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert (await answer.json())["error"]["type"] == "ServiceUnavailableException"
        # Who only reads is in no danger.
        async with service.session.get(service.gateway("orders")) as loaded:
            assert loaded.status == 200
        assert (lake.commits, await _unnoted(service)) == (before, 0)
        await anyio.to_thread.run_sync(server.start)
        with anyio.fail_after(20):
            while (await service.commit("orders")).status != 200:
                assert lake.commits == before
        await eventually(lambda: not lake.wrong())


async def test_commits_pass_while_the_disk_is_full_and_are_found_by_a_sweep(
    lake: Holding, tmp_path: Path, record_property: Record
) -> None:
    disk, more = tmp_path / "disk", _gateway(lake, "pass")
    setting = Setting(
        tmp_path / "sfn", lake.uri, lake.warehouse, inbox=disk / "inbox.db", launcher=small(disk), more=more
    )
    async with serving(lake), running(setting) as service:
        await _published(service, lake)
        ballast = Path(f"/proc/{service.child().pid}/root{disk}/ballast")
        for filling in (16_000, 1_000, 1):
            await filled(service, lake, filling)
        await _committed_unnoted(service, lake)
        unnoted = await _unnoted(service)
        await anyio.Path(ballast).unlink()
        await eventually(lambda: not lake.wrong())
    record_property("full disk", {"unnoted": unnoted})
    print("full disk:", {"unnoted": unnoted})
    assert unnoted > 0


async def _published(service: Service, lake: Holding) -> None:
    """Commit to every table, which is published for that."""
    for name in TABLES:
        assert (await service.commit(name)).status == 200
    await eventually(lambda: not lake.wrong())


async def _committed_unnoted(service: Service, lake: Holding) -> None:
    """Commit to every table while nothing is noted: nobody who commits is told."""
    for name in TABLES * COMMITS:
        assert (await service.commit(name)).status == 200
    assert lake.wrong() == list(TABLES)


async def _unnoted(service: Service) -> float:
    """The metric of that name."""
    async with service.session.get(f"{service.url}/metrics") as answer:
        (value,) = re.findall(r"^sfn_gateway_unrecorded_total\S* (\S+)$", await answer.text(), re.MULTILINE)
        return float(value)
