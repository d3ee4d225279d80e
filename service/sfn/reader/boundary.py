"""The files that a table's metadata names, opened only where the reader of its directory may be led."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.reader.files import FileSystem, run_synchronously
from sfn.reader.trust import AllowedLocations


@dataclass(frozen=True, slots=True)
class AllowedFiles:
    """A storage whose verbs never suspend, and where its files may lie."""

    file_system: FileSystem
    allowed_locations: AllowedLocations

    def read(self, location: str, most: int, named_by: str) -> bytes | None:
        """A file's first bytes; None where there is no file.

        Raises:
            Unreadable: Unsafe, or of the storage.
        """
        return run_synchronously(self.file_system.read(self.allowed_locations.check_file(location, named_by), most))

    def size(self, location: str, named_by: str) -> int | None:
        """How many bytes a file has; None where there is no file.

        Raises:
            Unreadable: Unsafe, or of the storage.
        """
        return run_synchronously(self.file_system.size(self.allowed_locations.check_file(location, named_by)))
