"""The contract suite of catalogs on a REST catalog with each quirk: refused with a reason, or right."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import pytest

from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import Done, PublishedPointer, PublishResult, TableState
from sfn.errors import ExternalError
from sfn.worker.sweep import CatalogSweep, SweepPorts
from tests.promises import test_catalog as suite
from tests.promises.catalog_quirks.server import NAME, Outcome
from tests.promises.catalog_quirks.table import named
from tests.promises.catalog_quirks.world import QuirkWorld, Seen, measured, opened, outcome, page
from tests.promises.catalogs import World
from tests.promises.inboxes import Ground
from tests.support.clock import HandClock
from tests.support.working import POLICY, Noting

QUIRKS = named()
Promise: TypeAlias = Callable[[World], Awaitable[None]]

_seen: dict[str, Seen] = {}


def promises() -> dict[str, Promise]:
    """All promises of the suite, with one value for what they are parametrized by."""
    values = {"known": "made-up", "name": "a/b"}
    found: dict[str, Promise] = {}
    for name, promise in vars(suite).items():
        if name.startswith("test_"):
            more = {key: values[key] for key in inspect.signature(promise).parameters if key != "world"}
            found[name] = partial(promise, **more)
    return found


def holding() -> list[str]:
    """The quirks with which the contract suite must hold."""
    return [name for name, quirk in QUIRKS.items() if quirk.outcome in {Outcome.RIGHT, Outcome.GONE_UNSEEN}]


@pytest.mark.parametrize("name", QUIRKS)
async def test_catalog_with_a_quirk_is_refused_or_correct(name: str) -> None:
    result = _seen[name] = await measured(QUIRKS[name])
    assert outcome(result) is QUIRKS[name].outcome, result
    assert all(len(why) > 10 for why in (*result.refused.values(), *result.withheld.values())), "each has a reason"
    if QUIRKS[name].outcome not in {Outcome.REFUSED, Outcome.NO_LISTING}:
        expected = {"aa.t", "zz.t"} | (set() if "mm" in result.withheld else {"mm.t"})
        assert {*result.found} >= expected, "one bad namespace hides no other"


@pytest.mark.parametrize("name", holding())
async def test_contracts_hold_on_a_catalog_with_a_quirk(name: str) -> None:
    quirk = QUIRKS[name]
    async with opened(quirk) as (server, adapter):
        for title, promise in promises().items():
            if title not in quirk.but:
                await promise(QuirkWorld(server, adapter))


@pytest.mark.parametrize("name", QUIRKS)
async def test_sweep_of_a_catalog_with_a_quirk_misses_no_live_table(name: str) -> None:
    clock = HandClock()
    inbox = Noting(clock)
    ground = Ground(inbox, clock)
    async with opened(QUIRKS[name]) as (server, adapter):
        for space in ("aa", "mm", "zz"):
            table = TableIdentifier(NAME, (space,), "t")
            server.truth.create_namespace(space)
            live = server.truth.create(table)
            file = PublishedPointer(live.metadata_location, live.uuid, live.location, clock.now())
            await ground.settled(table, Done(ground.after(1e6), PublishResult(TableState(live=file, has_settled=True))))
        ports = SweepPorts(adapter, inbox, clock)
        with suppress(ExternalError):
            await CatalogSweep(CatalogName(NAME), ports, POLICY).run(0.5)
    assert inbox.noted == [], "nothing differs"


async def test_page_matches_the_outcome_of_each_quirk() -> None:
    for name, quirk in QUIRKS.items():
        if name not in _seen:
            _seen[name] = await measured(quirk)
    shown = page(_seen)
    assert shown.path.read_text() == shown.brought_up_to_date(), "run python -m tests.promises.catalog_quirks"
