"""The sections `pull.NAME`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.settings_ground import CATALOG, Ground

PULL = "[pull.events]\nservers = ['nats://a:4222']\nsubject = 'lakekeeper'\n"
TWO = CATALOG + CATALOG.replace("prod", "dev")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_a_source_says_where_it_is_and_what_it_speaks_for(ground: Ground) -> None:
    settings = ground.load(f"{TWO}{PULL}catalogs = {{ theirs = 'dev' }}")
    pull = settings.pull["events"]
    assert (pull.type, pull.servers, pull.subject, pull.queue) == ("nats", ("nats://a:4222",), "lakekeeper", "sfn")
    assert (pull.stream, pull.durable, pull.body_limit) == (None, None, None)
    assert settings.catalogs_of("pull.events") == {"theirs": "dev"}


def test_a_source_that_names_no_catalog_speaks_for_the_only_one(ground: Ground) -> None:
    assert ground.load(CATALOG + PULL).catalogs_of("pull.events") == {"prod": "prod"}


def test_a_source_is_set_by_variables_as_well(ground: Ground) -> None:
    environ = {
        "SFN_PULL__EVENTS__SERVERS": "tls://a, tls://[::1]:4222",
        "SFN_PULL__EVENTS__SUBJECT": "a.*.>",
        "SFN_PULL__EVENTS__STREAM": "s",
        "SFN_PULL__EVENTS__DURABLE": "d",
        "SFN_PULL__EVENTS__BODY_LIMIT": "64KiB",
    }
    pull = ground.load(CATALOG, environ).pull["events"]
    assert pull.servers == ("tls://a", "tls://[::1]:4222")
    assert (pull.subject, pull.stream, pull.durable, pull.body_limit) == ("a.*.>", "s", "d", 65_536)


@pytest.mark.parametrize(
    ("servers", "more", "encrypted"),
    [
        ("['tls://a', 'tls://b']", "", True),
        ("['tls://a', 'nats://b']", "", False),
        ("['nats://a']", "ca_file = '/ca.pem'", True),
    ],
)
def test_tls_is_insisted_on_where_all_servers_or_the_authorities_say_so(
    ground: Ground, servers: str, more: str, encrypted: bool
) -> None:
    settings = ground.load(f"{CATALOG}[pull.e]\nservers = {servers}\nsubject = 's'\n{more}")
    assert settings.pull["e"].is_encrypted == encrypted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[pull.e]\nsubject = 's'", "[pull.e] servers: expected a value, found none"),
        ("[pull.e]\nservers = ['nats://a']", "[pull.e] subject: expected a value, found none"),
        (PULL + "type = 'kafka'", "[pull.events] type: expected 'nats'"),
        (PULL + "subjects = 'x'", "found the unknown subjects; did you mean subject?"),
        (PULL + "stream = 's'", "[pull.events] durable: expected a value, as stream is set, found none"),
        (PULL + "durable = 'd'", "[pull.events] stream: expected a value, as durable is set, found none"),
        (PULL + "stream = 's'\ndurable = 'd'\nqueue = 'q'", "queue: expected no queue group with a stream"),
        (PULL + "user = 'u'", "[pull.events] password_file: expected a value, as user is set"),
        (PULL + "password_file = '/p'", "[pull.events] user: expected a value, as password_file is set"),
        (
            PULL + "token_file = '/t'\ncredentials_file = '/c'",
            "found credentials_file and token_file; keep one of them",
        ),
        (PULL + "token_file = '/t'\nuser = 'u'\npassword_file = '/p'", "user: expected one way to say who asks"),
        (PULL + "catalog = 'prot'", "expected a configured catalog, found prot; did you mean prod?"),
        (PULL + "catalogs = { x = 'dev' }", "[pull.events.catalogs] x: expected a configured catalog"),
        (PULL + "catalog = 'prod'\ncatalogs = { x = 'prod' }", "expected either catalog or catalogs, found both"),
        (PULL + '[senders."pull.events"]\nsecrets = { m = "t" }', "found the one that events from [pull.events]"),
        (PULL.replace("['nats://a:4222']", "[]"), "[pull.events] servers"),
        (
            PULL + "dialect = 'polaris'",
            "[pull.events] dialect: expected a format that a message may have, found polaris",
        ),
    ],
)
def test_what_does_not_fit_is_refused(ground: Ground, text: str, told: str) -> None:
    assert told in ground.problem(CATALOG + text)


STREAM = "stream = 's'\ndurable = 'd'\n"
QUEUE = "queue = 'q'\n"


def other(more: str = "", server: str = "nats://a", subject: str = "lakekeeper") -> str:
    """One more source, of the same messages."""
    return f"[pull.other]\nservers = ['nats://z', '{server}']\nsubject = '{subject}'\n{more}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (PULL + other(), "[pull.other] queue: expected another than that of [pull.events], found sfn"),
        (PULL + QUEUE + other(QUEUE), "[pull.other] queue: expected another than that of [pull.events], found q"),
        (PULL + other(server="tls://A:4222"), "[pull.other] queue: expected another"),
        (PULL + other(subject="*"), "[pull.other] queue: expected another"),
        (PULL + STREAM + other(STREAM), "[pull.other] durable: expected another than that of [pull.events], found d"),
        (PULL + STREAM + other(STREAM, subject="x"), "[pull.other] durable: expected another"),
    ],
)
def test_no_source_takes_the_messages_of_another(ground: Ground, text: str, told: str) -> None:
    assert told in ground.problem(CATALOG + text)


@pytest.mark.parametrize(
    "text",
    [
        PULL + other(QUEUE),
        PULL + other(server="nats://a:4223"),
        PULL + other(server="nats://b"),
        PULL + other(subject="lakekeeper.x"),
        PULL + other(STREAM),
        PULL + STREAM + other(STREAM.replace("'s'", "'t'")),
        PULL + STREAM + other(STREAM.replace("'d'", "'e'")),
    ],
)
def test_sources_that_share_no_messages_stand_side_by_side(ground: Ground, text: str) -> None:
    assert set(ground.load(CATALOG + text).pull) == {"events", "other"}


def test_half_of_a_stream_is_told_of_once(ground: Ground) -> None:
    half = "stream = 's'\n"
    first, second = ground.problems(CATALOG + PULL + half + other(half))
    assert "[pull.events] durable: expected a value" in first
    assert "[pull.other] durable: expected a value" in second


def test_where_there_are_several_catalogs_a_source_must_name_its_own(ground: Ground) -> None:
    assert "expected the catalog that it speaks for, as there are several" in ground.problem(TWO + PULL)


@pytest.mark.parametrize(
    "server",
    ["a:4222", "http://a", "nats://", "nats://a:x", "nats://a:0", "nats://u:s3cret@a", "nats://a/x", "nats://a?x=1"],
)
def test_what_is_no_address_of_a_server_is_refused_and_not_repeated(ground: Ground, server: str) -> None:
    problem = ground.problem(CATALOG + PULL.replace("nats://a:4222", server))
    assert "servers: expected nats://host:port or tls://host:port" in problem
    assert "s3cret" not in problem


@pytest.mark.parametrize("subject", ["a..b", ".a", "a.", "a b", ">.a", "a.>.b", "a*", "a.b>", ""])
def test_what_is_no_subject_is_refused(ground: Ground, subject: str) -> None:
    assert "[pull.events] subject" in ground.problem(CATALOG + PULL.replace("lakekeeper", subject))


@pytest.mark.parametrize("subject", ["a", "a.b-c_d", "*", ">", "*.b.*", "a.>", "größe.1"])
def test_a_subject_may_have_wildcards(ground: Ground, subject: str) -> None:
    assert ground.load(CATALOG + PULL.replace("lakekeeper", subject)).pull["events"].subject == subject


@pytest.mark.parametrize("key", ["stream", "durable", "queue"])
@pytest.mark.parametrize("name", ["a.b", "a b", "*", ">", "a/b"])
def test_what_is_no_name_is_refused(ground: Ground, key: str, name: str) -> None:
    both = {"stream": "s", "durable": "d"} if key != "queue" else {}
    text = "".join(f"{one} = '{value}'\n" for one, value in {**both, key: name}.items())
    assert f"[pull.events] {key}: expected a name without spaces" in ground.problem(CATALOG + PULL + text)
