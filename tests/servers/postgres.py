"""PostgreSQL of the machine's version, and PgBouncer in front of it.

A power cut of the machine would damage the cluster, which is made for the tests. PgBouncer is in transaction mode: each
transaction of a connection runs in any free session of PostgreSQL.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from typing_extensions import override

from tests.servers.process import AS_LESSER, Server, give
from tests.support.programs import found

USER = "postgres"
"""The only user: a superuser without a password."""

WITHOUT_DURABILITY = ("fsync=off", "full_page_writes=off")
CONNECTIONS = 200


class Postgres(Server):
    """The server, over TCP only. A stop is a crash of the server; the next start recovers."""

    title = "PostgreSQL"

    def __init__(self) -> None:
        self._programs = found("SFN_POSTGRES")
        super().__init__()
        self._data = self.folder / "data"

    def dsn(self, database: str = USER) -> str:
        """Return the URL of a database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the name of a new database. It is dropped at the end, also if connections to it are open."""
        name = f"test_{uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield name
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str, database: str = USER) -> str:
        """Run a statement outside any transaction, and return its rows as `query` does."""
        return query(self._programs, self.dsn(database), statement)

    @override
    def start(self) -> None:
        if not self._data.exists():
            give(self.folder)
            options = (f"--username={USER}", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
            if self._run("initdb", *options):
                raise self._trouble("initdb failed")
        super().start()

    @override
    def stop(self) -> None:
        # A killed server would leave processes behind, and shared memory.
        if self._process is not None:
            self._run("pg_ctl", "--mode=immediate", "--wait", "stop")
        super().stop()

    @override
    def _command(self) -> Sequence[str | Path]:
        settings = (
            *("listen_addresses=127.0.0.1", f"port={self.port}", "unix_socket_directories=", "timezone=UTC"),
            *(f"max_connections={CONNECTIONS}", *WITHOUT_DURABILITY),
        )
        return [*AS_LESSER, self._programs / "postgres", "-D", self._data, *(f"--{setting}" for setting in settings)]

    @override
    def _answers(self) -> bool:
        return is_ready(self._programs, self.port)

    def _run(self, program: str, *arguments: str) -> int:
        command: list[str | Path] = [*AS_LESSER, self._programs / program, f"--pgdata={self._data}", *arguments]
        with self.log.open("ab") as log:
            return subprocess.run(command, cwd=self.folder, stdout=log, stderr=log, check=False).returncode


def is_ready(programs: Path, port: int) -> bool:
    """Return True if the server accepts connections."""
    server = ("--host=127.0.0.1", f"--port={port}", f"--username={USER}")
    return subprocess.run([programs / "pg_isready", "--quiet", *server], check=False).returncode == 0


def query(programs: Path, dsn: str, statement: str) -> str:
    """Run a statement by psql, and return its rows: one line each, with `|` between the columns.

    Raises:
        subprocess.CalledProcessError: the statement failed; `stderr` has the error.
    """
    bare = ("--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1")
    command: list[str | Path] = [programs / "psql", *bare, f"--dbname={dsn}", f"--command={statement}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip("\n")


SESSIONS = 4
"""Sessions of a database: few, so that clients share them."""

SETTINGS = """\
[databases]
* = host=127.0.0.1 port={postgres} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 200
"""


class PgBouncer(Server):
    """The pooler in front of all databases of a server."""

    title = "PgBouncer"

    def __init__(self, postgres: Postgres) -> None:
        self._program = found("SFN_PGBOUNCER")
        self._programs = found("SFN_POSTGRES")
        super().__init__()
        self._settings = self.folder / "pgbouncer.ini"
        self._settings.write_text(SETTINGS.format(postgres=postgres.port, user=USER, port=self.port, sessions=SESSIONS))
        give(self.folder)

    def dsn(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str) -> str:
        """Run a statement through the pooler; the database `pgbouncer` is the pooler's own console."""
        return query(self._programs, self.dsn(database), statement)

    @override
    def _command(self) -> Sequence[str | Path]:
        return [*AS_LESSER, self._program, self._settings]

    @override
    def _answers(self) -> bool:
        return is_ready(self._programs, self.port)
