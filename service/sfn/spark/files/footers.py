"""Whether data files have what columns are found by, where that is in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform

from sfn.errors import SfnError
from sfn.reader.table import unread
from sfn.spark.files.features import refused
from sfn.spark.files.manifests import is_data

_MOST: Final = 100
"""Footers that are read of a table."""
_WIDTH: Final = 16
_FIELD_ID: Final = b"PARQUET:field_id"


def in_doubt(entries: Iterable[ManifestEntry], whole: TableMetadata, schema: Schema) -> dict[str, set[int]]:
    """Data files whose footers are to be looked at, and the ids of columns that must be in there.

    A table with a name mapping may have files without ids, which were imported. A column that a file is partitioned by
    may be missing from it where the manifest counts no values of it, as in a file of Hive's. A commit has one writer,
    so one file stands for all that it added.
    """
    is_mapped = TableProperties.DEFAULT_NAME_MAPPING in whole.properties
    columns = {field.field_id for field in schema.fields}
    by_spec = {number: _identities(spec) & columns for number, spec in whole.specs().items()}
    chosen: dict[tuple[int | None, int, frozenset[int]], tuple[str, set[int]]] = {}
    for entry in entries:
        file = entry.data_file
        if is_data(file):
            uncounted = by_spec[file.spec_id] - (file.value_counts or {}).keys()
            if is_mapped or uncounted:
                chosen.setdefault((entry.snapshot_id, file.spec_id, frozenset(uncounted)), (file.file_path, uncounted))
    return dict(chosen.values())


def check(io: FileIO, files: Mapping[str, set[int]], where: str) -> None:
    """Refuse a table with files that lack ids, or columns that they are partitioned by.

    Args:
        files: as of `in_doubt`.
        where: the metadata file.

    Raises:
        NotSupported: there is one, or there are too many to look at.
        Unreadable: Unsafe, Stale, NotPermitted, Unreachable or MalformedMetadata.
    """
    if len(files) > _MOST:
        raise refused(where, f"a name mapping, or partitions without counts, and more than {_MOST} commits of files")

    def ids(path: str) -> set[int]:
        with io.new_input(path).open() as stream:
            return set(_ids(pq.read_schema(stream)))

    try:
        with ThreadPoolExecutor(_WIDTH) as pool:
            found = list(pool.map(ids, files))
    except (SfnError, MemoryError):
        raise
    except Exception as error:
        # PyArrow and the drivers let through whatever they stumble over.
        raise unread(where, error) from error
    for (path, needed), there in zip(files.items(), found, strict=True):
        if not there:
            raise refused(path, "a file without field ids, which a name mapping is for")
        if needed - there:
            raise refused(path, "a file without the column that it is partitioned by")


def _identities(spec: PartitionSpec) -> set[int]:
    return {field.source_id for field in spec.fields if isinstance(field.transform, IdentityTransform)}


def _ids(fields: Iterable[pa.Field]) -> Iterator[int]:
    for field in fields:
        if field.metadata and _FIELD_ID in field.metadata:
            yield int(field.metadata[_FIELD_ID])
