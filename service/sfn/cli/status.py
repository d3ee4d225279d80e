"""`sfn status`: the state of the service, or of one table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.options import FAILED
from sfn.cli.render import Grid, Line, Page, Tone, escape
from sfn.clock import SystemClock, format_ago, format_duration, format_seconds, format_since
from sfn.errors import pluralise

if TYPE_CHECKING:
    from sfn.admin.schemas import CatalogModel
    from sfn.admin.verdict import ServiceReport, StatusProblem
    from sfn.cli.client import ServiceClient


_NUMERIC_COLUMNS: Final = ("TABLES", "LIVE", "LATE", "RETRYING", "DEAD", "HELD", "p95 LAG")


def status_page(status: ServiceReport, url: str, now: datetime) -> Page:
    """Return the page about the whole service."""
    verdict = status.verdict
    page: list[Line | Grid] = [_headline(status, now)]
    if not verdict.problems and (dead := sum(one.tables.dead for one in status.catalogs)):
        page.append(Line(f"  {pluralise(dead, 'table')} given up; the dead letters were discarded"))
    for one in verdict.problems:
        page.append(Line(f"  ! {describe_problem(one, now)}", Tone.WARNING))
        page += [Line(f"      → {escape(text)}") for text in (one.command, one.advice) if text]
    page += [
        Line(""),
        Line(
            f"sfn {escape(status.version)}{_describe_roles(status)} at {url}, "
            f"up {format_duration(now - status.started_at)}",
            Tone.QUIET,
        ),
        Line(""),
    ]
    columns = ("CATALOG", *_NUMERIC_COLUMNS, "LAST ANSWER", "LAST SWEEP")
    page.append(Grid(columns, [_row(one, now) for one in status.catalogs], frozenset(_NUMERIC_COLUMNS), "LAST SWEEP"))
    notes = [note for catalog in status.catalogs for note in _notes(catalog, now)]
    return [*page, Line(""), *(Line(escape(note), Tone.QUIET) for note in notes)] if notes else page


def describe_problem(problem: StatusProblem, now: datetime) -> str:
    """Return a problem in one line: what, since when, and why."""
    since = "" if problem.since is None else f" since {format_since(problem.since, now)}"
    lasting = "" if problem.since is None else f" ({format_duration(now - problem.since)})"
    cause = "" if problem.cause is None else f": {problem.cause}"
    return escape(f"{problem.what}{since}{lasting}{cause}")


def _headline(status: ServiceReport, now: datetime) -> Line:
    from sfn.admin.verdict import headline

    tones = {"well": Tone.GOOD, "attention": Tone.BAD}
    return Line(escape(headline(status, now)), tones.get(status.verdict.state, Tone.PLAIN))


def _row(catalog: CatalogModel, now: datetime) -> tuple[str, ...]:
    from sfn.admin.verdict import describe_sweep

    tables, name = catalog.tables, f"{catalog.name} (retired)" if catalog.retired else catalog.name
    counts = (tables.total, catalog.live_tables, catalog.late_tables, tables.retrying, tables.dead, tables.held)
    lag = "-" if catalog.lag is None else format_seconds(catalog.lag.p95)
    if catalog.is_event_only:
        return (name, *(f"{count:,}" for count in counts), lag, "-", "-")
    answered = "none yet" if catalog.answered_at is None else format_ago(catalog.answered_at, now)
    return (name, *(f"{count:,}" for count in counts), lag, answered, escape(describe_sweep(catalog.sweep, now)))


def _notes(catalog: CatalogModel, now: datetime) -> Iterator[str]:
    """Yield what an operator may want to know of a catalog, and need not act on."""
    from sfn.admin.verdict import are_many_missing, describe_missing

    missing = catalog.missing_tables - catalog.tables.held
    if missing > 0 and not are_many_missing(catalog) and catalog.missing_since is not None:
        since = f"{format_since(catalog.missing_since, now)} ({format_duration(now - catalog.missing_since)})"
        yield f"{describe_missing(catalog)} since {since}; not counted as dropped yet"
    if catalog.open_intents:
        commits, at = pluralise(catalog.open_intents, "commit"), catalog.oldest_intent_at
        oldest = f", the oldest from {format_duration(now - at)} ago" if at is not None else ""
        yield f"{catalog.name}: {commits} through a gateway with an outcome that is not known yet{oldest}"


def _describe_roles(status: ServiceReport) -> str:
    """Return the roles of the process that answered, if other processes have the rest."""
    return f" ({', '.join(escape(role) for role in status.roles)} only)" if status.roles else ""


REFRESH_INTERVAL: Final = 2.0
"""Seconds between two refreshes of --watch."""


def status(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="NS.TABLE",
            help="A table, to see its state, such as sales.orders or prod:sales.orders; a dot in a part is %2E.",
            show_default=False,
        ),
    ] = None,
    *,
    catalog: options.Catalog = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every two seconds, until Ctrl-C.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="End with 1 if something needs attention.")] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Show the state of the service: what needs attention, since when, why, and what to do. Or of one table.

    The columns count tables. LIVE: with an SFN file that readers follow. LATE: waiting longer than
    telemetry.late_after. RETRYING: failed, and waiting for the next attempt. DEAD: given up, also after the dead
    letter was discarded. HELD: held by the drop limit. p95 LAG: 95 of 100 publishes of the last hour, without the
    first ones of tables, came at most so long after their commit.

    Ends with 0 if the service answers. With --exit-code it ends with 1 if something needs attention.
    """
    from sfn.cli.client import open_service

    with open_service(options.ServiceOptions(config, url, token_file, ca_file)) as service:

        def render() -> bool:
            return (
                _show_service(service, as_json=as_json, on_one_line=watch)
                if table is None
                else _show_table(service, table, catalog, as_json=as_json, on_one_line=watch)
            )

        good = _watch(render) if watch else render()
    if exit_code and not good:
        raise typer.Exit(FAILED)


