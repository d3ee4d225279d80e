"""The inbox in memory: for tests, and to say in few lines what an inbox is. Nothing of it outlives the process."""

from sfn.inbox.memory.inbox import MemoryInbox

__all__ = ["MemoryInbox"]
