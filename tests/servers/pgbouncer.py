"""PgBouncer in transaction mode: a connection's statements run in whichever session of PostgreSQL is free."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from tests.servers.found import found
from tests.servers.postgres import USER, Postgres, is_ready, query
from tests.servers.process import Server
from tests.servers.user import AS_LESSER, give

SESSIONS = 4
"""How many a database has: few, so that clients share them."""

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
    """The pooler in front of a server, for all its databases."""

    title = "PgBouncer"

    def __init__(self, postgres: Postgres) -> None:
        self._program = found("SFN_PGBOUNCER")
        self._programs = found("SFN_POSTGRES")
        super().__init__()
        self._settings = self.folder / "pgbouncer.ini"
        self._settings.write_text(SETTINGS.format(postgres=postgres.port, user=USER, port=self.port, sessions=SESSIONS))
        give(self.folder)

    def dsn(self, database: str) -> str:
        """Where a database is, as a URL."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str) -> str:
        """As PostgreSQL's; the database `pgbouncer` is its own console."""
        return query(self._programs, self.dsn(database), statement)

    @override
    def _command(self) -> Sequence[str | Path]:
        return [*AS_LESSER, self._program, self._settings]

    @override
    def _answers(self) -> bool:
        return is_ready(self._programs, self.port)
