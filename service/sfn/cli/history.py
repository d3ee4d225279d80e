"""`sfn history`: the commits of a table, as far as its directory tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfn.cli import directory as given
from sfn.cli import options

if TYPE_CHECKING:
    from sfn.cli.pages import Grid, Line
    from sfn.reader.timeline import HistoryEntry


def history(
    directory: given.DirectoryArgument,
    table: given.TableNameOption = None,
    uuid: given.UuidOption = None,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="As many of the newest.")] = 1_000,
    relative: given.RelativeOption = False,
    allow: given.AllowOption = None,
    storage_options: given.StorageOptionsOption = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a table's commits, oldest first, read from its directory alone.

    Where each commit has a file (naming `ordinal`) these tell of them; elsewhere the metadata file's own log does.
    """
    from sfn.cli.printing import print_json, print_page
    from sfn.reader import blocking

    named = given.parse_table_option(table)
    with given.report_unreadable():
        found = blocking.history(
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
    from sfn.cli.pages import Grid, Line, Tone, pluralise

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
    from sfn.cli.pages import escape
    from sfn.sfnfile.document import render_ordinal

    snapshot = "?" if entry.snapshot_id is None else str(entry.snapshot_id)
    location = escape(entry.metadata_location)
    return render_ordinal(entry.ordinal), snapshot, str(entry.gap or ""), entry.state, entry.source, location
