"""`sfn resolve`: where a table's current metadata file is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, assert_never

import typer

from sfn.cli import options
from sfn.cli.options import FAILED, exit_on_error, parse_identifier
from sfn.cli.render import pluralise
from sfn.cli.sweep import check_sweepable
from sfn.clock import SystemClock
from sfn.domain.catalog_answer import Loaded, NoSuchTable, NotModified, StagedCreate
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ExternalError
from sfn.sfnfile.locations import canonical

# ── directory: What commands have in common that read a table's directory

if TYPE_CHECKING:
    from sfn.app.catalogs import IdentifiedCatalog
    from sfn.reader.resolve import Resolved
    from sfn.reader.verify import VerifyFinding
    from sfn.settings.model import Settings


@contextmanager
def report_unreadable() -> Iterator[None]:
    """Turn a reader's refusal into its message, and exit code 1."""
    from sfn.cli.render import escape
    from sfn.errors import Unreadable

    try:
        yield
    except Unreadable as refusal:
        # It may quote a file that somebody else wrote.
        typer.echo(escape(str(refusal)), err=True)
        raise typer.Exit(FAILED) from None


@dataclass(frozen=True, slots=True)
class DirectoryOptions:
    """The options that say which table is looked at, as they were given."""

    directory: str
    table: str | None
    uuid: str | None
    ref: str
    as_of: int | None
    relative: bool
    allow: list[str] | None
    storage_options: Mapping[str, Any] | None

    def resolve(self) -> Resolved:
        """Where its metadata file is.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
            BadParameter: `--table` is no identifier.
        """
        from sfn.reader import api

        return api.resolve(
            self.directory,
            parse_table_option(self.table),
            self.uuid,
            self.ref,
            self.as_of,
            relative=self.relative,
            allowed=self.allow or (),
            storage_options=self.storage_options,
        )


def parse_table_option(table: str | None) -> tuple[str, ...] | None:
    """The identifier that `--table` was given.

    Raises:
        BadParameter: it is none.
    """
    return None if table is None else parse_identifier(table, "--table")


def _parse_time(text: str) -> int:
    from sfn.reader.api import time_to_ordinal

    try:
        return time_to_ordinal(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _parse_storage_options(text: str) -> Mapping[str, Any]:
    try:
        options = json.loads(Path(text).read_bytes())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"expected a file with a JSON object: {error}") from None
    if not isinstance(options, dict):
        raise typer.BadParameter(f"expected a file with a JSON object, found a {type(options).__name__}: {text}")
    return options


DirectoryArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        help="The table's directory: a path, or a URL such as s3://lake/sales/orders.",
        show_default=False,
    ),
]
TableNameOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NS.NAME",
        help="Which table, where several share the directory: found without a listing, where its file has its name.",
        show_default=False,
    ),
]
UuidOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--uuid", metavar="UUID", help="Which table, by its table-uuid.", show_default=False),
]
RefOption: TypeAlias = Annotated[str, typer.Option("--ref", metavar="REF", help="A branch or tag.")]
AsOfOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--as-of",
        parser=_parse_time,
        metavar="TIME",
        help="What was current then: an Ordinal (YYYYMMDDTHHMMSSmmm, UTC), an ISO 8601 time with a zone, or Unix "
        "milliseconds.",
        show_default=False,
    ),
]
RelativeOption: TypeAlias = Annotated[
    bool,
    typer.Option("--relative", help="Take the metadata file where it lies beside the SFN file: in a copy, on a mount."),
]
AllowOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PREFIX",
        help="Follow files below it, and below the directory, alone; may be repeated.",
        show_default=False,
    ),
]
StorageOptionsOption: TypeAlias = Annotated[
    Mapping[str, Any] | None,
    typer.Option(
        "--storage-options",
        parser=_parse_storage_options,
        metavar="FILE",
        help="What fsspec's driver is given, as a JSON object in a file.",
        show_default=False,
    ),
]


# ── resolve: `sfn resolve`

if TYPE_CHECKING:
    from sfn.reader.resolve import Resolved

_FIELD_NAMES = (
    "metadata_location, table_identifier, namespace, name, guid, catalog_id, ref, snapshot_id, Ordinal, written_at, "
    "age_seconds, sfn_file, found_by, via, missing_commits, requests"
)


def resolve(
    directory: DirectoryArgument,
    table: TableNameOption = None,
    uuid: UuidOption = None,
    ref: RefOption = "main",
    as_of: AsOfOption = None,
    *,
    relative: RelativeOption = False,
    allow: AllowOption = None,
    storage_options: StorageOptionsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help=f"Print as JSON: {_FIELD_NAMES}.")] = False,
) -> None:
    """Print the location of a table's current metadata file, read from its directory alone."""
    from sfn.cli.render import escape, pluralise, print_error, print_json

    with report_unreadable():
        found = DirectoryOptions(directory, table, uuid, ref, as_of, relative, allow, storage_options).resolve()
    if as_json:
        print_json(resolved_fields(found))
        return
    if found.missing_commits:
        print_error(
            f"{pluralise(found.missing_commits, 'commit')} right after this one can't be known: "
            "any may have been current then"
        )
    typer.echo(escape(found.metadata_location) if sys.stdout.isatty() else found.metadata_location)


