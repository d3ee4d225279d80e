"""The settings of gateways."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.unit.settings_ground import CATALOG, Ground

GATEWAY = '[gateway.prod]\nupstream = "https://catalog.example/api"\n'
DEV = '[catalogs.dev]\nuri = "https://dev.example"\n'


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_a_gateway_needs_no_more_than_its_catalog(ground: Ground) -> None:
    settings = ground.load(CATALOG + GATEWAY)
    gateway = settings.gateway["prod"]
    assert (gateway.upstream, gateway.host, gateway.on_inbox_failure) == ("https://catalog.example/api", None, "pass")
    assert gateway.idle == timedelta(milliseconds=500)
    assert (gateway.timeout, gateway.connections, gateway.body_limit) == (timedelta(minutes=10), 256, 1 << 20)


@pytest.mark.parametrize(
    ("more", "behind"),
    [
        ("", {"": "prod"}),
        ('catalog = "dev"', {"": "dev"}),
        ('catalogs = { "p%7Ca" = "prod", "b" = "dev" }', {"p%7Ca": "prod", "b": "dev"}),
    ],
)
def test_what_is_behind_it_is_told_or_has_its_name(ground: Ground, more: str, behind: dict[str, str]) -> None:
    assert ground.load(f"{CATALOG}{DEV}{GATEWAY}{more}").catalogs_behind("prod") == behind


def test_the_only_catalog_there_is_need_not_be_named(ground: Ground) -> None:
    assert ground.load(CATALOG + GATEWAY.replace("gateway.prod", "gateway.front")).catalogs_behind("front") == {
        "": "prod"
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('catalog = "prod"\ncatalogs = { a = "prod" }', "catalog: expected either catalog or catalogs, found both"),
        ('catalog = "prd"', "catalog: expected a configured catalog, found prd; did you mean prod?"),
        ('catalogs = { a = "prd" }', "catalogs] a: expected a configured catalog, found prd; did you mean prod?"),
        ('timeout = "31m"', "timeout: "),
        ('timeout = "500ms"', "timeout: "),
        ('on_inbox_failure = "ignore"', "on_inbox_failure: "),
        ("connections = 0", "connections: "),
        ('host = "0.0.0.0"\nport = 8085', "port: expected an address of its own, found that of listener; set another"),
        ('public_url = "https://sfn/?a=b"', "public_url: expected an address alone"),
        ('upstrem = "x"', "upstrem: "),
    ],
)
def test_what_can_not_work_is_refused(ground: Ground, more: str, said: str) -> None:
    (problem,) = ground.problems(f"{CATALOG}{GATEWAY}{more}")
    assert "gateway.prod" in problem
    assert said in problem


def test_of_several_catalogs_one_is_named(ground: Ground) -> None:
    problem = ground.problem(CATALOG + DEV + GATEWAY.replace("gateway.prod", "gateway.front"))
    assert problem.endswith(
        "[gateway.front] catalog: expected our name of the catalog behind it, as there are several, found none; "
        "configured are: prod, dev"
    )


def test_a_user_in_its_address_is_refused_and_not_repeated(ground: Ground) -> None:
    problem = ground.problem(CATALOG + GATEWAY.replace("https://", "https://me:s3cret@"))
    assert "an address alone, as clients show themselves who they are" in problem
    assert "s3cret" not in problem


@pytest.mark.parametrize(
    "upstream",
    [
        "https://glue.eu-central-1.amazonaws.com/iceberg",
        "https://s3tables.us-east-1.amazonaws.com/iceberg",
        "https://glue-fips.us-gov-west-1.api.aws/iceberg",
        "https://vpce-1.glue.eu-west-1.vpce.amazonaws.com/iceberg",
    ],
)
def test_a_catalog_whose_requests_are_signed_can_not_be_behind_it(ground: Ground, upstream: str) -> None:
    problem = ground.problem(CATALOG + GATEWAY.replace("https://catalog.example/api", upstream))
    assert "clients sign the host that they speak to, so nothing can stand between" in problem
    assert "EventBridge" in problem


def test_so_is_a_catalog_that_we_sign_for_ourselves(ground: Ground) -> None:
    signed = '[catalogs.prod]\nuri = "https://x.execute-api.eu-west-1.amazonaws.com/api"\nauth = "sigv4"\n'
    assert "not signed with SigV4" in ground.problem(signed + GATEWAY)


def test_a_catalog_that_nobody_can_ask_can_not_be_behind_it(ground: Ground) -> None:
    told = (
        '[catalogs.told]\ntype = "events"\ncatalog_id = "t"\nallowed_locations = ["/w"]\n'
        '[senders.etl]\nsecrets = { main = "a" }\ncatalog = "told"\n'
    )
    problem = ground.problem(f'{CATALOG}{told}{GATEWAY}catalog = "told"')
    assert "expected a catalog that can be asked: what passes is looked up there, found told, of type told" in problem


@pytest.mark.parametrize("upstream", ["http://127.0.0.1:8085", "http://127.0.0.1:8085/catalog/prod"])
def test_a_gateway_before_itself_is_refused(ground: Ground, upstream: str) -> None:
    problem = ground.problem(CATALOG + GATEWAY.replace("https://catalog.example/api", upstream))
    assert "expected the catalog's address, found the service's own" in problem


def at(*hosts: str) -> str:
    """Gateways at one port of these addresses."""
    catalogs = ("prod", "dev")
    own = (f'{GATEWAY.replace("prod", name)}host = "{host}"\n' for name, host in zip(catalogs, hosts, strict=True))
    return CATALOG + DEV + "".join(own)


@pytest.mark.parametrize(
    "hosts",
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "localhost"),
        ("0.0.0.0", "127.0.0.1"),  # noqa: S104 - read, not bound
        ("sfn.example", "0.0.0.0"),  # noqa: S104 - read, not bound
        ("sfn.example", "SFN.example"),
        ("::", "127.0.0.1"),
        ("::1", "[0:0:0:0:0:0:0:1]"),
        ("[::]", "::1"),
    ],
)
def test_two_gateways_at_one_address_are_refused(ground: Ground, hosts: tuple[str, str]) -> None:
    (problem,) = ground.problems(at(*hosts))
    assert "[gateway.dev] port: expected an address of its own, found that of gateway.prod" in problem


@pytest.mark.parametrize("hosts", [("127.0.0.1", "127.0.0.2"), ("0.0.0.0", "::1"), ("10.0.0.1", "sfn.example")])  # noqa: S104 - read, not bound
def test_one_port_of_several_addresses_is_several(ground: Ground, hosts: tuple[str, str]) -> None:
    assert [one.host for one in ground.load(at(*hosts)).gateway.values()] == [*hosts]


def test_the_listeners_port_of_another_address_is_one_of_its_own(ground: Ground) -> None:
    ground.load(f'{CATALOG}{GATEWAY}host = "127.0.0.2"\nport = 8085\n')


def test_any_free_port_is_one_of_its_own(ground: Ground) -> None:
    ground.load("[listener]\nport = 0\n" + at("127.0.0.1", "127.0.0.1").replace("host =", "port = 0\nhost ="))
