"""What a reader's promises are tried on: files of each kind, and somebody who puts them there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from fsspec.implementations.memory import MemoryFileSystem

from sfn.reader.files import Storage
from sfn.reader.local import LocalFiles
from sfn.reader.memory import MemoryFiles
from sfn.reader.opening import Anywhere
from sfn.reader.remote import FsspecFiles
from tests.promises.stores import plant_file


@dataclass(frozen=True, slots=True)
class Ground:
    """Files, and a folder that does not exist yet.

    Attributes:
        files: what reads.
        folder: its URL, with a slash at its end.
        plant: puts a content at a key.
    """

    files: Storage
    folder: str
    plant: Callable[[str, bytes], None]

    @property
    def key(self) -> str:
        """A file in the folder."""
        return f"{self.folder}sales_orders_main.ver"


def memory(_: Path) -> Ground:
    bodies: dict[str, bytes] = {}
    return Ground(MemoryFiles(bodies), "s3://lake/orders/metadata/_sfn/", bodies.__setitem__)


def local(folder: Path) -> Ground:
    return Ground(LocalFiles(), f"file://{folder}/metadata/_sfn/", plant_file)


def local_by_fsspec(folder: Path) -> Ground:
    return Ground(FsspecFiles("file", {}), f"file://{folder}/metadata/_sfn/", plant_file)


def memory_by_fsspec(_: Path) -> Ground:
    return Ground(FsspecFiles("memory", {}), f"memory://{uuid4()}/orders/metadata/_sfn/", _plant_in_memory)


def local_by_its_url(folder: Path) -> Ground:
    return Ground(Anywhere("file", {}), f"file://{folder}/metadata/_sfn/", plant_file)


def memory_by_its_url(_: Path) -> Ground:
    return Ground(Anywhere("memory", {}), f"memory://{uuid4()}/orders/metadata/_sfn/", _plant_in_memory)


ADAPTERS: Mapping[str, Callable[[Path], Ground]] = {
    make.__name__: make
    for make in (memory, local, local_by_fsspec, memory_by_fsspec, local_by_its_url, memory_by_its_url)
}


def _plant_in_memory(key: str, body: bytes) -> None:
    MemoryFileSystem().pipe_file(key, body)
