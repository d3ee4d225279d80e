"""A table as a tree: what one finds who walks from its SFN file to its data by hand."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DataFile:
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
class Kind:
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
class Bound:
    """Between what the values of a partition field lie, as people read them; None where there is none."""

    field: str
    lower: str | None
    upper: str | None
    has_null: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest, as its list tells of it, and what is in it.

    Attributes:
        content: `data` or `deletes`.
        sequence_number: of the commit that added it.
        added, existing, deleted: files.
        kinds: its live files, summed up.
        files: its live files, where they were asked for.
        files_left_out: more of them.
        problem: why it can't be looked into; empty where it was, or was not to be.
    """

    path: str
    content: str
    bytes: int
    sequence_number: int
    added: int | None
    existing: int | None
    deleted: int | None
    partitions: list[Bound]
    kinds: list[Kind] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)
    files_left_out: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Walked:
    """What a snapshot consists of.

    Attributes:
        manifest_list: its file.
        manifests_left_out: more of them, not looked into.
        problem: why it can't be walked.
    """

    manifest_list: str
    manifests: list[Manifest] = field(default_factory=list)
    manifests_left_out: int = 0
    problem: str = ""

    @property
    def problems(self) -> list[str]:
        """All that is wrong."""
        return [text for text in (self.problem, *(one.problem for one in self.manifests)) if text]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot.

    Attributes:
        timestamp_ms: Unix milliseconds.
        refs: branches and tags whose head it is.
        summary: what its writer counted.
        walked: None for those that were not to be walked.
    """

    snapshot_id: int
    parent_snapshot_id: int | None
    timestamp_ms: int
    operation: str
    refs: list[str]
    summary: dict[str, str]
    walked: Walked | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or tag."""

    name: str
    type: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata file.

    Attributes:
        columns: names and types of the current schema.
        partition_fields: of the default partition spec.
        snapshots: the newest, oldest first, and the one that was walked.
        snapshots_left_out, refs_left_out: more of them.
    """

    path: str
    format_version: int
    table_uuid: str
    location: str
    last_updated_ms: int
    columns: list[str]
    partition_fields: list[str]
    refs: list[Ref]
    refs_left_out: int
    snapshots: list[Snapshot]
    snapshots_left_out: int

    @property
    def problems(self) -> list[str]:
        """All that is wrong below."""
        return [text for one in self.snapshots if one.walked is not None for text in one.walked.problems]
