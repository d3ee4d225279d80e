"""Error messages about wrong settings are complete and contain no secrets."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from sfn.settings import load
from sfn.settings.sources import ConfigurationError
from tests.pages import keys
from tests.support.settings_file import CATALOG, Ground

PYICEBERG = "[catalogs.prod]\ntype = 'pyiceberg'\nproperties = { type = 'glue' }\n"
NETWORK = str(IPv4Address(0))


def test_a_variable_that_fits_nowhere_is_named(ground: Ground) -> None:
    assert "SFN_LISTENER__PORT__X: expected a table listener.port" in ground.problem(
        "[listener]\nport = 1\n" + CATALOG, {"SFN_LISTENER__PORT__X": "1"}
    )


@pytest.mark.parametrize(
    ("text", "place", "nearest"),
    [
        ("[listener]\nprot = 1", "sfn.toml: [listener] prot:", "did you mean port?"),
        (CATALOG + "replica_leg = '1s'", "sfn.toml: [catalogs.prod] replica_leg:", "did you mean replica_lag?"),
        ("[listner]\nport = 1", "sfn.toml: listner:", "did you mean listener?"),
        ("[worker]\nqqq = 1", "sfn.toml: [worker] qqq:", "known here: concurrency, lease"),
        ("[listener]\nconcurrency = 1", "sfn.toml: [listener] concurrency:", "concurrency is a key of [worker]"),
        ("[listener]\nconcurency = 1", "sfn.toml: [listener] concurency:", "did you mean concurrency of [worker]?"),
        ("[worker]\nprefix = '/w'", "sfn.toml: [worker] prefix:", "prefix is a key of [stores.NAME]"),
        ("port = 1", "sfn.toml: port:", "port is a key of [listener]"),
        (
            "[stores.a]\nprefix = '/w'\nTOKEN = 1",
            "sfn.toml: [stores.a] TOKEN:",
            "token is a key of [catalogs.NAME] and [facade] and [admin]",
        ),
        ("[inbox]\nuri = 'x'", "sfn.toml: [inbox] uri:", "did you mean url? uri is a key of [catalogs.NAME]"),
        ("[catalogs]\nuri = 'x'", "sfn.toml: [catalogs] uri: expected a table", "uri is a key of [catalogs.NAME]"),
        ("[fassade]\nx = 1", "sfn.toml: fassade:", "did you mean facade?"),
    ],
)
def test_unknown_key_names_its_place_and_the_nearest_one(ground: Ground, text: str, place: str, nearest: str) -> None:
    problem = ground.problem(text)
    assert problem.startswith(place)
    assert nearest in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[catalogs.prod]\nuri = 'catalog:8181'",
            "[catalogs.prod] uri: expected an absolute http or https URL, found another value; did you mean http://catalog:",
        ),
        (CATALOG + "oauth2_uri = 'sso:80/realms/a-b'", "; did you mean http://sso:80/realms/a-b?"),
        (
            CATALOG + "[senders.etl]\nsecrets = ['x']",
            'secrets: expected a table, found an array; write a table: secrets = { first = "…" }',
        ),
        (CATALOG + "[senders.etl]\nsecrets = 'x'", 'write a table: secrets = { first = "…" }'),
        (CATALOG + "headers = ['x']", 'write a table: headers = { X-Tenant = "…" }'),
        (CATALOG + "[senders.etl]\nsecrets = {m = 'x'}\ncatalogs = ['prod']", 'catalogs = { theirs = "…" }'),
    ],
)
def test_wrong_values_come_with_a_correction(ground: Ground, text: str, said: str) -> None:
    assert said in ground.problem(text)


@pytest.mark.parametrize("uri", ["catalog", "user:8181@host", "a-token-in-the-wrong-place", "ftp://catalog:8181"])
def test_wrong_uri_that_is_not_host_and_port_is_not_repeated(ground: Ground, uri: str) -> None:
    problem = ground.problem(f"[catalogs.prod]\nuri = '{uri}'")
    assert problem.endswith("expected an absolute http or https URL, found another value")


def test_an_unknown_key_in_the_environment_is_named_as_the_variable(ground: Ground) -> None:
    problem = ground.problem("", {"SFN_LISTENER__PROT": "1"})
    assert problem.startswith("SFN_LISTENER__PROT: ")
    assert "did you mean port?" in problem
    assert ground.problem("", {"SFN_LISTNER__PORT": "1"}).startswith("SFN_LISTNER__PORT: ")


def test_all_problems_are_reported_at_once(ground: Ground) -> None:
    text = "[listener]\nport = 70000\n[retry]\nbase = 'soon'\nbases = 1\n[catalogs.prod]\n"
    problems = ground.problems(text, {"SFN_WORKER__CONCURRENCY": "0", "SFN_RETRY__BASE__X": "1"})
    assert sorted(problem.split(": expected")[0] for problem in problems) == [
        "SFN_RETRY__BASE__X",
        "SFN_WORKER__CONCURRENCY",
        "sfn.toml: [catalogs.prod] uri",
        "sfn.toml: [listener] port",
        "sfn.toml: [retry] base",
        "sfn.toml: [retry] bases",
    ]


def test_a_missing_key_says_how_to_set_it(ground: Ground) -> None:
    problem = ground.problem("[catalogs.prod]\nwarehouse = 'w'")
    assert problem == (
        "sfn.toml: [catalogs.prod] uri: expected a value, found none; set it there or as SFN_CATALOGS__PROD__URI"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[listener]\nport = 'http'", "found 'http'"),
        ("[listener]\nport = -1", "found -1"),
        ("[listener]\nqueue_limit = 0", "found 0"),
        ("[listener]\nhost = ''", "[listener] host"),
        ("[listener]\nbody_limit = '0B'", "[listener] body_limit"),
        ("[listener]\nbody_limit = 1048576", "a size such as 1MiB"),
        ("[listener]\ndrain = 30", "a duration such as 30s"),
        ("[listener]\ndrain = '36501d'", "[listener] drain: expected a duration of at most 36500d, found '36501d'"),
        ("[listener]\ndrain = { a = 1 }", "[listener] drain: expected a duration such as 30s"),
        ("[worker]\nlease = '0s'", "[worker] lease: expected a duration from 1s to 36500d, found '0s'"),
        ("[worker]\nlease = '999ms'", "[worker] lease: expected a duration from 1s to 36500d, found '999ms'"),
        ("[worker]\nlease = ['30s']", "[worker] lease: expected a duration such as 30s"),
        ("[sweep]\nevery = '0s'", "[sweep] every: expected a duration from 1s to 36500d, found '0s'"),
        ("[sweep]\nevery = 0", "[sweep] every: expected a duration from 1s to 36500d, found 0"),
        ("[sweep]\nevery = '36501d'", "[sweep] every: expected a duration of at most 36500d"),
        (
            CATALOG + "min_publish_interval = '61m'",
            "[catalogs.prod] min_publish_interval: expected a duration from 0s to 1h, found '61m'",
        ),
        ("[inbox]\nurl = 'mysql://x'", "sqlite:///"),
        ("[inbox]\nurl = 'sqlite:///'", "sqlite:///"),
        *[
            (
                f"[inbox]\nurl = 'sqlite:///{path}'",
                f"the path of a file, or postgresql:// and a database, found '{url}'",
            )
            for path in (":memory:", ".", "/", "//", "..", "/var/..", "/var/lib/", "a?b")
            for url in [f"sqlite:///{path}"]
        ],
        ("[sweep]\nevery = 'never'", "a duration such as 30s"),
        ("[telemetry]\nlevel = 'loud'", "found 'loud'"),
        ("[telemetry]\nmetrics_token = ''", "visible ASCII"),
        ("listener = 3", "sfn.toml: listener: expected a table, found another value"),
        ("[admin]\ntoken_file = ''", "the path of a file"),
        ("[admin]\ntoken_file = ['a']", "[admin] token_file: expected the path of a file, found an array"),
        ("[admin]\ntoken = ''", "visible ASCII"),
        ("[stores.s]\nprefix = ''", "[stores.s] prefix"),
        ("[stores.s]\nprefix = 'warehouse'", "[stores.s] prefix: expected a prefix such as /warehouse or s3://"),
        ("[stores.s]\nprefix = 'http://bucket'", "[stores.s] prefix: expected a prefix such as /warehouse or s3://"),
        ("[stores.s]\nprefix = 'file://host/warehouse'", "a bucket or container, and none for file:"),
        ("[stores.s]\nprefix = '/w/../x'", "without empty, `.` or `..` segments, found '/w/../x'"),
        ("[stores.s]\nprefix = '/w/*'", "[stores.s] prefix: expected a prefix without `*`: a prefix always includes"),
        (
            CATALOG + "allowed_locations = ['/w', 'warehouse']",
            "allowed_locations: expected a prefix such as /warehouse",
        ),
        (CATALOG + "allowed_locations = ['/w/*']", "allowed_locations: expected a prefix without `*`: a prefix always"),
        (CATALOG + "allowed_locations = ['http://x/w']", "abfss, file, gs, s3, found 'http://x/w'"),
        (CATALOG + "allowed_locations = ['s3://']", "[catalogs.prod] allowed_locations"),
        ("[stores.'a b']\nprefix = 'file:///x'", "letters, digits"),
        ("[stores.'a:b']\nprefix = 'file:///x'", "letters, digits"),
        (CATALOG + "type = 'untold'", "[catalogs.prod] type"),
        (
            PYICEBERG.replace("'glue'", "false"),
            "[catalogs.prod.properties] type: expected a valid string, found another",
        ),
        (PYICEBERG.replace("{ type = 'glue' }", "'glue'"), "properties: expected a table such as { name = 'value' }"),
        (CATALOG + "max_drops = -1", "[catalogs.prod] max_drops"),
        (CATALOG + "naming = 'name'", "naming: expected 'identifier', 'ordinal' or 'uuid', found 'name'"),
        (CATALOG + "placement = 'beside'", "placement: expected 'inside', 'alongside' or 'root', found 'beside'"),
        (CATALOG + "placement = 'root'", "root: expected the folder for the SFN files, as placement is"),
        (CATALOG + "root = '/x'", 'root: expected none with placement = "inside", found file:///x; remove it'),
        (CATALOG + "placement = 'root'\nroot = 'x/y'", "[catalogs.prod] root"),
        (
            CATALOG + "branches = ['release-*']",
            "branches: expected main among them, as the file of main leads to the others, found",
        ),
        (CATALOG + "branches = []", "expected main among them, as the file of main leads to the others, found none"),
        (
            CATALOG + "naming = 'ordinal'\nbranches = ['*']",
            'expected ["main"], as other branches have no files with the naming ordinal, found *',
        ),
        (CATALOG + "keep = 5", "as commits have no files of their own, found 5; remove it"),
        (CATALOG + "keep_for = '1h'", "keep_for: expected no such key with the naming identifier, as commits have"),
        (CATALOG + "keep_for = '1h'", "found 1 h; remove it, or set naming"),
        (CATALOG + "naming = 'ordinal'\nkeep = 901", "[catalogs.prod] keep: expected"),
        (CATALOG + "naming = 'ordinal'\nkeep = 0", "[catalogs.prod] keep: expected"),
        ("[senders.a]\ndialect = 'unity'", "dialect: expected one of polaris, lakekeeper, polaris-webhook, "),
        ("[senders.a]\ndialect = 'unity'", "found 'unity'"),
        (CATALOG + "include = ['']", "[catalogs.prod] include: expected at least 1 character"),
        ("[catalogs.prod]\nuri = 'catalog:8181'", "an absolute http or https URL"),
        ("[catalogs.prod]\nuri = 'ftp://catalog'", "an absolute http or https URL"),
        ("[catalogs.prod]\nuri = 'http://catalog:port'", "an absolute http or https URL"),
        ("[catalogs.prod]\nuri = 'http://[::1'", "an absolute http or https URL"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(ground: Ground, text: str, said: str) -> None:
    assert said in ground.problem(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"[listener]\nhost = '{NETWORK}'\n" + CATALOG, "[listener] host: expected a loopback address"),
        (f"[listener]\nhost = '{NETWORK}'\n[senders.a]\n" + CATALOG, "[senders.a] secrets: expected a token"),
        (CATALOG + "[senders.a]\nsecrets = { m = 't' }\ncatalog = 'prot'", "did you mean prod?"),
        (CATALOG + "[senders.a]\nsecrets = { m = 't' }\ncatalogs = { x = 'dev' }", "[senders.a.catalogs] x"),
        (CATALOG + "[senders.a]\nsecrets = { m = 't' }\ncatalog = 'prod'\ncatalogs = { x = 'prod' }", "found both"),
        ("", "sfn.toml: catalogs: expected at least one, found none"),
        (
            "[senders.a]\nsecrets = { m = 't' }",
            'write [catalogs.NAME] uri = "https://…", or set SFN_CATALOGS__NAME__URI',
        ),
        (CATALOG + CATALOG.replace("prod", "dev") + "[senders.a]\nsecrets = { m = 't' }", "choose one of prod, dev"),
        (CATALOG + "[senders.a]\nsecrets = { m = 't' }\n[senders.b]\nsecrets = { n = 't' }", "the sender a"),
        (
            CATALOG + "[senders.a]\nsecrets = { x = 'tok' }\n[admin]\ntoken = 'tok'",
            "[senders.a.secrets] x: expected a token of its own, found the operators'",
        ),
        (CATALOG + "[admin]\ntoken = 'a'\ntoken_file = 'b'", "[admin] token_file: expected either"),
        (
            CATALOG + "[listener]\ntls_certificate_file = 'a'",
            "as tls_certificate_file is set, found none; set it there or as SFN_LISTENER__TLS_KEY_FILE",
        ),
        (CATALOG + "[listener]\ntls_key_file = 'a'", "[listener] tls_certificate_file: expected a file, as tls_key"),
        (
            CATALOG + "[telemetry]\nmetrics_token = 'a'\nmetrics_token_file = 'b'",
            "[telemetry] metrics_token_file: expected either",
        ),
        (
            CATALOG + "[admin]\ntoken = 'tok'\n[telemetry]\nmetrics_token = 'tok'",
            "[telemetry] metrics_token: expected a token of its own, found the operators'",
        ),
        (
            CATALOG + "[senders.a]\nsecrets = { x = 'tok' }\n[telemetry]\nmetrics_token = 'tok'",
            "[senders.a.secrets] x: expected a token of its own, found the one of the metrics",
        ),
        (CATALOG + "[retry]\nbase = '10m'", "[retry] base: expected at most the cap"),
        (
            CATALOG + "properties = { type = 'sql' }",
            "properties: expected no such key with the type rest, found one; set",
        ),
        (PYICEBERG + "token = 't'", "token: expected no such key with the type pyiceberg, found one; set PyIceberg's"),
        (PYICEBERG + "uri = 'http://x'", "[catalogs.prod] uri: expected no such key with the type pyiceberg"),
        (PYICEBERG + "warehouse = 'w'", "[catalogs.prod] warehouse: expected no such key with the type pyiceberg"),
        (
            "[catalogs.prod]\ntype = 'pyiceberg'",
            "properties: expected PyIceberg's properties of the catalog, found none",
        ),
        (CATALOG + "[stores.a]\nprefix = '/w'\n[stores.b]\nprefix = '/w/'", "[stores.b] prefix: expected a prefix of"),
        (CATALOG + "[stores.a]\nprefix = '/w'\n[stores.b]\nprefix = 'file:///w'", "found the prefix of the store a"),
        (CATALOG + "[stores.a]\nprefix = '/'\n[stores.b]\nprefix = 'FILE:/'", "found the prefix of the store a"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(ground: Ground, text: str, said: str) -> None:
    assert said in ground.problem(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_a_loopback_address_needs_no_sender(ground: Ground, host: str) -> None:
    assert ground.load(f"[listener]\nhost = '{host}'\n{CATALOG}").senders == {}


@pytest.mark.parametrize(
    "host", [NETWORK, "::", "10.0.0.1", "example.org", "::ffff:10.0.0.1", "127.0.0.1.nip.io", "localhost.example.org"]
)
def test_network_address_requires_a_sender(ground: Ground, host: str) -> None:
    problem = ground.problem(f"[listener]\nhost = '{host}'\n{CATALOG}")
    assert problem.startswith("sfn.toml: [listener] host: expected a loopback address")
    assert "[senders.NAME] secrets" in problem


def test_a_network_address_is_fine_with_a_sender(ground: Ground) -> None:
    text = f"[listener]\nhost = '{NETWORK}'\n[senders.a]\nsecrets_file = '/x'\n" + CATALOG
    settings = ground.load(text)
    assert settings.catalogs_of("a") == {"prod": "prod"}


def test_a_long_wrong_value_is_cut(ground: Ground) -> None:
    assert len(ground.problem(f"[listener]\nport = '{'9' * 500}x'")) < 300


def test_a_file_that_cannot_be_read_is_named(ground: Ground, tmp_path: Path) -> None:
    assert "line 2" in ground.problem("[listener]\nport\n")
    with pytest.raises(ConfigurationError, match="No such file"):
        load(tmp_path / "absent.toml", {})
    ground.path.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        load(ground.path, {})


SECRETS = {
    "SFN_CATALOGS__PROD__TOKEN": "s3cret-a",
    "SFN_ADMIN__TOKEN": "s3cret-b",
    "SFN_TELEMETRY__METRICS_TOKEN": "s3cret-h",
}


def test_no_representation_tells_a_secret(ground: Ground) -> None:
    text = """
        [senders.a]
        secrets = { m = "s3cret-c" }
        [catalogs.prod]
        uri = "http://user:s3cret-d@catalog"
        oauth2_uri = "http://user:s3cret-e@sso"
        headers = { X-Key = "s3cret-f" }
        [catalogs.old]
        type = "pyiceberg"
        properties = { uri = "postgresql://user:s3cret-h@host/db", type = "s3cret-i" }
        [catalogs.dev]
        uri = "http://dev"
        credential = "s3cret-g"
    """
    settings = ground.load(text.replace("[senders.a]", "[senders.a]\n        catalog = 'prod'"), SECRETS)
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in str(settings)


@pytest.mark.parametrize(
    "text",
    [
        "admin = 's3cret'",
        "[admin]\ntoken = 's3cret with spaces'",
        "[admin]\ntoken = ['s3cret']",
        "[admin]\ntokn = 's3cret'",
        "[admin]\ntoken = { x = 's3cret' }",
        "[senders]\netl = 's3cret'",
        CATALOG + "[senders.etl]\nsecrets = 's3cret'",
        CATALOG + "[senders.etl]\nsecrets = ['s3cret']",
        CATALOG + "[senders.etl]\nsecrets = { main = 's3cret s3cret' }",
        "[catalogs.prod]\nuri = 'ftp://user:s3cret@x'",
        CATALOG + "allowed_locations = ['s3://user:s3cret@bucket/w']",
        "[stores.s]\nprefix = 's3://user:s3cret@bucket/w'",
        CATALOG + "oauth2_uri = 'user:s3cret@x'",
        PYICEBERG.replace("{ type = 'glue' }", "'s3cret'"),
        PYICEBERG.replace("'glue'", "['s3cret']"),
    ],
)
def test_no_message_shows_a_secret(ground: Ground, text: str) -> None:
    problems = ground.problems(text)
    assert "s3cret" not in str(problems)


def test_no_chained_exception_shows_a_secret(ground: Ground) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ground.load("[admin]\ntoken = 's3cret with spaces'")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("name", [name for _, name, field in keys() if "SecretStr" in str(field.annotation)])
@pytest.mark.parametrize("value", ["918273", "'918273 with a space\\u0007'", "['918273']", "{ a = ['918273'] }"])
def test_no_message_repeats_a_value_in_the_place_of_a_secret(ground: Ground, name: str, value: str) -> None:
    section, _, key = name.replace("NAME", "x").rpartition(".")
    message = ""
    try:
        ground.load(f"[{section}]\n{key} = {value}\n")
    except ConfigurationError as error:
        message = str(error)
    assert "918273" not in message
