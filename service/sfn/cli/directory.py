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
from sfn.cli.tables import identifier

if TYPE_CHECKING:
    from sfn.reader.resolve import Resolved


@contextmanager
def refusals() -> Iterator[None]:
    """Turn a reader's refusal into its message, and exit code 1."""
    from sfn.cli.pages import safe
    from sfn.errors import Unreadable

    try:
        yield
    except Unreadable as refusal:
        # It may quote a file that somebody else wrote.
        typer.echo(safe(str(refusal)), err=True)
        raise typer.Exit(FAILED) from None


@dataclass(frozen=True, slots=True)
class Given:
    """The options that say which table is looked at, as they were given."""

    directory: str
    table: str | None
    uuid: str | None
    ref: str
    as_of: int | None
    relative: bool
    allow: list[str] | None
    storage_options: Mapping[str, Any] | None

    def resolved(self) -> Resolved:
        """Where its metadata file is.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
            BadParameter: `--table` is no identifier.
        """
        from sfn.reader import blocking

        return blocking.resolve(
            self.directory,
            named(self.table),
            self.uuid,
            self.ref,
            self.as_of,
            relative=self.relative,
            allowed=self.allow or (),
            storage_options=self.storage_options,
        )


def named(table: str | None) -> tuple[str, ...] | None:
    """The identifier that `--table` was given.

    Raises:
        BadParameter: it is none.
    """
    return None if table is None else identifier(table, "--table")


def _time(text: str) -> int:
    from sfn.reader.blocking import ordinal_of

    try:
        return ordinal_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _options(text: str) -> Mapping[str, Any]:
    try:
        options = json.loads(Path(text).read_bytes())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"expected a file with a JSON object: {error}") from None
    if not isinstance(options, dict):
        raise typer.BadParameter(f"expected a file with a JSON object, found a {type(options).__name__}: {text}")
    return options


Directory: TypeAlias = Annotated[
    str,
    typer.Argument(
        help="The table's directory: a path, or a URL such as s3://lake/sales/orders.",
        show_default=False,
    ),
]
Table: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NS.NAME",
        help="Which table, where several share the directory: found without a listing, where its file has its name.",
        show_default=False,
    ),
]
Uuid: TypeAlias = Annotated[
    str | None,
    typer.Option("--uuid", metavar="UUID", help="Which table, by its table-uuid.", show_default=False),
]
Ref: TypeAlias = Annotated[str, typer.Option("--ref", metavar="REF", help="A branch or tag.")]
AsOf: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--as-of",
        parser=_time,
        metavar="TIME",
        help="What was current then: an Ordinal (YYYYMMDDTHHMMSSmmm, UTC), an ISO 8601 time with a zone, or Unix "
        "milliseconds.",
        show_default=False,
    ),
]
Relative: TypeAlias = Annotated[
    bool,
    typer.Option("--relative", help="Take the metadata file where it lies beside the SFN file: in a copy, on a mount."),
]
Allowed: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PREFIX",
        help="Follow files below it, and below the directory, alone; may be repeated.",
        show_default=False,
    ),
]
StorageOptions: TypeAlias = Annotated[
    Mapping[str, Any] | None,
    typer.Option(
        "--storage-options",
        parser=_options,
        metavar="FILE",
        help="What fsspec's driver is given, as a JSON object in a file.",
        show_default=False,
    ),
]
