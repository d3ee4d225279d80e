"""`sfn status`: the state of the service, or of one table. Also the remedies of dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.options import FAILED
from sfn.cli.render import Grid, Line, Page, Tone, escape, format_ago, pluralise
from sfn.clock import SystemClock, format_duration
from sfn.domain.identifiers import encode_identifier
from sfn.domain.jobs import DeadLetterReason

if TYPE_CHECKING:
    from sfn.admin.schemas import CatalogModel, CircuitBreakerModel, DeadLetterModel, ServiceStatus, SweepModel
    from sfn.cli.client import ServiceClient


def adopt_command(catalog: str | None, foreign_id: str | None, table: str = "") -> str:
    """Return the command that takes over files of another `catalog_id`, with a placeholder if that is unknown."""
    # The id comes from a foreign file and is pasted into a shell.
    source = "CATALOG_ID" if foreign_id is None else quote(escape(foreign_id))
    return f"sfn adopt {catalog} --from {source} {table}".rstrip()


def remedy_for(letter: DeadLetterModel, foreign_id: str | None = None) -> str:
    """Return what an operator can do about a dead letter, with the commands.

    Args:
        letter: the dead letter.
        foreign_id: the `catalog_id` in the foreign file at the table's place; None if unknown.
    """
    replay = f"`sfn dead-letters replay {letter.id}`"
    catalog, table = letter.catalog, encode_identifier(letter.namespace or [], letter.name or "")
    match letter.reason:
        case DeadLetterReason.HELD_DROP:
            return f"check the catalog; if the drop is intended: `sfn release {catalog}`, or {replay} for this table"
        case DeadLetterReason.FOREIGN_CATALOG:
            adopt = f"`{adopt_command(catalog, foreign_id, table)}`"
            return (
                f"{adopt} if the file is this catalog's, or set catalogs.{catalog}.catalog_id, "
                "or move one of the two tables"
            )
        case DeadLetterReason.FOREIGN_FILE:
            return f"move the file away, then {replay}"
        case DeadLetterReason.LOCATION_REFUSED:
            settings = f"stores.NAME.prefix or catalogs.{catalog}.allowed_locations"
            return f"set {settings}, or exclude the table; restart the service, then {replay}"
        case DeadLetterReason.PERMANENT:
            return f"fix the problem in the detail, then {replay}"
        case DeadLetterReason.EXHAUSTED:
            return f"fix the last error, which the detail shows, then {replay}"
        case DeadLetterReason.POISON:
            see = "see the detail and the service's log for why its attempts failed or ended the process"
            return f"{see}; then {replay}. A table that ended the process is tried again after 8 h in any case"
        case DeadLetterReason.UNDECODABLE:
            return f"fix the sender, or upgrade the service, then {replay}: the request is decoded again"
        case _:
            return "use the `sfn` of the service's own version: this one does not know the reason"


LATE_AFTER: Final = timedelta(minutes=5)
"""How long a job may be due before it counts as late. A healthy service is much faster."""

_MAX_NAMED: Final = 3
"""The most namespaces or tables in one line."""
_NUMERIC_COLUMNS: Final = ("LIVE", "DUE", "SCHEDULED", "RETRYING", "LEASED", "DEAD", "HELD")


@dataclass(frozen=True, slots=True)
class Attention:
    """A problem that needs an operator.

    Attributes:
        what: the problem.
        command: the next command to run; may be empty.
    """

    what: str
    command: str = ""


def attention_items(status: ServiceStatus, now: datetime) -> list[Attention]:
    """Return the problems that need an operator, the most severe first."""
    found = [Attention(f"not ready: {escape(', '.join(status.not_ready_reasons))}")] if not status.ready else []
    # A breaker with more than one slot has had a success since, so the problem is over.
    found += [
        Attention(_describe_breaker(breaker, now), "sfn check")
        for breaker in status.breakers
        if breaker.allowed_probes <= 1
    ]
    for catalog in status.catalogs:
        found.extend(_catalog_items(catalog, now, is_unreachable=is_unreachable(status, catalog.name)))
    given_up = {
        reason: number for reason, number in status.dead_letters.items() if reason != DeadLetterReason.HELD_DROP
    }
    if total := sum(given_up.values()):
        kinds = ", ".join(f"{number:,} {escape(reason)}" for reason, number in sorted(given_up.items()))
        found.append(Attention(f"{pluralise(total, 'dead letter')}: {kinds}", "sfn dead-letters list --by-cause"))
    return found


def status_page(status: ServiceStatus, url: str, now: datetime) -> Page:
    """Return the page about the whole service."""
    wrong = attention_items(status, now)
    page: list[Line | Grid] = [_headline(status, wrong)]
    if not wrong and (dead := sum(one.tables.dead for one in status.catalogs)):
        page.append(Line(f"  {pluralise(dead, 'table')} given up; the dead letters were discarded"))
    for one in wrong:
        page.append(Line(f"  ! {one.what}", Tone.WARNING))
        if one.command:
            page.append(Line(f"      → {one.command}"))
    page += [
        Line(""),
        Line(
            f"sfn {escape(status.version)}{_describe_roles(status)} at {url}, "
            f"up {format_duration(now - status.started_at)}",
            Tone.QUIET,
        ),
        Line(""),
    ]
    columns = ("CATALOG", *_NUMERIC_COLUMNS, "OLDEST DUE", "LAST SWEEP")
    page.append(Grid(columns, [_row(one, now) for one in status.catalogs], frozenset(_NUMERIC_COLUMNS), "LAST SWEEP"))
    if few := [one for one in status.catalogs if one.missing_tables and not _are_many_missing(one)]:
        page += [
            Line(""),
            *(Line(f"{_describe_missing(one, now)}; not counted as dropped yet", Tone.QUIET) for one in few),
        ]
    if open_ones := [one for one in status.catalogs if one.open_intents]:
        page += [Line(""), *(Line(_describe_open_intents(one, now), Tone.QUIET) for one in open_ones)]
    return page


def is_unreachable(status: ServiceStatus, catalog: str) -> bool:
    """Return whether a catalog did not answer the service's last queries."""
    return any(one.scope == "catalog" and one.name == catalog and one.allowed_probes <= 1 for one in status.breakers)


