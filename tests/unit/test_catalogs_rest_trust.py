"""Whom a catalog's certificate must come from: a file that is read again when it changes."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.catalogs.rest.auth import RenewedFile
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.domain.catalog_answer import Loaded
from sfn.errors import ErrorScope, Permanent
from tests.unit.certificates import Authority, Files, replace
from tests.unit.rest_server import ORDERS, Open, Server, reply, running, table


@dataclass(frozen=True)
class Site:
    """A catalog server that closes each connection, and the authority that signed what it shows."""

    server: Server
    authority: Authority
    authorities: Path


@pytest.fixture(autouse=True)
def looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RenewedFile, "check_interval", 0.0)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    authority = Authority()
    files = Files(tmp_path, authority.sign())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.chain, files.key)
    async with running(context) as server:
        server.config = reply({"defaults": {}, "overrides": {}}, connection="close")
        server.other = reply(table(), connection="close")
        yield Site(server, authority, tmp_path / "ca.pem")


async def loads(catalog: RestCatalog) -> bool:
    return isinstance(await catalog.load(ORDERS, None), Loaded)


async def refuses(catalog: RestCatalog) -> bool:
    with pytest.raises(Permanent) as caught:
        await catalog.load(ORDERS, None)
    return caught.value.scope is ErrorScope.CATALOG and "TLS" in caught.value.found


async def test_a_catalog_is_trusted_as_the_file_says_now(site: Site, opened: Open) -> None:
    site.authorities.write_bytes(Authority().pem)
    catalog = opened(site.server, ca_file=site.authorities)
    assert await refuses(catalog)
    replace(site.authorities, site.authority.pem)
    assert await loads(catalog)
    replace(site.authorities, Authority().pem)
    assert await refuses(catalog)


@pytest.mark.parametrize("content", [b"", b"garbage"])
async def test_a_file_that_comes_to_be_wrong_leaves_the_old_authorities_in_force(
    site: Site, opened: Open, content: bytes
) -> None:
    site.authorities.write_bytes(site.authority.pem)
    catalog = opened(site.server, ca_file=site.authorities)
    assert await loads(catalog)
    with capture_logs() as logs:
        replace(site.authorities, content)
        assert await loads(catalog)
        assert await loads(catalog)
    (entry,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert entry["event"] == "authorities of catalog lake not reloaded"
    assert "expected a file of PEM certificates" in entry["error"]
    replace(site.authorities, Authority().pem)
    assert await refuses(catalog)


async def test_one_that_never_was_right_is_the_catalogs_trouble_until_it_is(site: Site, opened: Open) -> None:
    catalog = opened(site.server, ca_file=site.authorities)
    for content, expected in ((None, "a readable file"), (b"garbage", "a file of PEM certificates")):
        if content is not None:
            replace(site.authorities, content)
        with pytest.raises(Permanent) as caught:
            await catalog.load(ORDERS, None)
        assert (caught.value.scope, caught.value.expected) == (ErrorScope.CATALOG, expected)
    replace(site.authorities, site.authority.pem)
    assert await loads(catalog)


async def test_without_a_file_the_systems_authorities_are_asked(site: Site, opened: Open) -> None:
    assert await refuses(opened(site.server))
