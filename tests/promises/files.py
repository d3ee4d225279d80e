"""What a reader's promises are tried on: files of each kind, and somebody who puts them there."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem
from typing_extensions import override

from sfn.reader.files import FileSystem, InMemoryFileSystem, LocalFileSystem, RoutedFileSystem
from sfn.reader.remote_files import FsspecFileSystem
from tests.promises.stores import plant_file


@dataclass(frozen=True, slots=True)
class Ground:
    """Files, and a folder that does not exist yet.

    Attributes:
        files: what reads.
        folder: its URL, with a slash at its end.
        plant: puts a content at a key.
    """

    files: FileSystem
    folder: str
    plant: Callable[[str, bytes], None]

    @property
    def key(self) -> str:
        """A file in the folder."""
        return f"{self.folder}sales_orders_main.ver"


def memory(_: Path) -> Ground:
    bodies: dict[str, bytes] = {}
    return Ground(InMemoryFileSystem(bodies), "s3://lake/orders/metadata/_sfn/", bodies.__setitem__)


def local(folder: Path) -> Ground:
    return Ground(LocalFileSystem(), f"file://{folder}/metadata/_sfn/", plant_file)


def local_by_fsspec(folder: Path) -> Ground:
    return Ground(FsspecFileSystem("file", {}), f"file://{folder}/metadata/_sfn/", plant_file)


def memory_by_fsspec(_: Path) -> Ground:
    return Ground(FsspecFileSystem("memory", {}), f"memory://{uuid4()}/orders/metadata/_sfn/", _plant_in_memory)


def local_by_its_url(folder: Path) -> Ground:
    return Ground(RoutedFileSystem("file", {}), f"file://{folder}/metadata/_sfn/", plant_file)


def memory_by_its_url(_: Path) -> Ground:
    return Ground(RoutedFileSystem("memory", {}), f"memory://{uuid4()}/orders/metadata/_sfn/", _plant_in_memory)


class ObjectStore(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A driver of a store that refuses a range which begins where the object ends."""

    @override
    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        body = bytes(super().cat_file(path))
        if (start or 0) >= len(body):
            raise self.beyond()
        return body[start:end]

    @classmethod
    def beyond(cls) -> Exception:
        """What the driver raises then."""
        raise NotImplementedError

    @classmethod
    @override
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace(f"{cls.protocol}://", "memory://")))


class AsS3fs(ObjectStore):
    """As s3fs: the status is in the cause alone."""

    protocol = "as-s3fs"

    @classmethod
    @override
    def beyond(cls) -> Exception:
        error = OSError(errno.EINVAL, "The requested range is not satisfiable")
        error.__cause__ = s3_error("InvalidRange", 416)
        return error


class HttpError(Exception):
    """As gcsfs's own."""

    code = 416


class AsGcsfs(ObjectStore):
    """As gcsfs."""

    protocol = "as-gcsfs"

    @classmethod
    @override
    def beyond(cls) -> Exception:
        return HttpError("Request range not satisfiable, 416")


def s3_error(code: str, status: int) -> ClientError:
    """What S3 says, as botocore hands it on."""
    answer: Any = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "GetObject")


def as_s3fs(_: Path) -> Ground:
    register_implementation("as-s3fs", AsS3fs, clobber=True)
    return Ground(FsspecFileSystem("as-s3fs", {}), f"as-s3fs://{uuid4()}/orders/metadata/_sfn/", AsS3fs().pipe_file)


def as_gcsfs(_: Path) -> Ground:
    register_implementation("as-gcsfs", AsGcsfs, clobber=True)
    return Ground(FsspecFileSystem("as-gcsfs", {}), f"as-gcsfs://{uuid4()}/orders/metadata/_sfn/", AsGcsfs().pipe_file)


ADAPTERS: Mapping[str, Callable[[Path], Ground]] = {
    make.__name__: make
    for make in (
        memory,
        local,
        local_by_fsspec,
        memory_by_fsspec,
        local_by_its_url,
        memory_by_its_url,
        as_s3fs,
        as_gcsfs,
    )
}


def _plant_in_memory(key: str, body: bytes) -> None:
    MemoryFileSystem().pipe_file(key, body)