def describe_sweep(sweep: SweepModel | None, now: datetime) -> str:
    """Return the progress of a running sweep, or the result of an ended one."""
    if sweep is None:
        return "none yet"
    if sweep.is_running:
        total = max(sweep.known_tables, sweep.tables)
        return f"running for {format_duration(now - sweep.started_at)}: {sweep.tables:,} of {total:,}"
    when = format_ago(sweep.ended_at or sweep.started_at, now)
    if sweep.state != "ended":
        return f"{escape(sweep.state)} {when}"
    return f"{when}: {pluralise(sweep.tables, 'table')}, {sweep.differences_total:,} differed"


def _headline(status: ServiceStatus, wrong: list[Attention]) -> Line:
    if wrong:
        needs = "thing needs" if len(wrong) == 1 else "things need"
        return Line(f"{len(wrong)} {needs} attention", Tone.BAD)
    if first := [one.name for one in status.catalogs if _is_first_sweep_running(one)]:
        names = ", ".join(f"`{escape(name)}`" for name in first)
        sweeps = "first sweep of" if len(first) == 1 else "first sweeps of"
        return Line(f"starting: {sweeps} {names} {'is' if len(first) == 1 else 'are'} running")
    live = sum(one.live_tables for one in status.catalogs)
    others = sum(one.tables.total for one in status.catalogs) - live
    waiting = sum(one.tables.due + one.tables.retrying + one.tables.leased for one in status.catalogs)
    work = f"{waiting:,} in the queue" if waiting else "queue empty"
    without = f" and {others:,} without a file (dropped, excluded, not published yet)" if others > 0 else ""
    return Line(f"all is well: {pluralise(live, 'table')}{without}; {work}", Tone.GOOD)


def _is_first_sweep_running(catalog: CatalogModel) -> bool:
    """Return whether the first sweep of a catalog is running: the inbox knew none of its tables before."""
    sweep = catalog.sweep
    return sweep is not None and sweep.is_running and sweep.previous is None and not sweep.known_tables


def format_since(at: datetime, now: datetime) -> str:
    """Return a time in UTC, without the date if that is today."""
    at = at.astimezone(UTC)
    return f"{at:%H:%M:%S} UTC" if at.date() == now.date() else f"{at:%F %H:%M:%S} UTC"


def _describe_breaker(breaker: CircuitBreakerModel, now: datetime) -> str:
    name = f" {escape(breaker.name)}" if breaker.name else ""
    since, lasting = format_since(breaker.failing_since, now), format_duration(now - breaker.failing_since)
    what = f"the {breaker.scope}{name} has failed since {since} ({lasting})"
    return f"{what}; next attempt {format_ago(breaker.open_until, now)}: {escape(breaker.error)}"


