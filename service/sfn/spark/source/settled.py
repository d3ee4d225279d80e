"""The state that a DataFrame reads, settled when it is made, in a form that goes to other processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import IcebergBaseModel

from sfn.errors import NotSupported
from sfn.reader.files import FileSystemOptions
from sfn.reader.metadata import AllowedLocations
from sfn.reader.table import open_allowed_io
from sfn.spark.asked import ReadRequest
from sfn.spark.pinned import PinnedTable

_NAME_MAPPING: Final = "schema.name-mapping.default"
"""The property that says which columns of files without field ids are which."""


@dataclass(frozen=True, slots=True)
class PinnedScan:
    """Which rows of a table.

    Attributes:
        location: the metadata file, for messages and for where its own files may lie.
        metadata: of it, what is needed to read these rows: no later commit and no clean-up of metadata changes them.
        directory: the table's canonical URL.
        allowed: as of `Asked`.
        options: as of `Asked`; may hold secrets.
        after: of rows that were appended, the snapshot after which; None for all rows.
        is_appended: only the rows that appends added after that snapshot, or ever, up to the current one.
    """

    location: str
    metadata: TableMetadata = field(repr=False)
    directory: str
    allowed: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    after: int | None = None
    is_appended: bool = False

    @property
    def schema(self) -> Schema:
        """With which the rows are read."""
        return self.metadata.schema()

    @property
    def snapshot(self) -> Snapshot | None:
        """Which rows; None where there are none."""
        return self.metadata.current_snapshot()

    @property
    def io(self) -> FileIO:
        """What opens the table's files."""
        opening = FileSystemOptions(self.directory, self.options, self.allowed)
        return open_allowed_io(self.location, AllowedLocations(self.directory, self.allowed), opening)

    def text(self) -> str:
        """It, for an option of Spark's.

        Raises:
            NotSupported: an option of the store's driver can't be written down.
        """
        body = {
            "location": self.location,
            # PyIceberg 0.12 writes none of version 3, and so says that there is no text of it.
            "metadata": IcebergBaseModel.model_dump_json(self.metadata, exclude_none=True),
            "directory": self.directory,
            "allowed": self.allowed,
            "options": {name: self._checked_option(name, value) for name, value in self.options.items()},
            "after": self.after,
            "is_appended": self.is_appended,
        }
        return json.dumps(body)

    def _checked_option(self, name: str, value: object) -> object:
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            # It may be a secret, and so may what the encoder says of it.
            raise NotSupported(
                self.directory,
                expected="storage_options that are JSON, as they go to Spark's Python processes",
                found=f"one that is none: {name!r}, {type(value).__name__}",
                remedy="give it as JSON has it, or use engine='files' or engine='iceberg'",
            ) from None
        return value

    @classmethod
    def of(cls, text: str) -> Self:
        """The one whose text it is."""
        body = json.loads(text)
        metadata, allowed = TableMetadataUtil.parse_raw(body.pop("metadata")), tuple(body.pop("allowed"))
        return cls(metadata=metadata, allowed=allowed, **body)


def pin_scan(request: ReadRequest, pinned: PinnedTable) -> PinnedScan:
    """The rows of a pinned state."""
    snapshots = () if pinned.snapshot is None else (pinned.snapshot,)
    return _to_pinned_scan(request, pinned, snapshots)


def pin_appended_scan(
    request: ReadRequest, pinned: PinnedTable, after: int | None, since: Sequence[Snapshot]
) -> PinnedScan:
    """The rows that were appended in some of a table's snapshots, of which the last is the pinned one.

    Args:
        after: the snapshot before the first of them; None where they begin with the table.
        since: they, in any order.
    """
    return _to_pinned_scan(request, pinned, since, after, is_appended=True)


def _to_pinned_scan(
    request: ReadRequest,
    pinned: PinnedTable,
    snapshots: Sequence[Snapshot],
    after: int | None = None,
    *,
    is_appended: bool = False,
) -> PinnedScan:
    metadata_file = pinned.metadata
    needed = {
        "schemas": [pinned.schema],
        "current_schema_id": pinned.schema.schema_id,
        "snapshots": list(snapshots),
        "current_snapshot_id": None if pinned.snapshot is None else pinned.snapshot.snapshot_id,
        "properties": {_NAME_MAPPING: metadata_file.properties[_NAME_MAPPING]}
        if _NAME_MAPPING in metadata_file.properties
        else {},
        "refs": {},
        "snapshot_log": [],
        "metadata_log": [],
        "statistics": [],
        "partition_statistics": [],
        "sort_orders": [],
        "default_sort_order_id": 0,
    }
    location = pinned.found.metadata_location
    metadata = metadata_file.model_copy(update=needed)
    return PinnedScan(location, metadata, request.directory, request.allowed, dict(request.options), after, is_appended)
