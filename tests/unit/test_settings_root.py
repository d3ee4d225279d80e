"""Settings: defaults, file, environment, roles, catalogs and the facade."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from sfn.app.catalogs import check_adapters, rest_settings
from sfn.app.endpoints import build_access_control, build_facade
from sfn.catalogs.rest.settings import RestSettings
from sfn.clock import SystemClock
from sfn.errors import FatalError, SfnError
from sfn.extras import install_command
from sfn.facade.app import Receive, Scope, Send
from sfn.inbox.transitions import MAX_PAUSE
from sfn.settings import load, load_client, mistaken_variables
from sfn.settings.root import ALL_ROLES, Role, check_roles, parse_roles
from sfn.settings.sources import ConfigurationError, find_file
from sfn.storage import PrefixRouter
from sfn.telemetry.metrics import Metrics
from tests.promises.inboxes import TERMS
from tests.support.clock import HandClock
from tests.support.memory_inbox import MemoryInbox
from tests.support.settings_file import CATALOG, Ground


def test_roles_are_named_with_commas() -> None:
    assert parse_roles("receiver, worker,gateway, facade,admin") == ALL_ROLES
    assert parse_roles("worker") == {Role.WORKER}


@pytest.mark.parametrize(
    ("text", "said"), [("wroker", "did you mean worker?"), ("", "some of receiver, worker, gateway, facade, admin")]
)
def test_unknown_role_is_named(text: str, said: str) -> None:
    with pytest.raises(SfnError) as refused:
        parse_roles(text)
    assert said in str(refused.value)


def test_sqlite_inbox_requires_the_worker_role(tmp_path: Path) -> None:
    settings = Ground(tmp_path).load(CATALOG)
    check_roles({Role.WORKER}, settings)
    with pytest.raises(SfnError, match="expected worker among them"):
        check_roles({Role.RECEIVER, Role.ADMIN}, settings)
    shared = Ground(tmp_path).load(f"{CATALOG}[inbox]\nurl = 'postgresql://sfn@db/sfn'\n")
    check_roles({Role.RECEIVER}, shared)


LEAST = {"SFN_CATALOGS__PROD__URI": "https://catalog.example/api"}


def test_the_defaults_are_those_of_the_specification() -> None:
    settings = load(None, LEAST)
    listener = settings.listener
    assert (listener.host, listener.port, listener.body_limit) == ("127.0.0.1", 8085, 1_048_576)
    assert (listener.tls_certificate_file, listener.tls_key_file, listener.scheme) == (None, None, "http")
    assert (listener.drain, listener.queue_limit) == (timedelta(seconds=30), 25_000)
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


def test_pyiceberg_properties_are_a_table(ground: Ground) -> None:
    catalog = ground.load(PYICEBERG).catalogs["lake"]
    told = {key: value.get_secret_value() for key, value in catalog.properties.items()}
    assert (catalog.type, catalog.uri) == ("pyiceberg", None)
    assert told == {"uri": "sqlite:////lake.db", "s3.region": "eu"}


def test_environment_sets_pyiceberg_properties(ground: Ground) -> None:
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


def test_longest_publish_interval_is_accepted_by_the_inbox(ground: Ground) -> None:
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


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SFN_LISTENER_PORT", "SFN_LISTENER__PORT"),
        ("SFN_TELEMETRY_METRICS_TOKEN_FILE", "SFN_TELEMETRY__METRICS_TOKEN_FILE"),
        ("SFN_CATALOGS_PROD_URI", "SFN_CATALOGS__PROD__URI"),
        ("SFN_CATALOGS_EU_LAKE_OAUTH2_URI", "SFN_CATALOGS__EU_LAKE__OAUTH2_URI"),
    ],
)
def test_a_variable_with_an_underscore_too_few_is_found(name: str, meant: str) -> None:
    assert mistaken_variables({name: "1"}) == [(name, meant)]


def test_variables_of_orchestrators_and_settings_are_no_mistakes() -> None:
    names = ["SFN_PORT", "SFN_SERVICE_HOST", "SFN_SERVICE_PORT", "SFN_PORT_8085_TCP_ADDR", "SFN_CONFIG", "SFN_ROLES"]
    assert mistaken_variables(dict.fromkeys([*names, "SFN_LISTENER__PORT", "OTHER_LISTENER_PORT"], "1")) == []


def test_a_file_that_is_not_named_is_found_in_the_working_directory_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "etc.toml"
    monkeypatch.setattr("sfn.settings.sources.DEFAULT_FILES", (Path("sfn.toml"), system))
    monkeypatch.chdir(tmp_path)
    assert find_file(None) is None
    system.write_text("[listener]\nport = 1\n")
    assert load_client(None, {}).listener.port == 1
    (tmp_path / "sfn.toml").write_text("[listener]\nport = 2\n")
    assert load_client(None, {}).listener.port == 2
    assert load_client(system, {}).listener.port == 1
    assert load_client(None, {"SFN_LISTENER__PORT": "3"}).listener.port == 3


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


GLUE = '[catalogs.prod]\nuri = "https://glue.eu-central-1.amazonaws.com/iceberg"\n'
BIGLAKE = '[catalogs.prod]\nuri = "https://biglake.googleapis.com/iceberg/v1/restcatalog"\n'
TOLD = (
    "[catalogs.prod]\ntype = 'events'\ncatalog_id = 'c'\nallowed_locations = ['/lake']\n"
    "{}\n[senders.etl]\nsecrets = {{ main = 'a' }}\n"
)


def test_aws_keys_reach_the_client(ground: Ground) -> None:
    more = (
        'auth = "sigv4"\nsigning_region = "us-east-1"\nsigning_name = "s3tables"\naws_profile = "p"\n'
        'role_arn = "arn:x"\nexternal_id = "e"\n'
    )
    told = rest_settings("prod", ground.load(GLUE + more).catalogs["prod"])
    assert told == RestSettings(
        name="prod",
        uri="https://glue.eu-central-1.amazonaws.com/iceberg",
        scope="",
        auth="sigv4",
        signing_region="us-east-1",
        signing_name="s3tables",
        aws_profile="p",
        role_arn="arn:x",
        external_id="e",
    )


def test_google_keys_reach_the_client(ground: Ground) -> None:
    scope = "https://www.googleapis.com/auth/cloud-platform"
    file = Path("/key.json")
    more = f'auth = "google"\ngoogle_credentials_file = "{file}"\n'
    told = rest_settings("prod", ground.load(BIGLAKE + more).catalogs["prod"])
    uri = "https://biglake.googleapis.com/iceberg/v1/restcatalog"
    assert told == RestSettings(name="prod", uri=uri, scope=scope, auth="google", google_credentials_file=file)
    other = rest_settings("prod", ground.load(f'{BIGLAKE}{more}scope = "other"').catalogs["prod"])
    assert other.scope == "other"


def test_vending_is_off_unless_it_is_wanted(ground: Ground) -> None:
    assert not ground.load(CATALOG).catalogs["prod"].vended_credentials
    assert ground.load(f"{CATALOG}vended_credentials = true\n").catalogs["prod"].vended_credentials


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "signing_region = 'x'",
            "signing_region: expected no such key without auth, found one; remove it, or set auth",
        ),
        ("aws_profile = 'x'", 'expected no such key without auth, found one; remove it, or set auth = "sigv4"'),
        ("google_credentials_file = '/x'", 'remove it, or set auth = "google"'),
        ("auth = 'sigv4'\ntoken = 's3cret'", 'token: expected no such key with auth = "sigv4", found one'),
        ("auth = 'sigv4'\nscope = 's3cret'", 'scope: expected no such key with auth = "sigv4", found one'),
        ("auth = 'sigv4'\ngoogle_credentials_file = '/x'", 'remove it, or set auth = "google"'),
        ("auth = 'google'\ncredential = 's3cret'", 'credential: expected no such key with auth = "google", found one'),
        ("auth = 'google'\noauth2_uri = 'http://s3cret'", "oauth2_uri: expected no such key"),
        ("auth = 'google'\nrole_arn = 'x'", 'remove it, or set auth = "sigv4"'),
        ("auth = 'sigv4'\nexternal_id = 'x'", "role_arn: expected a value, as external_id is set, found none; set it"),
        ("auth = 'kerberos'", "expected 'sigv4' or 'google'"),
        ("vended_credentials = 'perhaps'", "vended_credentials: expected"),
    ],
)
def test_keys_that_do_not_fit_are_named(ground: Ground, more: str, said: str) -> None:
    problem = ground.problem(GLUE + more)
    assert said in problem
    assert "s3cret" not in problem


@pytest.mark.parametrize("key", ["auth = 'sigv4'", "vended_credentials = true", "signing_name = 'glue'"])
@pytest.mark.parametrize("kind", ["pyiceberg", "events"])
def test_only_rest_catalogs_have_them(ground: Ground, key: str, kind: str) -> None:
    pyiceberg = f"[catalogs.prod]\ntype = 'pyiceberg'\nproperties = {{ type = 'glue' }}\n{key}\n"
    problem = ground.problem(pyiceberg if kind == "pyiceberg" else TOLD.format(key))
    assert f"{key.partition(' ')[0]}: expected no such key with the type {kind}" in problem


def test_signing_region_and_name_must_be_known_at_start(ground: Ground) -> None:
    check_adapters(ground.load(f"{GLUE}auth = 'sigv4'\n"))
    with pytest.raises(ConfigurationError) as caught:
        check_adapters(ground.load(f"{CATALOG}auth = 'sigv4'\n"))
    assert "catalogs.prod.signing_region: needed, as the host of uri does not imply it" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "auth", "missing", "extra"),
    [
        (GLUE, "sigv4", "botocore", "s3"),
        (BIGLAKE, "google", "google", "gcs"),
        (BIGLAKE, "google", "google.auth", "gcs"),
    ],
)
def test_what_is_not_installed_is_told_with_how_to_install_it(
    tmp_path: Path, text: str, auth: str, missing: str, extra: str
) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text(f'{text}auth = "{auth}"\n')
    code = f"""import sys
