"""Settings: the defaults, the file, the environment over it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from sfn.inbox.transitions import MAX_PAUSE
from sfn.settings import load
from tests.unit.settings_ground import CATALOG, Ground

LEAST = {"SFN_CATALOGS__PROD__URI": "https://catalog.example/api"}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_the_defaults_are_those_of_the_specification() -> None:
    settings = load(None, LEAST)
    listener = settings.listener
    assert (listener.host, listener.port, listener.body_limit) == ("127.0.0.1", 8085, 1_048_576)
    assert (listener.tls_certificate_file, listener.tls_key_file, listener.scheme) == (None, None, "http")
    assert (listener.drain, listener.queue_limit) == (timedelta(seconds=30), 10_000)
    assert (settings.inbox.url, settings.inbox.event_retention) == ("sqlite:///sfn/inbox.db", timedelta(hours=72))
    assert (settings.worker.concurrency, settings.worker.lease) == (32, timedelta(seconds=30))
    retry = settings.retry
    assert (retry.base, retry.cap, retry.budget) == (timedelta(seconds=1), timedelta(minutes=5), timedelta(hours=24))
    assert retry.max_attempts == 500
    assert settings.sweep.every == timedelta(minutes=15)
    assert (settings.senders, settings.stores) == ({}, {})
    assert (settings.admin.token, settings.admin.token_file) == (None, None)
    telemetry = settings.telemetry
    assert (telemetry.level, telemetry.format) == ("info", "auto")
    assert (telemetry.metrics_token, telemetry.metrics_token_file) == (None, None)


def test_the_defaults_of_a_catalog_are_those_of_the_specification(ground: Ground) -> None:
    catalog = ground.load(CATALOG).catalogs["prod"]
    assert (catalog.type, catalog.uri) == ("rest", "https://catalog.example/api")
    assert (catalog.replica_lag, catalog.absence_delay) == (timedelta(seconds=60), timedelta(minutes=10))
    assert (catalog.max_drops, catalog.include, catalog.exclude, catalog.allowed_locations) == (None, (), (), ())
    assert (catalog.version_hint, catalog.on_drop, catalog.expire_after) == ("auto", "tombstone", timedelta(days=7))
    assert (catalog.refresh_after, catalog.min_publish_interval) == (timedelta(hours=8), timedelta(seconds=1))
    assert (catalog.naming, catalog.placement, catalog.root, catalog.branches) == (
        "identifier",
        "inside",
        None,
        ("main",),
    )
    assert (catalog.keep, catalog.keep_for) == (100, timedelta(hours=24))
    assert (catalog.token, catalog.credential, catalog.catalog_id, catalog.warehouse, catalog.scope) == (None,) * 5


PYICEBERG = """
    [catalogs.lake]
    type = "pyiceberg"
    properties = { uri = "sqlite:////lake.db", "s3.region" = "eu" }
