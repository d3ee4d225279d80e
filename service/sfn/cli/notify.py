"""`sfn notify`: tell the service of a commit."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.exits import FAILED, INTERRUPTED, reported

if TYPE_CHECKING:
    from sfn.cli.access import Access, Voice
    from sfn.cli.service import Accepted

PATIENCE: Final = timedelta(seconds=60)
"""How long `--wait` waits for what is published at once."""
OF_AN_END: Final = timedelta(minutes=3)
"""How long for a drop or a rename: one or two `replica_lag`, of a minute each unless set."""


class Operation(StrEnum):
    """What happened to the table."""

    COMMIT = "commit"
    CREATE = "create"
    REGISTER = "register"
    RENAME = "rename"
    DROP = "drop"


def notify(
    table: Annotated[
        str, typer.Argument(metavar="NS.TABLE", help="Which table; a dot in a part is %2E.", show_default=False)
    ],
    *,
    catalog: options.Catalog = None,
    metadata_location: Annotated[
        str | None,
        typer.Option(
            "--metadata-location", metavar="LOCATION", help="Its new metadata file, if known.", show_default=False
        ),
    ] = None,
    operation: Annotated[Operation, typer.Option("--operation", help="What happened.")] = Operation.COMMIT,
    destination: Annotated[
        str | None,
        typer.Option("--destination", metavar="NS.TABLE", help="With rename: its new name.", show_default=False),
    ] = None,
    purge: Annotated[bool, typer.Option("--purge", help="With drop: its files were deleted too.")] = False,
    event_id: Annotated[
        str | None,
        typer.Option("--event-id", metavar="ID", help="A repeat of the same id is a duplicate.", show_default=False),
    ] = None,
    sender: Annotated[
        str | None,
        typer.Option(
            "--sender", metavar="NAME", help="As which configured sender; else one that may.", show_default=False
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for what comes of it; needs the operators' token too.")
    ] = False,
    timeout: options.Patience = None,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Post an event: the table may have changed. What is published is the catalog's own answer.

    The token is a sender's, of the configuration or of --token-file; with --sender that file may hold its secret.

    With --wait it ends with 0 once the table is published or there is nothing to do, and with 1 where it became a dead
    letter, still waits, or is not settled in time.
    """
    from sfn.cli.access import operators, senders
    from sfn.cli.service import Service
    from sfn.cli.tables import table_of

    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout needs --wait")
    if (destination is not None) != (operation is Operation.RENAME):
        raise typer.BadParameter("--destination and --operation rename need each other")
    if purge and operation is not Operation.DROP:
        raise typer.BadParameter("--purge needs --operation drop")
    namespace, name = table_of(table)
    event: dict[str, object] = {"namespace": namespace, "name": name, "operation": operation.value}
    if destination is not None:
        levels, new = table_of(destination, "--destination")
        event["destination"] = {"namespace": levels, "name": new}
    if purge:
        event["purge"] = True
    tables = [table] if destination is None else [table, destination]
    with reported():
        # Its token is another one, and of the configuration alone.
        watcher = operators(options.Flags(config, url, None, ca_file)) if wait else None
        voice = senders(options.Flags(config, url, token_file, ca_file), catalog, sender)
        said = {"catalog": voice.theirs, "metadata_location": metadata_location, "event_id": event_id}
        with Service(voice.access) as service:
            taken = service.tell(event | {key: text for key, text in said.items() if text is not None})
        is_ignored = not taken.accepted and not taken.duplicates
        told = _ignored(voice, tables) if is_ignored else _told(taken, table)
        if watcher is None or is_ignored:
            _show(taken, told, as_json=as_json)
        elif not _followed(watcher, voice, tables, timeout or _patience(operation), taken, as_json=as_json):
            raise typer.Exit(FAILED)


def _patience(operation: Operation) -> timedelta:
    return OF_AN_END if operation in {Operation.DROP, Operation.RENAME} else PATIENCE


def _show(taken: Accepted, told: str, *, as_json: bool) -> None:
    from sfn.cli.printing import show_json

    if as_json:
        show_json(taken)
    else:
        typer.echo(told)


def _followed(
    watcher: Access, voice: Voice, tables: list[str], patience: timedelta, taken: Accepted, *, as_json: bool
) -> bool:
    """Whether the tables are published, or there is nothing to do."""
    from sfn.cli.printing import complain, show, show_json
    from sfn.cli.service import Service
    from sfn.cli.settling import Watch, awaited, lines, outcome
    from sfn.cli.tables import table_of

    watch = Watch()
    until = watch.monotonic() + patience.total_seconds()
    ends = []
    with Service(watcher) as service:
        catalog = service.the_catalog(voice.catalog)
        try:
            for table in tables:
                left = timedelta(seconds=until - watch.monotonic())
                found = awaited(service, catalog, *table_of(table), left, watch, partial(_waits, table))
                ends.append(outcome(table, found, watch.now(), patience))
        except KeyboardInterrupt:
            complain("the event is on disk: `sfn status` tells what comes of it")
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        show_json({**taken.model_dump(), "tables": ends})
    else:
        show([line for end in ends for line in lines(end)])
    return all(end.is_well for end in ends)


def _waits(table: str, what: str) -> None:
    from sfn.cli.printing import complain

    complain(f"{table}: {what}")


def _told(taken: Accepted, table: str) -> str:
    if taken.accepted:
        return f"accepted, it is on disk; `sfn status {table}` tells what comes of it"
    return "a duplicate: an event of this id was accepted before, and nothing is looked at"


def _ignored(voice: Voice, tables: list[str]) -> str:
    """Why the service ignores tables, as far as the configuration tells."""
    from sfn.cli.tables import table_of
    from sfn.publish.policy import TableFilter
    from sfn.words import TableName

    if voice.settings is None or voice.catalog is None:
        return "ignored: include and exclude leave the table out, or its catalog is retired"
    section, interest = f"catalogs.{voice.catalog}", TableFilter(voice.settings.include, voice.settings.exclude)
    if any(interest.covers(TableName(voice.catalog, *table_of(table))) for table in tables):
        undo = f"`sfn retire {voice.catalog} --undo`"
        return f"ignored: the catalog {voice.catalog} is retired, its tables get no files; {undo} has it back"
    return f"ignored: {section}.include and exclude leave the table out"
