"""Commands that read a table's directory: `sfn resolve`, `history`, `inspect` and `verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, assert_never

import typer

from sfn.catalogs import Loaded, NoSuchTable, NotModified, StagedCreate
from sfn.cli import options
from sfn.cli.options import FAILED, exit_on_error, parse_identifier, split_catalog
from sfn.cli.sweep import check_sweepable
from sfn.clock import SystemClock, format_duration
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ExternalError, pluralise
from sfn.sfnfile.locations import canonical

if TYPE_CHECKING:
    from sfn.app.catalogs import IdentifiedCatalog
    from sfn.cli.render import Grid, Line, TreeNode
    from sfn.reader import inspect as reader_inspect
    from sfn.reader.history import HistoryEntry
    from sfn.reader.inspect import WalkLimits
    from sfn.reader.resolve import Resolved
    from sfn.reader.verify import VerifyFinding
    from sfn.settings.root import Settings


@contextmanager
def report_unreadable() -> Iterator[None]:
    """Print the message of a reader's error in the block, and exit with 1."""
    from sfn.cli.render import escape
    from sfn.errors import Unreadable

    try:
        yield
    except Unreadable as error:
        # The message may quote a foreign file, so control characters are escaped.
        typer.echo(escape(str(error)), err=True)
        raise typer.Exit(FAILED) from None


@dataclass(frozen=True, slots=True)
class DirectoryOptions:
    """The options that select a table, as given."""

    directory: str
    table: str | None
    uuid: str | None
    ref: str
    as_of: int | None
    relative: bool
    allow: list[str] | None
    storage_option: list[str] | None

    def resolve(self) -> Resolved:
        """Find the metadata file.

        Raises:
            Unreadable: the table cannot be resolved; `sfn.errors` lists the subclasses.
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
            storage_options=options.parse_storage_options(self.storage_option),
        )


def parse_table_option(table: str | None) -> tuple[str, ...] | None:
    """Return the parts of the identifier in `--table`, or None without that option.

    The name may have the prefix of a catalog, as every command prints it. A directory does not know the catalog's name.

    Raises:
        BadParameter: the text is no identifier.
    """
    return None if table is None else parse_identifier(split_catalog(table)[1], "--table")


def _parse_time(text: str) -> int:
    from sfn.reader.api import time_to_ordinal

    try:
        return time_to_ordinal(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


DirectoryArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="DIRECTORY",
        help="The table's directory: a path, or a URL such as s3://lake/sales/orders.",
        show_default=False,
    ),
]
TableNameOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NS.TABLE",
        help="The table, if several share the directory. Saves a listing if the file is named after the table.",
        show_default=False,
    ),
]
UuidOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--uuid", metavar="UUID", help="The table, by its table-uuid.", show_default=False),
]
RefOption: TypeAlias = Annotated[str, typer.Option("--ref", metavar="REF", help="A branch or tag.")]
AsOfOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--as-of",
        parser=_parse_time,
        metavar="TIME",
        help="The state at a time: an Ordinal (YYYYMMDDTHHMMSSmmm, UTC), an ISO 8601 time with a zone, or Unix "
        "milliseconds.",
        show_default=False,
    ),
]
RelativeOption: TypeAlias = Annotated[
    bool,
    typer.Option("--relative", help="Find the metadata file relative to the SFN file, for a copy or a mount."),
]
AllowOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PREFIX",
        help="Follow only files below this prefix or below the directory; repeatable.",
        show_default=False,
    ),
]


def resolve(
    directory: DirectoryArgument,
    table: TableNameOption = None,
    uuid: UuidOption = None,
    ref: RefOption = "main",
    as_of: AsOfOption = None,
    *,
    relative: RelativeOption = False,
    allow: AllowOption = None,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the location of a table's current metadata file, read from its directory alone."""
    from sfn.cli.render import escape, print_error, print_json
    from sfn.errors import pluralise

    with report_unreadable():
        found = DirectoryOptions(directory, table, uuid, ref, as_of, relative, allow, storage_option).resolve()
    if as_json:
        print_json(resolved_fields(found))
        return
    if found.missing_commits:
        print_error(
            f"{pluralise(found.missing_commits, 'commit')} right after this one could not be rebuilt: "
            "one of them may have been current at that time"
        )
    typer.echo(escape(found.metadata_location) if sys.stdout.isatty() else found.metadata_location)


def resolved_fields(found: Resolved) -> dict[str, Any]:
    """Return a resolved table as the fields of the JSON output."""
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


