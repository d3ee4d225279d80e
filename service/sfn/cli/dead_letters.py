"""`sfn dead-letters`: list, show, replay and discard dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from sfn.admin.remedies import remedy_for
from sfn.cli import options
from sfn.cli.options import FAILED
from sfn.cli.render import Grid, Line, Tone, escape, format_time, progress
from sfn.clock import SystemClock, format_ago
from sfn.domain.identifiers import encode_identifier

if TYPE_CHECKING:
    from sfn.admin.schemas import (
        DeadLetterCause,
        DeadLetterCauses,
        DeadLetterCriteria,
        DeadLetterDetails,
        DeadLetterModel,
        DeadLetterPage,
        DeadLetterSelection,
        FailedReplay,
    )
    from sfn.cli.client import ServiceClient

MAX_IDS: Final = 100
"""The most ids in one request. A dead letter may be a request of many events, so more could take too long."""


@dataclass(slots=True)
class BatchResult:
    """The result of all batches.

    Attributes:
        count: the number of dead letters that were replayed or discarded.
        failed: the dead letters that could not be replayed.
        skipped: the ids without an open dead letter.
    """

    count: int = 0
    failed: list[FailedReplay] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)


def fetch_letters(service: ServiceClient, criteria: DeadLetterCriteria, status: str, limit: int) -> DeadLetterPage:
    """Return the dead letters that match, oldest first.

    Args:
        service: the client of the service.
        criteria: the filter.
        status: the status of the dead letters.
        limit: the most dead letters; 0 for all.
    """
    from sfn.admin.schemas import MAX_BATCH, DeadLetterPage

    found: list[DeadLetterModel] = []
    after: int | None = None
    while True:
        most = min(MAX_BATCH, limit - len(found)) if limit else MAX_BATCH
        page = service.dead_letters(_query_parameters(criteria, status, after, most))
        found += page.dead_letters
        after = page.next
        if after is None or (limit and len(found) >= limit):
            return DeadLetterPage(dead_letters=found, next=after)


def causes_grid(found: Sequence[DeadLetterCause], now: datetime) -> Grid:
    """Return a grid with one row per cause."""
    rows = [
        (f"{one.count:,}", one.reason, format_ago(one.opened_at, now), str(one.example), escape(one.cause))
        for one in found
    ]
    return Grid(("LETTERS", "REASON", "SINCE", "FOR EXAMPLE", "CAUSE"), rows, frozenset({"LETTERS"}), "CAUSE")


def count_open(service: ServiceClient, criteria: DeadLetterCriteria) -> int:
    """Return how many open dead letters match a filter."""
    from sfn.admin.schemas import MAX_BATCH

    total, after = 0, None
    while True:
        page = service.dead_letters(_query_parameters(criteria, "open", after, MAX_BATCH))
        total += len(page.dead_letters)
        after = page.next
        if after is None:
            return total


def replay_all(service: ServiceClient, numbers: list[int], criteria: DeadLetterCriteria, total: int) -> BatchResult:
    """Replay dead letters in batches: those with the given ids, or else all open ones that match the filter."""
    done = BatchResult()
    with progress("queueing", total) as on_progress:

        def replay(batch: DeadLetterSelection) -> int | None:
            some = service.replay(batch)
            done.count += some.replayed
            done.failed += some.failed
            done.skipped += some.skipped
            on_progress(done.count + len(done.failed), total)
            return some.next

        _in_batches(replay, numbers, criteria, total)
    return done


def discard_all(service: ServiceClient, numbers: list[int], criteria: DeadLetterCriteria, total: int) -> BatchResult:
    """Discard dead letters in batches: those with the given ids, or else all open ones that match the filter."""
    done = BatchResult()
    with progress("discarding", total) as on_progress:

        def discard(batch: DeadLetterSelection) -> int | None:
            some = service.discard(batch)
            done.count += some.discarded
            done.skipped += some.skipped
            on_progress(done.count, total)
            return some.next

        _in_batches(discard, numbers, criteria, total)
    return done


def explain_not_open(service: ServiceClient, number: int, now: datetime) -> str:
    """Return why a dead letter cannot be replayed or discarded, and the open one of the same table."""
    from sfn.admin.schemas import DeadLetterCriteria
    from sfn.cli.client import UnknownToService

    try:
        letter = service.dead_letter(number)
    except UnknownToService:
        return f"there is no dead letter {number}: `sfn dead-letters list` shows the open ones"
    closed = f"dead letter {number} is closed ({escape(letter.status)} {format_ago(letter.changed_at, now)})"
    if letter.table is None or letter.namespace is None or letter.name is None:
        return closed
    name = encode_identifier(letter.namespace, letter.name)
    found = service.dead_letters(
        _query_parameters(DeadLetterCriteria(catalog=letter.catalog, table=name), "open", None, 1)
    ).dead_letters
    if not found:
        return f"{closed}; {escape(name)} has no open one"
    return f"{closed}; the open one of {escape(name)} is {found[0].id}"


def letter_lines(letter: DeadLetterDetails, now: datetime) -> Iterator[Line | Grid]:
    """Yield the parts of a page about one dead letter."""
    from sfn.cli.table import describe_key

    actor = "" if letter.actor is None else f" by {escape(letter.actor)}"
    yield Line(f"dead letter {letter.id}: {letter.reason}, {letter.status}", Tone.BAD)
    rows = [
        ("about", escape(describe_key(letter))),
        ("sender", escape(letter.sender or "-")),
        ("opened", f"{format_time(letter.opened_at)} ({format_ago(letter.opened_at, now)})"),
        ("changed", f"{format_time(letter.changed_at)} ({format_ago(letter.changed_at, now)}){actor}"),
        ("attempts", str(letter.attempts)),
        ("detail", escape(letter.detail)),
    ]
    if letter.status == "open":
        rows.append(("remedy", escape(remedy_for(letter, letter.foreign_catalog_id))))
    event = letter.request
    if event is not None:
        kind = escape(event.content_type or "no content type")
        rows.append(("request", f"POST {escape(event.path)}, {kind}, {event.size:,} bytes; stored:"))
    yield Grid(("", " "), rows, wide_column=" ")
    if event is not None:
        for line in event.body.splitlines():
            yield Line(f"  {escape(line)}")
    yield Line("")


def _search_parameters(criteria: DeadLetterCriteria, status: str) -> dict[str, str | int]:
    return {"status": status, **criteria.model_dump(mode="json", exclude_none=True)}


def _query_parameters(criteria: DeadLetterCriteria, status: str, after: int | None, limit: int) -> dict[str, str | int]:
    given = {**_search_parameters(criteria, status), "limit": limit}
    return given if after is None else {**given, "after": after}


def _in_batches(
    send: Callable[[DeadLetterSelection], int | None], numbers: list[int], criteria: DeadLetterCriteria, total: int
) -> None:
    """Send all batches of a selection; no request if nothing is selected.

    Args:
        send: sends a batch, and returns the id after which the next batch starts, or None at the end.
        numbers: the ids; empty to use the filter.
        criteria: the filter.
        total: the number of matching dead letters.
    """
    from sfn.admin.schemas import MAX_BATCH, DeadLetterSelection

    for start in range(0, len(numbers), MAX_IDS):
        send(DeadLetterSelection(ids=numbers[start : start + MAX_IDS]))
    after: int | None = 0
    while not numbers and total and after is not None:
        after = send(DeadLetterSelection(filter=criteria, after=after, limit=MAX_BATCH))


MAX_EXPLAINED: Final = 10
"""The most ids without an open dead letter that are explained one by one."""

app = typer.Typer(
    name="dead-letters",
    no_args_is_help=True,
    help="List, show, replay or discard tables and requests that could not be published.",
)


class StatusOption(StrEnum):
    """The status of a dead letter, as an option."""

    OPEN = "open"
    REPLAYED = "replayed"
    SUPERSEDED = "superseded"
    DISCARDED = "discarded"
    ALL = "all"


TableOption: TypeAlias = Annotated[
    str | None, typer.Option("--table", metavar="NS.TABLE", help="Dead letters of this table.", show_default=False)
]
CatalogOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Dead letters of this catalog.",
        show_default=False,
        autocompletion=options.complete_catalog,
    ),
]
SenderOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--sender", metavar="NAME", help="Undecodable requests of this sender.", show_default=False),
]
CauseOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--cause", metavar="TEXT", help="Dead letters with this text in their cause.", show_default=False),
]
IdsArgument: TypeAlias = Annotated[
    list[int] | None, typer.Argument(metavar="ID", show_default=False, help="The dead letters' ids.")
]
AllOption: TypeAlias = Annotated[bool, typer.Option("--all", help="All open ones; required without ids and filters.")]


@app.command("list")
def list_letters(
    *,
    table: TableOption = None,
    catalog: CatalogOption = None,
    reason: options.Reason = None,
    cause: CauseOption = None,
    sender: SenderOption = None,
    older_than: options.OlderThan = None,
    newer_than: options.NewerThan = None,
    status: Annotated[StatusOption, typer.Option("--status", help="The status.")] = StatusOption.OPEN,
    by_cause: Annotated[bool, typer.Option("--by-cause", help="Count by reason and cause.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="The most dead letters; 0 for all.")] = 100,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """List dead letters, oldest first. The default --status is open.

    --by-cause counts them, and ignores --limit.
    """
    from sfn.cli.client import open_service
    from sfn.cli.render import Line, Tone, print_error, print_json, print_page
    from sfn.cli.table import dead_letters_grid

    chosen = _criteria(table, catalog, reason, sender, older_than, newer_than, cause)
    text = "no open dead letters" if status is StatusOption.OPEN else "no dead letters with this status"
    with open_service(options.ServiceOptions(config, url, token_file, ca_file)) as service:
        if by_cause:
            _print_causes(service.dead_letter_causes(_search_parameters(chosen, status)), text, as_json=as_json)
            return
        found = fetch_letters(service, chosen, status, limit)
    if as_json:
        print_json(found)
    elif not found.dead_letters:
        print_page([Line(text, Tone.GOOD)])
    else:
        with_status = status is StatusOption.ALL
        print_page([dead_letters_grid(found.dead_letters, SystemClock().now(), with_status=with_status)])
    if found.next is not None:
        print_error(f"there are more than {limit}: add a filter, or pass --limit 0 for all")


@app.command()
def show(
    numbers: Annotated[list[int], typer.Argument(metavar="ID", help="The dead letters' ids.", show_default=False)],
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Show dead letters in full: what happened, the remedy, and the undecodable request."""
    from sfn.admin.remedies import remedy_for
    from sfn.cli import render
    from sfn.cli.client import open_service

    with open_service(options.ServiceOptions(config, url, token_file, ca_file)) as service:
        found = [service.dead_letter(number) for number in numbers]
    if as_json:
        letters = [{**letter.model_dump(), "remedy": remedy_for(letter, letter.foreign_catalog_id)} for letter in found]
        render.print_json({"dead_letters": letters})
    else:
        now = SystemClock().now()
        render.print_page([line for letter in found for line in letter_lines(letter, now)])


