"""The inbox in a SQLite file: durable, for one process.

Start with `inbox.SqliteInbox`. One thread owns the connection: `group_commit.GroupCommitter` runs the operations of
`operations.SqliteOperations` in it. All operations that arrive during one transaction share the next one, and its
`fsync`. A caller gets its result after that transaction is on disk.

    apply_puts         puts of notifications                 jobs            rows of jobs, due jobs
    operator_commands  queries and commands of operators     catalogs        state of whole catalogs
    dead_letters, intents, table_index, schema               database_file   lock and place of the file
"""

from sfn.inbox.sqlite.database_file import Doubt, held_by, placed
from sfn.inbox.sqlite.inbox import SqliteInbox

__all__ = ["Doubt", "SqliteInbox", "held_by", "placed"]
