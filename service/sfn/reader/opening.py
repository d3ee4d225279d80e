"""How the files of a directory are opened: those of this machine by ourselves, all others by fsspec's drivers."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sfn.reader.files import FileSystem
from sfn.reader.local import LocalFileSystem
from sfn.sfnfile.locations import scheme_of

if TYPE_CHECKING:
    from sfn.reader.remote import FsspecFileSystem


@dataclass(frozen=True, slots=True)
class FileSystemOptions:
    """What opens a directory.

    Attributes:
        url: the directory's canonical URL.
        options: what fsspec's driver for its scheme is given; may hold secrets.
        allowed: canonical prefixes that files may lie below, beside the directory; empty for no restriction.
    """

    url: str = "file:///"
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    allowed: tuple[str, ...] = ()

    def open_file_system(self) -> FileSystem:
        """Its files, and those that they lead to."""
        return RoutedFileSystem(scheme_of(self.url), self.options, LocalFileSystem(self.url, self.allowed))


class RoutedFileSystem:
    """The `FileSystem` of this machine and of whatever fsspec has a driver for.

    Args:
        scheme: of the URLs that the options are for.
        options: fsspec's `storage_options`.
        local: the files of this machine; any of them without one.
    """

    def __init__(self, scheme: str, options: Mapping[str, Any], local: LocalFileSystem | None = None) -> None:
        self._scheme, self._options, self._local = scheme, options, local or LocalFileSystem()
        self._others: FsspecFileSystem | None = None

    def read(self, key: str, most: int, start: int = 0) -> Coroutine[Any, Any, bytes | None]:
        return self._file_system_of(key).read(key, most, start)

    def list(self, prefix: str, limit: int) -> Coroutine[Any, Any, list[str]]:
        return self._file_system_of(prefix).list(prefix, limit)

    def size(self, key: str) -> Coroutine[Any, Any, int | None]:
        return self._file_system_of(key).size(key)

    def is_folder(self, url: str) -> Coroutine[Any, Any, bool]:
        return self._file_system_of(url).is_folder(url)

    def _file_system_of(self, key: str) -> FileSystem:
        if key.startswith("file:"):
            return self._local
        if self._others is None:
            # A notebook that reads files of its own machine does not wait for fsspec.
            from sfn.reader.remote import FsspecFileSystem

            self._others = FsspecFileSystem(self._scheme, self._options)
        return self._others
