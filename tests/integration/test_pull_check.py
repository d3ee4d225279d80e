"""Checks and credentials of pull sources."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import nats as nats_py
import pytest
from anyio import to_thread
from anyio.abc import SocketAttribute, SocketStream

from sfn.cli.check_config import Severity
from sfn.cli.run_checks import pull_findings
from sfn.extras import install_command
from sfn.pull import SourceUnavailable
from sfn.pull.nats import NatsServer
from sfn.pull.nats_connection import DurableConsumer, NatsOptions
from sfn.settings.root import Settings
from tests.servers.nats import USER, Nats, Operator, Party, creds
from tests.servers.process import free_port
from tests.support.certificates import Authority, Files
from tests.support.listener import Inbox
from tests.support.processes import until
from tests.support.pull_source import Place, event
from tests.support.settings_file import CATALOG, Ground

# `sfn check`.


TOLD = '[catalogs.hive]\ntype = "events"\ncatalog_id = "x"\nallowed_locations = ["/w"]\n'
SENDER = '[senders.etl]\nsecrets = { m = "sixteen-of-these" }\ncatalog = "hive"\n'


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def configured(ground: Ground, place: Place, *more: str, durable: bool = True, catalogs: str = CATALOG) -> Settings:
    lines = [f"servers = ['{place.url}']", f"subject = '{place.subject}'", *more]
    if durable:
        assert place.durable is not None
        lines += [f"stream = '{place.durable.stream}'", f"durable = '{place.durable.name}'"]
    return ground.load("\n".join([catalogs, "[pull.events]", *lines]))


async def told(settings: Settings) -> list[tuple[str, str, str, str]]:
    return [(one.where, one.severity.value, one.text, one.remedy) async for one in pull_findings(settings)]


async def test_core_nats_is_tried_without_taking_what_is_the_services(ground: Ground, nats: Nats) -> None:
    place, inbox = Place(nats.url), Inbox()
    settings, looks = configured(ground, place, durable=False), 0

    async def look_on() -> None:
        nonlocal looks
        while True:
            assert await told(settings) == [
                ("pull.events", "ok", f"{place.url} answers; subscribing to {place.subject} is permitted", "")
            ]
            looks += 1

    async with place.begun(inbox), anyio.create_task_group() as tasks:
        tasks.start_soon(look_on)
        for turn in range(20):
            await place.publish(*map(event, range(50 * turn, 50 * (turn + 1))))
        await until(lambda: looks and len(inbox.taken) == 1_000)
        tasks.cancel_scope.cancel()


async def test_a_stream_is_looked_at_and_its_consumer_not_made(ground: Ground, place: Place) -> None:
    await place.make_stream()
    settings = configured(ground, place)
    assert place.durable is not None
    begins = f"{place.url} answers; the stream {place.durable.stream} has {place.subject}, "
    for _ in range(2):
        assert await told(settings) == [("pull.events", "ok", f"{begins}the service will create its consumer sfn", "")]
    async with place.client() as client:
        assert await client.jetstream().consumers_info(place.durable.stream) == []
    await place.publish(event(1))
    async with place.client() as client:
        await client.jetstream().pull_subscribe(place.subject, "sfn", place.durable.stream)
    assert await told(settings) == [("pull.events", "ok", f"{begins}its consumer sfn exists", "")]
    assert (await place.consumer()).num_pending == 1


async def test_a_stream_that_is_not_there_is_told_with_the_command_that_makes_it(ground: Ground, place: Place) -> None:
    assert place.durable is not None
    name = place.durable.stream
    remedy = f"create it: nats stream add {name} --subjects '{place.subject}' --defaults; or correct the name"
    assert await told(configured(ground, place)) == [
        ("pull.events.stream", "error", f"expected a stream {name}, found none", remedy)
    ]


async def test_a_subject_that_the_stream_does_not_keep_is_told(ground: Ground, place: Place) -> None:
    await place.make_stream()
    settings = configured(ground, Place(place.url, "another.one", place.durable))
    ((where, severity, text, remedy),) = await told(settings)
    assert (where, severity) == ("pull.events.subject", "error")
    assert text.endswith(f"{place.subject}, found another.one")
    assert remedy == "correct the subject or pull.events.stream"


async def test_a_consumer_of_another_subject_is_told(ground: Ground, place: Place) -> None:
    assert place.durable is not None
    other = f"{place.subject}.other"
    async with place.client() as client:
        await client.jetstream().add_stream(name=place.durable.stream, subjects=[place.subject, other])
        await client.jetstream().pull_subscribe(other, "sfn", place.durable.stream)
    ((where, _, text, remedy),) = await told(configured(ground, place))
    assert where == "pull.events.durable"
    assert text == f"expected a consumer sfn of the subject {place.subject}, found {other}"
    assert remedy == "set another name, and the service creates that consumer; or delete this consumer"


async def test_a_server_without_jetstream_is_told(ground: Ground) -> None:
    with Nats(jetstream=False) as server:
        ((where, _, text, remedy),) = await told(configured(ground, Place(server.url).kept()))
    assert (where, text) == ("pull.events", "expected a server with JetStream, found a server without")
    assert remedy == "enable JetStream on the server; for core NATS remove pull.events.stream and durable"


async def test_a_server_that_is_away_is_told(ground: Ground) -> None:
    place = Place(f"nats://127.0.0.1:{free_port()}")
    ((where, severity, text, remedy),) = await told(configured(ground, place, durable=False))
    assert (where, severity) == ("pull.events", "error")
    assert text == f"expected an answer from {place.url}, found Connection refused"
    assert remedy == "check that the server runs there, or correct pull.events.servers"


async def test_credentials_that_are_not_taken_are_told(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("another")
    with Nats("authorization { token: s3cret }") as server:
        settings = configured(ground, Place(server.url), f"token_file = '{tmp_path}/token'", durable=False)
        ((where, severity, text, _),) = await told(settings)
    assert (where, severity) == ("pull.events", "error")
    assert text == f"expected access to {server.url}, found Authorization Violation"


async def test_a_package_that_is_missing_is_told(ground: Ground, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("sfn.pull.nats")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("sfn.pull.nats", raising=False)
    monkeypatch.setitem(sys.modules, "nats.errors", None)
    assert await told(configured(ground, place)) == [
        (
            "pull.events",
            "error",
            "expected the packages that NATS needs, found no module nats.errors",
            install_command("nats"),
        )
    ]


async def test_a_secret_that_somebody_on_the_way_may_read_is_warned_of(ground: Ground) -> None:
    for more, warned in (
        ("token_file = '/none'", True),
        ("user = 'u'\npassword_file = '/none'", True),
        ("credentials_file = '/none'", False),
        ("token_file = '/none'\nca_file = '/none'", False),
    ):
        settings = configured(ground, Place("nats://nats.example"), more, durable=False)
        found = [one async for one in pull_findings(settings)]
        assert ("pull.events.servers" in [one.where for one in found]) == warned
        assert found[-1].severity is Severity.ERROR


async def test_of_catalogs_that_nobody_can_ask_core_nats_is_warned_of(ground: Ground, place: Place) -> None:
    catalogs = CATALOG + TOLD + SENDER
    found = await told(configured(ground, place, "catalog = 'hive'", durable=False, catalogs=catalogs))
    assert [(where, severity) for where, severity, *_ in found] == [
        ("pull.events.stream", "warning"),
        ("pull.events", "ok"),
    ]
    assert "no catalog can be queried for hive" in found[0][2]
    others = await told(configured(ground, place, "catalog = 'prod'", durable=False, catalogs=catalogs))
    assert [severity for _, severity, *_ in others] == ["ok"]


# NATS credentials.


PASSWORDS = """\
authorization { users: [
    { user: sfn, password: s3cret, permissions: { subscribe: ["mine.>", "_INBOX.>"], publish: ["$JS.API.>"] } }
    { user: reader, password: s3cret, permissions: { subscribe: [">"], publish: [">"] } }
] }
"""


def terms(server: Nats, **more: object) -> NatsOptions:
    return replace(NatsOptions("pull.events", (server.url,), "mine.events", "sfn"), **more)  # type: ignore[arg-type]


async def refusal(wanted: NatsOptions) -> str:
    with pytest.raises(SourceUnavailable) as away:
        await NatsServer(wanted).probe()
    return str(away.value)


def written(folder: Path, text: str) -> Path:
    file = folder / "secret"
    file.write_text(text)
    return file


@pytest.fixture(scope="module")
def tokens() -> Iterator[Nats]:
    with Nats("authorization { token: s3cret }") as server:
        yield server


@pytest.fixture(scope="module")
def passwords() -> Iterator[Nats]:
    with Nats(PASSWORDS) as server:
        yield server


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator()


@pytest.fixture(scope="module")
def signed(operator: Operator) -> Iterator[Nats]:
    with Nats(operator.configuration) as server:
        yield server


async def test_a_token_lets_us_in(tokens: Nats, tmp_path: Path) -> None:
    server = NatsServer(terms(tokens, token_file=written(tmp_path, "s3cret\n")))
    assert await server.probe() == f"{tokens.url} answers; subscribing to mine.events is permitted"


async def test_a_token_is_read_again_for_each_connection(tokens: Nats, tmp_path: Path) -> None:
    wanted = terms(tokens, token_file=written(tmp_path, "old"))
    assert "expected access to" in await refusal(wanted)
    written(tmp_path, "s3cret")
    await NatsServer(wanted).probe()


async def test_a_user_and_a_password_let_us_in(passwords: Nats, tmp_path: Path) -> None:
    await NatsServer(terms(passwords, user="sfn", password_file=written(tmp_path, "s3cret\n"))).probe()


async def test_credentials_let_us_in(signed: Nats, operator: Operator, tmp_path: Path) -> None:
    await NatsServer(terms(signed, credentials_file=written(tmp_path, operator.user()))).probe()


async def test_whom_the_server_does_not_know_it_does_not_let_in(
    tokens: Nats, passwords: Nats, signed: Nats, tmp_path: Path
) -> None:
    wrong = written(tmp_path, "another")
    stranger = tmp_path / "stranger.creds"
    stranger.write_text(Operator().user())
    for wanted in (
        terms(tokens),
        terms(tokens, token_file=wrong),
        terms(passwords, user="sfn", password_file=wrong),
        terms(signed, credentials_file=stranger),
    ):
        told = await refusal(wanted)
        assert f"pull.events: expected access to {wanted.servers[0]}, found Authorization Violation" in told
        assert "check that pull.events.credentials_file" in told
        assert "another" not in told


async def test_what_we_may_not_subscribe_to_is_told(passwords: Nats, tmp_path: Path) -> None:
    secret = written(tmp_path, "s3cret")
    told = await refusal(terms(passwords, user="sfn", password_file=secret, subject="theirs.events"))
    assert 'found permissions violation for subscription to "theirs.events"' in told.lower()
    assert "grant the permission to the listener's user there" in told


async def test_what_we_may_not_ask_of_jetstream_is_told(signed: Nats, operator: Operator, tmp_path: Path) -> None:
    permitted = {"pub": {"allow": ["other"]}, "sub": {"allow": [">"]}}
    file = written(tmp_path, operator.user(permitted))
    told = await refusal(terms(signed, credentials_file=file, durable=DurableConsumer("s", "d")))
    assert 'permissions violation for publish to "$js.api.stream.info.s"' in told.lower()


async def test_whoever_may_not_acknowledge_is_told(passwords: Nats, tmp_path: Path) -> None:
    secret = written(tmp_path, "s3cret")
    durable = DurableConsumer("mine", "sfn")
    reader = NatsServer(terms(passwords, user="reader", password_file=secret, durable=durable))
    assert "nats stream add mine --subjects 'mine.events'" in await refusal(
        terms(passwords, user="reader", password_file=secret, durable=durable)
    )
    client = await nats_py.connect(passwords.url, user="reader", password=secret.read_text())
    await client.jetstream().add_stream(name="mine", subjects=["mine.*"])
    await client.jetstream().publish("mine.events", b"{}")
    await client.close()
    assert "the service will create its consumer sfn" in await reader.probe()
    async with NatsServer(terms(passwords, user="sfn", password_file=secret, durable=durable)).connect() as feed:
        (message,) = await feed.next()
        await message.acknowledge()
        with pytest.raises(SourceUnavailable, match=r"(?i)permissions violation for publish to .*\$js\.ack"):
            await feed.next()


async def test_of_several_servers_one_is_enough(tokens: Nats, tmp_path: Path) -> None:
    servers = ("nats://127.0.0.1:1", tokens.url, "nats://127.0.0.1:2")
    wanted = terms(tokens, servers=servers, token_file=written(tmp_path, "s3cret"))
    for _ in range(5):
        await NatsServer(wanted).probe()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "expected a readable file, found No such file or directory"),
        ("", "expected one line, found an empty file"),
        ("a\nb", "expected one line, found several lines"),
        (b"\xff", "expected a text, found bytes that are not UTF-8"),
    ],
)
async def test_a_file_that_can_not_be_used_is_told(
    nats: Nats, tmp_path: Path, content: str | bytes | None, told: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    problem = await refusal(terms(nats, token_file=file))
    assert problem.startswith(f"pull.events.token_file: {file}: {told}")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no such thing", "found no user's JWT"),
        (creds("a.b.c", "x").partition("***")[0], "found no user's seed"),
        (creds("a.b.c", "SUAXX"), "expected a seed with its checksum, found another text"),
        (creds("a.b.c", Party(USER).seed[:-4] + "AAAA"), "expected a seed with its checksum, found another text"),
        (creds("a.b.c", "é"), "expected a seed with its checksum, found another text"),
    ],
)
async def test_credentials_that_make_no_sense_are_told(nats: Nats, tmp_path: Path, content: str, told: str) -> None:
    assert told in await refusal(terms(nats, credentials_file=written(tmp_path, content)))


@pytest.fixture(scope="module")
def encrypted(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    files = Files(tmp_path_factory.mktemp("tls"), authority.sign())
    with Nats(f'tls {{ cert_file: "{files.chain}", key_file: "{files.key}" }}') as server:
        yield server


def tls(server: Nats) -> tuple[str, ...]:
    return (server.url.replace("nats:", "tls:"),)


async def test_an_encrypted_server_is_trusted_by_its_authority(
    encrypted: Nats, authority: Authority, tmp_path: Path
) -> None:
    file = written(tmp_path, authority.pem.decode())
    await NatsServer(terms(encrypted, servers=tls(encrypted), ca_file=file)).probe()
    await NatsServer(terms(encrypted, ca_file=file)).probe()


async def test_an_encrypted_server_that_nobody_vouches_for_is_refused(encrypted: Nats, tmp_path: Path) -> None:
    stranger = written(tmp_path, Authority().pem.decode())
    for more in ({"servers": tls(encrypted)}, {"ca_file": stranger}, {}):
        told = await refusal(terms(encrypted, **more))
        assert "expected a trusted certificate of " in told
        assert "check that pull.events.ca_file has its issuer" in told


async def test_authorities_that_make_no_sense_are_told(encrypted: Nats, tmp_path: Path) -> None:
    assert "expected a file of PEM certificates" in await refusal(terms(encrypted, ca_file=written(tmp_path, "x")))
    assert "No such file" in await refusal(terms(encrypted, ca_file=tmp_path / "none"))


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_a_server_without_tls_is_told_nothing_where_tls_is_wanted(
    authority: Authority, tmp_path: Path, scheme: str
) -> None:
    heard: list[bytes] = []

    async def pretend(client: SocketStream) -> None:
        async with client:
            await client.send(b'INFO {"server_id":"x","version":"2.15.2","auth_required":true}\r\n')
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                heard.append(await client.receive())

    file = written(tmp_path, "s3cret")
    more: dict[str, object] = {}
    if scheme == "nats":
        more["ca_file"] = tmp_path / "ca.pem"
        (tmp_path / "ca.pem").write_bytes(authority.pem)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - it is anyio's, not Django's
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, pretend)
        servers = (f"{scheme}://127.0.0.1:{port}",)
        told = await refusal(NatsOptions("pull.events", servers, "s", "sfn", token_file=file, **more))  # type: ignore[arg-type]
        tasks.cancel_scope.cancel()
    assert "expected TLS from" in told
    assert heard == []


async def test_a_server_that_says_nothing_is_told_and_not_waited_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, anyio.fail_after(12):
        port = silent.getsockname()[1]
        told = await refusal(NatsOptions("pull.events", (f"nats://127.0.0.1:{port}",), "s", "sfn"))
    assert "found none within 5 s" in told


async def test_a_mount_that_hangs_is_told_of_and_read_again_once_it_answers(
    tokens: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfn.pull.nats.STEP_TIMEOUT", 1)
    hanging = tmp_path / "token"
    os.mkfifo(hanging)
    server = NatsServer(terms(tokens, token_file=hanging))
    for _ in range(2):
        with anyio.fail_after(5), pytest.raises(SourceUnavailable) as away:
            await server.probe()
        assert str(away.value) == (
            f"pull.events: {hanging}: expected files that can be read, "
            "found no answer of the file system within 1 s; check whether a mount hangs"
        )
    # What nobody waits for any more is read at last, and its thread is free.
    await to_thread.run_sync(hanging.write_text, "old")
    hanging.unlink()
    hanging.write_text("s3cret")
    assert "answers" in await server.probe()
