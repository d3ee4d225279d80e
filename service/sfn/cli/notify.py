"""`sfn notify`: tell the service of a commit."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sfn.cli import options
from sfn.cli.exits import reported

if TYPE_CHECKING:
    from sfn.cli.answers import Accepted


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
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Post an event: the table may have changed. What is published is the catalog's own answer.

    The token is a sender's, of the configuration or of --token-file.
    """
    from sfn.cli.access import senders
    from sfn.cli.printing import show_json
    from sfn.cli.service import Service
    from sfn.cli.tables import table_of

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
    with reported():
        access, theirs = senders(options.Flags(config, url, token_file, ca_file), catalog, sender)
        said = {"catalog": theirs, "metadata_location": metadata_location, "event_id": event_id}
        with Service(access) as service:
            taken = service.tell(event | {key: text for key, text in said.items() if text is not None})
    if as_json:
        show_json(taken)
    else:
        typer.echo(_told(taken, table))


def _told(taken: Accepted, table: str) -> str:
    if taken.accepted:
        return f"accepted, it is on disk; `sfn status {table}` tells what comes of it"
    if taken.duplicates:
        return "a duplicate: an event of this id was accepted before, and nothing is looked at"
    return "ignored: include and exclude leave the table out, or its catalog is retired"
