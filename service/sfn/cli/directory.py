"""What commands have in common that read a table's directory: the options, and how a refusal ends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from sfn.cli.exits import FAILED
from sfn.cli.tables import parse_identifier

if TYPE_CHECKING:
    from sfn.reader.resolve import Resolved


@contextmanager
def report_unreadable() -> Iterator[None]:
    """Turn a reader's refusal into its message, and exit code 1."""
    from sfn.cli.pages import escape
    from sfn.errors import Unreadable

    try:
        yield
    except Unreadable as refusal:
        # It may quote a file that somebody else wrote.
        typer.echo(escape(str(refusal)), err=True)
        raise typer.Exit(FAILED) from None


@dataclass(frozen=True, slots=True)
class DirectoryOptions:
    """The options that say which table is looked at, as they were given."""

    directory: str
    table: str | None
    uuid: str | None
    ref: str
    as_of: int | None
    relative: bool
    allow: list[str] | None
    storage_options: Mapping[str, Any] | None

    def resolve(self) -> Resolved:
        """Where its metadata file is.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
            BadParameter: `--table` is no identifier.
        """
        from sfn.reader import blocking

        return blocking.resolve(
            self.directory,
            parse_table_option(self.table),
            self.uuid,
            self.ref,
            self.as_of,
            relative=self.relative,
            allowed=self.allow or (),
            storage_options=self.storage_options,
        )


def parse_table_option(table: str | None) -> tuple[str, ...] | None:
    """The identifier that `--table` was given.

    Raises:
        BadParameter: it is none.
    """
    return None if table is None else parse_identifier(table, "--table")


def _parse_time(text: str) -> int:
    from sfn.reader.blocking import time_to_ordinal

    try:
        return time_to_ordinal(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _parse_storage_options(text: str) -> Mapping[str, Any]:
    try:
        options = json.loads(Path(text).read_bytes())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"expected a file with a JSON object: {error}") from None
    if not isinstance(options, dict):
        raise typer.BadParameter(f"expected a file with a JSON object, found a {type(options).__name__}: {text}")
    return options


DirectoryArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        help="The table's directory: a path, or a URL such as s3://lake/sales/orders.",
        show_default=False,
    ),
]
TableNameOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NS.NAME",
        help="Which table, where several share the directory: found without a listing, where its file has its name.",
        show_default=False,
    ),
]
UuidOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--uuid", metavar="UUID", help="Which table, by its table-uuid.", show_default=False),
]
RefOption: TypeAlias = Annotated[str, typer.Option("--ref", metavar="REF", help="A branch or tag.")]
AsOfOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--as-of",
        parser=_parse_time,
        metavar="TIME",
        help="What was current then: an Ordinal (YYYYMMDDTHHMMSSmmm, UTC), an ISO 8601 time with a zone, or Unix "
        "milliseconds.",
        show_default=False,
    ),
]
RelativeOption: TypeAlias = Annotated[
    bool,
    typer.Option("--relative", help="Take the metadata file where it lies beside the SFN file: in a copy, on a mount."),
]
AllowOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PREFIX",
        help="Follow files below it, and below the directory, alone; may be repeated.",
        show_default=False,
    ),
]
StorageOptionsOption: TypeAlias = Annotated[
    Mapping[str, Any] | None,
    typer.Option(
        "--storage-options",
        parser=_parse_storage_options,
        metavar="FILE",
        help="What fsspec's driver is given, as a JSON object in a file.",
        show_default=False,
    ),
]
