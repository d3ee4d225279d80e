"""The inbox in a SQLite file: durable, for one process."""

from sfn.inbox.sqlite.database_file import Doubt, held_by, placed
from sfn.inbox.sqlite.inbox import SqliteInbox

__all__ = ["Doubt", "SqliteInbox", "held_by", "placed"]
