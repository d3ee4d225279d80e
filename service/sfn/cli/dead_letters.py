"""`sfn dead-letters`: what could not be published, and what to do with it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from sfn.cli import options
from sfn.cli.exits import FAILED, exit_on_error

if TYPE_CHECKING:
    from sfn.admin.schemas import DeadLetterCriteria
    from sfn.cli.bulk import BatchResult
    from sfn.cli.service import ServiceClient

MAX_EXPLAINED: Final = 10
"""Ids of no open letters about which more is said than that."""

app = typer.Typer(
    name="dead-letters", no_args_is_help=True, help="List, show, replay or discard what could not be published."
)


class StatusOption(StrEnum):
    """What became of a letter."""

    OPEN = "open"
    REPLAYED = "replayed"
    SUPERSEDED = "superseded"
    DISCARDED = "discarded"
    ALL = "all"


TableOption: TypeAlias = Annotated[
    str | None, typer.Option("--table", metavar="NS.TABLE", help="Of that table.", show_default=False)
]
CatalogOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Of that catalog.",
        show_default=False,
        autocompletion=options.complete_catalog,
    ),
]
SenderOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--sender", metavar="NAME", help="Undecodable requests of that sender.", show_default=False),
]
CauseOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--cause", metavar="TEXT", help="With a cause that has this text in it.", show_default=False),
]
IdsArgument: TypeAlias = Annotated[list[int] | None, typer.Argument(metavar="ID", show_default=False)]
AllOption: TypeAlias = Annotated[bool, typer.Option("--all", help="All that are open; needed without ids and filters.")]


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
    status: Annotated[StatusOption, typer.Option("--status", help="What became of them.")] = StatusOption.OPEN,
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
    from sfn.cli.access import admin_access
    from sfn.cli.pages import Line, Tone
    from sfn.cli.printing import print_error, print_json, print_page
    from sfn.cli.service import ServiceClient
    from sfn.cli.story import dead_letters_grid
    from sfn.clock import SystemClock

    chosen = _criteria(table, catalog, reason, sender, older_than, newer_than)
    with (
        exit_on_error(),
        ServiceClient(admin_access(options.ServiceOptions(config, url, token_file, ca_file))) as service,
    ):
        found = bulk.fetch_letters(service, chosen, status, 0 if by_cause else limit, cause)
    causes = bulk.group_by_cause(found.dead_letters) if by_cause else []
    if as_json:
        print_json({"causes": causes} if by_cause else found)
    elif causes:
        print_page([bulk.causes_grid(causes, SystemClock().now())])
    elif not found.dead_letters:
        print_page([Line("no dead letters" if status is StatusOption.OPEN else "none of that kind", Tone.GOOD)])
    else:
        with_status = status is StatusOption.ALL
        print_page([dead_letters_grid(found.dead_letters, SystemClock().now(), with_status=with_status)])
    if found.next is not None:
        print_error(f"there are more than {limit}: narrow it down, or --limit 0 for all")


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
    from sfn.cli.access import admin_access
    from sfn.cli.bulk import letter_lines
    from sfn.cli.remedies import remedy_for
    from sfn.cli.service import ServiceClient
    from sfn.clock import SystemClock

    with (
        exit_on_error(),
        ServiceClient(admin_access(options.ServiceOptions(config, url, token_file, ca_file))) as service,
    ):
        found = [service.dead_letter(number) for number in numbers]
    if as_json:
        letters = [{**letter.model_dump(), "remedy": remedy_for(letter, letter.foreign_catalog_id)} for letter in found]
        printing.print_json({"dead_letters": letters})
    else:
        now = SystemClock().now()
        printing.print_page([line for letter in found for line in letter_lines(letter, now)])


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
    """Have dead letters tried again: those with these ids, or all open ones that fit the filters.

    A held drop is let pass once. Ends with 1 where one could not be replayed.
    """
    from sfn.cli.access import admin_access
    from sfn.cli.bulk import replay_all
    from sfn.cli.printing import print_error, print_json
    from sfn.cli.service import ServiceClient

    chosen = _criteria(table, catalog, reason, sender, older_than, newer_than)
    _check_selection(numbers, chosen, cause, every=every)
    with (
        exit_on_error(),
        ServiceClient(admin_access(options.ServiceOptions(config, url, token_file, ca_file))) as service,
    ):
        numbers = list(dict.fromkeys(numbers or []))
        total, numbers = _confirm_selection(service, "replay", numbers, chosen, cause, yes=yes)
        done = replay_all(service, numbers, chosen, total)
        passed = _explain_skipped(service, done)
    if as_json:
        print_json({"replayed": done.count, "failed": done.failed, "passed": done.skipped})
    elif done.count:
        typer.echo(f"queued {done.count:,} of {total:,} to be looked at again; `sfn status` tells what comes of them")
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
    """Put dead letters away without trying them again: those with these ids, or all open ones that fit the filters.

    Nothing is deleted, `sfn dead-letters list --status discarded` shows them. Ends with 1 where one was not open.
    """
    from sfn.cli.access import admin_access
    from sfn.cli.bulk import discard_all
    from sfn.cli.printing import print_error, print_json
    from sfn.cli.service import ServiceClient

    chosen = _criteria(table, catalog, reason, sender, older_than, newer_than)
    _check_selection(numbers, chosen, cause, every=every)
    with (
        exit_on_error(),
        ServiceClient(admin_access(options.ServiceOptions(config, url, token_file, ca_file))) as service,
    ):
        numbers = list(dict.fromkeys(numbers or []))
        total, numbers = _confirm_selection(service, "discard", numbers, chosen, cause, yes=yes)
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


def _criteria(
    table: str | None,
    catalog: str | None,
    reason: str | None,
    sender: str | None,
    older_than: timedelta | None,
    newer_than: timedelta | None,
) -> DeadLetterCriteria:
    from sfn.admin.schemas import DeadLetterCriteria
    from sfn.cli.tables import parse_table_name
    from sfn.clock import SystemClock
    from sfn.domain.identifiers import encode_identifier
    from sfn.domain.jobs import DeadLetterReason

    dotted, now = None if table is None else encode_identifier(*parse_table_name(table, "--table")), SystemClock().now()
    before = None if older_than is None else now - older_than
    return DeadLetterCriteria(
        catalog=catalog,
        table=dotted,
        reason=None if reason is None else DeadLetterReason(reason),
        sender=sender,
        before=before,
        since=None if newer_than is None else now - newer_than,
    )


def _check_selection(
    numbers: list[int] | None, criteria: DeadLetterCriteria, cause: str | None, *, every: bool
) -> None:
    """Refuse a command that says too little, or two things."""
    from sfn.admin.schemas import DeadLetterCriteria

    ways = sum((bool(numbers), criteria != DeadLetterCriteria() or cause is not None, every))
    if ways == 0:
        raise typer.BadParameter("which dead letters: ids, filters, or --all for all that are open")
    if ways > 1 and (numbers or every):
        raise typer.BadParameter("either ids, or filters, or --all: one of them")


def _explain_skipped(service: ServiceClient, done: BatchResult) -> list[str]:
    """Why nothing was done about ids that were named; what a filter covers may change meanwhile."""
    from sfn.cli.bulk import explain_not_open
    from sfn.clock import SystemClock

    explanations = [explain_not_open(service, number, SystemClock().now()) for number in done.skipped[:MAX_EXPLAINED]]
    more = len(done.skipped) - len(explanations)
    return [*explanations, f"{more:,} more of these ids are not of open dead letters"] if more else explanations


def _confirm_selection(
    service: ServiceClient, verb: str, numbers: list[int], criteria: DeadLetterCriteria, cause: str | None, *, yes: bool
) -> tuple[int, list[int]]:
    """Count the matching letters and ask for confirmation. Explicit ids are not confirmed.

    Returns:
        How many are meant, and their ids where a filter does not say it.
    """
    from sfn.cli.bulk import count_open, fetch_letters
    from sfn.cli.pages import pluralise
    from sfn.cli.printing import confirm, print_error

    if numbers:
        return len(numbers), numbers
    if cause is not None:
        numbers = [one.id for one in fetch_letters(service, criteria, StatusOption.OPEN, 0, cause).dead_letters]
    total = len(numbers) if cause is not None else count_open(service, criteria)
    if not total:
        print_error(f"no open dead letter fits: there is nothing to {verb}")
    else:
        confirm(f"{verb} {pluralise(total, 'dead letter')}?", yes=yes)
    return total, numbers