def _catalog_items(catalog: CatalogModel, now: datetime, *, is_unreachable: bool) -> Iterator[Attention]:
    name = catalog.name
    # Without a job or a sweep, the catalog was never queried.
    if catalog.catalog_id is None and (catalog.tables.total or catalog.sweep is not None):
        yield Attention(f"{name}: no answer from the catalog yet", "sfn check")
    if catalog.foreign_catalog_id is not None:
        what = f"{name}: its files carry the catalog_id {escape(catalog.foreign_catalog_id)}, but the catalog's is now "
        yield Attention(
            f"{what}{escape(catalog.catalog_id or 'unknown')}: new commits are not published",
            adopt_command(name, catalog.foreign_catalog_id),
        )
    if catalog.retired:
        yield Attention(_describe_retired(catalog, is_unreachable=is_unreachable), f"sfn retire {name} --undo")
    if _are_many_missing(catalog):
        yield Attention(
            _describe_missing(catalog, now),
            f"check whether {name} lost the tables or they were dropped; to list them: sfn reconcile --catalog {name}",
        )
    drop_limit = catalog.drop_limit
    if held := max(drop_limit.on_hold, catalog.tables.held):
        yield Attention(
            f"{name}: the drop limit holds {pluralise(held, 'table')} for an operator "
            f"(at most {drop_limit.limit:,} drops or rollbacks per hour); {'its' if held == 1 else 'their'} files stay "
            "unchanged",
            f"if {name} lost tables, restore them, then sfn reconcile --catalog {name}; if they were dropped on "
            f"purpose: sfn release {name}; to list them: sfn dead-letters list --catalog {name} --reason held-drop",
        )
    elif drop_limit.limit_reached:
        yield Attention(f"{name}: the drop limit is reached, further drops will be held", f"sfn release {name}")
    late = now - catalog.oldest_due_at if catalog.oldest_due_at is not None else timedelta()
    if late > LATE_AFTER:
        waiting = pluralise(catalog.tables.due + catalog.tables.retrying, "table")
        given_up = f", {catalog.tables.dead:,} given up" if catalog.tables.dead else ""
        yield Attention(f"{name}: late for {format_duration(late)}, {waiting} in the queue{given_up}")
    if catalog.sweep is not None:
        # A running sweep may reach the faulty tables last, so the previous sweep's findings are shown, too.
        sweeps = (catalog.sweep.previous, catalog.sweep) if catalog.sweep.is_running else (catalog.sweep,)
        found = (attention for sweep in sweeps if sweep is not None for attention in _sweep_items(name, sweep))
        yield from dict.fromkeys(found)


