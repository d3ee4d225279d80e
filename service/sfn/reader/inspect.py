"""The tree from a table's metadata file down to its data files, for display."""

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


@dataclass(frozen=True, slots=True)
class DataFileNode:
    """A file of rows, or of deletes.

    Attributes:
        partition: values by field, formatted for display.
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
    """The bounds of a partition field's values, formatted for display; None if there are none."""

    field: str
    lower: str | None
    upper: str | None
    has_null: bool


@dataclass(frozen=True, slots=True)
class ManifestNode:
    """A manifest: its entry in the manifest list, and its files.

    Attributes:
        content: `data` or `deletes`.
        sequence_number: the sequence number of the commit that added it.
        added, existing, deleted: numbers of files.
        kinds: totals of its live files, by content and format.
        files: its live files, if requested.
        files_omitted: the number of further files.
        problem: the reason why it can't be read; empty if it was read, or was not requested.
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
    """The files of a snapshot.

    Attributes:
        manifest_list: the location of its manifest list.
        manifests_omitted: the number of further manifests, which were not read.
        problem: the reason why the manifest list can't be read.
    """

    manifest_list: str
    manifests: list[ManifestNode] = field(default_factory=list)
    manifests_omitted: int = 0
    problem: str = ""

    @property
    def problems(self) -> list[str]:
        """All problems of the snapshot's files."""
        return [text for text in (self.problem, *(one.problem for one in self.manifests)) if text]


@dataclass(frozen=True, slots=True)
class SnapshotNode:
    """A snapshot.

    Attributes:
        timestamp_ms: Unix milliseconds.
        refs: branches and tags that point to this snapshot.
        summary: its writer's statistics.
        contents: its files; None if they were not requested.
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
        partition_fields: fields of the default partition spec.
        snapshots: the newest, oldest first, and the one with the requested files.
        snapshots_omitted, refs_omitted: the numbers of further ones.
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
        """All problems of the files below."""
        return [text for one in self.snapshots if one.contents is not None for text in one.contents.problems]


T = TypeVar("T")

_CONTENTS = {
    avro.DataFileContent.DATA: "data",
    avro.DataFileContent.POSITION_DELETES: "position deletes",
    avro.DataFileContent.EQUALITY_DELETES: "equality deletes",
}


@dataclass(frozen=True, slots=True)
class WalkLimits:
    """The limits of a walk.

    Attributes:
        limit: the maximum number of snapshots, of refs, of manifests per snapshot, and of files per manifest.
        files: list the files of each manifest.
        on_progress: called after each manifest with the number of manifests done, and their total.
    """

    limit: int
    files: bool = False
    on_progress: Callable[[int, int], None] = lambda _done, _total: None


class MetadataWalk:
    """A walk through a table's metadata and the files that it names.

    Args:
        location: the metadata file.
        whole: its contents.
        files: access to the other files.
    """

    def __init__(self, location: str, whole: TableMetadata, files: AllowedFiles) -> None:
        self._location, self._whole, self._files = location, whole, files

    def metadata(self, snapshot_id: int | None, limits: WalkLimits) -> MetadataNode:
        """Return the metadata file as a node.

        Args:
            snapshot_id: the snapshot to walk; None if the table is empty.

        Raises:
            CommitNotFound: the table has no such snapshot.
        """
        whole = self._whole
        walked = None if snapshot_id is None else self.snapshot(snapshot_id)
        newest = sorted(whole.snapshots, key=lambda one: one.timestamp_ms)[-limits.limit :]
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
            refs=refs[: limits.limit],
            refs_omitted=max(0, len(refs) - limits.limit),
            snapshots=[
                self._snapshot_node(one, refs, self.snapshot_contents(one, limits) if one is walked else None)
                for one in shown
            ],
            snapshots_omitted=len(whole.snapshots) - len(shown),
        )

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """Return a snapshot by its id.

        Raises:
            CommitNotFound: the table has no such snapshot.
        """
        found = self._whole.snapshot_by_id(snapshot_id)
        if found is None:
            known = ", ".join(str(one.snapshot_id) for one in self._whole.snapshots[-10:]) or "none"
            raise CommitNotFound(self._location, expected=f"a snapshot {snapshot_id}", found=f"the newest: {known}")
        return found

    def snapshot_contents(self, snapshot: Snapshot, limits: WalkLimits) -> SnapshotContents:
        """Return the manifests of a snapshot."""
        manifests, problem = self.manifests(snapshot)
        chosen = manifests[: limits.limit]
        nodes = []
        for number, one in enumerate(chosen):
            nodes.append(self._manifest(one, snapshot.manifest_list, limits))
            limits.on_progress(number + 1, len(chosen))
        return SnapshotContents(snapshot.manifest_list, nodes, len(manifests) - len(chosen), problem)

    def manifests(self, snapshot: Snapshot) -> tuple[list[avro.ManifestFile], str]:
        """Return the manifests of a snapshot's manifest list, or the reason why it can't be read."""
        where, io = snapshot.manifest_list, MetadataIO(self._files, self._location)
        return self._try_read(lambda: list(avro.read_manifest_list(io.new_input(where))), where)

    def files(self, one: avro.ManifestFile, listed_in: str) -> tuple[list[avro.DataFile], str]:
        """Return the live files of a manifest, or the reason why it can't be read.

        Args:
            listed_in: the manifest list.
        """
        io = MetadataIO(self._files, listed_in)
        entries, problem = self._try_read(lambda: one.fetch_manifest_entry(io), one.manifest_path)
        return [entry.data_file for entry in entries], problem

    def _manifest(self, one: avro.ManifestFile, listed_in: str, limits: WalkLimits) -> ManifestNode:
        path, spec = one.manifest_path, self._whole.specs().get(one.partition_spec_id)
        bounds, unbound = self._try_read(lambda: [] if spec is None else self._bounds(spec, one.partitions or []), path)
        files, problem = self.files(one, listed_in)
        listed = files[: limits.limit] if limits.files else []
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
            files_omitted=len(files) - len(listed) if limits.files else 0,
            problem=problem or unbound or odd or uncounted,
        )

    def _file(self, file: avro.DataFile, spec: PartitionSpec | None) -> DataFileNode:
        fields = () if spec is None else spec.fields
        partition = {one.name: str(self._display(one, file.partition[at])) for at, one in enumerate(fields)}
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
        return self._display(one, from_bytes(result, encoded))

    def _display(self, one: PartitionField, value: Any) -> str | None:  # noqa: ANN401 - of the field's type
        source = self._source(one)
        try:
            return str(value) if source is None else one.transform.to_human_string(source, value)
        except (ValueError, OverflowError):
            # Python's calendar does not reach this day or hour.
            return str(value)

    def _source(self, one: PartitionField) -> IcebergType | None:
        """Return the type of a partition field's source column; None if no schema contains it any more."""
        for schema in reversed(self._whole.schemas):
            try:
                return schema.find_type(one.source_id)
            except ValueError:
                continue
        return None

    @staticmethod
    def _try_read(work: Callable[[], list[T]], where: str) -> tuple[list[T], str]:
        """Return a result, or the reason why there is none."""
        try:
            return work(), ""
        except SfnError as error:
            return [], str(error)
        except Exception as error:  # noqa: BLE001 - decoders raise errors of any type
            found = f"{type(error).__name__}: {error}"[:300]
            return [], f"{where}: expected a readable metadata file, found {found}"

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
    """Return content and format; files of an old table, which had no deletes, have no content field."""
    return _CONTENTS.get(file.content, "data"), file.file_format.value.lower()
