"""The service with an inbox in PostgreSQL."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL, SIGTERM

import anyio
import anyio.to_thread
import pytest
import trustme

from sfn.cli.check_config import Severity, inbox_finding
from sfn.clock import SystemClock
from sfn.errors import FatalError, SfnError, Transient
from sfn.inbox.model import InboxConfig
from sfn.inbox.postgres import PostgresInbox, PostgresServer, preflight
from sfn.inbox.postgres.database import prepared, reached
from sfn.inbox.postgres.schema import MIGRATIONS
from sfn.settings import load
from tests.integration.test_service_process import Writer
from tests.servers.postgres import Postgres
from tests.servers.process import give
from tests.support.processes import until
from tests.support.service import Daemon, serving
from tests.support.shared_inboxes import fill, stored

# Two services on one inbox.


ADMIN = {"SFN_ADMIN__TOKEN": "an-operators-token"}
OPERATOR = {"Authorization": "Bearer an-operators-token"}


@pytest.fixture(name="writer")
def fixture_writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


@asynccontextmanager
async def services(writer: Writer, dsn: str) -> AsyncGenerator[tuple[Daemon, Daemon]]:
    """Two processes with the same configuration; a claim of one that was killed is the other's after seconds."""
    configuration, surroundings = writer.configure(), {**ADMIN, "SFN_INBOX__URL": dsn, "SFN_WORKER__LEASE": "3s"}
    async with serving(configuration, surroundings) as first, serving(configuration, surroundings) as second:
        yield first, second


async def test_what_one_service_took_the_other_publishes(writer: Writer, postgres: Postgres, database: str) -> None:
    dsn = postgres.dsn(database)
    async with services(writer, dsn) as (first, second):
        before = writer.commit("orders", "u1")
        await first.tell("orders", operation="create", metadata_location=before)
        await until(lambda: writer.published("orders", "orders") == before)
        first.send(SIGKILL)
        assert await first.ended() == -SIGKILL
        after = writer.commit("orders", "u1")
        await second.tell("orders", metadata_location=after)
        # If the first one had it just then, its lease ends first.
        await until(lambda: writer.published("orders", "orders") == after)
        metrics = (await second.client.get("/metrics")).text
        assert "sfn_inbox_answers 1.0" in metrics
        assert "sfn_inbox_bytes{" not in metrics
        second.send(SIGTERM)
        assert await second.ended() == 0
    assert await stored(dsn, "SELECT state FROM sfn.subject WHERE catalog = 'hive'") == ["queued"]


async def test_a_catalog_that_one_service_is_told_to_retire_retires_in_the_other(
    writer: Writer, postgres: Postgres, database: str
) -> None:
    async with services(writer, postgres.dsn(database)) as (first, second):
        answer = await first.client.post("/admin/v1/catalogs/hive:retire", headers=OPERATOR)
        assert answer.is_success, answer.text
        with anyio.fail_after(10):
            while not await retires(second):  # noqa: ASYNC110 - no event crosses processes
                await anyio.sleep(0.2)


async def retires(daemon: Daemon) -> bool:
    """Whether a service says that the catalog retired."""
    status = (await daemon.client.get("/admin/v1/status", headers=OPERATOR)).json()
    (catalog,) = status["catalogs"]
    return bool(catalog["retired"])


async def test_a_check_proves_a_database_and_leaves_nothing_in_it(
    writer: Writer, postgres: Postgres, database: str
) -> None:
    configuration = writer.configure()
    settings = load(configuration, {"SFN_INBOX__URL": postgres.dsn(database)})
    holder, found = await inbox_finding(settings)
    assert (holder, found.where) == (None, "inbox")
    assert f"/{database}: PostgreSQL " in found.text
    assert "its tables will be created" in found.text
    # The tests' own server may lose what it has.
    assert (found.severity, "fsync" in found.remedy) == (Severity.WARNING, True)
    assert await stored(postgres.dsn(database), "SELECT count(*) FROM pg_namespace WHERE nspname = 'sfn'") == [0]
    settings = load(configuration, {"SFN_INBOX__URL": "postgresql://sfn:s3cret@127.0.0.1:1/sfn"})
    _, found = await inbox_finding(settings)
    assert found.severity is Severity.ERROR
    assert "s3cret" not in f"{found} {settings!r}"