def history(
    directory: DirectoryArgument,
    table: TableNameOption = None,
    uuid: UuidOption = None,
    *,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="The most commits, the newest ones.")
    ] = 1_000,
    relative: RelativeOption = False,
    allow: AllowOption = None,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a table's commits, oldest first, read from its directory alone.

    With the naming `ordinal` the commits come from their SFN files, otherwise from the metadata log.
    """
    from sfn.cli.render import print_json, print_page
    from sfn.reader import api

    named = parse_table_option(table)
    with report_unreadable():
        found = api.history(
            directory,
            named,
            uuid,
            limit=limit,
            relative=relative,
            allowed=allow or (),
            storage_options=options.parse_storage_options(storage_option),
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
    from sfn.cli.render import Grid, Line, Tone
    from sfn.errors import pluralise

    page: list[Line | Grid] = [
        Grid(
            ("ORDINAL", "SNAPSHOT", "GAP", "STATE", "SOURCE", "METADATA FILE"),
            [_row(entry) for entry in entries],
            numeric_columns=frozenset({"SNAPSHOT", "GAP"}),
            wide_column="METADATA FILE",
        )
    ]
    if lost := sum(entry.gap for entry in entries):
        page.append(Line(f"{pluralise(lost, 'commit')} in gaps could not be rebuilt", Tone.WARNING))
    if len(entries) >= limit:
        page.append(Line(f"only the newest {limit:,} are shown; raise --limit for more", Tone.QUIET))
    return page


def _row(entry: HistoryEntry) -> tuple[str, ...]:
    from sfn.cli.render import escape
    from sfn.sfnfile.document import render_ordinal

    snapshot = "?" if entry.snapshot_id is None else str(entry.snapshot_id)
    location = escape(entry.metadata_location)
    return render_ordinal(entry.ordinal), snapshot, str(entry.gap or ""), entry.state, entry.source, location


def inspect(
    directory: DirectoryArgument,
    table: TableNameOption = None,
    uuid: UuidOption = None,
    ref: RefOption = "main",
    as_of: AsOfOption = None,
    snapshot: Annotated[
        int | None,
        typer.Option(
            "--snapshot",
            metavar="ID",
            help="Show the files of this snapshot, not of the ref's head.",
            show_default=False,
        ),
    ] = None,
    *,
    files: Annotated[bool, typer.Option("--files", help="List the data and delete files.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="The most snapshots, manifests, and files per manifest.")
    ] = 100,
    relative: RelativeOption = False,
    allow: AllowOption = None,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a table as a tree, read from its directory alone.

    The tree has the SFN file, the metadata file, branches and tags, snapshots, the manifest list, manifests with their
    partition bounds, and data and delete files. The command needs PyIceberg.

    Ends with 1 if a file on the way is missing or broken; the rest is printed nevertheless.
    """
    from sfn.cli.render import print_json, print_tree, progress
    from sfn.reader.table import require_packages

    selected = DirectoryOptions(directory, table, uuid, ref, as_of, relative, allow, storage_option)
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
    """Read the metadata and its files, of the given snapshot or else of the ref's head."""
    from sfn.reader.inspect import MetadataWalk
    from sfn.reader.table import load_metadata, metadata_at_ref

    whole = load_metadata(found)
    head = (
        metadata_at_ref(whole, found.ref, found.metadata_location).current_snapshot_id if snapshot is None else snapshot
    )
    return MetadataWalk(found.metadata_location, whole, found.files).metadata(head, extent)