def _watch(render: Callable[[], bool]) -> bool:
    """Refresh until Ctrl-C, even while the service does not answer. Return whether the last refresh was fine."""
    from sfn.cli.render import clear_screen, print_error
    from sfn.errors import SfnError
    from sfn.settings.sources import ConfigurationError

    good = True
    try:
        while True:
            clear_screen()
            try:
                good = render()
            except ConfigurationError:
                raise
            except SfnError as error:
                print_error(str(error))
                good = False
            time.sleep(REFRESH_INTERVAL)
    except KeyboardInterrupt:
        return good


def _show_service(service: ServiceClient, *, as_json: bool, on_one_line: bool) -> bool:
    """Print the state of the service. Return whether nothing needs attention."""
    from sfn.cli.render import print_json, print_page

    now, found = SystemClock().now(), service.status()
    if as_json:
        print_json(found, on_one_line=on_one_line)
    else:
        print_page(status_page(found, service.url, now))
    return not found.verdict.problems


def _show_table(service: ServiceClient, table: str, catalog: str | None, *, as_json: bool, on_one_line: bool) -> bool:
    """Print the state of a table. Return whether it needs no operator."""
    from sfn.admin.table_verdict import VerdictSeverity, table_verdict
    from sfn.cli.client import UnknownToService
    from sfn.cli.options import parse_table_name
    from sfn.cli.render import print_json, print_page
    from sfn.cli.table import table_page
    from sfn.errors import SfnError

    typed = parse_table_name(table, catalog=catalog)
    catalog = service.resolve_catalog(typed.catalog)
    try:
        with service.explain_unknown(catalog):
            found = service.table(catalog, typed.namespace, typed.name, ask_catalog=True)
    except UnknownToService as error:
        remedy = f"check the name and --catalog; `sfn notify {table}` reports a table, `sfn reconcile` finds all tables"
        expected = "a table that the service knows"
        raise SfnError(f"{catalog}:{typed.identifier}", expected=expected, found=error.found, remedy=remedy) from None
    now = SystemClock().now()
    if as_json:
        print_json(found, on_one_line=on_one_line)
    else:
        print_page(table_page(found, now))
    return table_verdict(found, now).severity is not VerdictSeverity.BAD
