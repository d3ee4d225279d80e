"""The facade behind the server, as a process and in the service."""

from __future__ import annotations

import signal
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import psutil
import pytest

from sfn.app.endpoints import FacadeFolders
from sfn.app.standalone import build_standalone
from tests.integration.facade import WITHIN, facing
from tests.support.certificates import Authority
from tests.support.command_line import forked
from tests.support.facade import HOME, commit, shown
from tests.support.listener import Open, answer, chunk, listening, request
from tests.support.processes import wait_for
from tests.support.service import Daemon, Lake, configure, serving

# Facade behind the server.


MIB = 1 << 20
ORDERS = f"/iceberg{HOME}/sales/tables/orders"


def get(path: str = ORDERS, *fields: str, method: str = "GET", body: bytes | None = None) -> bytes:
    return request(*fields, method=method, path=path, body=body, token=None)


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "w"
    shown(root / "sales" / "orders")
    return root


@pytest.fixture(name="connect")
async def fixture_connect(root: Path) -> AsyncIterator[Open]:
    async with listening(build_standalone(FacadeFolders([f"file://{root}"])).application) as connect:
        yield connect


async def test_one_connection_serves_reads_and_refusals_with_their_bodies_unread(connect: Open) -> None:
    async with connect() as wire:
        for method, body, status in (
            ("GET", None, 200),
            ("POST", b"{}", 403),
            ("HEAD", None, 204),
            ("DELETE", b"", 405),
            ("GET", b"x" * 100_000, 200),
            ("PUT", b"x" * 500_000, 405),
            ("GET", None, 200),
        ):
            await wire.send(get(method=method, body=body))
            reply = await wire.reply(headless=method == "HEAD")
            assert (method, reply.status, "connection" in reply.headers) == (method, status, False)
        await wire.send(get(ORDERS, "Transfer-Encoding: chunked", method="POST"), chunk(b"{}"), chunk(b""))
        assert (await wire.reply()).status == 403
        await wire.send(get(f"{ORDERS}x", method="HEAD"), get())
        assert (await wire.reply(headless=True)).status == 404
        assert (await wire.reply()).status == 200


async def test_who_sends_on_and_on_is_answered_and_let_go(connect: Open) -> None:
    async with connect() as wire:
        await wire.send(get(ORDERS, "Content-Length: 99999999", method="POST"), b"x" * (MIB + 1))
        reply = await wire.reply()
        assert (reply.status, reply.headers["connection"]) == (403, "close")


async def test_who_waits_to_be_told_to_go_on_is(connect: Open) -> None:
    async with connect() as wire:
        await wire.send(get(ORDERS, "Expect: 100-continue", "Content-Length: 2", method="POST"))
        assert (await wire.head()).startswith(b"HTTP/1.1 100")
        await wire.send(b"{}")
        assert (await wire.reply()).status == 403


@pytest.mark.parametrize(
    "path",
    [
        f"{ORDERS}%00",
        f"{ORDERS}/../../../x",
        "/iceberg/v1/sfn/namespaces/%2E%2E/tables/%2E%2E",
        "/iceberg/v1/config?warehouse=" + "x" * 60_000,
        "/iceberg/v1/sfn/namespaces/dir/tables/%2F" + "a" * 60_000,
        "/iceberg//v1/config",
        "/iceberg/v1/config;x",
        "/iceberg/v1/sfn/namespaces/" + "a%1F" * 15_000 + "/tables/t",
    ],
)
async def test_odd_paths_are_refused_in_iceberg_s_shape(connect: Open, path: str) -> None:
    reply = await answer(connect, get(path))
    assert reply.status in {400, 403, 404}
    assert reply.json["error"]["code"] == reply.status


async def test_bytes_that_are_no_ascii_are_no_request(connect: Open) -> None:
    async with connect() as wire:
        await wire.send(get().replace(b"orders", b"\xc3\xa4"))
        assert (await wire.reply()).status == 400


