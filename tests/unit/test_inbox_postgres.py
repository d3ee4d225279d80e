"""Errors, URLs, connections and signals of PostgreSQL, without a server."""

from __future__ import annotations

import asyncio
import gc
import socket
from functools import partial
from itertools import pairwise
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from sfn.errors import ErrorScope, FatalError, OutcomeUnknown, Permanent, SfnError, Transient
from sfn.inbox.postgres_connections import NOTIFY_PAUSE, Connections, NotifyListener, connect
from sfn.inbox.postgres_server import (
    EXPIRED,
    LOST,
    MISCONFIGURED,
    NO_TLS,
    OTHER_HOST,
    UNCERTAIN,
    UNREACHABLE,
    UNTRUSTED,
    PostgresConnectionLost,
    PostgresFault,
    PostgresServer,
    refusal,
)
from tests.support.processes import until
from tests.support.settings_file import CATALOG, Ground

WHERE = "postgresql://h/db"


def error_for(code: str, *, starting: bool = False) -> SfnError:
    return refusal(PostgresFault(code, "the server's text"), WHERE, starting=starting)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (LOST, "server runs"),
        (UNREACHABLE, "server runs"),
        (UNCERTAIN, "never taken twice"),
        ("08006", "server runs"),
        ("25006", "primary"),
        ("40P01", "tried again"),
        ("53100", "room"),
        ("53300", "max_connections"),
        ("53200", "memory"),
        ("55P03", "pg_stat_activity"),
        ("57P01", "server runs"),
        ("57P03", "server runs"),
        ("57014", "server runs"),
        ("58030", "log"),
    ],
)
@pytest.mark.parametrize("starting", [True, False])
def test_a_temporary_fault_is_tried_again(code: str, remedy: str, *, starting: bool) -> None:
    error = error_for(code, starting=starting)
    assert isinstance(error, Transient)
    assert (error.scope, error.retry_after) == (ErrorScope.INBOX, 1.0)
    assert (error.where, error.found) == (WHERE, f"the server's text ({code})")
    assert remedy in error.remedy


def test_only_an_uncertain_commit_has_an_unknown_outcome() -> None:
    assert isinstance(error_for(UNCERTAIN), OutcomeUnknown)
    assert not isinstance(error_for(LOST), OutcomeUnknown)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("28P01", "inbox.password_file"),
        ("28000", "inbox.password_file"),
        ("3D000", "CREATE DATABASE"),
        ("42501", "GRANT CREATE"),
        (MISCONFIGURED, "percent-encoded"),
        (NO_TLS, "ssl = on"),
        (UNTRUSTED, "sslrootcert"),
        (OTHER_HOST, "as its certificate does"),
        (EXPIRED, "renew"),
    ],
)
def test_a_wrong_configuration_ends_a_start_but_not_a_running_process(code: str, remedy: str) -> None:
    at_a_start, later = error_for(code, starting=True), error_for(code)
    assert isinstance(at_a_start, FatalError)
    assert isinstance(later, Transient)
    assert remedy in at_a_start.remedy
    assert remedy in later.remedy


@pytest.mark.parametrize("code", ["42P01", "42703", "3F000", "XX001", "0A000"])
def test_a_permanent_fault_of_the_database_ends_the_process(code: str) -> None:
    assert isinstance(error_for(code), FatalError)
    assert error_for(code).remedy


@pytest.mark.parametrize("code", ["22021", "54000", "23505"])
def test_a_value_that_cannot_be_stored_is_refused_to_its_caller(code: str) -> None:
    error = error_for(code)
    assert isinstance(error, Permanent)
    assert error.scope is ErrorScope.INBOX
    assert isinstance(error_for(code, starting=True), FatalError)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db.example/sfn",
        "postgres://sfn@db.example:5432/sfn",
        "postgresql://sfn:p%40ss%2Fw%3A%23@[2001:db8::1]:5432/sfn?sslmode=verify-full&sslrootcert=system",
        "postgresql://sfn@one:5432,two:5433/sfn?target_session_attrs=read-write&connect_timeout=3",
        "postgresql:///sfn?host=/run/postgresql",
    ],
)
def test_a_valid_url_is_not_changed(ground: Ground, url: str) -> None:
    settings = ground.load(f"{CATALOG}[inbox]\nurl = '{url}'\npassword_file = '/run/secrets/password'\n")
    assert (settings.inbox.url, settings.inbox.path) == (url, None)
    assert settings.inbox.password_file == Path("/run/secrets/password")


