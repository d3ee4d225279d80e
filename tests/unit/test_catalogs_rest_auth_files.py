"""Files that are read again when they change: a catalog's tokens and keys, and who must have signed its certificate."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.catalogs import Loaded
from sfn.catalogs.rest.auth import RenewedFile
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.errors import ErrorScope, Permanent, Transient
from tests.support.certificates import Authority, Files
from tests.support.rest_catalog import ORDERS, Mint, Open, Server, bearers, believing, reply, running, table
from tests.support.table_directory import replaced


@pytest.fixture(autouse=True)
def looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RenewedFile, "check_interval", 0.0)


async def test_a_token_file_is_read_again_when_it_changes(server: Server, opened: Open, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    catalog = opened(server, token_file=file)
    await catalog.load(ORDERS, None)
    file.write_text("second!\n")
    await catalog.load(ORDERS, None)
    assert bearers(server) == ["Bearer first", "Bearer first", "Bearer second!"]


async def test_a_file_is_looked_at_once_in_a_while(
    server: Server, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RenewedFile, "check_interval", 3600.0)
    file = tmp_path / "token"
    file.write_text("first\n")
    catalog = opened(server, token_file=file)
    await catalog.load(ORDERS, None)
    file.write_text("second!\n")
    await catalog.load(ORDERS, None)
    assert set(bearers(server)) == {"Bearer first"}


async def test_a_refused_token_of_a_file_is_read_again(server: Server, opened: Open, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    server.other = believing("first")
    catalog = opened(server, token_file=file)
    await catalog.load(ORDERS, None)
    server.other = believing("other")
    with pytest.raises(Permanent):
        await catalog.load(ORDERS, None)
    assert len(server.asked) == 2, "the same token is not tried twice"
    seen = file.stat()
    file.write_text("other")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert isinstance(await catalog.load(ORDERS, None), Loaded), "whatever its time says"


async def test_a_token_that_comes_back_to_its_file_is_sent_again(server: Server, opened: Open, tmp_path: Path) -> None:
    file = tmp_path / "token"
    catalog = opened(server, token_file=file)
    for token in ("first", "second!", "first"):
        file.write_text(token)
        await catalog.load(ORDERS, None)
    server.other = believing("first")
    assert isinstance(await catalog.load(ORDERS, None), Loaded)
    assert bearers(server)[1:] == ["Bearer first", "Bearer second!", "Bearer first", "Bearer first"]


@pytest.mark.parametrize("content", [None, "", " \n", "a b", "a\nb", "ü"])
async def test_a_token_file_without_a_token_is_the_catalogs_trouble(
    server: Server, opened: Open, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(Permanent) as caught:
        await opened(server, token_file=file).load(ORDERS, None)
    assert caught.value.scope is ErrorScope.CATALOG
    assert str(file) in caught.value.where
    assert server.requests == []


async def test_a_credential_file_is_read_for_every_token(server: Server, opened: Open, tmp_path: Path) -> None:
    file = tmp_path / "credential"
    file.write_text("me:first\n")
    mint = Mint()
    server.token = mint.respond
    catalog = opened(server, credential_file=file)
    await catalog.load(ORDERS, None)
    file.write_text("me:second\n")
    server.other = believing("token2")
    await catalog.load(ORDERS, None)
    assert [form["client_secret"] for form in mint.forms] == ["first", "second"]


async def test_a_token_file_that_comes_to_be_wrong_leaves_the_old_token_in_force(
    server: Server, opened: Open, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    catalog = opened(server, token_file=file)
    await catalog.load(ORDERS, None)
    with capture_logs() as logs:
        for content in (b"not one", b""):
            replaced(file, content)
            assert isinstance(await catalog.load(ORDERS, None), Loaded)
    assert {*bearers(server)} == {"Bearer first"}
    assert [entry["event"] for entry in logs] == 2 * ["token of catalog lake not reloaded"]


@pytest.mark.parametrize("setting", ["token_file", "credential_file", "ca_file"])
async def test_a_file_that_hangs_from_the_start_is_the_catalogs_trouble_and_nobody_elses(
    server: Server, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setattr(RenewedFile, "read_timeout", 0.2)
    hanging = tmp_path / "pipe"
    # Nobody writes to the pipe: opening it to read does not return.
    os.mkfifo(hanging)
    catalog = opened(server, **{setting: hanging})
    with pytest.raises(Transient) as caught:
        await catalog.load(ORDERS, None)
    assert caught.value.scope is ErrorScope.CATALOG
    assert "no answer of the file system within 0.2 s" in caught.value.found
    assert server.requests == []
    os.close(os.open(hanging, os.O_RDWR))


async def test_a_file_that_hangs_holds_up_one_request_at_a_time(server: Server, opened: Open, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    catalog = opened(server, token_file=file)
    await catalog.load(ORDERS, None)
    file.unlink()
    os.mkfifo(file)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(catalog.load, ORDERS, None)
        await anyio.wait_all_tasks_blocked()
        answered = len(server.asked)
        for _ in range(3):
            await catalog.load(ORDERS, None)
        assert len(server.asked) == answered + 3
        os.close(os.open(file, os.O_RDWR))
    assert len(server.asked) == answered + 4


async def test_a_file_that_comes_to_hang_leaves_the_old_token_in_force(
    server: Server, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RenewedFile, "read_timeout", 1.5)
    file, hanging = tmp_path / "token", tmp_path / "pipe"
    file.write_text("first")
    os.mkfifo(hanging)
    catalog = opened(server, token_file=file)
    await catalog.load(ORDERS, None)
    beside = tmp_path / "beside"
    beside.hardlink_to(hanging)
    beside.replace(file)
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(catalog.load, ORDERS, None)
        assert {*bearers(server)} == {"Bearer first"}
        assert [entry["event"] for entry in logs] == ["token of catalog lake not reloaded"]
        replaced(file, b"second!")
        os.close(os.open(hanging, os.O_RDWR))
        with anyio.fail_after(10):
            while bearers(server)[-1] != "Bearer second!":
                await catalog.load(ORDERS, None)


@dataclass(frozen=True)
class Site:
    """A catalog server that closes each connection, and the authority that signed what it shows."""

    server: Server
    authority: Authority
    authorities: Path


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
    replaced(site.authorities, site.authority.pem)
    assert await loads(catalog)
    replaced(site.authorities, Authority().pem)
    assert await refuses(catalog)


@pytest.mark.parametrize("content", [b"", b"garbage"])
async def test_a_file_that_comes_to_be_wrong_leaves_the_old_authorities_in_force(
    site: Site, opened: Open, content: bytes
) -> None:
    site.authorities.write_bytes(site.authority.pem)
    catalog = opened(site.server, ca_file=site.authorities)
    assert await loads(catalog)
    with capture_logs() as logs:
        replaced(site.authorities, content)
        assert await loads(catalog)
        assert await loads(catalog)
    (entry,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert entry["event"] == "authorities of catalog lake not reloaded"
    assert "expected a file of PEM certificates" in entry["error"]
    replaced(site.authorities, Authority().pem)
    assert await refuses(catalog)


async def test_one_that_never_was_right_is_the_catalogs_trouble_until_it_is(site: Site, opened: Open) -> None:
    catalog = opened(site.server, ca_file=site.authorities)
    for content, expected in ((None, "a readable file"), (b"garbage", "a file of PEM certificates")):
        if content is not None:
            replaced(site.authorities, content)
        with pytest.raises(Permanent) as caught:
            await catalog.load(ORDERS, None)
        assert (caught.value.scope, caught.value.expected) == (ErrorScope.CATALOG, expected)
    replaced(site.authorities, site.authority.pem)
    assert await loads(catalog)


async def test_without_a_file_the_systems_authorities_are_asked(site: Site, opened: Open) -> None:
    assert await refuses(opened(site.server))
