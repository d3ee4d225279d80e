"""`sfn tables`: the known tables, those in some states, or those that are late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.options import FAILED
from sfn.clock import SystemClock, format_duration

if TYPE_CHECKING:
    from sfn.admin.table_schemas import ListedTableModel
    from sfn.cli.client import Parameters, ServiceClient
    from sfn.cli.render import Page

DEFAULT_LIMIT: Final = 100
_PAGE: Final = 1_000
"""Tables that are asked for at a time."""
_STATES: Final = ("due", "scheduled", "retrying", "leased", "dead", "held")
_ORDERS: Final = ("name", "lag")


def _parse_state(text: str) -> str:
    if text not in _STATES:
        raise typer.BadParameter(f"expected one of {', '.join(_STATES)}, found {text!r}")
    return text


def _parse_order(text: str) -> str:
    if text not in _ORDERS:
        raise typer.BadParameter(f"expected one of {', '.join(_ORDERS)}, found {text!r}")
    return text


def tables(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="GLOB",
            help="Only tables with such a name: * matches within a level, ** across levels; for example 'sales.*'.",
            show_default=False,
        ),
    ] = None,
    *,
    catalog: options.OnlyCatalogs = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", metavar="GLOB", help="Only tables in such namespaces.", show_default=False),
    ] = None,
    late: Annotated[
        bool, typer.Option("--late", help="Only tables that wait longer than telemetry.late_after; longest first.")
    ] = False,
    dead: Annotated[bool, typer.Option("--dead", help="Only tables that were given up.")] = False,
    held: Annotated[bool, typer.Option("--held", help="Only tables that the drop limit holds.")] = False,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="|".join(_STATES),
            parser=_parse_state,
            help="Only tables in this state; repeatable.",
            show_default=False,
        ),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort", metavar="name|lag", parser=_parse_order, help="By lag: only tables that wait, longest first."
        ),
    ] = "name",
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="The most tables to show.")] = DEFAULT_LIMIT,
    everything: Annotated[bool, typer.Option("--all", help="Show all tables, whatever their number.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="End with 1 if there is such a table.")] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """List the tables that the service knows: their state, how long they have waited, and why.

    Which table is late, since when and why: `sfn tables --late`.
    """
    from sfn.cli.client import open_service
    from sfn.cli.render import print_json, print_page

    states = {*(state or ()), *(["dead"] if dead else ()), *(["held"] if held else ())}
    search: dict[str, str | int | Sequence[str]] = {
        "catalog": catalog or [],
        "state": sorted(states),
        "late": late,
        "sort": sort,
    }
    search |= {name: glob for name, glob in (("table", table), ("namespace", namespace)) if glob is not None}
    flags = options.ServiceOptions(config, url, token_file, ca_file)
    with open_service(flags) as service, service.explain_unknown(*(catalog or ())):
        most = None if everything else limit + 1
        found = list(islice(_find(service, search, _PAGE if most is None else min(most, _PAGE)), most))
    shown, has_more = (found, False) if everything else (found[:limit], len(found) > limit)
    if as_json:
        print_json({"tables": shown, "has_more": has_more})
    else:
        wanted = " or ".join([*(["late"] if late else []), *sorted(states)])
        nothing = f"no table is {wanted}" if wanted else "the service knows no such table"
        print_page(tables_page(shown, SystemClock().now(), has_more=has_more, nothing=nothing))
    if exit_code and found:
        raise typer.Exit(FAILED)


def _find(service: ServiceClient, search: Parameters, size: int) -> Iterator[ListedTableModel]:
    """Yield the tables of all pages."""
    after: str | None = None
    while True:
        page = service.tables({**search, "limit": size} | ({} if after is None else {"after": after}))
        yield from page.tables
        if page.next is None:
            return
        after = page.next


def tables_page(
    tables: Sequence[ListedTableModel], now: datetime, *, has_more: bool, nothing: str = "no table"
) -> Page:
    """Return the page of `sfn tables`; `nothing` is what it says without a table."""
    from sfn.cli.render import Grid, Line, Tone
    from sfn.errors import pluralise

    if not tables:
        return [Line(nothing, Tone.GOOD)]
    columns = ("TABLE", "STATE", "WAITS", "NEXT ATTEMPT", "CAUSE")
    grid = Grid(columns, [_row(one, now) for one in tables], wide_column="CAUSE")
    count = f"the first {len(tables):,}; more with --limit or --all" if has_more else pluralise(len(tables), "table")
    return [grid, Line(""), Line(count, Tone.QUIET)]


def _row(table: ListedTableModel, now: datetime) -> tuple[str, ...]:
    from sfn.cli.render import escape
    from sfn.clock import format_ago
    from sfn.domain.identifiers import encode_identifier

    name = escape(f"{table.catalog}:{encode_identifier(table.namespace, table.name)}")
    waits = "-" if table.waiting_since is None else format_duration(max(now - table.waiting_since, timedelta()))
    if table.next_attempt_at is not None:
        upcoming = format_ago(table.next_attempt_at, now) if table.next_attempt_at > now else "due now"
    else:
        upcoming = "now" if table.state == "leased" else "-"
    also = {"late": table.late, "dropped": table.file == "dropped"}
    state = ", ".join([table.state, *(word for word, holds in also.items() if holds)])
    return (name, state, waits, upcoming, escape(table.cause or "-"))
