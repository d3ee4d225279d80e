"""The service with an inbox in PostgreSQL."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from signal import SIGKILL, SIGTERM

import anyio
import anyio.to_thread
import pytest
import trustme

from sfn.cli.check_config import Severity, inbox_finding
from sfn.clock import SystemClock
from sfn.errors import FatalError, SfnError, Transient
from sfn.extras import install_command
from sfn.inbox.model import InboxConfig
from sfn.inbox.postgres import PostgresInbox, connected, preflight, prepare_database
from sfn.inbox.postgres_server import PostgresServer
from sfn.inbox.schema import POSTGRES_MIGRATIONS
from sfn.settings import load
from tests.integration.test_service_process import Writer
from tests.servers.postgres import Postgres
from tests.servers.process import give
from tests.support.processes import until
from tests.support.service import Daemon, serving
from tests.support.shared_inboxes import fill, stored

# ── Two services on one inbox

ADMIN = {"SFN_ADMIN__TOKEN": "an-operators-token"}
OPERATOR = {"Authorization": "Bearer an-operators-token"}


@pytest.fixture(name="writer")
def fixture_writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


@asynccontextmanager
async def services(writer: Writer, dsn: str) -> AsyncGenerator[tuple[Daemon, Daemon]]:
    """Yield two processes with the same configuration and short leases."""
    configuration, surroundings = writer.configure(), {**ADMIN, "SFN_INBOX__URL": dsn, "SFN_WORKER__LEASE": "3s"}
    async with serving(configuration, surroundings) as first, serving(configuration, surroundings) as second:
        yield first, second


async def test_a_service_publishes_what_another_one_accepted(writer: Writer, postgres: Postgres, database: str) -> None:
    dsn = postgres.dsn(database)
    async with services(writer, dsn) as (first, second):
        before = writer.commit("orders", "u1")
        await first.tell("orders", operation="create", metadata_location=before)
        await until(lambda: writer.published("orders", "orders") == before)
        first.send(SIGKILL)
        assert await first.ended() == -SIGKILL
        after = writer.commit("orders", "u1")
        await second.tell("orders", metadata_location=after)
        # If the first one had the job then, its lease expires first.
        await until(lambda: writer.published("orders", "orders") == after)
        metrics = (await second.client.get("/metrics")).text
        assert "sfn_inbox_answers 1.0" in metrics
        assert "sfn_inbox_bytes{" not in metrics
        second.send(SIGTERM)
        assert await second.ended() == 0
    assert await stored(dsn, "SELECT state FROM sfn.job WHERE catalog = 'hive'") == ["queued"]


async def test_a_catalog_that_is_retired_in_one_service_is_retired_in_the_other(
    writer: Writer, postgres: Postgres, database: str
) -> None:
    async with services(writer, postgres.dsn(database)) as (first, second):
        answer = await first.client.post("/admin/v1/catalogs/hive:retire", headers=OPERATOR)
        assert answer.is_success, answer.text
        with anyio.fail_after(10):
            while not await retires(second):  # noqa: ASYNC110 - no event crosses processes
                await anyio.sleep(0.2)


async def retires(daemon: Daemon) -> bool:
    """Return whether a service reports the catalog as retired."""
    status = (await daemon.client.get("/admin/v1/status", headers=OPERATOR)).json()
    (catalog,) = status["catalogs"]
    return bool(catalog["retired"])


async def test_a_check_of_the_configuration_leaves_nothing_in_the_database(
    writer: Writer, postgres: Postgres, database: str
) -> None:
    configuration = writer.configure()
    settings = load(configuration, {"SFN_INBOX__URL": postgres.dsn(database)})
    holder, found = await inbox_finding(settings)
    assert (holder, found.where) == (None, "inbox")
    assert f"/{database}: PostgreSQL " in found.text
    assert "its tables will be created" in found.text
    # The server of the tests may lose commits.
    assert (found.severity, "fsync" in found.remedy) == (Severity.WARNING, True)
    assert await stored(postgres.dsn(database), "SELECT count(*) FROM pg_namespace WHERE nspname = 'sfn'") == [0]
    settings = load(configuration, {"SFN_INBOX__URL": "postgresql://sfn:s3cret@127.0.0.1:1/sfn"})
    _, found = await inbox_finding(settings)
    assert found.severity is Severity.ERROR
    assert "s3cret" not in f"{found} {settings!r}"


# ── Start

PHRASE, ENCODED = "s3cret-&-w0rd", "s3cret-%26-w0rd"
ACCESS = """
hostssl all guarded 127.0.0.1/32 scram-sha-256
hostnossl all guarded 127.0.0.1/32 reject
host all all 127.0.0.1/32 trust
"""


@dataclass(frozen=True, slots=True)
class Ground:
    """A server with TLS, and a user with a password."""

    postgres: Postgres
    database: str
    root: Path
    authority: trustme.CA

    def server(
        self, password: str = ENCODED, *, database: str = "", more: str = "", host: str = "localhost"
    ) -> PostgresServer:
        """Return the address of the server."""
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
            yield Ground(postgres, database, root, authority)


async def started(server: PostgresServer) -> None:
    """Start, and accept an event."""
    async with PostgresInbox.opened(server, InboxConfig(), SystemClock()) as inbox:
        await fill(inbox, 1)


async def refused(server: PostgresServer) -> SfnError:
    """Return the error of a start, which comes in time."""
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


async def test_a_server_without_tls_ends_a_start_that_requires_it(postgres: Postgres, database: str) -> None:
    error = await refused(PostgresServer(f"{postgres.dsn(database)}?sslmode=require"))
    assert (type(error), "ssl = on" in error.remedy) == (FatalError, True)


async def test_a_password_file_is_read_for_each_connection(ground: Ground, tmp_path: Path) -> None:
    file = tmp_path / "password"
    server = PostgresServer(ground.server("").url, file)
    assert "inbox.password_file" in (await refused(server)).remedy
    file.write_text("s3cret-old\n")
    assert "28P01" in str(await refused(server))
    file.write_text(f"{PHRASE}\n")
    await started(server)


async def test_a_password_that_changes_while_the_service_runs_is_read_again(ground: Ground, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(PHRASE)
    async with PostgresInbox.opened(PostgresServer(ground.server("").url, file), InboxConfig(), SystemClock()) as inbox:
        file.write_text("s3cret-old")
        ground.postgres.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'guarded'"
        )
        # The process learns that its connections ended.
        await anyio.sleep(0.1)
        with pytest.raises(Transient, match="28P01") as waiting:
            await fill(inbox, 1)
        assert waiting.value.retry_after == 1.0
        file.write_text(PHRASE)
        await anyio.sleep(0.3)
        await fill(inbox, 1)


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
async def test_a_connection_is_as_secure_as_its_url_requires(ground: Ground, mode: str) -> None:
    known = f"?sslmode={mode}&sslrootcert={ground.root}"
    await started(ground.server(more=known))
    if mode == "verify-full":
        error = await refused(ground.server(more=known, host="127.0.0.1"))
        assert (type(error), "mismatch" in error.found, "as its certificate does" in error.remedy) == (
            FatalError,
            True,
            True,
        )


@pytest.mark.parametrize("root", ["system", "/nowhere/root.pem"])
async def test_an_untrusted_certificate_ends_a_start(ground: Ground, root: str) -> None:
    error = await refused(ground.server(more=f"?sslmode=verify-full&sslrootcert={root}"))
    assert (type(error), "(untrusted)" in error.found, "sslrootcert" in error.remedy) == (FatalError, True, True)


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
async def test_a_missing_root_certificate_is_named(
    ground: Ground, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    error = await refused(ground.server(more=f"?sslmode={mode}"))
    assert error.found == "sslmode verifies the server, but sslrootcert is missing (untrusted)"
    assert "set sslrootcert" in error.remedy


async def test_an_expired_certificate_is_not_taken_for_an_untrusted_one(ground: Ground) -> None:
    data = ground.postgres.folder / "data"
    valid, key = (data / "chain.pem").read_bytes(), (data / "key.pem").read_bytes()
    expired = ground.authority.issue_cert("localhost", not_after=datetime(2001, 1, 1, tzinfo=UTC))
    try:
        (data / "chain.pem").write_bytes(expired.cert_chain_pems[0].bytes())
        (data / "key.pem").write_bytes(expired.private_key_pem.bytes())
        ground.postgres.execute("SELECT pg_reload_conf()")
        error = await refused(ground.server(more=f"?sslmode=verify-full&sslrootcert={ground.root}"))
    finally:
        (data / "chain.pem").write_bytes(valid)
        (data / "key.pem").write_bytes(key)
        ground.postgres.execute("SELECT pg_reload_conf()")
    assert ("expired" in error.found, "renew" in error.remedy) == (True, True)


async def test_a_connection_without_tls_is_refused_by_a_server_that_requires_it(ground: Ground) -> None:
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
async def test_a_start_gives_up_a_server_that_never_answers(*, listens: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        if not listens:
            silent.close()
        server = PostgresServer(f"postgresql://user@127.0.0.1:{port}/none?connect_timeout=1")
        with anyio.fail_after(5), pytest.raises(Transient, match="unreachable"):
            async with connected(server) as runner:
                await prepare_database(runner, max_wait=1)


async def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    script = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "import anyio\n"
        "from sfn.inbox.postgres import preflight\n"
        "from sfn.inbox.postgres_server import PostgresServer\n"
        "from sfn.clock import SystemClock\n"
        "anyio.run(preflight, PostgresServer('postgresql://a:s3cret@b/c'), SystemClock())\n"
    )
    ran = await anyio.run_process([sys.executable, "-c", script], check=False)
    text = ran.stderr.decode()
    assert "postgresql://a@b/c: expected the package asyncpg" in text
    assert install_command("postgres") in text
    assert "s3cret" not in text


async def test_preflight_reports_the_facts_and_changes_nothing(ground: Ground) -> None:
    with ground.postgres.database() as database:
        found = await preflight(PostgresServer(ground.postgres.dsn(database)), SystemClock())
        assert (found.version, found.is_pooled, found.is_durable, found.others) == (0, False, False, 0)
        assert abs(found.ahead) < timedelta(seconds=2)
        assert found.server.startswith(ground.postgres.execute("SHOW server_version")[:2])
        assert ground.postgres.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'sfn'", database) == "0"
        async with PostgresInbox.opened(PostgresServer(ground.postgres.dsn(database)), InboxConfig(), SystemClock()):
            found = await preflight(PostgresServer(ground.postgres.dsn(database)), SystemClock())
            assert (found.version, found.others) == (len(POSTGRES_MIGRATIONS), 1)
        with pytest.raises(FatalError, match="42501"):
            await preflight(ground.server(database=database), SystemClock())
        ground.postgres.execute("GRANT USAGE ON SCHEMA sfn TO guarded", database)
        ground.postgres.execute("GRANT ALL ON sfn.version TO guarded", database)
        with pytest.raises(FatalError, match="no right to audit, cache, catalog"):
            await preflight(ground.server(database=database), SystemClock())


async def test_a_database_without_the_right_to_create_a_schema_is_refused(ground: Ground) -> None:
    with ground.postgres.database() as database, pytest.raises(FatalError, match="GRANT CREATE ON DATABASE"):
        await preflight(ground.server(database=database), SystemClock())


async def test_a_database_with_another_encoding_is_refused(ground: Ground) -> None:
    ground.postgres.execute("CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(FatalError, match="ENCODING 'UTF8'"):
        await started(PostgresServer(ground.postgres.dsn("narrow")))