# Start.


PHRASE, ENCODED = "s3cret-&-w0rd", "s3cret-%26-w0rd"
ACCESS = """
hostssl all guarded 127.0.0.1/32 scram-sha-256
hostnossl all guarded 127.0.0.1/32 reject
host all all 127.0.0.1/32 trust
"""


@dataclass(frozen=True, slots=True)
class Ground:
    """A server with TLS, and a user of it that has a password."""

    postgres: Postgres
    database: str
    root: Path

    def server(
        self, password: str = ENCODED, *, database: str = "", more: str = "", host: str = "localhost"
    ) -> PostgresServer:
        """A way to it."""
        login = f"guarded:{password}" if password else "guarded"
        return PostgresServer(f"postgresql://{login}@{host}:{self.postgres.port}/{database or self.database}{more}")


@pytest.fixture(name="ground", scope="module")
def fixture_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    root = tmp_path_factory.mktemp("tls") / "root.pem"
    authority.cert_pem.write_to_path(root)
    with Postgres() as postgres:
        data = postgres.folder / "data"
        certificate.private_key_pem.write_to_path(data / "key.pem")
        (data / "key.pem").chmod(0o600)
        certificate.cert_chain_pems[0].write_to_path(data / "chain.pem")
        (data / "pg_hba.conf").write_text(ACCESS)
        for file in ("key.pem", "chain.pem", "pg_hba.conf"):
            give(data / file)
        for setting in ("ssl_key_file = 'key.pem'", "ssl_cert_file = 'chain.pem'", "ssl = on"):
            postgres.execute(f"ALTER SYSTEM SET {setting}")
        postgres.execute("SELECT pg_reload_conf()")
        postgres.execute(f"CREATE ROLE guarded LOGIN PASSWORD '{PHRASE}' CONNECTION LIMIT 20")
        with postgres.database() as database:
            postgres.execute(f"ALTER DATABASE {database} OWNER TO guarded")
            yield Ground(postgres, database, root)


async def started(server: PostgresServer) -> None:
    """Start, and put something."""
    async with PostgresInbox.opened(server, InboxConfig(), SystemClock()) as inbox:
        await fill(inbox, 1)


async def refused(server: PostgresServer) -> SfnError:
    """Why a start is refused, in time."""
    with anyio.fail_after(10), pytest.raises(SfnError) as caught:
        await started(server)
    assert "s3cret" not in f"{caught.value!r} {caught.value} {server!r} {server.name}"
    assert caught.value.__cause__ is None
    return caught.value


async def test_a_wrong_password_ends_a_start(ground: Ground) -> None:
    error = await refused(ground.server("s3cret"))
    assert (type(error), "28P01" in str(error), "inbox.password_file" in error.remedy) == (FatalError, True, True)


async def test_a_missing_database_ends_a_start(ground: Ground) -> None:
    error = await refused(ground.server(database="nowhere"))
    assert (type(error), "3D000" in str(error), "CREATE DATABASE" in error.remedy) == (FatalError, True, True)


async def test_a_server_that_speaks_no_tls_ends_a_start_that_asks_for_it(postgres: Postgres, database: str) -> None:
    error = await refused(PostgresServer(f"{postgres.dsn(database)}?sslmode=require"))
    assert (type(error), "ssl = on" in error.remedy) == (FatalError, True)


async def test_a_password_comes_from_a_file_that_is_read_for_each_connection(ground: Ground, tmp_path: Path) -> None:
    file = tmp_path / "password"
    server = PostgresServer(ground.server("").url, file)
    assert "inbox.password_file" in (await refused(server)).remedy
    file.write_text("s3cret-old\n")
    assert "28P01" in str(await refused(server))
    file.write_text(f"{PHRASE}\n")
    await started(server)


