"""Which files are read, and how: decided from what the manifests list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFile, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.delete_file_index import DeleteFileIndex
from pyiceberg.transforms import IdentityTransform

from sfn.spark.files.manifests import is_data_file
from sfn.spark.files.vectors import DeletionVector


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file.

    Attributes:
        path: as the manifests and position deletes spell it.
        size: bytes.
        sequence: of the commit that added it: a delete applies to rows that are not younger.
        records: in it.
        constants: values of columns that the file may lack, by their ids: those that its partition has.
    """

    path: str
    size: int
    sequence: int
    records: int
    constants: Mapping[int, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What is read.

    Attributes:
        plain: data files none of whose rows are deleted.
        with_deletes: those with deleted rows, as far as anybody can tell who has not read the deletes.
        deletes: files of position deletes.
        vectors: by the path of a data file.
        listed_twice: a data file that is listed more than once; empty where there is none.
    """

    plain: Sequence[PlannedFile]
    with_deletes: Sequence[PlannedFile]
    deletes: Sequence[PlannedFile]
    vectors: Mapping[str, DeletionVector]
    listed_twice: str


def plan_read(
    entries: Iterable[ManifestEntry],
    vectors: Mapping[str, DeletionVector],
    specs: Mapping[int, PartitionSpec] | None = None,
) -> ReadPlan:
    """The plan for live files.

    Args:
        entries: of data files and of position deletes; those of vectors are passed over.
        vectors: these.
        specs: the table's, by their ids; None where it has no partitions.
    """
    data: dict[str, ManifestEntry] = {}
    deletes: dict[str, PlannedFile] = {}
    index, twice = DeleteFileIndex(), ""
    for entry in entries:
        file = entry.data_file
        if is_data_file(file):
            twice = file.file_path if file.file_path in data else twice
            data[file.file_path] = entry
        elif file.file_format is FileFormat.PARQUET:
            index.add_delete_file(entry, file.partition)
            deletes[file.file_path] = _to_planned_file(entry)
    plain: list[PlannedFile] = []
    touched: list[PlannedFile] = []
    needed: set[str] = set()
    for path, entry in data.items():
        one = _to_planned_file(entry, (specs or {}).get(entry.data_file.spec_id))
        found = index.for_data_file(one.sequence, entry.data_file, entry.data_file.partition)
        vector = vectors.get(path)
        is_touched = found or (vector is not None and vector.sequence >= one.sequence)
        (touched if is_touched else plain).append(one)
        needed.update(delete.file_path for delete in found)
    return ReadPlan(plain, touched, [deletes[path] for path in sorted(needed)], vectors, twice)


def _to_planned_file(entry: ManifestEntry, spec: PartitionSpec | None = None) -> PlannedFile:
    file = entry.data_file
    constants = {} if spec is None else _constants(file, spec)
    return PlannedFile(
        file.file_path, file.file_size_in_bytes, entry.sequence_number or 0, file.record_count, constants
    )


def _constants(file: DataFile, spec: PartitionSpec) -> dict[int, Any]:
    """The values of the columns that the file is partitioned by and may lack.

    Only the size of a column in the file shows that the file has it: an import may count its values, or
    know its bounds, by the partition alone.
    """
    found = {
        one.source_id: file.partition[number]
        for number, one in enumerate(spec.fields)
        if isinstance(one.transform, IdentityTransform)
    }
    sizes = file.column_sizes or {}
    return {number: value for number, value in found.items() if not sizes.get(number)}