def _are_many_missing(catalog: CatalogModel) -> bool:
    """Return whether more tables are missing than usual drops explain: more than one, and more than 1 %."""
    return catalog.missing_tables > max(1, catalog.live_tables // 100)


def _describe_missing(catalog: CatalogModel, now: datetime) -> str:
    since = catalog.missing_since or now
    verb = "has" if catalog.missing_tables == 1 else "have"
    tables = f"{catalog.missing_tables:,} of its {pluralise(max(catalog.live_tables, catalog.missing_tables), 'table')}"
    lasting = format_duration(now - since)
    return f"{catalog.name}: {tables} {verb} been missing from the catalog since {format_since(since, now)} ({lasting})"


def _describe_retired(catalog: CatalogModel, *, is_unreachable: bool) -> str:
    if not catalog.live_tables:
        return f"{catalog.name} is retired: no live table is left; remove it from the configuration, or undo"
    left = f"{catalog.live_tables:,} of its tables still {'has a file' if catalog.live_tables == 1 else 'have files'}"
    why = "the catalog is unreachable, and is queried before each removal" if is_unreachable else "being removed"
    return f"{catalog.name} is retired: {left} ({why}); leave it in the configuration until no table has"


def _sweep_items(name: str, sweep: SweepModel) -> Iterator[Attention]:
    if sweep.state == "failed":
        yield Attention(f"{name}: the last sweep failed: {escape(sweep.error or 'no reason given')}", "sfn check")
    if sweep.listing_failed:
        what = f"{name}: could not list {_shortened(sweep.listing_failed, 'namespace')}"
        why = f": {escape(sweep.unlisted_reason)}" if sweep.unlisted_reason else ""
        yield Attention(f"{what}; nothing in them counts as dropped{why}", "sfn check")
    failed = set(sweep.listing_failed)
    if refused := [one for one in sweep.unlisted_namespaces if one not in failed]:
        yield Attention(f"{name}: no permission to list {_shortened(refused, 'namespace')}", "sfn check")
    if sweep.failed_tables:
        yield Attention(f"{name}: could not check {_shortened(sweep.failed_tables, 'table')}", "sfn check")


def _shortened(names: Sequence[str], thing: str) -> str:
    shown = ", ".join(escape(name) or "(all)" for name in names[:_MAX_NAMED])
    return f"{pluralise(len(names), thing)}: {shown}{', …' if len(names) > _MAX_NAMED else ''}"


def _row(catalog: CatalogModel, now: datetime) -> tuple[str, ...]:
    tables, name = catalog.tables, f"{catalog.name} (retired)" if catalog.retired else catalog.name
    counts = (
        catalog.live_tables,
        tables.due,
        tables.scheduled,
        tables.retrying,
        tables.leased,
        tables.dead,
        tables.held,
    )
    oldest = "-" if catalog.oldest_due_at is None else format_ago(catalog.oldest_due_at, now)
    return (
        name,
        *(f"{count:,}" for count in counts),
        oldest,
        "-" if catalog.is_event_only else describe_sweep(catalog.sweep, now),
    )


def _describe_open_intents(catalog: CatalogModel, now: datetime) -> str:
    commits, at = pluralise(catalog.open_intents, "commit"), catalog.oldest_intent_at
    oldest = f", the oldest from {format_duration(now - at)} ago" if at is not None else ""
    return f"{catalog.name}: {commits} through a gateway with an outcome that is not known yet{oldest}"


def _describe_roles(status: ServiceStatus) -> str:
    """Return the roles of the process that answered, if other processes have the rest."""
    return f" ({', '.join(escape(role) for role in status.roles)} only)" if status.roles else ""


REFRESH_INTERVAL: Final = 2.0
"""Seconds between two refreshes of --watch."""


def status(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="NS.TABLE", help="A table, to see its state; a dot in a part is %2E.", show_default=False
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
    """Show the state of the service: what needs attention, the queue, lag, circuit breakers, sweeps. Or of one table.

    The columns count tables. LIVE: with a current SFN file. DUE: waiting for a worker. SCHEDULED: with a check at a
    later time. RETRYING: failed, with another attempt to come. LEASED: at a worker now. DEAD: given up, also after the
    dead letter was discarded. HELD: held by the drop limit.

    Ends with 0 if the service answers. With --exit-code it ends with 1 if something needs attention.
    """
    from sfn.cli.client import open_service

    with open_service(options.ServiceOptions(config, url, token_file, ca_file)) as service:

        def render() -> bool:
            return (
                _show_service(service, as_json=as_json)
                if table is None
                else _show_table(service, table, catalog, as_json=as_json)
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


def _show_service(service: ServiceClient, *, as_json: bool) -> bool:
    """Print the state of the service. Return whether nothing needs attention."""
    from sfn.cli.render import print_json, print_page

    now, found = SystemClock().now(), service.status()
    wrong = attention_items(found, now)
    if as_json:
        print_json({"attention": wrong, **found.model_dump()})
    else:
        print_page(status_page(found, service.url, now))
    return not wrong


def _show_table(service: ServiceClient, table: str, catalog: str | None, *, as_json: bool) -> bool:
    """Print the state of a table. Return whether it needs no operator."""
    from sfn.cli.client import UnknownToService
    from sfn.cli.options import parse_table_name
    from sfn.cli.render import Tone, print_json, print_page
    from sfn.cli.table import table_page, table_verdict
    from sfn.errors import SfnError

    typed = parse_table_name(table, catalog=catalog)
    catalog = service.resolve_catalog(typed.catalog)
    try:
        found = service.table(catalog, typed.namespace, typed.name)
    except UnknownToService as error:
        remedy = f"check the name and --catalog; `sfn notify {table}` reports a table, `sfn reconcile` finds all tables"
        expected = "a table that the service knows"
        raise SfnError(f"{catalog}:{typed.identifier}", expected=expected, found=error.found, remedy=remedy) from None
    now = SystemClock().now()
    if as_json:
        print_json(found)
    else:
        print_page(table_page(found, now, service.status().breakers))
    return table_verdict(found, now).tone is not Tone.BAD
