"""`sfn facade`: a read-only catalog over folders, without the service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import read as given
from sfn.cli.options import WRONG_USAGE

if TYPE_CHECKING:
    from sfn.telemetry.logs import Level

LOG_LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warning", "error")


def _parse_size(text: str) -> int:
    from sfn.settings.types import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"expected {error}, found {text!r}") from None


def _parse_level(text: str) -> Level:
    found = next((level for level in LOG_LEVELS if level == text), None)
    if found is None:
        raise typer.BadParameter(f"expected one of {', '.join(LOG_LEVELS)}, found {text!r}")
    return found


def facade(
    roots: Annotated[
        list[str],
        typer.Argument(metavar="ROOT", help="Folders or URLs below which tables lie; nothing else is ever opened."),
    ],
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="The port; 0 is any free one.")] = 8087,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Bearer tokens of readers, one a line.", show_default=False),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", metavar="FILE", help="PEM, its own first.", show_default=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="PEM, not encrypted.", show_default=False)
    ] = None,
    storage_options: given.StorageOptionsOption = None,
    *,
    by_directory: Annotated[
        bool, typer.Option("--dir/--no-dir", help="Whether tables may be called by their directories too.")
    ] = True,
    metadata_limit: Annotated[
        str, typer.Option("--metadata-limit", metavar="SIZE", help="Most JSON of a metadata file.")
    ] = "64MiB",
    log_level: Annotated[str, typer.Option("--log-level", metavar="LEVEL", help=", ".join(LOG_LEVELS))] = "info",
) -> None:
    """Serve the tables below some folders as a read-only Iceberg REST catalog, for Spark, PyIceberg, DuckDB and others.

    It asks no catalog and needs no inbox: what is current is what the SFN files say. Clients' URI is
    `http://HOST:PORT/iceberg`; in its namespace `dir` a table is called by its directory. Every write is refused.
    """
    from sfn.app import standalone
    from sfn.app.endpoints import FacadeFolders
    from sfn.cli.render import escape
    from sfn.errors import SfnError

    level, most = _parse_level(log_level), _parse_size(metadata_limit)
    try:
        folders = FacadeFolders(
            [canonical_root(text) for text in roots], storage_options or {}, None, by_directory, None, most
        )
    except SfnError as error:
        typer.echo(escape(str(error)), err=True)
        raise typer.Exit(WRONG_USAGE) from None
    if (tls_certificate is None) != (tls_key is None):
        raise typer.BadParameter("expected --tls-certificate and --tls-key, found one of them alone")
    door = standalone.StandaloneListener(host, port, token_file, tls_certificate, tls_key)
    raise typer.Exit(standalone.run(folders, door, level))


def canonical_root(text: str) -> str:
    """The canonical URL of a root.

    Raises:
        SfnError: it is none, or no folder of this machine.
    """
    from sfn.errors import DirectoryNotFound, LocationRefused, SfnError
    from sfn.reader.files import directory_url
    from sfn.sfnfile.locations import check_any_scheme, scheme_of

    try:
        url = directory_url(text)
        # Of a table below it, for a root may be a whole bucket.
        check_any_scheme(f"{url}/table")
    except ValueError as error:
        raise SfnError("ROOT", expected=str(error), found="another") from None
    except LocationRefused as refused:
        raise SfnError(text, expected=refused.expected, found=refused.found, remedy="check the path or URL") from None
    if url == "file://":
        remedy = "name the folders that hold the tables"
        raise SfnError(text, expected="a folder below which tables lie", found="the whole machine", remedy=remedy)
    if scheme_of(url) == "local":
        # fsspec's other name for this machine follows links wherever they lead.
        raise SfnError(text, expected="a path or a file: URL", found="another spelling of this machine's files")
    if url.startswith("file://") and not Path(url.removeprefix("file://") or "/").is_dir():
        raise DirectoryNotFound(text, expected="a folder below which tables lie", found="none", remedy="check the path")
    return url
