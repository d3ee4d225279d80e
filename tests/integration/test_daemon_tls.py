"""The service as a real process that speaks TLS."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from ipaddress import IPv4Address
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from sfn.app.service import log_listening
from sfn.http.server import listening_socket
from sfn.settings import load
from tests.integration.lake import Lake, lake
from tests.integration.process import TOKEN, configure, refused, serving
from tests.unit.certificates import Authority, Files, replace

NETWORK = str(IPv4Address(0))
CLEAR = "without TLS: tokens travel in clear text unless a proxy with TLS is in front"


@pytest.fixture(name="world")
async def fixture_world(tmp_path: Path) -> AsyncGenerator[Lake]:
    async with lake(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> Files:
    return Files(tmp_path, authority.sign())


def environ(files: Files) -> dict[str, str]:
    return {"SFN_LISTENER__TLS_CERTIFICATE_FILE": str(files.chain), "SFN_LISTENER__TLS_KEY_FILE": str(files.key)}


async def test_an_event_becomes_a_file_over_tls_before_and_after_a_renewal(
    world: Lake, files: Files, authority: Authority
) -> None:
    async with serving(configure(world), environ(files), trust=authority.trust()) as daemon:
        assert str(daemon.client.base_url).startswith("https://127.0.0.1:")
        assert (await daemon.tell("orders", metadata_location=world.commit("orders"))).status_code == 202
        await world.until_published("orders")
        # Another authority: who trusts the new one alone connects.
        other = Authority()
        files.renew(other.sign())
        await daemon.until_logged("certificate and key read")
        url = f"{daemon.client.base_url}/v1/events"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(headers=headers, trust_env=False, verify=other.trust()) as client:
            event = {"namespace": ["sales"], "name": "orders", "metadata_location": world.commit("orders")}
            assert (await client.post(url, json=event)).status_code == 202
        await world.until_published("orders")


async def test_a_pair_that_does_not_fit_stops_the_start_and_leaves_the_inbox_alone(
    world: Lake, files: Files, authority: Authority
) -> None:
    replace(files.key, authority.sign().key)
    code, told = await refused(configure(world), environ(files))
    assert (code, "expected a certificate and the key that belongs to it" in told) == (1, True)
    assert not (world.folder / "inbox").exists()


@pytest.mark.parametrize(
    ("host", "tls", "told"), [(NETWORK, False, [CLEAR]), (NETWORK, True, []), ("127.0.0.1", False, [])]
)
def test_tokens_in_clear_text_are_warned_of_once(tmp_path: Path, host: str, tls: bool, told: list[str]) -> None:
    files = "\ntls_certificate_file = 'x'\ntls_key_file = 'y'" if tls else ""
    configuration = tmp_path / "sfn.toml"
    rest = "[senders.a]\nsecrets = { m = 't' }\n[catalogs.prod]\nuri = 'http://catalog'\n[stores.a]\nprefix = '/w'"
    configuration.write_text(f"[listener]\nhost = '{host}'{files}\n{rest}")
    with listening_socket("127.0.0.1", 0) as listener, capture_logs() as logs:
        log_listening(load(configuration, {}), listener)
    assert [entry["event"] for entry in logs] == [*told, "listening"]
    assert logs[-1]["url"].startswith("https://" if tls else "http://")