def resolved_fields(found: Resolved) -> dict[str, Any]:
    """What was resolved, as JSON has it."""
    from sfn.sfnfile.document import format_time, render_ordinal

    document = found.document
    return {
        "metadata_location": found.metadata_location,
        "table_identifier": ".".join((*document.namespace, document.name)),
        "namespace": document.namespace,
        "name": document.name,
        "guid": document.guid,
        "catalog_id": document.catalog_id,
        "ref": found.ref,
        "snapshot_id": found.snapshot_id,
        "Ordinal": render_ordinal(document.ordinal),
        "written_at": format_time(document.written_at),
        "age_seconds": round(found.age.total_seconds(), 3),
        "sfn_file": found.sfn_file,
        "found_by": found.found_by,
        "via": found.via,
        "missing_commits": found.missing_commits,
        "requests": {"gets": found.requests.gets, "lists": found.requests.lists},
    }


# ── history: `sfn history`

if TYPE_CHECKING:
    from sfn.cli.render import Grid, Line
    from sfn.reader.history import HistoryEntry


def history(
    directory: DirectoryArgument,
    table: TableNameOption = None,
    uuid: UuidOption = None,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="As many of the newest.")] = 1_000,
    relative: RelativeOption = False,
    allow: AllowOption = None,
    storage_options: StorageOptionsOption = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a table's commits, oldest first, read from its directory alone.

    Where each commit has a file (naming `ordinal`) these tell of them; elsewhere the metadata file's own log does.
    """
    from sfn.cli.render import print_json, print_page
    from sfn.reader import api

    named = parse_table_option(table)
    with report_unreadable():
        found = api.history(
            directory, named, uuid, limit=limit, relative=relative, allowed=allow or (), storage_options=storage_options
        )
    if as_json:
        print_json({"commits": [_entry_fields(entry) for entry in found]})
    else:
        print_page(_page(found, limit))


def _entry_fields(entry: HistoryEntry) -> dict[str, Any]:
    from sfn.sfnfile.document import format_time, render_ordinal

    return {
        "Ordinal": render_ordinal(entry.ordinal),
        "metadata_location": entry.metadata_location,
        "snapshot_id": entry.snapshot_id,
        "gap": entry.gap,
        "written_at": None if entry.written_at is None else format_time(entry.written_at),
        "state": entry.state,
        "source": entry.source,
    }


def _page(entries: list[HistoryEntry], limit: int) -> list[Line | Grid]:
    from sfn.cli.render import Grid, Line, Tone, pluralise

    page: list[Line | Grid] = [
        Grid(
            ("ORDINAL", "SNAPSHOT", "GAP", "STATE", "TOLD BY", "METADATA FILE"),
            [_row(entry) for entry in entries],
            numeric_columns=frozenset({"SNAPSHOT", "GAP"}),
            wide_column="METADATA FILE",
        )
    ]
    if lost := sum(entry.gap for entry in entries):
        page.append(Line(f"{pluralise(lost, 'commit')} in the gaps can't be known any more", Tone.WARNING))
    if len(entries) >= limit:
        page.append(Line(f"the newest {limit:,}; --limit shows more, if there are any", Tone.QUIET))
    return page


def _row(entry: HistoryEntry) -> tuple[str, ...]:
    from sfn.cli.render import escape
    from sfn.sfnfile.document import render_ordinal

    snapshot = "?" if entry.snapshot_id is None else str(entry.snapshot_id)
    location = escape(entry.metadata_location)
    return render_ordinal(entry.ordinal), snapshot, str(entry.gap or ""), entry.state, entry.source, location


# ── inspect: `sfn inspect`

if TYPE_CHECKING:
    from sfn.cli.render import TreeNode
    from sfn.reader import inspect as reader_inspect
    from sfn.reader.inspect import WalkLimits
    from sfn.reader.resolve import Resolved


def inspect(
    directory: DirectoryArgument,
    table: TableNameOption = None,
    uuid: UuidOption = None,
    ref: RefOption = "main",
    as_of: AsOfOption = None,
    snapshot: Annotated[
        int | None,
        typer.Option("--snapshot", metavar="ID", help="Walk this one, not the ref's head.", show_default=False),
    ] = None,
    *,
    files: Annotated[bool, typer.Option("--files", help="List the data and delete files.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="As many of each: snapshots, manifests, files of one.")
    ] = 100,
    relative: RelativeOption = False,
    allow: AllowOption = None,
    storage_options: StorageOptionsOption = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a table as a tree, read from its directory alone.

    SFN file, metadata file, branches and tags, snapshots, manifest list, manifests with their partition bounds, and
    data and delete files: the walk that one would do by hand. It needs PyIceberg.

    Ends with 1 where something in the way is missing or broken; what can be seen is printed all the same.
    """
    from sfn.cli.render import print_json, print_tree, progress
    from sfn.reader.table import require_packages

    selected = DirectoryOptions(directory, table, uuid, ref, as_of, relative, allow, storage_options)
    with report_unreadable(), progress("manifests", None) as on_progress:
        require_packages("pyiceberg")
        from sfn.reader.inspect import WalkLimits

        found = selected.resolve()
        seen = _read_tree(found, snapshot, WalkLimits(limit, files, on_progress))
    if as_json:
        print_json({"sfn": resolved_fields(found), "metadata": seen, "problems": seen.problems})
    else:
        print_tree(_tree_of(found, seen))
    if seen.problems:
        raise typer.Exit(FAILED)


