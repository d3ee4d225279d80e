"""PyIceberg's access to files, with the options that a directory was opened with, limited to allowed places."""

from __future__ import annotations

from collections.abc import Mapping
from io import BufferedReader, BytesIO
from typing import Any, Final

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecInputFile
from pyiceberg.typedef import Properties
from typing_extensions import override

from sfn.errors import MalformedMetadata, NotFound, NotInstalled, NotSupported
from sfn.reader.avro_check import check_avro, patch_doubles, patch_nan
from sfn.reader.files import LocalFileSystem, run_synchronously
from sfn.reader.metadata import AllowedLocations
from sfn.reader.remote_files import FsspecFileSystem
from sfn.reader.table import AllowedFiles
from sfn.sfnfile.locations import canonical, scheme_of

MAX_MANIFEST_SIZE: Final = 256 << 20
"""The maximum size of a manifest list or manifest in bytes."""

_MANIFEST_EXTENSION: Final = ".avro"
"""The extension of manifest lists and manifests. PyIceberg reads no data files with this extension."""

_HERE: Final = "file://"

patch_doubles()
patch_nan()


class OpenedIO(FileIO):
    """Read-only access through fsspec.

    Args:
        properties: PyIceberg's properties, which are ignored.
        scheme: the URL scheme that the options are for.
        options: fsspec's `storage_options`.
    """

    def __init__(self, properties: Properties, scheme: str, options: Mapping[str, Any]) -> None:
        super().__init__(properties)
        self._arguments = (properties, scheme, dict(options))
        self._files = FsspecFileSystem(scheme, options)

    @override
    def new_input(self, location: str) -> FsspecInputFile:
        driver, path = self._files.driver_for(canonical(location))
        return FsspecInputFile(path, driver)

    @override
    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"a table read from its directory is read only: {location}")

    @override
    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError("a table read from its directory is read only")

    @override
    def __reduce__(self) -> tuple[type[OpenedIO], tuple[Any, ...]]:
        """Support pickling: engines send tables to other processes, but open drivers can't be sent."""
        return type(self), self._arguments


class CheckedIO(FileIO):
    """Access to files that checks manifests before PyIceberg decodes them.

    Args:
        inner: the access that opens the files.
    """

    def __init__(self, inner: FileIO) -> None:
        super().__init__(inner.properties)
        self._inner = inner

    @override
    def new_input(self, location: str) -> InputFile:
        """Open a file.

        Raises:
            MalformedMetadata: it is a manifest list or manifest that can't be decoded.
            NotInstalled: a package is missing to decode it.
        """
        found = self._inner.new_input(location)
        if not location.endswith(_MANIFEST_EXTENSION):
            return found
        with found.open() as stream:
            return _BytesInput(
                location, _check_manifest(location, stream.read(), "`sfn verify --deep` lists broken files")
            )

    @override
    def new_output(self, location: str) -> OutputFile:
        return self._inner.new_output(location)

    @override
    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._inner.delete(location)


class BoundedIO(CheckedIO):
    """`CheckedIO` that refuses files in places that are not allowed.

    Args:
        inner: the access that opens the files.
        allowed_locations: the allowed places.
        named_by: the metadata file.
    """

    def __init__(self, inner: FileIO, allowed_locations: AllowedLocations, named_by: str) -> None:
        super().__init__(inner)
        self._allowed_locations, self._named_by = allowed_locations, named_by

    @override
    def new_input(self, location: str) -> InputFile:
        """Open a file.

        Raises:
            Unsafe: it lies in a place that is not allowed.
            MalformedMetadata, NotInstalled: as for `CheckedIO.new_input`.
        """
        place = self._allowed_locations.check_file(location, self._named_by)
        if self._allowed_locations.allowed and scheme_of(place) == "file":
            # PyIceberg would follow links that lead out of the allowed places.
            local = _LocalInput(
                place, LocalFileSystem(self._allowed_locations.directory, self._allowed_locations.allowed)
            )
            return (
                _BytesInput(location, _check_manifest(location, local.whole()))
                if location.endswith(_MANIFEST_EXTENSION)
                else local
            )
        # In a file: URL PyIceberg ends the path at a `#` or `?`; in a plain path these signs are part of the name.
        return super().new_input(place.removeprefix(_HERE) if place.startswith(_HERE) else place)


class MetadataIO(FileIO):
    """Read-only access to manifest lists and manifests, with the reader's own errors.

    Args:
        files: access to allowed files.
        named_by: the file that names them.
    """

    def __init__(self, files: AllowedFiles, named_by: str) -> None:
        super().__init__()
        self._files, self._named_by = files, named_by

    @override
    def new_input(self, location: str) -> InputFile:
        """Open a file.

        Raises:
            NotFound: it does not exist.
            MalformedMetadata: it is larger than `MAX_MANIFEST_SIZE`, or can't be decoded.
            NotInstalled: a package is missing to decode it.
            Unreadable: its location is not allowed (Unsafe), or the file system reports an error.
        """
        body = self._files.read(location, MAX_MANIFEST_SIZE + 1, self._named_by)
        if body is None:
            raise NotFound(location, expected="a file that the table's metadata names", found="no such file")
        if len(body) > MAX_MANIFEST_SIZE:
            raise MalformedMetadata(location, expected=f"at most {MAX_MANIFEST_SIZE >> 20} MiB", found="more")
        return _BytesInput(location, _check_manifest(location, body))

    @override
    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"metadata is read only: {location}")

    @override
    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError("metadata is read only")


def _check_manifest(location: str, body: bytes, remedy: str = "") -> bytes:
    try:
        check_avro(body)
    except MemoryError:
        raise
    except ImportError as error:
        # PyIceberg depends on the packages of all its compressions except Snappy.
        remedy = "pip install 'pyiceberg[snappy]'"
        raise NotInstalled(location, expected="a supported compression", found=str(error), remedy=remedy) from error
    except NotImplementedError as error:
        expected = "values that all writers write alike"
        remedy = "read the table with PySpark and engine='iceberg'"
        raise NotSupported(location, expected=expected, found=f"{error}", remedy=remedy) from error
    except Exception as error:  # decoders raise errors of any type
        found = f"{type(error).__name__}: {error}"[:300]
        raise MalformedMetadata(location, expected="a whole Avro file", found=found, remedy=remedy) from error
    return body


class _LocalInput(InputFile):
    """A local file in an allowed place.

    Args:
        location: a `file://` URL in which no character has a special meaning.
        files: the file system.
    """

    def __init__(self, location: str, files: LocalFileSystem) -> None:
        super().__init__(location)
        self._files = files

    @override
    def __len__(self) -> int:
        return run_synchronously(self._files.size(self.location)) or 0

    @override
    def exists(self) -> bool:
        return run_synchronously(self._files.size(self.location)) is not None

    @override
    def open(self, seekable: bool = True) -> BufferedReader:
        return self._files.open_file(self.location)

    def whole(self) -> bytes:
        """Return the whole file."""
        with self.open() as stream:
            return stream.read()


class _BytesInput(InputFile):
    """A file in memory."""

    def __init__(self, location: str, body: bytes) -> None:
        super().__init__(location)
        self._body = body

    @override
    def __len__(self) -> int:
        return len(self._body)

    @override
    def exists(self) -> bool:
        return True

    @override
    def open(self, seekable: bool = True) -> BytesIO:
        return BytesIO(self._body)
