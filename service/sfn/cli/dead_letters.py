"""`sfn dead-letters`: what could not be published, and what to do with it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from sfn.cli import options
from sfn.cli.exits import FAILED, reported

if TYPE_CHECKING:
    from sfn.admin.schemas import Filter
    from sfn.cli.bulk import Done
    from sfn.cli.service import Service

EXPLAINED: Final = 10
"""Ids of no open letters about which more is said than that."""

app = typer.Typer(
    name="dead-letters", no_args_is_help=True, help="List, show, replay or discard what could not be published."
)


class Which(StrEnum):
    """What became of a letter."""

    OPEN = "open"
    REPLAYED = "replayed"
    SUPERSEDED = "superseded"
    DISCARDED = "discarded"
    ALL = "all"


OfTable: TypeAlias = Annotated[
    str | None, typer.Option("--table", metavar="NS.TABLE", help="Of that table.", show_default=False)
]
OfCatalog: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Of that catalog.",
        show_default=False,
        autocompletion=options.complete_catalog,
    ),
]
OfSender: TypeAlias = Annotated[
    str | None,
    typer.Option("--sender", metavar="NAME", help="Undecodable requests of that sender.", show_default=False),
]
OfCause: TypeAlias = Annotated[
    str | None,
    typer.Option("--cause", metavar="TEXT", help="With a cause that has this text in it.", show_default=False),
]
Numbers: TypeAlias = Annotated[list[int] | None, typer.Argument(metavar="ID", show_default=False)]
All: TypeAlias = Annotated[bool, typer.Option("--all", help="All that are open; needed without ids and filters.")]


@app.command("list")
def list_letters(
    *,
    table: OfTable = None,
    catalog: OfCatalog = None,
    reason: options.Reason = None,
    cause: OfCause = None,
    sender: OfSender = None,
    older_than: options.OlderThan = None,
    newer_than: options.NewerThan = None,
    status: Annotated[Which, typer.Option("--status", help="What became of them.")] = Which.OPEN,
    by_cause: Annotated[bool, typer.Option("--by-cause", help="Count them by reason and cause.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="How many at most; 0 for all.")] = 100,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """List dead letters, oldest first: those that are open, unless --status says otherwise.

    With --by-cause all of them are counted, whatever --limit says.
    """
    from sfn.cli import bulk
    from sfn.cli.access import operators
    from sfn.cli.pages import Line, Tone
    from sfn.cli.printing import complain, show, show_json
    from sfn.cli.service import Service
    from sfn.cli.story import letters_grid
    from sfn.clock import SystemClock

    chosen = _chosen(table, catalog, reason, sender, older_than, newer_than)
    with reported(), Service(operators(options.Flags(config, url, token_file, ca_file))) as service:
        found = bulk.pages(service, chosen, status, 0 if by_cause else limit, cause)
    causes = bulk.by_cause(found.dead_letters) if by_cause else []
    if as_json:
        show_json({"causes": causes} if by_cause else found)
    elif causes:
        show([bulk.causes_grid(causes, SystemClock().now())])
    elif not found.dead_letters:
        show([Line("no dead letters" if status is Which.OPEN else "none of that kind", Tone.GOOD)])
    else:
        with_status = status is Which.ALL
        show([letters_grid(found.dead_letters, SystemClock().now(), with_status=with_status)])
    if found.next is not None:
        complain(f"there are more than {limit}: narrow it down, or --limit 0 for all")


@app.command()
def show(
    numbers: Annotated[list[int], typer.Argument(metavar="ID", help="Of which letters.", show_default=False)],
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Show dead letters whole: what happened, what to do, and the event that nobody understood."""
    from sfn.cli import printing
    from sfn.cli.access import operators
    from sfn.cli.bulk import letter_page
    from sfn.cli.remedies import remedy
    from sfn.cli.service import Service
    from sfn.clock import SystemClock

    with reported(), Service(operators(options.Flags(config, url, token_file, ca_file))) as service:
        found = [service.letter(number) for number in numbers]
    if as_json:
        told = [{**letter.model_dump(), "remedy": remedy(letter, letter.foreign_id)} for letter in found]
        printing.show_json({"dead_letters": told})
    else:
        now = SystemClock().now()
        printing.show([line for letter in found for line in letter_page(letter, now)])


