"""`sfn facade` as a process of its own."""

from __future__ import annotations

import signal
import socket
import ssl
import threading
from pathlib import Path

import httpx
import pytest

from tests.integration.facing import WITHIN, facing, refused
from tests.integration.waiting import wait_for
from tests.unit.certificates import Authority
from tests.unit.faced import commit, shown

SECRET = "a-token-of-readers"  # noqa: S105 - it opens nothing


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "w"
    shown(root / "sales" / "orders")
    return root


def test_it_shows_tables_below_its_roots_until_it_is_told_to_end(root: Path, tmp_path: Path) -> None:
    other = tmp_path.resolve() / "v"
    place = shown(other / "items", "sales.items")
    with facing(tmp_path, root, f"file:{other}/", "--host", "::1") as facade:
        said = facade.records("listening")[0]
        assert not facade.records("everybody who reaches it may read")
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
            threading.Timer(0.3, facade.process.send_signal, [signal.SIGTERM]).start()
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
        wait_for(lambda: facade.records("tokens kept"), "the complaint", WITHIN, 0.05)
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
    status, text = refused(root, "--port", "0", "--token-file", file)
    assert (status, str(file) in text) == (1, True), text


def test_a_port_that_is_taken_is_told(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, text = refused(root, "--port", str(taken.getsockname()[1]))
    assert (status, "Address already in use" in text, "set --host and --port" in text) == (1, True, True), text


def test_who_lets_everybody_read_is_told_so(root: Path, tmp_path: Path) -> None:
    with facing(tmp_path, root, "--host", "0.0.0.0") as facade:  # noqa: S104 - it is what is told
        assert facade.records("everybody who reaches it may read")
