"""PyIceberg's access to files: through the drivers, and with the options, that a directory was opened with, and only
where its reader may be led.
"""

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
"""Bytes of a file of metadata that is read."""

_MANIFEST_EXTENSION: Final = ".avro"
"""How the names of manifest lists and manifests end. Data files that end so are none that PyIceberg reads."""

_HERE: Final = "file://"

patch_doubles()
patch_nan()


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
        """Engines send tables to other processes; open drivers can't be sent."""
        return type(self), self._made_of


class CheckedIO(FileIO):
    """Another access to files, whose manifests are checked before PyIceberg decodes them.

    Args:
        inner: which one.
    """

    def __init__(self, inner: FileIO) -> None:
        super().__init__(inner.properties)
        self._inner = inner

    @override
    def new_input(self, location: str) -> InputFile:
        """The file.

        Raises:
            MalformedMetadata: it is a manifest list or manifest that can't be decoded.
            NotInstalled: nor can it for want of a package.
        """
        found = self._inner.new_input(location)
        if not location.endswith(_MANIFEST_EXTENSION):
            return found
        with found.open() as stream:
            return _BytesInput(
                location, _check_manifest(location, stream.read(), "`sfn verify --deep` lists whatever is broken")
            )

    @override
    def new_output(self, location: str) -> OutputFile:
        return self._inner.new_output(location)

    @override
    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._inner.delete(location)


class BoundedIO(CheckedIO):
    """As `CheckedIO`, and asked for no file that a reader of the directory may not be led to.

    Args:
        inner: which one.
        said_by: the metadata file.
    """

    def __init__(self, inner: FileIO, allowed_locations: AllowedLocations, named_by: str) -> None:
        super().__init__(inner)
        self._allowed_locations, self._named_by = allowed_locations, named_by

    @override
    def new_input(self, location: str) -> InputFile:
        """The file.

        Raises:
            Unsafe: it lies where a reader is not led to.
            MalformedMetadata, NotInstalled: as of `CheckedIO.new_input`.
        """
        place = self._allowed_locations.check_file(location, self._named_by)
        if self._allowed_locations.allowed and scheme_of(place) == "file":
            # Opened by us, as no link may lead out of what is allowed.
            local = _LocalInput(
                place, LocalFileSystem(self._allowed_locations.directory, self._allowed_locations.allowed)
            )
            return (
                _BytesInput(location, _check_manifest(location, local.whole()))
                if location.endswith(_MANIFEST_EXTENSION)
                else local
            )
        # PyIceberg takes a `#` or `?` in a URL of this machine for the end of the path, and in a path for a part of it.
        return super().new_input(place.removeprefix(_HERE) if place.startswith(_HERE) else place)


class MetadataIO(FileIO):
    """Reads manifest lists and manifests: what is missing, too large, broken or not to be followed is its refusal.

    Args:
        said_by: the file that names them.
    """

    def __init__(self, files: AllowedFiles, named_by: str) -> None:
        super().__init__()
        self._files, self._named_by = files, named_by

    @override
    def new_input(self, location: str) -> InputFile:
        """The file.

        Raises:
            NotFound: it is not there.
            MalformedMetadata: it is larger than `MAX_MANIFEST_SIZE`, or can't be decoded.
            NotInstalled: nor can it for want of a package.
            Unreadable: Unsafe, or of the storage.
        """
        body = self._files.read(location, MAX_MANIFEST_SIZE + 1, self._named_by)
        if body is None:
            raise NotFound(location, expected="a file that the table's metadata names", found="no such file")
        if len(body) > MAX_MANIFEST_SIZE:
            raise MalformedMetadata(location, expected=f"at most {MAX_MANIFEST_SIZE >> 20} MiB", found="more")
        return _BytesInput(location, _check_manifest(location, body))

    @override
    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"metadata is only looked at: {location}")

    @override
    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError("metadata is only looked at")


def _check_manifest(location: str, body: bytes, remedy: str = "") -> bytes:
    try:
        check_avro(body)
    except MemoryError:
        raise
    except ImportError as error:
        # Of its compressions PyIceberg brings all packages but Snappy's.
        remedy = "pip install 'pyiceberg[snappy]'"
        raise NotInstalled(location, expected="a compression at hand", found=str(error), remedy=remedy) from error
    except NotImplementedError as error:
        expected = "values that all writers write alike"
        remedy = "read the table with PySpark and engine='iceberg'"
        raise NotSupported(location, expected=expected, found=f"{error}", remedy=remedy) from error
    except Exception as error:  # a decoder raises whatever it stumbles over
        found = f"{type(error).__name__}: {error}"[:300]
        raise MalformedMetadata(location, expected="a whole Avro file", found=found, remedy=remedy) from error
    return body


class _LocalInput(InputFile):
    """A file of this machine, opened where a reader may be led.

    Args:
        location: a `file://` URL in which no character has a special meaning.
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
        """All of it."""
        with self.open() as stream:
            return stream.read()


class _BytesInput(InputFile):
    """A file that was read."""

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
