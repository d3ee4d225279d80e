"""A table as a tree: what one finds who walks from its SFN file to its data by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyiceberg import manifest as avro
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType, PrimitiveType

from sfn.errors import CommitNotFound, SfnError
from sfn.reader.pyiceberg_files import MetadataIO
from sfn.reader.table import AllowedFiles

# ── tree: A table as a tree


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


# ── walk: The walk from a metadata file to the data

T = TypeVar("T")

_CONTENTS = {
    avro.DataFileContent.DATA: "data",
    avro.DataFileContent.POSITION_DELETES: "position deletes",
    avro.DataFileContent.EQUALITY_DELETES: "equality deletes",
}


@dataclass(frozen=True, slots=True)
class WalkLimits:
    """How much is looked at.

    Attributes:
        limit: snapshots, refs, manifests of a snapshot, and files of a manifest, each.
        files: list the files of each manifest.
        on_progress: told after each manifest how many of how many are done.
    """

    limit: int
    files: bool = False
    on_progress: Callable[[int, int], None] = lambda _done, _total: None


class MetadataWalk:
    """A table's metadata, and how to look into the files that it names.

    Args:
        location: where the metadata is.
        whole: what stands in it.
        files: how to open them.
    """

    def __init__(self, location: str, whole: TableMetadata, files: AllowedFiles) -> None:
        self._location, self._whole, self._files = location, whole, files

    def metadata(self, snapshot_id: int | None, extent: WalkLimits) -> MetadataNode:
        """What there is.

        Args:
            snapshot_id: the one to be walked; None where the table is empty.

        Raises:
            CommitNotFound: the table has no such snapshot.
        """
        whole = self._whole
        walked = None if snapshot_id is None else self.snapshot(snapshot_id)
        newest = sorted(whole.snapshots, key=lambda one: one.timestamp_ms)[-extent.limit :]
        shown = newest if walked is None or walked in newest else [walked, *newest[1:]]
        refs = [RefNode(name, ref.snapshot_ref_type.value, ref.snapshot_id) for name, ref in sorted(whole.refs.items())]
        return MetadataNode(
            path=self._location,
            format_version=whole.format_version,
            table_uuid=str(whole.table_uuid),
            location=whole.location,
            last_updated_ms=whole.last_updated_ms,
            columns=[f"{column.name}: {column.field_type}" for column in whole.schema().fields],
            partition_fields=[f"{one.name}: {one.transform}" for one in whole.spec().fields],
            refs=refs[: extent.limit],
            refs_omitted=max(0, len(refs) - extent.limit),
            snapshots=[
                self._snapshot_node(one, refs, self.snapshot_contents(one, extent) if one is walked else None)
                for one in shown
            ],
            snapshots_omitted=len(whole.snapshots) - len(shown),
        )

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """A snapshot by its id.

        Raises:
            CommitNotFound: the table has none.
        """
        found = self._whole.snapshot_by_id(snapshot_id)
        if found is None:
            known = ", ".join(str(one.snapshot_id) for one in self._whole.snapshots[-10:]) or "none"
            raise CommitNotFound(self._location, expected=f"a snapshot {snapshot_id}", found=f"the newest: {known}")
        return found

    def snapshot_contents(self, snapshot: Snapshot, extent: WalkLimits) -> SnapshotContents:
        """What a snapshot consists of."""
        manifests, problem = self.manifests(snapshot)
        chosen = manifests[: extent.limit]
        seen = []
        for number, one in enumerate(chosen):
            seen.append(self._manifest(one, snapshot.manifest_list, extent))
            extent.on_progress(number + 1, len(chosen))
        return SnapshotContents(snapshot.manifest_list, seen, len(manifests) - len(chosen), problem)

    def manifests(self, snapshot: Snapshot) -> tuple[list[avro.ManifestFile], str]:
        """The manifests that a snapshot's list names, or why there are none."""
        where, io = snapshot.manifest_list, MetadataIO(self._files, self._location)
        return self._try_read(lambda: list(avro.read_manifest_list(io.new_input(where))), where)

    def files(self, one: avro.ManifestFile, listed_in: str) -> tuple[list[avro.DataFile], str]:
        """The live files of a manifest, or why there are none.

        Args:
            listed_in: the manifest list.
        """
        io = MetadataIO(self._files, listed_in)
        entries, problem = self._try_read(lambda: one.fetch_manifest_entry(io), one.manifest_path)
        return [entry.data_file for entry in entries], problem

    def _manifest(self, one: avro.ManifestFile, listed_in: str, extent: WalkLimits) -> ManifestNode:
        path, spec = one.manifest_path, self._whole.specs().get(one.partition_spec_id)
        bounds, unbound = self._try_read(lambda: [] if spec is None else self._bounds(spec, one.partitions or []), path)
        files, problem = self.files(one, listed_in)
        listed = files[: extent.limit] if extent.files else []
        shown, odd = self._try_read(lambda: [self._file(file, spec) for file in listed], path)
        kinds, uncounted = self._try_read(lambda: _file_groups(files), path)
        return ManifestNode(
            path=path,
            content="deletes" if one.content is avro.ManifestContent.DELETES else "data",
            bytes=one.manifest_length,
            sequence_number=one.sequence_number,
            added=one.added_files_count,
            existing=one.existing_files_count,
            deleted=one.deleted_files_count,
            partitions=bounds,
            kinds=kinds,
            files=shown,
            files_omitted=len(files) - len(listed) if extent.files else 0,
            problem=problem or unbound or odd or uncounted,
        )

    def _file(self, file: avro.DataFile, spec: PartitionSpec | None) -> DataFileNode:
        fields = () if spec is None else spec.fields
        partition = {one.name: str(self._human(one, file.partition[at])) for at, one in enumerate(fields)}
        return DataFileNode(
            file.file_path, *_content_and_format(file), file.record_count, file.file_size_in_bytes, partition
        )

    def _bounds(self, spec: PartitionSpec, summaries: Iterable[avro.PartitionFieldSummary]) -> list[PartitionBounds]:
        return [
            PartitionBounds(
                one.name,
                self._bound(one, summary.lower_bound),
                self._bound(one, summary.upper_bound),
                summary.contains_null,
            )
            for one, summary in zip(spec.fields, summaries, strict=False)
        ]

    def _bound(self, one: PartitionField, encoded: bytes | None) -> str | None:
        if encoded is None:
            return None
        source = self._source(one)
        result = None if source is None else one.transform.result_type(source)
        if not isinstance(result, PrimitiveType):
            return encoded.hex()
        return self._human(one, from_bytes(result, encoded))

    def _human(self, one: PartitionField, value: Any) -> str | None:  # noqa: ANN401 - of the field's type
        source = self._source(one)
        try:
            return str(value) if source is None else one.transform.to_human_string(source, value)
        except (ValueError, OverflowError):
            # A day or an hour that no calendar of Python's reaches.
            return str(value)

    def _source(self, one: PartitionField) -> IcebergType | None:
        """The type of the column that a partition field is made of; None where no schema has it any more."""
        for schema in reversed(self._whole.schemas):
            try:
                return schema.find_type(one.source_id)
            except ValueError:
                continue
        return None

    @staticmethod
    def _try_read(work: Callable[[], list[T]], where: str) -> tuple[list[T], str]:
        """The result, or why there is none."""
        try:
            return work(), ""
        except SfnError as error:
            return [], str(error)
        except Exception as error:  # noqa: BLE001 - a decoder raises whatever it stumbles over
            found = f"{type(error).__name__}: {error}"[:300]
            return [], f"{where}: expected a readable file of metadata, found {found}"

    @staticmethod
    def _snapshot_node(snapshot: Snapshot, refs: Iterable[RefNode], walked: SnapshotContents | None) -> SnapshotNode:
        summary = snapshot.summary
        return SnapshotNode(
            snapshot_id=snapshot.snapshot_id,
            parent_snapshot_id=snapshot.parent_snapshot_id,
            timestamp_ms=snapshot.timestamp_ms,
            operation="" if summary is None else summary.operation.value,
            refs=[ref.name for ref in refs if ref.snapshot_id == snapshot.snapshot_id],
            summary={} if summary is None else dict(summary.additional_properties),
            contents=walked,
        )


def _file_groups(files: Iterable[avro.DataFile]) -> list[FileGroup]:
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for file in files:
        sums_of_kind = sums[_content_and_format(file)]
        for at, number in enumerate((1, file.record_count, file.file_size_in_bytes)):
            sums_of_kind[at] += number
    return [FileGroup(content, form, *numbers) for (content, form), numbers in sorted(sums.items())]


def _content_and_format(file: avro.DataFile) -> tuple[str, str]:
    """Content and format; files of an old table, which had no deletes, tell no content."""
    return _CONTENTS.get(file.content, "data"), file.file_format.value.lower()