@app.command()
def replay(
    numbers: IdsArgument = None,
    *,
    table: TableOption = None,
    catalog: CatalogOption = None,
    reason: options.Reason = None,
    cause: CauseOption = None,
    sender: SenderOption = None,
    older_than: options.OlderThan = None,
    newer_than: options.NewerThan = None,
    every: AllOption = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Try dead letters again: those with the given ids, or all open ones that match the filters.

    A held drop passes once. Ends with 1 if a dead letter could not be replayed.
    """
    from sfn.cli.client import open_service
    from sfn.cli.render import print_error, print_json

    chosen = _criteria(table, catalog, reason, sender, older_than, newer_than, cause)
    _check_selection(numbers, chosen, every=every)
    with open_service(options.ServiceOptions(config, url, token_file, ca_file)) as service:
        numbers = list(dict.fromkeys(numbers or []))
        total = _confirm_selection(service, "replay", numbers, chosen, yes=yes)
        done = replay_all(service, numbers, chosen, total)
        passed = _explain_skipped(service, done)
    if as_json:
        print_json({"replayed": done.count, "failed": done.failed, "passed": done.skipped})
    elif done.count:
        typer.echo(f"queued {done.count:,} of {total:,} for another attempt; `sfn status` shows the result")
    for line in (*(f"dead letter {failure.id}: {failure.why}" for failure in done.failed), *passed):
        print_error(line)
    if done.failed or passed:
        raise typer.Exit(FAILED)


@app.command()
def discard(
    numbers: IdsArgument = None,
    *,
    table: TableOption = None,
    catalog: CatalogOption = None,
    reason: options.Reason = None,
    cause: CauseOption = None,
    sender: SenderOption = None,
    older_than: options.OlderThan = None,
    newer_than: options.NewerThan = None,
    every: AllOption = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Close dead letters without another attempt: those with the given ids, or all open ones that match the filters.

    Nothing is deleted: `sfn dead-letters list --status discarded` shows them. Ends with 1 if one was not open.
    """
    from sfn.cli.client import open_service
    from sfn.cli.render import print_error, print_json

    chosen = _criteria(table, catalog, reason, sender, older_than, newer_than, cause)
    _check_selection(numbers, chosen, every=every)
    with open_service(options.ServiceOptions(config, url, token_file, ca_file)) as service:
        numbers = list(dict.fromkeys(numbers or []))
        total = _confirm_selection(service, "discard", numbers, chosen, yes=yes)
        done = discard_all(service, numbers, chosen, total)
        passed = _explain_skipped(service, done)
    if as_json:
        print_json({"discarded": done.count, "passed": done.skipped})
    elif done.count:
        typer.echo(f"discarded {done.count:,} of {total:,}")
    for line in passed:
        print_error(line)
    if passed:
        raise typer.Exit(FAILED)


def _print_causes(counted: DeadLetterCauses, none: str, *, as_json: bool) -> None:
    """Print dead letters by cause, or the text `none`."""
    from sfn.cli.render import Line, Tone, print_error, print_json, print_page

    if as_json:
        print_json(counted)
    else:
        now = SystemClock().now()
        print_page([causes_grid(counted.causes, now) if counted.causes else Line(none, Tone.GOOD)])
    if counted.has_more:
        print_error(f"only the newest are counted ({counted.letters:,} match): add a filter to count older ones")


def _criteria(
    table: str | None,
    catalog: str | None,
    reason: str | None,
    sender: str | None,
    older_than: timedelta | None,
    newer_than: timedelta | None,
    cause: str | None,
) -> DeadLetterCriteria:
    from sfn.admin.schemas import DeadLetterCriteria
    from sfn.cli.options import parse_table_name
    from sfn.domain.jobs import DeadLetterReason

    typed, now = None if table is None else parse_table_name(table, "--table", catalog), SystemClock().now()
    before = None if older_than is None else now - older_than
    return DeadLetterCriteria(
        catalog=catalog if typed is None else typed.catalog,
        table=None if typed is None else typed.identifier,
        reason=None if reason is None else DeadLetterReason(reason),
        sender=sender,
        before=before,
        since=None if newer_than is None else now - newer_than,
        cause_contains=cause,
    )


def _check_selection(numbers: list[int] | None, criteria: DeadLetterCriteria, *, every: bool) -> None:
    """Check that a command selects dead letters in one way: by ids, by filters, or with --all.

    Raises:
        BadParameter: it selects in no way, or in two.
    """
    from sfn.admin.schemas import DeadLetterCriteria

    ways = sum((bool(numbers), criteria != DeadLetterCriteria(), every))
    if ways == 0:
        raise typer.BadParameter("no dead letters selected: pass ids, filters, or --all for all open ones")
    if ways > 1 and (numbers or every):
        raise typer.BadParameter("pass only one of: ids, filters, --all")


def _explain_skipped(service: ServiceClient, done: BatchResult) -> list[str]:
    """Return why ids were skipped. What a filter matches may change meanwhile, so only ids are explained."""
    explanations = [explain_not_open(service, number, SystemClock().now()) for number in done.skipped[:MAX_EXPLAINED]]
    more = len(done.skipped) - len(explanations)
    return [*explanations, f"{more:,} more ids have no open dead letter"] if more else explanations


def _confirm_selection(
    service: ServiceClient, verb: str, numbers: list[int], criteria: DeadLetterCriteria, *, yes: bool
) -> int:
    """Return how many dead letters match, after asking for confirmation. Explicit ids are not confirmed."""
    from sfn.cli.render import confirm, print_error
    from sfn.errors import pluralise

    if numbers:
        return len(numbers)
    total = count_open(service, criteria)
    if not total:
        print_error(f"no open dead letter matches: nothing to {verb}")
    else:
        confirm(f"{verb} {pluralise(total, 'dead letter')}?", yes=yes)
    return total
