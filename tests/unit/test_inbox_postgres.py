"""Errors and URLs of PostgreSQL."""

from __future__ import annotations

import asyncio
import gc
import socket
from functools import partial
from pathlib import Path

import anyio
import pytest

from sfn.errors import ErrorScope, FatalError, OutcomeUnknown, Permanent, SfnError, Transient
from sfn.inbox.postgres import PostgresServer, driver
from sfn.inbox.postgres.errors import (
    LOST,
    MISCONFIGURED,
    NO_TLS,
    UNCERTAIN,
    UNREACHABLE,
    UNTRUSTED,
    PostgresFault,
    refusal,
)
from tests.support.settings_file import CATALOG, Ground

WHERE = "postgresql://h/db"


def meant(code: str, *, starting: bool = False) -> SfnError:
    return refusal(PostgresFault(code, "it said so"), WHERE, starting=starting)


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
def test_what_passes_by_itself_is_tried_again(code: str, remedy: str, *, starting: bool) -> None:
    trouble = meant(code, starting=starting)
    assert isinstance(trouble, Transient)
    assert (trouble.scope, trouble.retry_after) == (ErrorScope.INBOX, 1.0)
    assert (trouble.where, trouble.found) == (WHERE, f"it said so ({code})")
    assert remedy in trouble.remedy


def test_what_may_have_been_done_is_said_to_be_so() -> None:
    assert isinstance(meant(UNCERTAIN), OutcomeUnknown)
    assert not isinstance(meant(LOST), OutcomeUnknown)


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
    ],
)
def test_what_is_configured_wrongly_ends_a_start_but_no_process_that_works(code: str, remedy: str) -> None:
    at_a_start, later = meant(code, starting=True), meant(code)
    assert isinstance(at_a_start, FatalError)
    assert isinstance(later, Transient)
    assert remedy in at_a_start.remedy
    assert remedy in later.remedy


@pytest.mark.parametrize("code", ["42P01", "42703", "3F000", "XX001", "0A000"])
def test_what_no_waiting_heals_ends_the_process(code: str) -> None:
    assert isinstance(meant(code), FatalError)
    assert meant(code).remedy


@pytest.mark.parametrize("code", ["22021", "54000", "23505"])
def test_a_value_that_cannot_be_stored_is_its_callers_trouble(code: str) -> None:
    trouble = meant(code)
    assert isinstance(trouble, Permanent)
    assert trouble.scope is ErrorScope.INBOX
    assert isinstance(meant(code, starting=True), FatalError)


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


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
def test_a_url_of_a_database_is_taken_as_it_is(ground: Ground, url: str) -> None:
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
def test_a_url_that_may_be_misunderstood_is_refused_and_not_repeated(ground: Ground, url: str, expected: str) -> None:
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
def test_a_parameter_that_is_not_known_is_named_but_no_part_of_a_password(
    ground: Ground, query: str, found: str
) -> None:
    problem = ground.problem(f"{CATALOG}[inbox]\nurl = 'postgresql://h/db?{query}'\n")
    assert problem.endswith(f", target_session_attrs, user, found {found}")


def test_a_password_goes_with_a_database_only(ground: Ground) -> None:
    problems = str(ground.problems(f"{CATALOG}[inbox]\npassword_file = '/run/secrets/password'\n"))
    assert "[inbox] password_file: expected no such key with an inbox in SQLite" in problems


def test_no_representation_of_a_database_tells_a_secret(ground: Ground) -> None:
    url = "postgresql://sfn:s3cret@h:5432/db?sslkey=s3cret"
    settings = ground.load(f"{CATALOG}[inbox]\nurl = '{url}'\n")
    server = PostgresServer(url)
    assert "s3cret" not in f"{settings!r} {settings} {server!r} {server.name}"
    assert server.name == "postgresql://sfn@h:5432/db"
    assert PostgresServer("postgres://one,two:5433").name == "postgresql://one,two:5433"


def test_the_driver_is_told_what_it_understands(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p@ss\n")
    server = PostgresServer("postgresql://sfn@h/db?sslrootcert=system&connect_timeout=7", tmp_path / "password")
    told = server.arguments()
    assert server.patience == 7.0
    assert (told["dsn"], told["password"]) == ("postgresql://sfn@h/db", "p@ss")
    assert told["ssl"].check_hostname


@pytest.mark.parametrize("option", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
def test_a_certificate_that_is_not_there_is_no_trouble_of_the_server(option: str) -> None:
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
                tasks.start_soon(partial(driver.connect, PostgresServer(url), prepares=True))
                for _ in range(steps):
                    await asyncio.sleep(0 if steps % 2 else 0.0003)
                tasks.cancel_scope.cancel()
            await asyncio.sleep(0.005)
            gc.collect()
    assert reported == []
