"""The inbox in a PostgreSQL database: durable, for any number of processes.

Start with `inbox.PostgresInbox`. `job_queue` collects the calls of one process into batches, each one transaction;
`operations`, `apply_puts`, `claiming` and `settling` say what happens in it, over the port
`transaction.InboxTransaction`. `tables.SqlTransaction` implements this port in SQL, and `driver` speaks to the
database. `notify_listener` wakes other processes.

The driver asyncpg is an optional dependency, so it is imported only when a database is opened.
"""

from sfn.inbox.postgres.database import PreflightResult, preflight
from sfn.inbox.postgres.inbox import PostgresInbox
from sfn.inbox.postgres.server import PostgresServer

__all__ = ["PostgresInbox", "PostgresServer", "PreflightResult", "preflight"]
