"""A table as a tree: what one finds who walks from its SFN file to its data by hand."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DataFileNode:
    """A file of rows, or of deletes.

    Attributes:
        partition: by field, as people read it.
    """

    path: str
    content: str
    format: str
    records: int
    bytes: int
    partition: dict[str, str]


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one content and format.

    Attributes:
        content: `data`, `position deletes` or `equality deletes`.
    """

    content: str
    format: str
    files: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """Between what the values of a partition field lie, as people read them; None where there is none."""

    field: str
    lower: str | None
    upper: str | None
    has_null: bool


@dataclass(frozen=True, slots=True)
class ManifestNode:
    """A manifest, as its list tells of it, and what is in it.

    Attributes:
        content: `data` or `deletes`.
        sequence_number: of the commit that added it.
        added, existing, deleted: files.
        kinds: its live files, summed up.
        files: its live files, where they were asked for.
        files_omitted: more of them.
        problem: why it can't be looked into; empty where it was, or was not to be.
    """

    path: str
    content: str
    bytes: int
    sequence_number: int
    added: int | None
    existing: int | None
    deleted: int | None
    partitions: list[PartitionBounds]
    kinds: list[FileGroup] = field(default_factory=list)
    files: list[DataFileNode] = field(default_factory=list)
    files_omitted: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotContents:
    """What a snapshot consists of.

    Attributes:
        manifest_list: its file.
        manifests_omitted: more of them, not looked into.
        problem: why it can't be walked.
    """

    manifest_list: str
    manifests: list[ManifestNode] = field(default_factory=list)
    manifests_omitted: int = 0
    problem: str = ""

    @property
    def problems(self) -> list[str]:
        """All that is wrong."""
        return [text for text in (self.problem, *(one.problem for one in self.manifests)) if text]


@dataclass(frozen=True, slots=True)
class SnapshotNode:
    """A snapshot.

    Attributes:
        timestamp_ms: Unix milliseconds.
        refs: branches and tags whose head it is.
        summary: what its writer counted.
        contents: None for those that were not to be walked.
    """

    snapshot_id: int
    parent_snapshot_id: int | None
    timestamp_ms: int
    operation: str
    refs: list[str]
    summary: dict[str, str]
    contents: SnapshotContents | None = None


@dataclass(frozen=True, slots=True)
class RefNode:
    """A branch or tag."""

    name: str
    type: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class MetadataNode:
    """The metadata file.

    Attributes:
        columns: names and types of the current schema.
        partition_fields: of the default partition spec.
        snapshots: the newest, oldest first, and the one that was walked.
        snapshots_omitted, refs_left_out: more of them.
    """

    path: str
    format_version: int
    table_uuid: str
    location: str
    last_updated_ms: int
    columns: list[str]
    partition_fields: list[str]
    refs: list[RefNode]
    refs_omitted: int
    snapshots: list[SnapshotNode]
    snapshots_omitted: int

    @property
    def problems(self) -> list[str]:
        """All that is wrong below."""
        return [text for one in self.snapshots if one.contents is not None for text in one.contents.problems]
