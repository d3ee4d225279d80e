"""`sfn inspect`: a table as a tree, from its SFN file to its data."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from sfn.cli import directory as given
from sfn.cli import options
from sfn.cli.exits import FAILED

if TYPE_CHECKING:
    from sfn.cli.trees import TreeNode
    from sfn.reader import tree
    from sfn.reader.resolve import Resolved
    from sfn.reader.walk import WalkLimits


def inspect(
    directory: given.DirectoryArgument,
    table: given.TableNameOption = None,
    uuid: given.UuidOption = None,
    ref: given.RefOption = "main",
    as_of: given.AsOfOption = None,
    snapshot: Annotated[
        int | None,
        typer.Option("--snapshot", metavar="ID", help="Walk this one, not the ref's head.", show_default=False),
    ] = None,
    *,
    files: Annotated[bool, typer.Option("--files", help="List the data and delete files.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="As many of each: snapshots, manifests, files of one.")
    ] = 100,
    relative: given.RelativeOption = False,
    allow: given.AllowOption = None,
    storage_options: given.StorageOptionsOption = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a table as a tree, read from its directory alone.

    SFN file, metadata file, branches and tags, snapshots, manifest list, manifests with their partition bounds, and
    data and delete files: the walk that one would do by hand. It needs PyIceberg.

    Ends with 1 where something in the way is missing or broken; what can be seen is printed all the same.
    """
    from sfn.cli.printing import print_json, progress
    from sfn.cli.resolve import resolved_fields
    from sfn.cli.trees import print_tree
    from sfn.reader.table import require_packages

    selected = given.DirectoryOptions(directory, table, uuid, ref, as_of, relative, allow, storage_options)
    with given.report_unreadable(), progress("manifests", None) as on_progress:
        require_packages("pyiceberg")
        from sfn.reader.walk import WalkLimits

        found = selected.resolve()
        seen = _read_tree(found, snapshot, WalkLimits(limit, files, on_progress))
    if as_json:
        print_json({"sfn": resolved_fields(found), "metadata": seen, "problems": seen.problems})
    else:
        print_tree(_tree_of(found, seen))
    if seen.problems:
        raise typer.Exit(FAILED)


def _read_tree(found: Resolved, snapshot: int | None, extent: WalkLimits) -> tree.MetadataNode:
    """What there is; below the ref's head, where no snapshot is wanted."""
    from sfn.reader.table import load_metadata, metadata_at_ref
    from sfn.reader.walk import MetadataWalk

    whole = load_metadata(found)
    head = (
        metadata_at_ref(whole, found.ref, found.metadata_location).current_snapshot_id if snapshot is None else snapshot
    )
    return MetadataWalk(found.metadata_location, whole, found.files).metadata(head, extent)


def _tree_of(found: Resolved, seen: tree.MetadataNode) -> TreeNode:
    from sfn.cli.pages import Tone, escape
    from sfn.cli.trees import TreeNode
    from sfn.clock import format_duration

    doc = found.document
    root = TreeNode(f"SFN file {escape(found.sfn_file)}")
    name = escape(".".join((*doc.namespace, doc.name)))
    root.add(
        f"{name}, of catalog {escape(doc.catalog_id)}; the catalog said so {format_duration(found.age)} ago", Tone.QUIET
    )
    root.add(f"found by {found.found_by}, {found.requests}", Tone.QUIET)
    for key in found.via:
        root.add(f"forwarded by {escape(key)}", Tone.QUIET)
    file = root.add(f"metadata file {escape(seen.path)}")
    changed = _at(seen.last_updated_ms)
    file.add(f"format version {seen.format_version}, uuid {escape(seen.table_uuid)}, changed {changed}")
    file.add(f"location {escape(seen.location)}")
    file.add(f"columns {escape(', '.join(seen.columns)) or 'none'}")
    file.add(f"partitioned by {escape(', '.join(seen.partition_fields)) or 'nothing'}")
    for ref in seen.refs:
        file.add(f"{ref.type} {escape(ref.name)} at {ref.snapshot_id}")
    _add_truncation(file, seen.refs_omitted, "ref")
    _add_truncation(file, seen.snapshots_omitted, "older snapshot")
    for one in seen.snapshots:
        _snapshot(file, one, seen.location)
    return root


def _snapshot(above: TreeNode, one: tree.SnapshotNode, location: str) -> None:
    from sfn.cli.pages import Tone, escape

    heads = f", head of {', '.join(one.refs)}" if one.refs else ""
    rows = f"; records in all: {one.summary['total-records']}" if "total-records" in one.summary else ""
    tone = Tone.QUIET if one.contents is None else Tone.GOOD
    node = above.add(escape(f"snapshot {one.snapshot_id}, {_at(one.timestamp_ms)}, {one.operation}{heads}{rows}"), tone)
    if one.contents is None:
        return
    listed = node.add(f"manifest list {_short(one.contents.manifest_list, location)}")
    if one.contents.problem:
        listed.add(escape(one.contents.problem), Tone.BAD)
    for manifest in one.contents.manifests:
        _manifest(listed, manifest, location)
    _add_truncation(listed, one.contents.manifests_omitted, "manifest")


def _manifest(above: TreeNode, one: tree.ManifestNode, location: str) -> None:
    from sfn.cli.pages import Tone, escape, pluralise
    from sfn.cli.trees import format_size

    node = above.add(f"manifest of {one.content} {_short(one.path, location)}")
    counts = f"{_number(one.added)} added, {_number(one.existing)} existing, {_number(one.deleted)} deleted"
    node.add(f"{format_size(one.bytes)}, of commit {one.sequence_number}; files: {counts}", Tone.QUIET)
    for bound in one.partitions:
        null = ", and null" if bound.has_null else ""
        node.add(escape(f"partition {bound.field}: {bound.lower} … {bound.upper}{null}"), Tone.QUIET)
    if one.problem:
        node.add(escape(one.problem), Tone.BAD)
    for kind in one.kinds:
        much = f"{pluralise(kind.records, 'record')}, {format_size(kind.bytes)}"
        node.add(f"{pluralise(kind.files, 'file')} of {kind.content} in {kind.format}: {much}")
    for file in one.files:
        values = "".join(f", {key}={value}" for key, value in file.partition.items())
        much = f"{pluralise(file.records, 'record')}, {format_size(file.bytes)}"
        node.add(f"{file.content} {_short(file.path, location)}, {file.format}, {much}{escape(values)}")
    _add_truncation(node, one.files_omitted, "file")


def _short(path: str, location: str) -> str:
    """A file's path from the table's location on, if it lies there."""
    from sfn.cli.pages import escape
    from sfn.sfnfile.locations import canonical

    return escape(canonical(path).removeprefix(canonical(location) + "/"))


def _add_truncation(above: TreeNode, number: int, thing: str) -> None:
    from sfn.cli.pages import Tone, pluralise

    if number:
        above.add(f"… and {pluralise(number, thing)} more: --limit", Tone.QUIET)


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _at(milliseconds: int) -> str:
    """The moment, or the number where no calendar reaches."""
    from sfn.cli.pages import format_time

    try:
        return format_time(datetime.fromtimestamp(milliseconds / 1000, UTC))
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
