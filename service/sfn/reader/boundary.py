"""The files that a table's metadata names, opened only where the reader of its directory may be led."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.reader.files import Storage, finish
from sfn.reader.trust import Trust


@dataclass(frozen=True, slots=True)
class Bounded:
    """A storage whose verbs never suspend, and where its files may lie."""

    storage: Storage
    trust: Trust

    def read(self, location: str, most: int, said_by: str) -> bytes | None:
        """A file's first bytes; None where there is no file.

        Raises:
            Unreadable: Unsafe, or of the storage.
        """
        return finish(self.storage.read(self.trust.file(location, said_by), most))

    def size(self, location: str, said_by: str) -> int | None:
        """How many bytes a file has; None where there is no file.

        Raises:
            Unreadable: Unsafe, or of the storage.
        """
        return finish(self.storage.size(self.trust.file(location, said_by)))
