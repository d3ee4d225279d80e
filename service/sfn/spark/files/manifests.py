"""The live files of a snapshot, as its manifests list them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestFile, read_manifest_list
from pyiceberg.table.snapshots import Snapshot

from sfn.errors import SfnError
from sfn.reader.table import to_unreadable

_WIDTH: Final = 16
"""Manifests that are read at a time."""


def is_data_file(file: DataFile) -> bool:
    """Whether it holds rows; files of version 1, which had no deletes, tell no content."""
    return file.content not in {DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES}


def list_live_files(io: FileIO, snapshot: Snapshot, where: str) -> list[ManifestEntry]:
    """All of its data files and delete files.

    Args:
        where: the metadata file.

    Raises:
        Unreadable: Unsafe, Stale, NotPermitted, Unreachable or MalformedMetadata.
    """

    def entries(manifest: ManifestFile) -> list[ManifestEntry]:
        return manifest.fetch_manifest_entry(io)

    try:
        manifests = list(read_manifest_list(io.new_input(snapshot.manifest_list)))
        if len(manifests) == 1:
            # To start a thread takes half as long as to read it.
            return entries(manifests[0])
        with ThreadPoolExecutor(_WIDTH) as pool:
            return [entry for each in pool.map(entries, manifests) for entry in each]
    except (SfnError, MemoryError):
        raise
    except Exception as error:
        # PyIceberg and the drivers let through whatever they stumble over.
        raise to_unreadable(where, error) from error