sys.modules[{missing!r}] = None
from pathlib import Path
from sfn.settings import ConfigurationError, load
from sfn.app.catalogs import check_adapters
try:
    check_adapters(load(Path({str(file)!r}), {{}}))
except ConfigurationError as error:
    print(*error.problems)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    module = missing.partition(".")[0]
    assert made.stdout.strip() == (
        f"catalogs.prod.auth: expected the packages that {auth} needs, found no module {module}; "
        f"{install_command(extra)}"
    )


@pytest.mark.slow
def test_catalog_without_auth_imports_no_cloud_sdk() -> None:
    code = (
        "import sys, sfn.cli.main, sfn.app.service, sfn.app.catalogs;"
        "print([name for name in ('botocore', 'google.auth') if name in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


STORES = f'{CATALOG}[stores.a]\nprefix = "/w"\n[stores.b]\nprefix = "s3://bucket/x"\n'


def test_without_a_token_there_is_none(ground: Ground) -> None:
    facade = ground.load(STORES).facade
    assert (facade.is_on, facade.roots, facade.directories, facade.metadata_limit) == (False, (), True, 64 << 20)
    assert not ground.load(f"{STORES}[facade]\ndirectories = false\n").facade.is_on
    assert build_access_control(ground.load(STORES), SystemClock()).readers is None


@pytest.mark.parametrize("key", ["token = 'a'", "token_file = '/t'", "open = true"])
def test_with_a_token_or_open_there_is_one(ground: Ground, key: str) -> None:
    assert ground.load(f"{STORES}[facade]\n{key}\n").facade.is_on


def test_roots_are_canonical_and_lie_below_stores(ground: Ground) -> None:
    text = "[facade]\nopen = true\nroots = ['file:/w/public/', 's3a://bucket/x']\n"
    assert ground.load(STORES + text).facade.roots == ("file:///w/public", "s3://bucket/x")
    for root in ("/wide", "s3://bucket", "gs://bucket/x"):
        problem = ground.problem(f"{STORES}[facade]\nopen = true\nroots = ['{root}']\n")
        assert problem.startswith("sfn.toml: [facade] roots: expected places below a store: file:///w, s3://bucket/x")


@pytest.mark.parametrize("root", ["w", "/w/../etc", "/w/%2e%2e/x", "http://x/w"])
def test_a_root_that_is_no_place_is_refused(ground: Ground, root: str) -> None:
    assert "[facade] roots" in ground.problem(f"{STORES}[facade]\nopen = true\nroots = ['{root}']\n")


def test_conflicting_facade_settings_are_refused(ground: Ground) -> None:
    for key in ("token = 'a'", "token_file = '/t'"):
        problem = ground.problem(f"{STORES}[facade]\nopen = true\n{key}\n")
        assert (
            problem
            == "sfn.toml: [facade] open: expected false, as there is a token, found true; remove open or the token"
        )
    vended = f"{CATALOG}vended_credentials = true\n[facade]\ntoken = 'a'\n"
    assert "a store that the facade reads tables from" in ground.problem(vended)
    assert "metadata_limit" in ground.problem(f"{STORES}[facade]\nopen = true\nmetadata_limit = 'much'\n")


def test_facade_readers_are_identified_by_their_tokens_only(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("b\n# not c\nd\n")
    text = f"{STORES}[facade]\n{{}}\n[admin]\ntoken = 'op'\n"
    keys = {"token = 'a'": "a", f"token_file = '{tmp_path}/tokens'": "bd"}
    for key, tokens in keys.items():
        admitted = build_access_control(ground.load(text.format(key)), SystemClock())
        assert admitted.readers is not None
        assert [one for one in "abcd" if admitted.readers(f"Bearer {one}".encode())] == list(tokens)
        assert not admitted.readers(None)
        assert not admitted.readers(b"Bearer op")
        assert len(admitted.files) == len(tokens) - 1
    (tmp_path / "tokens").write_text("op")
    with pytest.raises(FatalError):
        build_access_control(ground.load(text.format(key)), SystemClock())


async def test_without_facade_the_listener_has_no_facade_routes(ground: Ground) -> None:
    async def others(_scope: Scope, _receive: Receive, _send: Send) -> None:
        """Whatever else the listener answers."""

    def refused(_broken: FatalError) -> None:
        """The process ends."""

    readers = Metrics(version="1", catalogs=["prod"]).readers
    inbox, opened = MemoryInbox(TERMS, HandClock()), ground.load(f"{STORES}[facade]\nopen = true\n")
    for settings in (None, ground.load(STORES)):
        assert build_facade(settings, inbox, PrefixRouter({}), None, readers, refused)(others) is others
    assert build_facade(opened, inbox, PrefixRouter({}), None, readers, refused)(others) is not others


def test_it_is_a_role() -> None:
    assert Role.FACADE in ALL_ROLES
    assert parse_roles("facade, worker") == {Role.FACADE, Role.WORKER}


def test_its_token_is_shown_nowhere(ground: Ground) -> None:
    assert "hush" not in repr(ground.load(f"{STORES}[facade]\ntoken = 'hush'\n"))
