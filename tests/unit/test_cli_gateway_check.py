"""What `sfn check` finds of gateways."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from sfn.catalogs.memory import MemoryCatalog
from sfn.cli.check_config import CheckFinding, Severity, advertised_findings, gateway_findings
from sfn.errors import ErrorScope, Transient
from sfn.settings.model import Settings
from tests.unit.settings_ground import CATALOG, Ground

OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR
GATEWAY = '[gateway.prod]\nupstream = "https://catalog.example/api"\n'
AWAY = Transient("catalog prod", scope=ErrorScope.CATALOG, expected="an answer", found="none")


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


class Telling(MemoryCatalog):
    """A catalog that tells its clients something."""

    def __init__(self, told: Mapping[str, str] | Transient, coding: str = "") -> None:
        super().__init__("prod")
        self._advertised, self._coding = told, coding

    async def identity(self) -> str:
        return "an-id"

    async def close(self) -> None:
        pass

    async def advertised_config(self) -> Mapping[str, str]:
        if isinstance(self._advertised, Transient):
            raise self._advertised
        return self._advertised

    async def advertised_encoding(self) -> str:
        return self._coding


async def found(
    settings: Settings, told: Mapping[str, str] | Transient, catalog: str = "prod", coding: str = ""
) -> list[CheckFinding]:
    return [finding async for finding in advertised_findings(catalog, Telling(told, coding), settings)]


def test_a_gateway_below_the_listener_has_its_address(ground: Ground) -> None:
    (one,) = gateway_findings(ground.load(CATALOG + GATEWAY), is_running=False)
    assert (one.where, one.severity, one.text) == ("gateway.prod", OK, "below /catalog/prod of the listener")


def test_a_gateway_with_a_listener_of_its_own_needs_a_free_address(ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ground.load(f'{CATALOG}{GATEWAY}host = "127.0.0.1"\nport = {taken.getsockname()[1]}\n')
        (one,) = gateway_findings(settings, is_running=False)
        assert (one.where, one.severity) == ("gateway.prod", ERROR)
        assert one.remedy.startswith("set gateway.prod.host and gateway.prod.port, or end")
        assert list(gateway_findings(settings, is_running=True)) == []
    (one,) = gateway_findings(settings, is_running=False)
    assert one.severity is OK


def test_credentials_in_clear_text_are_warned_of(ground: Ground) -> None:
    (one,) = gateway_findings(ground.load(f'{CATALOG}{GATEWAY}host = "0.0.0.0"\n'), is_running=True)
    assert (one.severity, one.where) == (WARNING, "gateway.prod")
    assert "clients' credentials travel in clear text" in one.text


@pytest.mark.parametrize("told", [{}, {"uri": "https://catalog.example:443/api/"}])
async def test_a_catalog_that_leads_to_itself_is_fine(ground: Ground, told: Mapping[str, str]) -> None:
    (one,) = await found(ground.load(CATALOG + GATEWAY), told)
    assert (one.where, one.severity, one.text) == ("gateway.prod", OK, "clients of prod stay with it")


async def test_a_catalog_that_leads_past_it_is_warned_of(ground: Ground) -> None:
    (one,) = await found(ground.load(CATALOG + GATEWAY), {"uri": "https://me:s3cret@elsewhere.example:8443/x?t=s3cret"})
    assert one.severity is WARNING
    assert one.text.startswith("prod leads its clients to https://elsewhere.example:8443/x, past the gateway, unless ")
    assert "gateway.prod.upstream" in one.remedy


@pytest.mark.parametrize("coding", ["br", "gzip, zstd"])
async def test_a_catalog_that_names_itself_in_what_can_not_be_read_is_warned_of(ground: Ground, coding: str) -> None:
    (one,) = await found(ground.load(CATALOG + GATEWAY), {"uri": "https://catalog.example/api"}, coding=coding)
    assert one.severity is WARNING
    assert one.text.endswith(f"encoded with {coding}, which the gateway can't read: clients are led past the gateway")
    (one,) = await found(ground.load(CATALOG + GATEWAY), {}, coding=coding)
    assert one.severity is OK


async def test_one_that_compresses_what_can_be_read_is_fine(ground: Ground) -> None:
    (one,) = await found(ground.load(CATALOG + GATEWAY), {"uri": "https://catalog.example/api"}, coding="GZIP, deflate")
    assert one.severity is OK


async def test_signers_are_listed(ground: Ground) -> None:
    signing, _ = await found(
        ground.load(CATALOG + GATEWAY), {"s3.signer.uri": "https://signer.example/v1", "prefix": "p"}
    )
    assert (signing.severity, signing.text) == (
        OK,
        "s3.signer.uri leads to https://signer.example/v1: clients have requests to stores signed there, not here",
    )


async def test_a_catalog_that_does_not_answer_is_an_error(ground: Ground) -> None:
    (one,) = await found(ground.load(CATALOG + GATEWAY), AWAY)
    assert (one.where, one.severity) == ("gateway.prod", ERROR)


async def test_nothing_is_asked_of_a_catalog_without_a_gateway(ground: Ground) -> None:
    settings = ground.load(f'{CATALOG}[catalogs.dev]\nuri = "https://dev.example"\n{GATEWAY}')
    assert await found(settings, AWAY, "dev") == []


MAPPED = '[gateway.g]\nupstream = "https://catalog.example/api"\ncatalogs = { %s }\n'


@pytest.mark.parametrize(
    ("keys", "prefix", "found_prefix", "remedy"),
    [
        ('analytics = "prod"', "5f0c2a9e", 'the prefix "5f0c2a9e"', 'catalogs = { "5f0c2a9e" = "prod" }'),
        ('main = "prod"', "main%7Clake", 'the prefix "main|lake"', 'catalogs = { "main|lake" = "prod" }'),
        ('main = "dev", b = "prod"', "main", 'the prefix "main"', 'catalogs = { "main" = "prod" }'),
        ('main = "prod"', "", "no prefix", 'set gateway.g.catalog = "prod" in place of catalogs'),
    ],
)
async def test_a_prefix_that_maps_to_no_catalog_or_another_is_named(
    ground: Ground, keys: str, prefix: str, found_prefix: str, remedy: str
) -> None:
    dev = '[catalogs.dev]\nuri = "https://dev.example"\n' if "dev" in keys else ""
    settings = ground.load(CATALOG + dev + MAPPED % keys)
    (one,) = await found(settings, {"prefix": prefix} if prefix else {})
    assert (one.where, one.severity) == ("gateway.g", WARNING)
    assert one.text.startswith(f"prod gives us {found_prefix}, and gateway.g.catalogs has ")
    assert remedy in one.remedy


@pytest.mark.parametrize(
    ("keys", "prefix"),
    [('"main|lake" = "prod"', "main%7Clake"), ('"main|lake" = "prod"', "main|lake"), ('"a/b" = "prod"', "a/b/")],
)
async def test_a_prefix_that_maps_to_its_catalog_is_fine(ground: Ground, keys: str, prefix: str) -> None:
    (one,) = await found(ground.load(CATALOG + MAPPED % keys), {"prefix": prefix})
    assert one.severity is OK
