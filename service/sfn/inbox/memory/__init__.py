"""Inbox in memory, for tests, and as a short reference of an inbox. Its content ends with the process."""

from sfn.inbox.memory.inbox import MemoryInbox

__all__ = ["MemoryInbox"]