def _read_tree(found: Resolved, snapshot: int | None, extent: WalkLimits) -> reader_inspect.MetadataNode:
    """What there is; below the ref's head, where no snapshot is wanted."""
    from sfn.reader.inspect import MetadataWalk
    from sfn.reader.table import load_metadata, metadata_at_ref

    whole = load_metadata(found)
    head = (
        metadata_at_ref(whole, found.ref, found.metadata_location).current_snapshot_id if snapshot is None else snapshot
    )
    return MetadataWalk(found.metadata_location, whole, found.files).metadata(head, extent)


def _tree_of(found: Resolved, seen: reader_inspect.MetadataNode) -> TreeNode:
    from sfn.cli.render import Tone, TreeNode, escape
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


def _snapshot(above: TreeNode, one: reader_inspect.SnapshotNode, location: str) -> None:
    from sfn.cli.render import Tone, escape

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


def _manifest(above: TreeNode, one: reader_inspect.ManifestNode, location: str) -> None:
    from sfn.cli.render import Tone, escape, format_size, pluralise

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
    from sfn.cli.render import escape
    from sfn.sfnfile.locations import canonical

    return escape(canonical(path).removeprefix(canonical(location) + "/"))


def _add_truncation(above: TreeNode, number: int, thing: str) -> None:
    from sfn.cli.render import Tone, pluralise

    if number:
        above.add(f"… and {pluralise(number, thing)} more: --limit", Tone.QUIET)


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _at(milliseconds: int) -> str:
    """The moment, or the number where no calendar reaches."""
    from sfn.cli.render import format_time

    try:
        return format_time(datetime.fromtimestamp(milliseconds / 1000, UTC))
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"


# ── currency: Whether an SFN file says what its catalog says now

_WHAT: Final = "catalog"


@dataclass(frozen=True, slots=True)
class OwnerCatalogs:
    """The catalogs that may be asked.

    Attributes:
        settings: of the configuration.
        names: theirs there.
    """

    settings: Settings
    names: tuple[str, ...]


def find_owners(config: Path | None, catalog: str | None) -> OwnerCatalogs:
    """Which catalogs a configuration has that may own a table; none is asked yet.

    Args:
        catalog: the only one; None to find it by its `catalog_id`.

    Raises:
        Misconfigured: the configuration is wrong, or has no such catalog.
    """
    from sfn.app import catalogs as app_catalogs
    from sfn.settings import load

    settings = load(config)
    app_catalogs.check_adapters(settings)
    askable = [name for name in settings.catalogs if name not in settings.event_only_catalogs]
    check_sweepable(catalog, askable, settings.event_only_catalogs)
    return OwnerCatalogs(settings, tuple(name for name in askable if catalog in {None, name}))


def check_is_current(found: Resolved, owners: OwnerCatalogs) -> VerifyFinding:
    """Ask the catalog that owns a table; what keeps it from answering is what was found.

    Args:
        found: what the directory says.
    """
    import anyio

    from sfn.app import catalogs as app_catalogs
    from sfn.app import storage
    from sfn.storage import PrefixRouter
    from sfn.telemetry import logs

    # What the adapters log would stand among what the command prints.
    logs.configure_logging("error", "console")

    async def ask() -> VerifyFinding:
        settings = owners.settings
        async with storage.open_stores(settings) as store_registry, AsyncExitStack() as stack:
            catalogs = app_catalogs.build_catalogs(
                settings, SystemClock(), PrefixRouter(store_registry.stores).read_range
            )
            for one in catalogs.values():
                stack.push_async_callback(one.close)
            return await _ask_owner(found, {name: catalogs[name] for name in owners.names})

    return anyio.run(ask)


