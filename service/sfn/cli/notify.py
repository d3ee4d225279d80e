"""`sfn notify`: tell the service of a commit."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.exits import FAILED, INTERRUPTED, exit_on_error

if TYPE_CHECKING:
    from sfn.cli.access import EventAccess, ServiceAccess
    from sfn.cli.service import AcceptedEvents

WAIT_TIMEOUT: Final = timedelta(seconds=60)
"""How long `--wait` waits for what is published at once."""
DROP_WAIT_TIMEOUT: Final = timedelta(minutes=3)
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
    timeout: options.WaitTimeout = None,
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
    from sfn.cli.access import admin_access, event_access
    from sfn.cli.service import ServiceClient
    from sfn.cli.tables import parse_table_name

    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout needs --wait")
    if (destination is not None) != (operation is Operation.RENAME):
        raise typer.BadParameter("--destination and --operation rename need each other")
    if purge and operation is not Operation.DROP:
        raise typer.BadParameter("--purge needs --operation drop")
    namespace, name = parse_table_name(table)
    event: dict[str, object] = {"namespace": namespace, "name": name, "operation": operation.value}
    if destination is not None:
        levels, new = parse_table_name(destination, "--destination")
        event["destination"] = {"namespace": levels, "name": new}
    if purge:
        event["purge"] = True
    tables = [table] if destination is None else [table, destination]
    with exit_on_error():
        # Its token is another one, and of the configuration alone.
        watcher = admin_access(options.ServiceOptions(config, url, None, ca_file)) if wait else None
        access = event_access(options.ServiceOptions(config, url, token_file, ca_file), catalog, sender)
        optional = {"catalog": access.sender_catalog, "metadata_location": metadata_location, "event_id": event_id}
        with ServiceClient(access.access) as service:
            accepted = service.post_events(event | {key: text for key, text in optional.items() if text is not None})
        is_ignored = not accepted.accepted and not accepted.duplicates
        message = _explain_ignored(access, tables) if is_ignored else _describe_accepted(accepted, table)
        if watcher is None or is_ignored:
            _show(accepted, message, as_json=as_json)
        elif not _wait_for_tables(
            watcher, access, tables, timeout or _wait_timeout(operation), accepted, as_json=as_json
        ):
            raise typer.Exit(FAILED)


def _wait_timeout(operation: Operation) -> timedelta:
    return DROP_WAIT_TIMEOUT if operation in {Operation.DROP, Operation.RENAME} else WAIT_TIMEOUT


def _show(accepted: AcceptedEvents, message: str, *, as_json: bool) -> None:
    from sfn.cli.printing import print_json

    if as_json:
        print_json(accepted)
    else:
        typer.echo(message)


def _wait_for_tables(
    watcher: ServiceAccess,
    access: EventAccess,
    tables: list[str],
    timeout: timedelta,
    accepted: AcceptedEvents,
    *,
    as_json: bool,
) -> bool:
    """Whether the tables are published, or there is nothing to do."""
    from sfn.cli.printing import print_error, print_json, print_page
    from sfn.cli.service import ServiceClient
    from sfn.cli.settling import WaitClock, result_lines, wait_for_table, wait_result
    from sfn.cli.tables import parse_table_name

    watch = WaitClock()
    until = watch.monotonic() + timeout.total_seconds()
    ends = []
    with ServiceClient(watcher) as service:
        catalog = service.resolve_catalog(access.catalog)
        try:
            for table in tables:
                left = timedelta(seconds=until - watch.monotonic())
                found = wait_for_table(
                    service, catalog, *parse_table_name(table), left, watch, partial(_report_waiting, table)
                )
                ends.append(wait_result(table, found, watch.now(), timeout))
        except KeyboardInterrupt:
            print_error("the event is on disk: `sfn status` tells what comes of it")
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json({**accepted.model_dump(), "tables": ends})
    else:
        print_page([line for end in ends for line in result_lines(end)])
    return all(end.is_ok for end in ends)


def _report_waiting(table: str, what: str) -> None:
    from sfn.cli.printing import print_error

    print_error(f"{table}: {what}")


def _describe_accepted(accepted: AcceptedEvents, table: str) -> str:
    if accepted.accepted:
        return f"accepted, it is on disk; `sfn status {table}` tells what comes of it"
    return "a duplicate: an event of this id was accepted before, and nothing is looked at"


def _explain_ignored(access: EventAccess, tables: list[str]) -> str:
    """Why the service ignores tables, as far as the configuration tells."""
    from sfn.cli.tables import parse_table_name
    from sfn.domain.identifiers import TableIdentifier
    from sfn.publish.policy import TableFilter

    if access.settings is None or access.catalog is None:
        return "ignored: include and exclude leave the table out, or its catalog is retired"
    section, interest = f"catalogs.{access.catalog}", TableFilter(access.settings.include, access.settings.exclude)
    if any(interest.covers(TableIdentifier(access.catalog, *parse_table_name(table))) for table in tables):
        undo = f"`sfn retire {access.catalog} --undo`"
        return f"ignored: the catalog {access.catalog} is retired, its tables get no files; {undo} has it back"
    return f"ignored: {section}.include and exclude leave the table out"