SHAPE = "expected postgresql://user:password@host:port/database, with special characters percent-encoded, found"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://sfn:s3@cret@h/db", SHAPE),
        ("postgresql://sfn:s3cret#@h/db", SHAPE),
        ("postgresql://sfn:s3cret/@h/db", SHAPE),
        ("postgresql://sfn:s3cret?@h/db", SHAPE),
        ("postgresql://sfn:s3 cret@h/db", SHAPE),
        ("postgresql://sfn:s3cret:x@h:a/db", SHAPE),
        ("postgresql://sfn:s3cret@h:70000/db", SHAPE),
        ("postgresql://sfn:s3cret@h/db/more", SHAPE),
        ("postgresql://h/db?password=s3cret", "expected no other parameters of the database than connect_timeout, "),
        ("postgresql://sfn:s3cret@h/db?options=-csearch_path%3Dx", "no other parameters"),
        ("postgresql://sfn:s3cret@h/db?sslmode=perhaps", "one of these values of sslmode: disable, allow, prefer"),
        ("postgresql://sfn:s3cret@h/db?connect_timeout=0", "a connect_timeout from 1 to 99"),
        ("postgres:sfn:s3cret@h", "sqlite:/// and the path of a file, or postgresql:// and a database"),
    ],
)
def test_an_ambiguous_url_is_refused_without_being_repeated(ground: Ground, url: str, expected: str) -> None:
    problems = str(ground.problems(f"{CATALOG}[inbox]\nurl = '{url}'\n"))
    assert expected in problems
    assert "s3cret" not in problems


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("sslmod=verify-full", "the unknown sslmod; did you mean sslmode?"),
        ("sslmode=require&zeal=1&SSLMODE=x", "the unknown zeal, SSLMODE"),
        ("password=s3&cret=x", "the unknown password; give the password before the host, or in inbox.password_file"),
        ("zeal=1&sslpassword=s3&cret=x", "the unknown zeal, sslpassword"),
        ("cret=x@h", "another one"),
        ("s%33cret=x", "another one"),
        (f"{'s' * 41}=x", "another one"),
    ],
)
def test_an_unknown_parameter_is_named_but_no_part_of_a_password(ground: Ground, query: str, found: str) -> None:
    problem = ground.problem(f"{CATALOG}[inbox]\nurl = 'postgresql://h/db?{query}'\n")
    assert problem.endswith(f", target_session_attrs, user, found {found}")


def test_a_password_file_is_refused_with_an_inbox_in_sqlite(ground: Ground) -> None:
    problems = str(ground.problems(f"{CATALOG}[inbox]\npassword_file = '/run/secrets/password'\n"))
    assert "[inbox] password_file: expected no such key with an inbox in SQLite" in problems


def test_no_representation_of_a_database_has_a_secret(ground: Ground) -> None:
    url = "postgresql://sfn:s3cret@h:5432/db?sslkey=s3cret"
    settings = ground.load(f"{CATALOG}[inbox]\nurl = '{url}'\n")
    server = PostgresServer(url)
    assert "s3cret" not in f"{settings!r} {settings} {server!r} {server.name}"
    assert server.name == "postgresql://sfn@h:5432/db"
    assert PostgresServer("postgres://one,two:5433").name == "postgresql://one,two:5433"


def test_the_driver_gets_the_arguments_that_it_knows(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p@ss\n")
    server = PostgresServer("postgresql://sfn@h/db?sslrootcert=system&connect_timeout=7", tmp_path / "password")
    arguments = server.arguments()
    assert server.patience == 7.0
    assert (arguments["dsn"], arguments["password"]) == ("postgresql://sfn@h/db", "p@ss")
    assert arguments["ssl"].check_hostname


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://sfn:s3cret@db:5432,[2001:db8::1]:5433/sfn", ["db", "[2001:db8::1]"]),
        ("postgresql:///sfn?host=db,/run/postgresql&sslmode=prefer", ["db"]),
        ("postgresql://%2Frun%2Fpostgresql/sfn", []),
        ("postgresql://db/sfn?sslmode=require", []),
        ("postgresql://db/sfn?sslrootcert=system", []),
    ],
)
def test_hosts_with_optional_encryption_are_named(url: str, hosts: list[str]) -> None:
    assert PostgresServer(url).unsafe_hosts == hosts


