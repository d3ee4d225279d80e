"""PyIceberg's access to files through the drivers, and with the options, that a directory was opened with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecInputFile
from pyiceberg.typedef import Properties
from typing_extensions import override

from sfn.pointer.location import canonical
from sfn.reader.remote import FsspecFiles


class OpenedIO(FileIO):
    """Reads, and refuses to write.

    Args:
        properties: PyIceberg's, passed over.
        scheme: of the URLs that the options are for.
        options: fsspec's `storage_options`.
    """

    def __init__(self, properties: Properties, scheme: str, options: Mapping[str, Any]) -> None:
        super().__init__(properties)
        self._made_of = (properties, scheme, dict(options))
        self._files = FsspecFiles(scheme, options)

    @override
    def new_input(self, location: str) -> FsspecInputFile:
        driver, path = self._files.at(canonical(location))
        return FsspecInputFile(path, driver)

    @override
    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"a table read from its directory is read only: {location}")

    @override
    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError("a table read from its directory is read only")

    @override
    def __reduce__(self) -> tuple[type[OpenedIO], tuple[Any, ...]]:
        """Engines send tables to other processes; open drivers can't be sent."""
        return type(self), self._made_of
