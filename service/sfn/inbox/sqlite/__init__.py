"""The inbox in a SQLite file: durable, for one process."""

from sfn.inbox.sqlite.inbox import SqliteInbox
from sfn.inbox.sqlite.lock import held_by

__all__ = ["SqliteInbox", "held_by"]
