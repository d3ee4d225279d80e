"""Settings that are wrong: all of it is said, where it is, and no secret with it."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from sfn.settings import Misconfigured, load
from tests.unit.settings_ground import CATALOG, Ground

NETWORK = str(IPv4Address(0))


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


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
        (CATALOG + "naming = 'uuid'", "sfn.toml: [catalogs.prod] naming:", "this version supports"),
        ("[listener]\ntls_key_file = 'x'", "sfn.toml: [listener] tls_key_file:", "this version supports"),
        ("[gateway.g]\nx = 1", "sfn.toml: gateway:", "this version supports"),
    ],
)
def test_an_unknown_key_names_its_place_and_the_nearest_one(
    ground: Ground, text: str, place: str, nearest: str
) -> None:
    problem = ground.problem(text)
    assert problem.startswith(place)
    assert nearest in problem


def test_an_unknown_key_in_the_environment_is_named_as_the_variable(ground: Ground) -> None:
    problem = ground.problem("", {"SFN_LISTENER__PROT": "1"})
    assert problem.startswith("SFN_LISTENER__PROT: ")
    assert "did you mean port?" in problem
    assert ground.problem("", {"SFN_LISTNER__PORT": "1"}).startswith("SFN_LISTNER__PORT: ")


def test_everything_wrong_is_said_at_once(ground: Ground) -> None:
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
        ("[inbox]\nurl = 'postgresql://x'", "sqlite:///"),
        ("[inbox]\nurl = 'sqlite:///'", "sqlite:///"),
        *[
            (
                f"[inbox]\nurl = 'sqlite:///{path}'",
                f"the path of a file: this version has no other inbox, found '{url}'",
            )
            for path in (":memory:", ".", "/", "//", "..", "/var/..", "/var/lib/", "a?b")
            for url in [f"sqlite:///{path}"]
        ],
        ("[sweep]\nevery = 'never'", "a duration such as 30s"),
        ("[telemetry]\nlevel = 'loud'", "found 'loud'"),
        ("listener = 3", "sfn.toml: listener: expected a table, found another value"),
        ("[admin]\ntoken_file = ''", "the path of a file"),
        ("[admin]\ntoken_file = ['a']", "[admin] token_file: expected the path of a file, found an array"),
        ("[admin]\ntoken = ''", "visible ASCII"),
        ("[stores.s]\nprefix = ''", "[stores.s] prefix"),
        ("[stores.s]\nprefix = 'warehouse'", "[stores.s] prefix: expected an absolute path or a file: URL"),
        ("[stores.s]\nprefix = 's3://bucket'", "this version has no other store, found 's3://bucket'"),
        ("[stores.s]\nprefix = 'file://host/warehouse'", "[stores.s] prefix: expected an absolute path or"),
        ("[stores.s]\nprefix = '/w/../x'", "without empty, `.` or `..` segments, found '/w/../x'"),
        ("[stores.s]\nprefix = '/w/*'", "[stores.s] prefix: expected a prefix without `*`: all that lies below it"),
        (
            CATALOG + "allowed_locations = ['/w', 'warehouse']",
            "allowed_locations: expected a prefix such as /warehouse",
        ),
        (CATALOG + "allowed_locations = ['/w/*']", "allowed_locations: expected a prefix without `*`: all that lies"),
        (CATALOG + "allowed_locations = ['http://x/w']", "abfss, file, gs, s3, wasbs, found 'http://x/w'"),
        (CATALOG + "allowed_locations = ['s3://']", "[catalogs.prod] allowed_locations"),
        ("[stores.'a b']\nprefix = 'file:///x'", "letters, digits"),
        ("[stores.'a:b']\nprefix = 'file:///x'", "letters, digits"),
        (CATALOG + "type = 'hive'", "[catalogs.prod] type"),
        (CATALOG + "max_drops = -1", "[catalogs.prod] max_drops"),
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
        (CATALOG + CATALOG.replace("prod", "dev") + "[senders.a]\nsecrets = { m = 't' }", "are: prod, dev"),
        (CATALOG + "[senders.a]\nsecrets = { m = 't' }\n[senders.b]\nsecrets = { n = 't' }", "the sender a"),
        (
            CATALOG + "[senders.a]\nsecrets = { x = 'tok' }\n[admin]\ntoken = 'tok'",
            "[senders.a.secrets] x: expected a token of its own, found the operators'",
        ),
        (CATALOG + "[admin]\ntoken = 'a'\ntoken_file = 'b'", "[admin] token_file: expected either"),
        (CATALOG + "[retry]\nbase = '10m'", "[retry] base: expected at most the cap"),
        (CATALOG + "[stores.a]\nprefix = '/w'\n[stores.b]\nprefix = '/w/'", "[stores.b] prefix: expected a prefix of"),
        (CATALOG + "[stores.a]\nprefix = '/w'\n[stores.b]\nprefix = 'file:///w'", "found the one of the store a"),
        (CATALOG + "[stores.a]\nprefix = '/'\n[stores.b]\nprefix = 'FILE:/'", "found the one of the store a"),
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
def test_another_address_needs_one(ground: Ground, host: str) -> None:
    problem = ground.problem(f"[listener]\nhost = '{host}'\n{CATALOG}")
    assert problem.startswith("sfn.toml: [listener] host: expected a loopback address")
    assert "[senders.NAME] secrets" in problem


def test_a_network_address_is_fine_with_a_sender(ground: Ground) -> None:
    text = f"[listener]\nhost = '{NETWORK}'\n[senders.a]\nsecrets_file = '/x'\n" + CATALOG
    settings = ground.load(text)
    assert settings.catalogs_of("a") == {"prod": "prod"}


SECRETS = {"SFN_CATALOGS__PROD__TOKEN": "s3cret-a", "SFN_ADMIN__TOKEN": "s3cret-b"}


def test_no_representation_tells_a_secret(ground: Ground) -> None:
    text = """
        [senders.a]
        secrets = { m = "s3cret-c" }
        [catalogs.prod]
        uri = "http://user:s3cret-d@catalog"
        oauth2_uri = "http://user:s3cret-e@sso"
        headers = { X-Key = "s3cret-f" }
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
    ],
)
def test_no_problem_tells_a_secret(ground: Ground, text: str) -> None:
    problems = ground.problems(text)
    assert "s3cret" not in str(problems)


def test_no_cause_tells_a_secret(ground: Ground) -> None:
    with pytest.raises(Misconfigured) as caught:
        ground.load("[admin]\ntoken = 's3cret with spaces'")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_long_wrong_value_is_cut(ground: Ground) -> None:
    assert len(ground.problem(f"[listener]\nport = '{'9' * 500}x'")) < 300


def test_a_file_that_cannot_be_read_is_named(ground: Ground, tmp_path: Path) -> None:
    assert "line 2" in ground.problem("[listener]\nport\n")
    with pytest.raises(Misconfigured, match="No such file"):
        load(tmp_path / "absent.toml", {})
    ground.path.write_bytes(b"\xff")
    with pytest.raises(Misconfigured, match="UTF-8"):
        load(ground.path, {})