async def _ask_owner(found: Resolved, catalogs: Mapping[str, IdentifiedCatalog]) -> VerifyFinding:
    others = []
    for name, catalog in catalogs.items():
        try:
            identity = await catalog.identity()
        except ExternalError as trouble:
            # It may not be the owner.
            others.append(f"{name} (can't be asked: {trouble})")
            continue
        if identity == found.document.catalog_id:
            return await _compare_with_owner(found, catalog, name)
        others.append(f"{name} ({identity})")
    known = ", ".join(others) or "none that can be asked"
    return _problem(found, f"a configured catalog with the catalog_id {found.document.catalog_id}", known)


async def _compare_with_owner(found: Resolved, owner: IdentifiedCatalog, name: str) -> VerifyFinding:
    from sfn.reader.lookup import identifier_text
    from sfn.reader.verify import VerifyFinding

    doc = found.document
    try:
        answer = await owner.load(TableIdentifier(name, doc.namespace, doc.name), None)
    except ExternalError as trouble:
        return VerifyFinding(_WHAT, ok=False, text=str(trouble))
    match answer:
        case Loaded(table):
            return _compared(found, table, name)
        case NoSuchTable():
            return _problem(found, f"that {name} has {identifier_text(doc)}", "that it has no such table")
        case StagedCreate() | NotModified():
            return _problem(found, f"that {name} has a metadata file of {identifier_text(doc)}", "none yet")
        case _:
            assert_never(answer)


def _compared(found: Resolved, table: Table, owner: str) -> VerifyFinding:
    from sfn.reader.verify import VerifyFinding

    ours, theirs = found.document.metadata_file_path, table.metadata_location
    if found.document.guid != table.uuid:
        return _problem(found, f"the uuid {table.uuid}, which {owner}'s table has", f"{found.document.guid}")
    if canonical(ours) == canonical(theirs):
        return VerifyFinding(_WHAT, ok=True, text=f"{owner} has the same metadata file")
    log = [canonical(file) for file in table.metadata_log]
    since = len(log) - log.index(canonical(ours)) if canonical(ours) in log else 0
    behind = f", {pluralise(since, 'commit')} behind" if since else ""
    return _problem(found, f"{theirs}, which {owner} has", f"{ours}{behind}")


def _problem(found: Resolved, expected: str, what: str) -> VerifyFinding:
    from sfn.reader.verify import VerifyFinding

    return VerifyFinding(_WHAT, ok=False, text=f"{found.sfn_file}: expected {expected}, found {what}")


# ── verify: `sfn verify`

if TYPE_CHECKING:
    from pathlib import Path

    from sfn.cli.render import Line
    from sfn.reader.verify import VerifyFinding


def verify(
    directory: DirectoryArgument,
    table: TableNameOption = None,
    uuid: UuidOption = None,
    ref: RefOption = "main",
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Look at every manifest, data and delete file too; needs PyIceberg.")
    ] = False,
    relative: RelativeOption = False,
    allow: AllowOption = None,
    storage_options: StorageOptionsOption = None,
    config: options.Config = None,
    catalog: options.Catalog = None,
    as_json: options.AsJson = False,
) -> None:
    """Prove that what lies in a table's directory is right.

    The SFN file is one, its uuid is the metadata's, and the files that the ref's head needs are there. With a
    configuration the catalog that owns the table is asked as well, whether the file is current.

    Ends with 1 and a list where something is wrong, and with 2, before anything is looked at, where the configuration
    is.
    """
    from sfn.cli.render import print_json, print_page, progress
    from sfn.reader import verify as looking

    selected = DirectoryOptions(directory, table, uuid, ref, None, relative, allow, storage_options)
    owners = None if config is None and catalog is None else _find_owners(config, catalog)
    with report_unreadable(), progress("manifests", None) as on_progress:
        found, findings = looking.verify(selected.resolve, deep=deep, on_progress=on_progress)
    if found is not None and owners is not None:
        findings.append(check_is_current(found, owners))
    is_right = all(one.ok for one in findings)
    if as_json:
        print_json({"ok": is_right, "findings": findings})
    else:
        print_page([line for one in findings for line in _lines(one)])
    if not is_right:
        raise typer.Exit(FAILED)


def _find_owners(config: Path | None, catalog: str | None) -> OwnerCatalogs:
    """Read before anything is looked at: what was found after an hour shall not be lost to a wrong setting."""
    with exit_on_error():
        return find_owners(config, catalog)


def _lines(one: VerifyFinding) -> list[Line]:
    from sfn.cli.render import Line, Tone, escape

    word, tone = ("ok", Tone.PLAIN) if one.ok else ("wrong", Tone.BAD)
    return [Line(f"{word:<7}{one.what}: {escape(one.text)}", tone)]
