"""Whether data files have the ids that columns are found by, where that is in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

from sfn.errors import SfnError
from sfn.reader.table import to_unreadable
from sfn.spark.files.features import not_supported_error
from sfn.spark.files.manifests import is_data_file

_MOST: Final = 1_000
"""Footers that are read of a table."""
_WIDTH: Final = 16
_FIELD_ID: Final = b"PARQUET:field_id"


def files_to_check(entries: Iterable[ManifestEntry], whole: TableMetadata) -> list[str]:
    """Return the data files whose footers are to be checked.

    A table with a name mapping may have files without ids, which were imported. Its other files may be of the same
    commit, so none stands for another.
    """
    if TableProperties.DEFAULT_NAME_MAPPING not in whole.properties:
        return []
    return [entry.data_file.file_path for entry in entries if is_data_file(entry.data_file)]


def check_field_ids(io: FileIO, files: Sequence[str], where: str) -> None:
    """Refuse a table with files that lack ids.

    Args:
        files: as of `in_doubt`.
        where: the metadata file.

    Raises:
        NotSupported: there is one, or there are too many to check.
        Unreadable: Unsafe, Stale, NotPermitted, Unreachable or MalformedMetadata.
    """
    if not files:
        return
    if len(files) > _MOST:
        raise not_supported_error(where, f"a name mapping, and more than {_MOST:,} files")

    def has_ids(path: str) -> bool:
        with io.new_input(path).open() as stream:
            return any(field.metadata and _FIELD_ID in field.metadata for field in pq.read_schema(stream))

    try:
        with ThreadPoolExecutor(_WIDTH) as pool:
            found = list(pool.map(has_ids, files))
    except (SfnError, MemoryError):
        raise
    except Exception as error:
        # PyArrow and the drivers let through whatever they stumble over.
        raise to_unreadable(where, error) from error
    for path, is_found in zip(files, found, strict=True):
        if not is_found:
            raise not_supported_error(path, "a file without field ids, which a name mapping is for")
