"""Who asks a NATS server, and what is told where it does not let us in."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import nats as nats_py
import pytest
from anyio import to_thread
from anyio.abc import SocketAttribute, SocketStream

from sfn.pull import SourceUnavailable
from sfn.pull.nats import NatsServer
from sfn.pull.nats_connection import DurableConsumer, NatsOptions
from tests.integration.nats_users import USER, Operator, Party, creds
from tests.servers.nats import Nats
from tests.unit.certificates import Authority, Files

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
    assert await server.probe() == f"{tokens.url} answers; we may subscribe to mine.events"


async def test_a_token_is_read_again_for_each_connection(tokens: Nats, tmp_path: Path) -> None:
    wanted = terms(tokens, token_file=written(tmp_path, "old"))
    assert "expected to be let in" in await refusal(wanted)
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
        assert f"pull.events: expected to be let in by {wanted.servers[0]}, found Authorization Violation" in told
        assert "see whether pull.events.credentials_file" in told
        assert "another" not in told


async def test_what_we_may_not_subscribe_to_is_told(passwords: Nats, tmp_path: Path) -> None:
    secret = written(tmp_path, "s3cret")
    told = await refusal(terms(passwords, user="sfn", password_file=secret, subject="theirs.events"))
    assert 'found permissions violation for subscription to "theirs.events"' in told.lower()
    assert "have it permitted to our user there" in told


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
    assert "the service will make its consumer sfn" in await reader.probe()
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
        (None, "expected a file that can be read, found No such file or directory"),
        ("", "expected one line, found an empty file"),
        ("a\nb", "expected one line, found none, or several"),
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
def authority() -> Authority:
    return Authority()


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
        assert "expected a certificate of " in told
        assert "see whether pull.events.ca_file has who signed its certificate" in told


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
    monkeypatch.setattr("sfn.pull.nats.STEP_TIMEOUT", 0.2)
    hanging = tmp_path / "token"
    os.mkfifo(hanging)
    server = NatsServer(terms(tokens, token_file=hanging))
    for _ in range(2):
        with anyio.fail_after(5), pytest.raises(SourceUnavailable) as away:
            await server.probe()
        assert str(away.value) == (
            f"pull.events: {hanging}: expected files that can be read, "
            "found no answer of the file system within 0.2 s; see whether a mount hangs"
        )
    # What nobody waits for any more is read at last, and its thread is free.
    await to_thread.run_sync(hanging.write_text, "old")
    hanging.unlink()
    hanging.write_text("s3cret")
    assert "answers" in await server.probe()
