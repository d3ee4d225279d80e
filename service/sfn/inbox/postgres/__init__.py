"""The inbox in a PostgreSQL database: durable, for any number of processes.

The driver is imported only when a database is opened, because it is an extra.
"""

from sfn.inbox.postgres.database import PreflightResult, preflight
from sfn.inbox.postgres.inbox import PostgresInbox
from sfn.inbox.postgres.server import PostgresServer

__all__ = ["PostgresInbox", "PostgresServer", "PreflightResult", "preflight"]