@app.command()
def replay(
    numbers: Numbers = None,
    *,
    table: OfTable = None,
    catalog: OfCatalog = None,
    reason: options.Reason = None,
    cause: OfCause = None,
    sender: OfSender = None,
    older_than: options.OlderThan = None,
    newer_than: options.NewerThan = None,
    every: All = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Have dead letters tried again: those with these ids, or all open ones that fit the filters.

    A held drop is let pass once. Ends with 1 where one could not be replayed.
    """
    from sfn.cli.access import operators
    from sfn.cli.bulk import replayed
    from sfn.cli.printing import complain, show_json
    from sfn.cli.service import Service

    chosen = _chosen(table, catalog, reason, sender, older_than, newer_than)
    _check_extent(numbers, chosen, cause, every=every)
    with reported(), Service(operators(options.Flags(config, url, token_file, ca_file))) as service:
        numbers = list(dict.fromkeys(numbers or []))
        total, numbers = _asked(service, "replay", numbers, chosen, cause, yes=yes)
        done = replayed(service, numbers, chosen, total)
        passed = _passed(service, done)
    if as_json:
        show_json({"replayed": done.count, "failed": done.failed, "passed": done.passed})
    elif done.count:
        typer.echo(f"queued {done.count:,} of {total:,} to be looked at again; `sfn status` tells what comes of them")
    for line in (*(f"dead letter {failure.id}: {failure.why}" for failure in done.failed), *passed):
        complain(line)
    if done.failed or passed:
        raise typer.Exit(FAILED)


@app.command()
def discard(
    numbers: Numbers = None,
    *,
    table: OfTable = None,
    catalog: OfCatalog = None,
    reason: options.Reason = None,
    cause: OfCause = None,
    sender: OfSender = None,
    older_than: options.OlderThan = None,
    newer_than: options.NewerThan = None,
    every: All = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Put dead letters away without trying them again: those with these ids, or all open ones that fit the filters.

    Nothing is deleted, `sfn dead-letters list --status discarded` shows them. Ends with 1 where one was not open.
    """
    from sfn.cli.access import operators
    from sfn.cli.bulk import discarded
    from sfn.cli.printing import complain, show_json
    from sfn.cli.service import Service

    chosen = _chosen(table, catalog, reason, sender, older_than, newer_than)
    _check_extent(numbers, chosen, cause, every=every)
    with reported(), Service(operators(options.Flags(config, url, token_file, ca_file))) as service:
        numbers = list(dict.fromkeys(numbers or []))
        total, numbers = _asked(service, "discard", numbers, chosen, cause, yes=yes)
        done = discarded(service, numbers, chosen, total)
        passed = _passed(service, done)
    if as_json:
        show_json({"discarded": done.count, "passed": done.passed})
    elif done.count:
        typer.echo(f"discarded {done.count:,} of {total:,}")
    for line in passed:
        complain(line)
    if passed:
        raise typer.Exit(FAILED)


def _chosen(
    table: str | None,
    catalog: str | None,
    reason: str | None,
    sender: str | None,
    older_than: timedelta | None,
    newer_than: timedelta | None,
) -> Filter:
    from sfn.admin.schemas import Filter
    from sfn.cli.tables import table_of
    from sfn.clock import SystemClock
    from sfn.words import Reason
    from sfn.words.table import spelled

    dotted, now = None if table is None else spelled(*table_of(table, "--table")), SystemClock().now()
    before = None if older_than is None else now - older_than
    return Filter(
        catalog=catalog,
        table=dotted,
        reason=None if reason is None else Reason(reason),
        sender=sender,
        before=before,
        since=None if newer_than is None else now - newer_than,
    )


def _check_extent(numbers: list[int] | None, chosen: Filter, cause: str | None, *, every: bool) -> None:
    """Refuse a command that says too little, or two things."""
    from sfn.admin.schemas import Filter

    ways = sum((bool(numbers), chosen != Filter() or cause is not None, every))
    if ways == 0:
        raise typer.BadParameter("which dead letters: ids, filters, or --all for all that are open")
    if ways > 1 and (numbers or every):
        raise typer.BadParameter("either ids, or filters, or --all: one of them")


def _passed(service: Service, done: Done) -> list[str]:
    """Why nothing was done about ids that were named; what a filter covers may change meanwhile."""
    from sfn.cli.bulk import not_open
    from sfn.clock import SystemClock

    told = [not_open(service, number, SystemClock().now()) for number in done.passed[:EXPLAINED]]
    more = len(done.passed) - len(told)
    return [*told, f"{more:,} more of these ids are not of open dead letters"] if more else told


def _asked(
    service: Service, verb: str, numbers: list[int], chosen: Filter, cause: str | None, *, yes: bool
) -> tuple[int, list[int]]:
    """Count the matching letters and ask for confirmation. Explicit ids are not confirmed.

    Returns:
        How many are meant, and their ids where a filter does not say it.
    """
    from sfn.cli.bulk import count, pages
    from sfn.cli.pages import counted
    from sfn.cli.printing import complain, confirm

    if numbers:
        return len(numbers), numbers
    if cause is not None:
        numbers = [one.id for one in pages(service, chosen, Which.OPEN, 0, cause).dead_letters]
    total = len(numbers) if cause is not None else count(service, chosen)
    if not total:
        complain(f"no open dead letter fits: there is nothing to {verb}")
    else:
        confirm(f"{verb} {counted(total, 'dead letter')}?", yes=yes)
    return total, numbers
