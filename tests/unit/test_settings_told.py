"""The settings of a catalog that nobody can ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.settings_ground import CATALOG, Ground

SENDER = """
[senders.etl]
secrets = { main = "a" }
catalog = "hive"
"""
TOLD = f"""
{SENDER}
[catalogs.hive]
type = "events"
catalog_id = "hive-prod"
allowed_locations = ["s3://lake/"]
"""


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_a_catalog_that_is_told_of_needs_no_place_to_ask(ground: Ground) -> None:
    settings = ground.load(TOLD + CATALOG)
    assert settings.event_only_catalogs == {"hive"}
    assert settings.catalogs["hive"].allowed_locations == ("s3://lake",)


def test_what_is_believed_needs_a_sender_that_is_known(ground: Ground) -> None:
    assert ground.problem(TOLD.replace(SENDER, "")) == (
        "sfn.toml: senders: expected a sender with a token, as what is told of hive is believed, found none; "
        'configure one: [senders.NAME] secrets = { main = "…" }'
    )


@pytest.mark.parametrize("key", ["catalog_id", "allowed_locations"])
def test_what_nobody_can_be_asked_for_must_be_set(ground: Ground, key: str) -> None:
    without = "\n".join(line for line in TOLD.splitlines() if not line.startswith(key))
    assert ground.problem(without) == (
        f"sfn.toml: [catalogs.hive] {key}: expected a value, as a catalog of type told can't be asked for it, "
        f"found none; set it there or as SFN_CATALOGS__HIVE__{key.upper()}"
    )


@pytest.mark.parametrize(
    "more",
    [
        "uri = 'http://user:s3cret@catalog'",
        "warehouse = 'w'",
        "ca_file = '/ca.pem'",
        "headers = { x-s3cret = 's3cret' }",
        "token = 's3cret'",
        "token_file = '/token'",
        "credential = 's3cret'",
        "credential_file = '/credential'",
        "oauth2_uri = 'http://issuer/s3cret'",
        "scope = 'catalog'",
    ],
)
def test_who_is_never_asked_is_not_told_where_and_as_whom(ground: Ground, more: str) -> None:
    problem = ground.problem(TOLD + more)
    key = more.split(" ", maxsplit=1)[0]
    assert problem == (
        f"sfn.toml: [catalogs.hive] {key}: expected no such key with the type told, found one; "
        "remove it: such a catalog is never asked"
    )


def test_an_unknown_type_is_refused(ground: Ground) -> None:
    assert "'rest', 'pyiceberg' or 'told'" in ground.problem('[catalogs.x]\ntype = "heard"')