async def test_slow_readers_of_a_large_table_cost_little(root: Path, connect: Open) -> None:
    place = shown(root / "large", "sales.large")
    large = 24 * MIB
    place.metadata(location=f"file:{place.path}", x="x" * large)
    path = ORDERS.replace("orders", "large")
    assert len((await answer(connect, get(path))).content) > large
    process = psutil.Process()
    before = process.memory_info().rss
    async with anyio.create_task_group() as tasks:

        async def take() -> None:
            async with connect() as wire:
                await wire.send(get(path))
                await wire.head()
                await anyio.sleep_forever()

        for _ in range(10):
            tasks.start_soon(take)
        await anyio.sleep(0.5)
        more = process.memory_info().rss - before
        tasks.cancel_scope.cancel()
    print("ten slow readers:", more // MIB, "MiB")
    # Each with a copy of its own would be 240.
    assert more < 3 * large


# `sfn facade`.


SECRET = "a-token-of-readers"  # noqa: S105 - it opens nothing


def test_it_shows_tables_below_its_roots_until_it_is_told_to_end(root: Path, tmp_path: Path) -> None:
    other = tmp_path.resolve() / "v"
    place = shown(other / "items", "sales.items")
    with facing(tmp_path, root, f"file:{other}/", "--host", "::1") as facade:
        said = facade.records("listening")[0]
        assert not facade.records("no token is configured: everyone who reaches the facade may read")
        assert said["roots"] == [f"file://{root}", f"file://{other}"]
        assert facade.client.get(f"{facade.uri}/v1/config").json()["overrides"] == {"prefix": "sfn"}
        names = facade.client.get(f"{facade.uri}/v1/sfn/namespaces/sales/tables").json()["identifiers"]
        assert [one["name"] for one in names] == ["items", "orders"]
        etag = facade.table("items").headers["etag"]
        assert facade.table("items", headers={"If-None-Match": etag}).status_code == httpx.codes.NOT_MODIFIED
        location = commit(place, 2, "sales.items")
        assert facade.table("items", headers={"If-None-Match": etag}).json()["metadata-location"] == location
        assert facade.table(str(root / "sales" / "orders"), "dir").status_code == httpx.codes.OK
        alive = facade.client.get(facade.uri.replace("/iceberg", "/livez"))
        assert (alive.status_code, alive.json()) == (200, {"status": "alive"})
        wait_for(lambda: facade.records("ready"), "the first walk", WITHIN, 0.02)
        assert facade.client.get(facade.uri.replace("/iceberg", "/readyz")).json() == {"status": "ready"}
        page = facade.client.get(facade.uri.replace("/iceberg", "/metrics")).text
        assert 'sfn_facade_requests_total{status="304"} 1.0' in page
        assert "process_resident_memory_bytes" in page
        elsewhere = facade.client.get(facade.uri.replace("/iceberg", "/v1/config"))
        assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (404, 404)
        assert facade.end() == 0
        assert facade.records("draining")[0]["signal"] == "SIGTERM"
        assert facade.records("ended")


def test_the_request_under_way_is_answered_before_it_ends(root: Path, tmp_path: Path) -> None:
    with facing(tmp_path, root) as facade:
        port = int(facade.records("listening")[0]["port"])
        with socket.create_connection(("127.0.0.1", port), WITHIN) as line:
            line.sendall(b"POST /iceberg/v1/config HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
            threading.Timer(1.5, facade.process.send_signal, [signal.SIGTERM]).start()
            wait_for(lambda: facade.records("draining"), "the drain", WITHIN, 0.02)
            line.sendall(b"}")
            answer = line.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 405")
        assert facade.process.wait(WITHIN) == 0


def test_readers_show_a_token_of_a_file_that_may_change(root: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("# of readers\nold\n")
    with facing(tmp_path, root, "--token-file", tokens, token=SECRET) as facade:
        assert facade.table("orders").status_code == httpx.codes.UNAUTHORIZED
        assert facade.table("orders", headers={"Authorization": "Bearer old"}).status_code == httpx.codes.OK
        tokens.write_text(f"{SECRET}\n")
        wait_for(lambda: facade.table("orders").status_code == httpx.codes.OK, "the new token", WITHIN, 0.05)
        assert facade.table("orders", headers={"Authorization": "Bearer old"}).status_code == httpx.codes.UNAUTHORIZED
        tokens.write_text("")
        wait_for(lambda: facade.records("tokens not reloaded"), "the complaint", WITHIN, 0.05)
        assert facade.table("orders").status_code == httpx.codes.OK
        assert SECRET not in facade.log.read_text()


def test_it_speaks_tls(root: Path, tmp_path: Path) -> None:
    authority = Authority()
    pair, chain, key = authority.sign(), tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(pair.chain)
    key.write_bytes(pair.key)
    with facing(tmp_path, root, "--tls-certificate", chain, "--tls-key", key, trust=authority.trust()) as facade:
        assert facade.uri.startswith("https://")
        assert facade.table("orders").status_code == httpx.codes.OK
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{facade.uri}/v1/config", trust_env=False, verify=ssl.create_default_context())
        assert facade.end() == 0


def test_without_a_token_in_its_file_it_does_not_start(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# none yet\n")
    done = forked("facade", str(root), "--port", "0", "--token-file", str(file))
    assert (done.status, str(file) in done.out + done.err) == (1, True), done


def test_a_port_that_is_taken_is_told(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = forked("facade", str(root), "--port", str(taken.getsockname()[1]))
    text = done.out + done.err
    assert (done.status, "Address already in use" in text, "set --host and --port" in text) == (1, True, True), text


def test_who_lets_everybody_read_is_told_so(root: Path, tmp_path: Path) -> None:
    with facing(tmp_path, root, "--host", "0.0.0.0") as facade:  # noqa: S104 - it is what is told
        assert facade.records("no token is configured: everyone who reaches the facade may read")


# Facade of the service.


FACADE = """\
[facade]
token = "a-token-of-readers"
"""
PREFIX = "/iceberg/v1/prod/namespaces"
READER = {"Authorization": "Bearer a-token-of-readers"}


async def get_from_service(daemon: Daemon, path: str, **fields: str) -> httpx.Response:
    return await daemon.client.get(path, headers={**READER, **fields})


async def until_shown(daemon: Daemon, name: str, pointer: str) -> httpx.Response:
    """Ask for a table until it is at a metadata file."""
    with anyio.fail_after(20):
        while True:
            answer = await get_from_service(daemon, f"{PREFIX}/sales/tables/{name}")
            if answer.status_code == httpx.codes.OK and answer.json()["metadata-location"] == pointer:
                return answer
            await anyio.sleep(0.05)


async def listed(daemon: Daemon) -> list[str]:
    answer = await get_from_service(daemon, f"{PREFIX}/sales/tables")
    return [one["name"] for one in answer.json().get("identifiers", [])]


async def test_what_is_published_is_shown_to_readers(world: Lake) -> None:
    world.commit("orders")
    world.commit("items")
    async with serving(configure(world, FACADE)) as daemon:
        await world.until_published("orders", "items")
        assert (await get_from_service(daemon, "/iceberg/v1/config")).json()["overrides"] == {"prefix": "prod"}
        with anyio.fail_after(20):
            # A row is settled after its file is there, and a listing is kept for a moment.
            while await listed(daemon) != ["items", "orders"]:  # noqa: ASYNC110 - no event crosses processes
                await anyio.sleep(0.1)
        first = await get_from_service(daemon, f"{PREFIX}/sales/tables/orders")
        again = await get_from_service(
            daemon, f"{PREFIX}/sales/tables/orders", **{"If-None-Match": first.headers["etag"]}
        )
        assert (first.status_code, again.status_code) == (200, 304)
        pointer = world.commit("orders")
        await daemon.tell("orders")
        told = await until_shown(daemon, "orders", pointer)
        assert told.json()["metadata"]["properties"]["gc.enabled"] == "false"
        directory = str(world.directory("orders")).replace("/", "%2F")
        assert (await get_from_service(daemon, f"{PREFIX}/dir/tables/{directory}")).content == told.content
        assert (await get_from_service(daemon, f"{PREFIX}/dir/tables/%2Fetc")).status_code == httpx.codes.FORBIDDEN
        # The inbox of the service lies beside the warehouse.
        inbox = f"{world.folder}/inbox".replace("/", "%2F")
        assert (await get_from_service(daemon, f"{PREFIX}/dir/tables/{inbox}")).status_code == httpx.codes.FORBIDDEN
        page = (await daemon.client.get("/metrics")).text
        assert 'sfn_facade_requests_total{status="304"} 1.0' in page
        assert 'sfn_facade_requests_total{status="403"} 2.0' in page


async def test_only_its_readers_are_let_in_and_they_nowhere_else(world: Lake) -> None:
    world.commit("orders")
    async with serving(configure(world, f'{FACADE}[admin]\ntoken = "an-operator"\n')) as daemon:
        # A sender's token, as all requests of this client have it; an operator's; none.
        for fields in ({}, {"Authorization": "Bearer an-operator"}, {"Authorization": ""}):
            answer = await daemon.client.get("/iceberg/v1/config", headers=fields)
            assert answer.status_code == httpx.codes.UNAUTHORIZED
        assert (await get_from_service(daemon, "/admin/v1/status")).status_code == httpx.codes.UNAUTHORIZED
        sent = await daemon.client.post("/v1/events", headers=READER, json={"namespace": ["sales"], "name": "orders"})
        assert sent.status_code == httpx.codes.UNAUTHORIZED


async def test_a_table_elsewhere_is_not_shown_however_it_was_published(world: Lake) -> None:
    """Of all tables those below the facade's own roots are."""
    world.commit("orders")
    (world.folder / "warehouse" / "public").mkdir(parents=True)
    more = f'{FACADE}roots = ["{world.folder}/warehouse/public"]\n'
    async with serving(configure(world, more)) as daemon:
        await world.until_published("orders")
        assert (await get_from_service(daemon, PREFIX)).json()["namespaces"] == [["dir"]]
        answer = await get_from_service(daemon, f"{PREFIX}/sales/tables/orders")
        assert answer.status_code == httpx.codes.NOT_FOUND
        directory = str(world.directory("orders")).replace("/", "%2F")
        assert (await get_from_service(daemon, f"{PREFIX}/dir/tables/{directory}")).status_code == httpx.codes.FORBIDDEN


async def test_files_below_a_root_of_their_own_are_found(world: Lake) -> None:
    world.commit("orders")
    metadata = world.directory("orders") / "metadata"
    (world.folder / "warehouse" / "pointers").mkdir(parents=True)
    file = configure(world, FACADE)
    text = file.read_text()
    placing = f'[catalogs.prod]\nplacement = "root"\nroot = "{world.folder}/warehouse/pointers"\n'
    file.write_text(text.replace("[catalogs.prod]\n", placing))
    async with serving(file) as daemon:
        pointer = world.commit("orders")
        await daemon.tell("orders")
        await until_shown(daemon, "orders", pointer)
        assert [path.name for path in metadata.iterdir() if not path.name.endswith(".json")] == []


async def test_there_is_none_without_its_role(world: Lake) -> None:
    async with serving(configure(world, FACADE), {"SFN_ROLES": "receiver,worker"}) as daemon:
        assert (await get_from_service(daemon, "/iceberg/v1/config")).status_code == httpx.codes.NOT_FOUND