"""


def test_what_pyiceberg_is_told_is_a_table_of_its_own(ground: Ground) -> None:
    catalog = ground.load(PYICEBERG).catalogs["lake"]
    told = {key: value.get_secret_value() for key, value in catalog.properties.items()}
    assert (catalog.type, catalog.uri) == ("pyiceberg", None)
    assert told == {"uri": "sqlite:////lake.db", "s3.region": "eu"}


def test_the_environment_sets_what_pyiceberg_is_told(ground: Ground) -> None:
    one = ground.load(PYICEBERG, {"SFN_CATALOGS__LAKE__PROPERTIES__S3_REGION": "us"})
    assert one.catalogs["lake"].properties["s3.region"].get_secret_value() == "us"
    said = {"SFN_CATALOGS__LAKE__TYPE": "pyiceberg", "SFN_CATALOGS__LAKE__PROPERTIES": "{ uri = 'thrift://h:9083' }"}
    (told,) = load(None, said).catalogs["lake"].properties.items()
    assert (told[0], told[1].get_secret_value()) == ("uri", "thrift://h:9083")


def test_a_file_with_every_key_is_read(ground: Ground) -> None:
    settings = ground.load("""
        inbox = { url = "sqlite:////var/lib/sfn/inbox.db", event_retention = "7d" }
        worker = { concurrency = 4, lease = "10s" }
        retry = { base = "500ms", cap = "10m", budget = "2h", max_attempts = 3 }
        sweep = { every = "off" }
        admin = { token_file = "/run/secrets/admin" }
        telemetry = { level = "debug", format = "json", metrics_token_file = "/run/secrets/metrics" }
        stores.here = { prefix = "file:///warehouse", unsafe_unconditional_writes = true }
        [senders.etl]
        scheme = "bearer"
        secrets = { old = "one", new = "two" }
        secrets_file = "/run/secrets/etl"
        catalogs = { theirs = "prod" }
        dialect = "nessie"
        [catalogs.prod]
        type = "rest"
        uri = "http://user:password@catalog:8181/api"
        warehouse = "wh"
        catalog_id = "prod-eu"
        ca_file = "/etc/ca.pem"
        headers = { X-Tenant = "a b" }
        credential_file = "/run/secrets/credential"
        oauth2_uri = "https://sso/token"
        scope = "PRINCIPAL_ROLE:ALL"
        replica_lag = 0
        absence_delay = "1h"
        max_drops = 7
        include = ["sales.**"]
        exclude = ["sales.tmp_*", "x"]
        allowed_locations = ["s3://bucket/wh"]
        version_hint = "off"
        on_drop = "keep"
        expire_after = "1d"
        refresh_after = "2h"
        min_publish_interval = "0s"
        naming = "ordinal"
        placement = "root"
        root = "s3://bucket/sfn/"
        branches = ["main"]
        keep = 5
        keep_for = "2d"
        [listener]
        host = "0.0.0.0"
        port = 0
        body_limit = "64KiB"
        drain = "1m"
        queue_limit = 5
        tls_certificate_file = "/run/tls/tls.crt"
        tls_key_file = "/run/tls/tls.key"
    """)
    assert settings.inbox.path == Path("/var/lib/sfn/inbox.db")
    assert settings.sweep.every is None
    sender, catalog = settings.senders["etl"], settings.catalogs["prod"]
    assert {name: secret.get_secret_value() for name, secret in sender.secrets.items()} == {"old": "one", "new": "two"}
    assert settings.catalogs_of("etl") == {"theirs": "prod"}
    assert catalog.headers["X-Tenant"].get_secret_value() == "a b"
    assert (catalog.replica_lag, catalog.max_drops, catalog.exclude) == (timedelta(), 7, ("sales.tmp_*", "x"))
    assert (settings.listener.scheme, settings.listener.tls_key_file) == ("https", Path("/run/tls/tls.key"))
    assert (settings.listener.body_limit, settings.retry.base) == (65_536, timedelta(milliseconds=500))


@pytest.mark.parametrize(
    ("prefix", "place"),
    [
        ("/w", "file:///w"),
        ("file:/w/", "file:///w"),
        ("FILE:///w", "file:///w"),
        ("/", "file://"),
        ("file:///", "file://"),
    ],
)
def test_every_spelling_of_a_prefix_is_one(ground: Ground, prefix: str, place: str) -> None:
    settings = ground.load(f"{CATALOG}allowed_locations = ['{prefix}']\n[stores.here]\nprefix = '{prefix}'")
    assert (settings.stores["here"].prefix, settings.catalogs["prod"].allowed_locations) == (place, (place,))


def test_a_prefix_may_be_a_whole_bucket(ground: Ground) -> None:
    settings = ground.load(f"{CATALOG}allowed_locations = ['s3a://bucket/', 'gs://b/a%20b']")
    assert settings.catalogs["prod"].allowed_locations == ("s3://bucket", "gs://b/a%20b")


def test_the_longest_pause_is_one_that_the_inbox_keeps(ground: Ground) -> None:
    catalog = ground.load(f"{CATALOG}min_publish_interval = '1h'").catalogs["prod"]
    assert catalog.min_publish_interval == MAX_PAUSE


def test_the_default_inbox_lies_below_the_working_directory() -> None:
    assert load(None, LEAST).inbox.path == Path("sfn/inbox.db")


def test_the_environment_wins_over_the_file(ground: Ground) -> None:
    environ = {"SFN_LISTENER__PORT": "9000", "SFN_CATALOGS__PROD__TOKEN": "t0ken", "SFN_SWEEP__EVERY": "off"}
    settings = ground.load("[listener]\nport = 1\nqueue_limit = 7\n" + CATALOG, environ)
    assert (settings.listener.port, settings.listener.queue_limit, settings.sweep.every) == (9000, 7, None)
    token = settings.catalogs["prod"].token
    assert token is not None
    assert token.get_secret_value() == "t0ken"


def test_the_environment_alone_can_say_everything() -> None:
    settings = load(
        None,
        {
            "SFN_CATALOGS__PROD__URI": "http://catalog",
            "SFN_CATALOGS__PROD__INCLUDE": "a.*, b.**",
            "SFN_CATALOGS__PROD__EXCLUDE": '["a.x,y"]',
            "SFN_CATALOGS__PROD__HEADERS": '{ X-Tenant = "a" }',
            "SFN_SENDERS__ETL__SECRETS__MAIN": "t",
            "SFN_SENDERS__ETL__CATALOGS": '{ "Their Prod" = "prod" }',
            "SFN_STORES__HERE__PREFIX": "file:///w",
            "SFN_STORES__HERE__UNSAFE_UNCONDITIONAL_WRITES": "true",
        },
    )
    catalog = settings.catalogs["prod"]
    assert (catalog.include, catalog.exclude) == (("a.*", "b.**"), ("a.x,y",))
    assert list(catalog.headers) == ["X-Tenant"]
    assert settings.catalogs_of("etl") == {"Their Prod": "prod"}
    assert settings.stores["here"].unsafe_unconditional_writes is True


def test_a_variable_finds_a_name_with_capitals_hyphens_and_dots(ground: Ground) -> None:
    text = '[catalogs."Prod-EU.1"]\nuri = "http://a"\n'
    settings = ground.load(text, {"SFN_CATALOGS__PROD_EU_1__URI": "http://b"})
    assert {name: catalog.uri for name, catalog in settings.catalogs.items()} == {"Prod-EU.1": "http://b"}


def test_variables_of_orchestrators_are_not_ours() -> None:
    environ = {
        **LEAST,
        "SFN_PORT": "tcp://10.0.0.1:8085",
        "SFN_SERVICE_HOST": "10.0.0.1",
        "sfn_listener__port": "x",
        "PATH": "/",
    }
    assert load(None, environ) == load(None, LEAST)


@pytest.mark.parametrize("key", ["host", "port"])
def test_settings_are_frozen(key: str) -> None:
    listener = load(None, LEAST).listener
    with pytest.raises(ValidationError):
        setattr(listener, key, getattr(listener, key))