async def test_a_password_that_is_changed_while_it_runs_is_asked_for_again(ground: Ground, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(PHRASE)
    async with PostgresInbox.opened(PostgresServer(ground.server("").url, file), InboxConfig(), SystemClock()) as inbox:
        file.write_text("s3cret-old")
        ground.postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guarded'")
        with pytest.raises(Transient, match="28P01") as waiting:
            await fill(inbox, 1)
        assert waiting.value.retry_after == 1.0
        file.write_text(PHRASE)
        await anyio.sleep(0.3)
        await fill(inbox, 1)


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
async def test_a_connection_is_as_safe_as_its_url_says(ground: Ground, mode: str) -> None:
    known = f"?sslmode={mode}&sslrootcert={ground.root}"
    await started(ground.server(more=known))
    if mode == "verify-full":
        error = await refused(ground.server(more=known, host="127.0.0.1"))
        assert (type(error), "sslrootcert" in error.remedy) == (FatalError, True)


@pytest.mark.parametrize("root", ["system", "/nowhere/root.pem"])
async def test_a_certificate_that_nobody_trusts_ends_a_start(ground: Ground, root: str) -> None:
    error = await refused(ground.server(more=f"?sslmode=verify-full&sslrootcert={root}"))
    assert type(error) is FatalError


async def test_plain_text_is_not_spoken_to_who_wants_none(ground: Ground) -> None:
    assert type(await refused(ground.server(more="?sslmode=disable"))) is FatalError


async def test_a_server_that_is_still_starting_is_waited_for() -> None:
    with ExitStack() as stack:
        server = Postgres()
        stack.push(server)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(started, PostgresServer(server.dsn()))
            await anyio.sleep(1.5)
            await anyio.to_thread.run_sync(server.start)


@pytest.mark.parametrize("listens", [True, False])
async def test_a_server_that_never_answers_is_given_up(*, listens: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        if not listens:
            silent.close()
        server = PostgresServer(f"postgresql://nobody@127.0.0.1:{port}/none?connect_timeout=1")
        with anyio.fail_after(5), pytest.raises(Transient, match="unreachable"):
            async with reached(server) as there:
                await prepared(there, patience=1)


async def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    script = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "import anyio\n"
        "from sfn.inbox.postgres import PostgresServer, preflight\n"
        "from sfn.clock import SystemClock\n"
        "anyio.run(preflight, PostgresServer('postgresql://a:s3cret@b/c'), SystemClock())\n"
    )
    ran = await anyio.run_process([sys.executable, "-c", script], check=False)
    told = ran.stderr.decode()
    assert "postgresql://a@b/c: expected the package asyncpg" in told
    assert "pip install '.[postgres]'" in told
    assert "s3cret" not in told


async def test_a_database_is_proved_without_a_trace(ground: Ground) -> None:
    with ground.postgres.database() as database:
        found = await preflight(PostgresServer(ground.postgres.dsn(database)), SystemClock())
        assert (found.version, found.is_pooled, found.is_durable, found.others) == (0, False, False, 0)
        assert abs(found.ahead) < timedelta(seconds=2)
        assert found.server.startswith(ground.postgres.execute("SHOW server_version")[:2])
        assert ground.postgres.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'sfn'", database) == "0"
        async with PostgresInbox.opened(PostgresServer(ground.postgres.dsn(database)), InboxConfig(), SystemClock()):
            found = await preflight(PostgresServer(ground.postgres.dsn(database)), SystemClock())
            assert (found.version, found.others) == (len(MIGRATIONS), 1)
        with pytest.raises(FatalError, match="42501"):
            await preflight(ground.server(database=database), SystemClock())
        ground.postgres.execute("GRANT USAGE ON SCHEMA sfn TO guarded", database)
        ground.postgres.execute("GRANT ALL ON sfn.version TO guarded", database)
        with pytest.raises(FatalError, match="none to audit, audit_id_seq, catalog"):
            await preflight(ground.server(database=database), SystemClock())


async def test_a_database_in_which_nothing_may_be_made_is_refused(ground: Ground) -> None:
    with ground.postgres.database() as database, pytest.raises(FatalError, match="GRANT CREATE ON DATABASE"):
        await preflight(ground.server(database=database), SystemClock())


async def test_a_database_that_does_not_hold_every_text_is_refused(ground: Ground) -> None:
    ground.postgres.execute("CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(FatalError, match="ENCODING 'UTF8'"):
        await started(PostgresServer(ground.postgres.dsn("narrow")))
