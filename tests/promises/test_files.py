"""What a reader may rely on, whatever its files lie on. None of it needs an event loop."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem
from typing_extensions import override

from sfn.reader.files import FileSystem, InMemoryFileSystem, LocalFileSystem, RoutedFileSystem, run_synchronously
from sfn.reader.remote_files import FsspecFileSystem
from tests.promises.processes import plant_file

T = TypeVar("T")


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


@pytest.fixture(name="ground", params=list(ADAPTERS))
def fixture_ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return ADAPTERS[request.param](tmp_path)


def now(work: Coroutine[Any, Any, T]) -> T:
    return run_synchronously(work)


def test_missing_file_is_not_an_error(ground: Ground) -> None:
    assert now(ground.files.read(ground.key, 10)) is None
    assert now(ground.files.list(ground.folder, 10)) == []
    assert now(ground.files.size(ground.key)) is None
    assert not now(ground.files.is_folder(ground.folder.rstrip("/")))


def test_file_is_read_from_any_offset(ground: Ground) -> None:
    ground.plant(ground.key, b"0123456789")
    assert now(ground.files.read(ground.key, 100)) == b"0123456789"
    assert now(ground.files.read(ground.key, 10)) == b"0123456789"
    assert now(ground.files.read(ground.key, 3)) == b"012"
    assert now(ground.files.read(ground.key, 3, 4)) == b"456"
    assert now(ground.files.read(ground.key, 100, 7)) == b"789"
    assert now(ground.files.read(ground.key, 100, 10)) == b""
    assert now(ground.files.read(ground.key, 100, 99)) == b""
    assert now(ground.files.size(ground.key)) == 10


def test_empty_file_exists(ground: Ground) -> None:
    ground.plant(ground.key, b"")
    assert now(ground.files.read(ground.key, 10)) == b""
    assert now(ground.files.size(ground.key)) == 0
    assert now(ground.files.list(ground.folder, 10)) == [ground.key]


def test_folder_is_not_a_file(ground: Ground) -> None:
    ground.plant(ground.key, b"1")
    folder = ground.folder.rstrip("/")
    assert now(ground.files.size(folder)) is None
    assert now(ground.files.is_folder(folder))
    assert not now(ground.files.is_folder(ground.key))


def test_listing_is_sorted_and_limited(ground: Ground) -> None:
    names = ["b.ver", "a_b.ver", "B.ver", "a%5Fb.ver", "a.ver", "ä.ver"]
    for name in names:
        ground.plant(ground.folder + name, b"")
    expected = sorted(ground.folder + name for name in names)
    assert now(ground.files.list(ground.folder, 100)) == expected
    assert now(ground.files.list(ground.folder, 2)) == expected[:2]


def test_listing_covers_one_folder_only(ground: Ground) -> None:
    metadata = ground.folder.removesuffix("_sfn/")
    for key in (ground.key, f"{metadata}version-hint.text", f"{metadata}_sfn_other.ver", f"{ground.folder}deep/x.ver"):
        ground.plant(key, b"1")
    files = [key for key in now(ground.files.list(ground.folder, 10)) if key.endswith(".ver")]
    assert files == [ground.key]


def test_listing_is_not_cached(ground: Ground) -> None:
    ground.plant(ground.key, b"1")
    now(ground.files.list(ground.folder, 10))
    ground.plant(f"{ground.folder}a.ver", b"1")
    assert now(ground.files.list(ground.folder, 10)) == [f"{ground.folder}a.ver", ground.key]


@pytest.mark.parametrize(
    "name", ["a_b", "a%5Fb", "%2E%2e%2F", "sp ace", "größe_表_🧊", "a" * 100 + "~" + "b" * 99, "~", "%"]
)
def test_special_characters_in_keys_are_preserved(ground: Ground, name: str) -> None:
    key = f"{ground.folder}{name}.ver"
    ground.plant(key, name.encode())
    assert now(ground.files.read(key, 1_000)) == name.encode()
    assert now(ground.files.list(ground.folder, 10)) == [key]
