"""`sfn inspect`: a table as a tree, from its SFN file to its data."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from sfn.cli import directory as given
from sfn.cli import options
from sfn.cli.exits import FAILED

if TYPE_CHECKING:
    from sfn.cli.trees import Node
    from sfn.reader import tree
    from sfn.reader.resolve import Resolved
    from sfn.reader.walk import Extent


def inspect(
    directory: given.Directory,
    table: given.Table = None,
    uuid: given.Uuid = None,
    ref: given.Ref = "main",
    as_of: given.AsOf = None,
    snapshot: Annotated[
        int | None,
        typer.Option("--snapshot", metavar="ID", help="Walk this one, not the ref's head.", show_default=False),
    ] = None,
    *,
    files: Annotated[bool, typer.Option("--files", help="List the data and delete files.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="As many of each: snapshots, manifests, files of one.")
    ] = 100,
    relative: given.Relative = False,
    allow: given.Allowed = None,
    storage_options: given.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a table as a tree, read from its directory alone.

    SFN file, metadata file, branches and tags, snapshots, manifest list, manifests with their partition bounds, and
    data and delete files: the walk that one would do by hand. It needs PyIceberg.

    Ends with 1 where something in the way is missing or broken; what can be seen is printed all the same.
    """
    from sfn.cli.printing import progress, show_json
    from sfn.cli.resolve import told
    from sfn.cli.trees import show_tree
    from sfn.reader.table import needed

    asked = given.Given(directory, table, uuid, ref, as_of, relative, allow, storage_options)
    with given.refusals(), progress("manifests", None) as moved:
        needed("pyiceberg")
        from sfn.reader.walk import Extent

        found = asked.resolved()
        seen = _walked(found, snapshot, Extent(limit, files, moved))
    if as_json:
        show_json({"sfn": told(found), "metadata": seen, "problems": seen.problems})
    else:
        show_tree(_root(found, seen))
    if seen.problems:
        raise typer.Exit(FAILED)


def _walked(found: Resolved, snapshot: int | None, extent: Extent) -> tree.Metadata:
    """What there is; below the ref's head, where no snapshot is wanted."""
    from sfn.reader.table import at_ref, loaded
    from sfn.reader.walk import Walk

    whole = loaded(found)
    head = at_ref(whole, found.ref, found.metadata_location).current_snapshot_id if snapshot is None else snapshot
    return Walk(found.metadata_location, whole, found.files).metadata(head, extent)


def _root(found: Resolved, seen: tree.Metadata) -> Node:
    from sfn.cli.pages import Tone, safe
    from sfn.cli.trees import Node
    from sfn.clock import lasting

    doc = found.document
    root = Node(f"SFN file {safe(found.sfn_file)}")
    name = safe(".".join((*doc.namespace, doc.name)))
    root.add(f"{name}, of catalog {safe(doc.catalog_id)}; the catalog said so {lasting(found.age)} ago", Tone.QUIET)
    root.add(f"found by {found.how}, {found.requests}", Tone.QUIET)
    for key in found.via:
        root.add(f"forwarded by {safe(key)}", Tone.QUIET)
    file = root.add(f"metadata file {safe(seen.path)}")
    changed = _at(seen.last_updated_ms)
    file.add(f"format version {seen.format_version}, uuid {safe(seen.table_uuid)}, changed {changed}")
    file.add(f"location {safe(seen.location)}")
    file.add(f"columns {safe(', '.join(seen.columns)) or 'none'}")
    file.add(f"partitioned by {safe(', '.join(seen.partition_fields)) or 'nothing'}")
    for ref in seen.refs:
        file.add(f"{ref.type} {safe(ref.name)} at {ref.snapshot_id}")
    _left_out(file, seen.refs_left_out, "ref")
    _left_out(file, seen.snapshots_left_out, "older snapshot")
    for one in seen.snapshots:
        _snapshot(file, one, seen.location)
    return root


def _snapshot(above: Node, one: tree.Snapshot, location: str) -> None:
    from sfn.cli.pages import Tone, safe

    heads = f", head of {', '.join(one.refs)}" if one.refs else ""
    rows = f"; records in all: {one.summary['total-records']}" if "total-records" in one.summary else ""
    tone = Tone.QUIET if one.walked is None else Tone.GOOD
    node = above.add(safe(f"snapshot {one.snapshot_id}, {_at(one.timestamp_ms)}, {one.operation}{heads}{rows}"), tone)
    if one.walked is None:
        return
    listed = node.add(f"manifest list {_short(one.walked.manifest_list, location)}")
    if one.walked.problem:
        listed.add(safe(one.walked.problem), Tone.BAD)
    for manifest in one.walked.manifests:
        _manifest(listed, manifest, location)
    _left_out(listed, one.walked.manifests_left_out, "manifest")


def _manifest(above: Node, one: tree.Manifest, location: str) -> None:
    from sfn.cli.pages import Tone, counted, safe
    from sfn.cli.trees import size

    node = above.add(f"manifest of {one.content} {_short(one.path, location)}")
    counts = f"{_number(one.added)} added, {_number(one.existing)} existing, {_number(one.deleted)} deleted"
    node.add(f"{size(one.bytes)}, of commit {one.sequence_number}; files: {counts}", Tone.QUIET)
    for bound in one.partitions:
        null = ", and null" if bound.has_null else ""
        node.add(safe(f"partition {bound.field}: {bound.lower} … {bound.upper}{null}"), Tone.QUIET)
    if one.problem:
        node.add(safe(one.problem), Tone.BAD)
    for kind in one.kinds:
        much = f"{counted(kind.records, 'record')}, {size(kind.bytes)}"
        node.add(f"{counted(kind.files, 'file')} of {kind.content} in {kind.format}: {much}")
    for file in one.files:
        values = "".join(f", {key}={value}" for key, value in file.partition.items())
        much = f"{counted(file.records, 'record')}, {size(file.bytes)}"
        node.add(f"{file.content} {_short(file.path, location)}, {file.format}, {much}{safe(values)}")
    _left_out(node, one.files_left_out, "file")


def _short(path: str, location: str) -> str:
    """A file's path from the table's location on, if it lies there."""
    from sfn.cli.pages import safe
    from sfn.pointer.location import canonical

    return safe(canonical(path).removeprefix(canonical(location) + "/"))


def _left_out(above: Node, number: int, thing: str) -> None:
    from sfn.cli.pages import Tone, counted

    if number:
        above.add(f"… and {counted(number, thing)} more: --limit", Tone.QUIET)


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _at(milliseconds: int) -> str:
    """The moment, or the number where no calendar reaches."""
    from sfn.cli.pages import moment

    try:
        return moment(datetime.fromtimestamp(milliseconds / 1000, UTC))
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
