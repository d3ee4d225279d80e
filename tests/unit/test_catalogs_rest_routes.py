"""A catalog that leads elsewhere while the service runs is not followed: those may be other tables."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sfn.domain.catalog_answer import Loaded
from sfn.errors import ErrorScope, Transient
from tests.unit.rest_server import ORDERS, Open, Responder, Server, reply, running, table

FIRST = {"prefix": "first"}
SECOND = {"prefix": "second"}


@pytest.fixture
def server(server: Server) -> Server:
    server.config = configured(FIRST)
    return server


def configured(overrides: Mapping[str, str]) -> Responder:
    return reply({"defaults": {}, "overrides": overrides})


@pytest.mark.parametrize("status", [429, 500])
async def test_another_prefix_is_trouble_that_names_both(server: Server, opened: Open, status: int) -> None:
    catalog = opened(server, catalog_id="ours")
    await catalog.load(ORDERS, None)
    server.config, server.other = configured(SECOND), reply(b"", status)
    with pytest.raises(Transient):
        await catalog.load(ORDERS, None)
    server.other = reply(table())
    for _ in range(2):
        with pytest.raises(Transient) as caught:
            await catalog.load(ORDERS, None)
        trouble = caught.value
        assert trouble.scope is ErrorScope.CATALOG
        assert f"{server.uri} with prefix 'first'" in trouble.expected
        assert f"{server.uri} with prefix 'second'" in trouble.found
        assert "restart" in trouble.remedy
    assert not [path for path in server.asked if "second" in path]


async def test_another_uri_is_trouble_that_names_both(server: Server, opened: Open) -> None:
    async with running() as elsewhere:
        elsewhere.other = reply(table())
        catalog = opened(server)
        await catalog.identity()
        server.config, server.other = configured({"uri": elsewhere.uri, **FIRST}), reply(b"", 500)
        with pytest.raises(Transient) as caught:
            await catalog.load(ORDERS, None)
        assert caught.value.scope is ErrorScope.CATALOG
        assert f"{elsewhere.uri} with prefix 'first' instead of {server.uri} with prefix 'first'" in caught.value.found
        assert elsewhere.requests == []


async def test_a_catalog_that_leads_to_the_first_again_is_asked_there(server: Server, opened: Open) -> None:
    catalog = opened(server)
    await catalog.load(ORDERS, None)
    server.config, server.other = configured(SECOND), reply(b"", 429)
    for _ in range(2):
        with pytest.raises(Transient):
            await catalog.load(ORDERS, None)
    server.config, server.other = configured({"uri": f"{server.uri}/", **FIRST}), reply(table())
    assert isinstance(await catalog.load(ORDERS, None), Loaded)


async def test_what_names_no_other_tables_is_followed(server: Server, opened: Open) -> None:
    catalog = opened(server)
    await catalog.load(ORDERS, None)
    server.other = reply(b"", 429)
    with pytest.raises(Transient):
        await catalog.load(ORDERS, None)
    server.config, server.other = configured({"header.x-more": "1", **FIRST}), reply(table())
    await catalog.load(ORDERS, None)
    assert server.requests[-1].headers["x-more"] == "1"


async def test_a_new_start_takes_the_new_way(server: Server, opened: Open) -> None:
    await opened(server).load(ORDERS, None)
    server.config = configured(SECOND)
    assert isinstance(await opened(server).load(ORDERS, None), Loaded)
    assert server.asked[-1].startswith("/v1/second/")
