"""SIGKILL of a gateway while commits pass: what became of those that were cut off is found, by their notes alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
import anyio
import anyio.to_thread

from sfn.demo.environment import RestCatalogServer
from tests.faults import fleet, inboxes
from tests.faults.asking_service import ASKS
from tests.faults.committers import ON_ONE_TABLE, Committers, Shop
from tests.faults.lake import NAMESPACE
from tests.faults.observer import Observer
from tests.faults.service import CATALOG, Service, Setting, eventually, started
from tests.faults.truth import Truth, truth
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
    figures.letters = inboxes.letters(setting.database)
    return figures


def _setting(folder: Path, catalog: RestCatalogServer) -> Setting:
    return Setting(
        folder / "sfn",
        catalog.uri,
        folder / "catalog" / "warehouse",
        # What was answered is published before the next commit: of that one nothing but its note tells.
        interval="0s",
        module="tests.faults.asking_service",
        more=f'[gateway.{CATALOG}]\nupstream = "{catalog.uri}"',
    )


async def _round(service: Service, committers: Committers, catalog: RestCatalogServer | None, figures: Figures) -> None:
    """One life of a process, from its start to its kill.

    Args:
        catalog: is stopped and started meanwhile; None: it is left alone.
    """
    await service.ready(STARTED_WITHIN)
    before = _passed(committers)
    committers.service = service
    if catalog is not None:
        await eventually(lambda: _passed(committers) >= before + COMMITS_A_ROUND // 2, within=STARTED_WITHIN)
        await anyio.to_thread.run_sync(catalog.stop)
        await anyio.sleep(AWAY)
        await anyio.to_thread.run_sync(catalog.start)
        figures.outages += 1
    await eventually(lambda: _passed(committers) >= before + COMMITS_A_ROUND, within=STARTED_WITHIN)
    await anyio.sleep(committers.chance.uniform(0, 0.2))
    while not committers.in_flight:  # noqa: ASYNC110 - a moment, whichever it is
        await anyio.sleep(0.001)
    committers.service = None
    service.process.kill()
    figures.kills += 1


def _passed(committers: Committers) -> int:
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