def _tree_of(found: Resolved, seen: reader_inspect.MetadataNode) -> TreeNode:
    from sfn.cli.render import Tone, TreeNode, escape

    doc = found.document
    root = TreeNode(f"SFN file {escape(found.sfn_file)}")
    name = escape(".".join((*doc.namespace, doc.name)))
    root.add(
        f"{name} of catalog_id {escape(doc.catalog_id)}; confirmed by the catalog {format_duration(found.age)} ago",
        Tone.QUIET,
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
    rows = f"; total records: {one.summary['total-records']}" if "total-records" in one.summary else ""
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
    from sfn.cli.render import Tone, escape, format_size
    from sfn.errors import pluralise

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
    """Return a file's path relative to the table's location, if the file lies below it."""
    from sfn.cli.render import escape
    from sfn.sfnfile.locations import canonical

    return escape(canonical(path).removeprefix(canonical(location) + "/"))


def _add_truncation(above: TreeNode, number: int, thing: str) -> None:
    from sfn.cli.render import Tone
    from sfn.errors import pluralise

    if number:
        above.add(f"… and {pluralise(number, thing)} more: --limit", Tone.QUIET)


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _at(milliseconds: int) -> str:
    """Return a time in UTC, or the number of milliseconds if it is out of the calendar's range."""
    from sfn.cli.render import format_time

    try:
        return format_time(datetime.fromtimestamp(milliseconds / 1000, UTC))
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"


_WHAT: Final = "catalog"


@dataclass(frozen=True, slots=True)
class OwnerCatalogs:
    """The catalogs that may own a table.

    Attributes:
        settings: the configuration.
        names: the names of the catalogs.
    """

    settings: Settings
    names: tuple[str, ...]


def find_owners(config: Path | None, catalog: str | None) -> OwnerCatalogs:
    """Return the configured catalogs that may own a table, without querying them.

    Args:
        config: the configuration file; None for one of the default files, if there is one.
        catalog: the catalog's name; None to find the catalog by its `catalog_id` later.

    Raises:
        ConfigurationError: the configuration is wrong, or has no such catalog.
    """
    from sfn.app import catalogs as app_catalogs
    from sfn.settings import load

    settings = load(config)
    app_catalogs.check_adapters(settings)
    sweepable = [name for name in settings.catalogs if name not in settings.event_only_catalogs]
    check_sweepable(catalog, sweepable, settings.event_only_catalogs)
    return OwnerCatalogs(settings, tuple(name for name in sweepable if catalog in {None, name}))


def check_is_current(found: Resolved, owners: OwnerCatalogs) -> VerifyFinding:
    """Compare an SFN file with the catalog that owns the table. A catalog that does not answer is a problem, too.

    Args:
        found: the resolved table.
        owners: the catalogs that may own it.
    """
    import anyio

    from sfn.app import catalogs as app_catalogs
    from sfn.app import storage
    from sfn.storage import PrefixRouter
    from sfn.telemetry import logs

    # Log records of the adapters would mix with the command's output.
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
            # Another catalog may be the owner.
            others.append(f"{name} (does not answer: {trouble})")
            continue
        if identity == found.document.catalog_id:
            return await _compare_with_owner(found, catalog, name)
        others.append(f"{name} ({identity})")
    known = ", ".join(others) or "none that can be queried"
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
            return _problem(found, f"the table {identifier_text(doc)} in {name}", "no such table")
        case StagedCreate() | NotModified():
            return _problem(found, f"a metadata file of {identifier_text(doc)} in {name}", "none yet")
        case _:
            assert_never(answer)


def _compared(found: Resolved, table: Table, owner: str) -> VerifyFinding:
    from sfn.reader.verify import VerifyFinding

    published, current = found.document.metadata_file_path, table.metadata_location
    if found.document.guid != table.uuid:
        return _problem(found, f"the uuid {table.uuid} of the table in {owner}", f"{found.document.guid}")
    if canonical(published) == canonical(current):
        return VerifyFinding(_WHAT, ok=True, text=f"{owner} has the same metadata file")
    log = [canonical(file) for file in table.metadata_log]
    commits = len(log) - log.index(canonical(published)) if canonical(published) in log else 0
    behind = f", {pluralise(commits, 'commit')} behind" if commits else ""
    return _problem(found, f"{current}, which is current in {owner}", f"{published}{behind}")


def _problem(found: Resolved, expected: str, what: str) -> VerifyFinding:
    from sfn.reader.verify import VerifyFinding

    return VerifyFinding(_WHAT, ok=False, text=f"{found.sfn_file}: expected {expected}, found {what}")


def verify(
    directory: DirectoryArgument,
    table: TableNameOption = None,
    uuid: UuidOption = None,
    ref: RefOption = "main",
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also check every manifest, data and delete file; needs PyIceberg.")
    ] = False,
    relative: RelativeOption = False,
    allow: AllowOption = None,
    storage_option: options.StorageOptions = None,
    config: options.Config = None,
    catalog: options.OnlyCatalog = None,
    as_json: options.AsJson = False,
) -> None:
    """Check the files of a table's directory.

    The SFN file must be valid, its uuid must be the metadata file's, and the files that the ref's head needs must
    exist. With a configuration the catalog that owns the table is queried, too: the SFN file must be current.

    Ends with 1 if something is wrong. Ends with 2, before any check, if the configuration is wrong.
    """
    from sfn.cli.render import print_json, print_page, progress
    from sfn.reader import verify as verifier

    selected = DirectoryOptions(directory, table, uuid, ref, None, relative, allow, storage_option)
    owners = None
    if config is not None or catalog is not None:
        # Read first: a wrong setting must not spoil checks that may take an hour.
        with exit_on_error():
            owners = find_owners(config, catalog)
    with report_unreadable(), progress("manifests", None) as on_progress:
        found, findings = verifier.verify(selected.resolve, deep=deep, on_progress=on_progress)
    if found is not None and owners is not None:
        findings.append(check_is_current(found, owners))
    is_right = all(one.ok for one in findings)
    if as_json:
        print_json({"ok": is_right, "findings": findings})
    else:
        print_page([line for one in findings for line in _lines(one)])
    if not is_right:
        raise typer.Exit(FAILED)


def _lines(one: VerifyFinding) -> list[Line]:
    from sfn.cli.render import Line, Tone, escape

    word, tone = ("ok", Tone.PLAIN) if one.ok else ("wrong", Tone.BAD)
    return [Line(f"{word:<7}{one.what}: {escape(one.text)}", tone)]
