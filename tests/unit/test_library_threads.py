"""PyIceberg blocks: nothing else stands still meanwhile, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import anyio
import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError

from sfn.catalogs import pyiceberg as adapter
from sfn.catalogs.pyiceberg import PyIcebergCatalog
from sfn.concurrency import unfinished_calls
from sfn.domain.catalog_answer import LoadResult, NoSuchTable
from sfn.errors import ErrorScope, Transient
from tests.unit.library_ground import ORDERS, planned, trouble_of

SHORT = 0.1
SOON = 5.0
"""Seconds: what would otherwise never come."""


class Server:
    """Has no tables. Does not answer until it is let go.

    Attributes:
        hanging: the verbs that hang.
        asked: how often it was asked for a table.
        seen: PyIceberg's objects that asked for one.
    """

    def __init__(self, *hanging: str) -> None:
        self.hanging = set(hanging)
        self.asked = 0
        self.seen: list[NoopCatalog] = []
        self._let_go = threading.Event()

    def __call__(self, catalog: NoopCatalog, verb: str) -> Any:  # noqa: ANN401 - as of `ReadPlan`
        if verb == "load":
            self.asked += 1
            self.seen.append(catalog)
        if verb in self.hanging:
            self._let_go.wait(2 * SOON)
        if verb == "load":
            raise NoSuchTableError("none") from LookupError()
        return []

    def let_go(self) -> None:
        self.hanging.clear()
        self._let_go.set()


@pytest.fixture(name="server")
def fixture_server() -> Generator[Server]:
    """One that hangs when it is asked for a table, and not after the test."""
    server = Server("load")
    yield server
    server.let_go()


async def until_asked(server: Server, number: int = 1) -> None:
    with anyio.fail_after(SOON):
        while server.asked < number:  # noqa: ASYNC110 - no thread tells a test
            await anyio.sleep(0.001)


async def test_the_loop_runs_on_while_pyiceberg_works(server: Server) -> None:
    answers: list[LoadResult] = []

    async def load(catalog: PyIcebergCatalog) -> None:
        answers.append(await catalog.load(ORDERS, None))

    async with planned(server) as catalog, anyio.create_task_group() as tasks:
        tasks.start_soon(load, catalog)
        await until_asked(server)
        for _ in range(10):
            await anyio.sleep(0.001)
        assert answers == []
        server.let_go()
    assert answers == [NoSuchTable()]


async def test_what_takes_too_long_is_trouble_of_the_catalog(server: Server) -> None:
    async with planned(server, request_timeout=SHORT) as catalog:
        with anyio.fail_after(SOON):
            trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.CATALOG)
    assert trouble.expected == "an answer to PyIceberg within 0.1 s"


async def test_connections_that_hang_do_not_keep_others_from_being_opened(server: Server) -> None:
    """A server that forgot some answers others; of the objects that hang none is asked again."""
    async with planned(server, request_timeout=SOON, max_in_flight=2) as catalog:
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(catalog.load, ORDERS, None)
            await until_asked(server, 2)
            tasks.cancel_scope.cancel()
        server.hanging.clear()
        assert await catalog.load(ORDERS, None) == NoSuchTable()
    assert len({id(one) for one in server.seen}) == 3


def test_so_many_may_hang() -> None:
    assert adapter.MAX_HANGING_CALLS == 56


async def test_what_hangs_keeps_nobody_from_closing_nor_the_process_from_ending(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "CLOSE_TIMEOUT", SHORT)
    server.hanging = {"close"}
    async with planned(server, request_timeout=2 * SOON) as catalog:
        assert await catalog.load(ORDERS, None) == NoSuchTable()
        with anyio.fail_after(SOON):
            await catalog.close()
    assert unfinished_calls(0) == []


def test_a_server_has_two_seconds_for_a_goodbye() -> None:
    assert adapter.CLOSE_TIMEOUT == 2


async def test_no_object_of_pyiceberg_is_asked_by_two_threads() -> None:
    busy: set[int] = set()
    shared: list[str] = []
    pause = threading.Event()

    def plan(catalog: NoopCatalog, verb: str) -> Any:  # noqa: ANN401 - as of `ReadPlan`
        if id(catalog) in busy:
            shared.append(verb)
        busy.add(id(catalog))
        pause.wait(0.002)
        busy.remove(id(catalog))
        return []

    async with planned(plan) as catalog, anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(catalog.is_listed, ORDERS)
    assert shared == []


async def test_after_trouble_no_object_of_pyiceberg_is_trusted_any_more() -> None:
    """Each of them may have a connection that a restarted server has forgotten."""
    together = threading.Barrier(3)
    used: list[NoopCatalog] = []
    closed: list[NoopCatalog] = []
    failing = threading.Event()

    def plan(catalog: NoopCatalog, verb: str) -> Any:  # noqa: ANN401 - as of `ReadPlan`
        if verb == "close":
            closed.append(catalog)
        if verb == "tables":
            used.append(catalog)
            if failing.is_set():
                raise ConnectionResetError
            if len(used) <= together.parties:
                together.wait(SOON)
        return []

    async with planned(plan, max_in_flight=3) as catalog:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(catalog.is_listed, ORDERS)
        failing.set()
        with pytest.raises(Transient):
            await catalog.is_listed(ORDERS)
        before = used.copy()
        assert {id(one) for one in closed} == {id(one) for one in before}
        failing.clear()
        await catalog.is_listed(ORDERS)
        assert used[-1] not in before
    assert used[-1] in closed


async def test_a_listing_that_hangs_is_trouble_of_its_namespace_while_the_catalog_lists_others() -> None:
    let_go = threading.Event()

    def answer(_: NoopCatalog, verb: str) -> Any:  # noqa: ANN401 - as of `ReadPlan`
        if verb == "tables":
            let_go.wait(2 * SOON)
        return []

    async with planned(answer, request_timeout=SHORT) as catalog:
        with pytest.raises(Transient) as caught:
            await catalog.is_listed(ORDERS)
        let_go.set()
    assert caught.value.scope is ErrorScope.TABLE