@pytest.mark.parametrize("option", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
def test_a_missing_certificate_is_named(option: str) -> None:
    with pytest.raises(PostgresFault, match=r"untrusted.*/nowhere/x.pem: No such file"):
        PostgresServer(f"postgresql://h/db?{option}=/nowhere/x.pem").arguments()


async def test_a_connection_that_is_cancelled_while_it_opens_reports_no_error() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(100)
        url = f"postgresql://sfn@127.0.0.1:{server.getsockname()[1]}/db"
        for steps in range(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(connect, PostgresServer(url), prepares=True))
                for _ in range(steps):
                    await asyncio.sleep(0 if steps % 2 else 0.0003)
                tasks.cancel_scope.cancel()
            await asyncio.sleep(0.005)
            gc.collect()
    assert reported == []


class FakeConnection:
    """A connection to no server.

    Attributes:
        commands: the commands of all connections, each with the time of the event loop.
    """

    is_busy = False
    session = 1

    def __init__(self, commands: list[tuple[str, float]], fault: PostgresFault | None, *, prepares: bool) -> None:
        self.commands, self.is_open, self._fault, self.prepares = commands, True, fault, prepares

    async def fetch(self, statement: str, *_: object) -> list[list[int]]:
        await self.execute(statement)
        return [[self.session]]

    async def execute(self, statement: str, *_: object) -> str:
        self.commands.append((statement, anyio.current_time()))
        await anyio.lowlevel.checkpoint()
        if self._fault is not None and statement.startswith("BEGIN; SET LOCAL"):
            raise self._fault
        return statement

    async def listen(self, *_: object) -> None:
        """Never get a notification."""

    def end(self) -> None:
        self.is_open = False

    async def close(self) -> None:
        self.is_open = False


def fake_connections(
    commands: list[tuple[str, float]], opened: list[FakeConnection], fault: PostgresFault | None = None
) -> Connections:
    """Return connections to no server; each opened one is added to `opened`."""

    async def open_one(*, prepares: bool) -> FakeConnection:
        opened.append(FakeConnection(commands, fault, prepares=prepares))
        return opened[-1]

    return Connections(open_one, 5.0, "SET a = 1", lambda: None)


async def test_many_signals_send_one_notification_per_pause() -> None:
    commands: list[tuple[str, float]] = []
    listener = NotifyListener(fake_connections(commands, []), lambda: None)
    with anyio.fail_after(10):
        while sum("NOTIFY" in statement for statement, _ in commands) < 4:
            listener.notify()
            await anyio.sleep(0.001)
    await listener.close()
    sent = [at for statement, at in commands if "NOTIFY" in statement]
    assert min(after - before for before, after in pairwise(sent)) >= 0.9 * NOTIFY_PAUSE


async def test_a_signal_during_a_notification_is_sent_afterwards() -> None:
    commands: list[tuple[str, float]] = []
    listener = NotifyListener(fake_connections(commands, []), lambda: None)
    listener.notify()
    while not any("NOTIFY" in statement for statement, _ in commands):
        await anyio.lowlevel.checkpoint()
    listener.notify()
    await until(lambda: sum("NOTIFY" in statement for statement, _ in commands) == 2)
    await anyio.sleep(3 * NOTIFY_PAUSE)
    await listener.close()
    assert len([statement for statement, _ in commands if "NOTIFY" in statement]) == 2


@pytest.mark.parametrize("fault", [PostgresFault("55P03", "busy"), PostgresConnectionLost(LOST, "gone")])
async def test_a_notification_that_fails_raises_nothing_and_the_next_one_is_sent(fault: PostgresFault) -> None:
    commands: list[tuple[str, float]] = []
    listener = NotifyListener(fake_connections(commands, [], fault), lambda: None)
    for _ in range(2):
        listener.notify()
        await anyio.sleep(2 * NOTIFY_PAUSE)
    await listener.close()
    assert len([statement for statement, _ in commands if "NOTIFY" in statement]) == 2


async def test_an_idle_connection_is_used_again_unless_the_server_closed_it() -> None:
    connections = fake_connections([], [])
    async with connections.one() as first:
        pass
    async with connections.one() as second:
        assert second is first
    first.end()
    async with connections.one() as third:
        assert third.is_open
    assert third is not first
