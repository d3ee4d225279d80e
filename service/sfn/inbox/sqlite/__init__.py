"""The inbox in a SQLite file: durable, for one process."""

from sfn.inbox.sqlite.inbox import SqliteInbox
from sfn.inbox.sqlite.lock import held_by
from sfn.inbox.sqlite.place import Doubt, placed

__all__ = ["Doubt", "SqliteInbox", "held_by", "placed"]
