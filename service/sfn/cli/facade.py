"""`sfn facade`: serve folders as a read-only Iceberg REST catalog, without the rest of the listener."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.options import WRONG_USAGE

if TYPE_CHECKING:
    from sfn.telemetry.logs import Level

LOG_LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warning", "error")


def _parse_level(text: str) -> Level:
    found = next((level for level in LOG_LEVELS if level == text), None)
    if found is None:
        raise typer.BadParameter(f"expected one of {', '.join(LOG_LEVELS)}, found {text!r}")
    return found


def facade(
    roots: Annotated[
        list[str],
        typer.Argument(metavar="ROOT", help="Folders or URLs with tables below them; nothing else is opened."),
    ],
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65_535, help="The port; 0 for any free port.")
    ] = 8087,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="A file with readers' bearer tokens, one per line.", show_default=False
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            "--tls-certificate",
            metavar="FILE",
            help="The certificates (PEM), the server's own one first.",
            show_default=False,
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option("--tls-key", metavar="FILE", help="The private key (PEM), not encrypted.", show_default=False),
    ] = None,
    storage_option: options.StorageOptions = None,
    *,
    by_directory: Annotated[
        bool, typer.Option("--dir/--no-dir", help="Show tables by their directories, too, in the namespace `dir`.")
    ] = True,
    metadata_limit: Annotated[
        str, typer.Option("--metadata-limit", metavar="SIZE", help="The largest metadata file that is read.")
    ] = "64MiB",
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="|".join(LOG_LEVELS), help="The least level to log.")
    ] = "info",
) -> None:
    """Serve the tables below some folders as a read-only Iceberg REST catalog, for Spark, PyIceberg, DuckDB and others.

    The facade needs no catalog and no inbox: SFN files say which metadata file is current. The URI for clients is
    `http://HOST:PORT/iceberg`. In its namespace `dir` the name of a table is its directory. Writes are refused.
    """
    from sfn.app import standalone
    from sfn.app.endpoints import FacadeFolders
    from sfn.cli.render import escape
    from sfn.errors import SfnError

    level, max_metadata_size = _parse_level(log_level), options.parse_size(metadata_limit)
    driver_options = options.parse_storage_options(storage_option)
    try:
        folders = FacadeFolders(
            [canonical_root(text) for text in roots], driver_options, None, by_directory, None, max_metadata_size
        )
    except SfnError as error:
        typer.echo(escape(str(error)), err=True)
        raise typer.Exit(WRONG_USAGE) from None
    if (tls_certificate is None) != (tls_key is None):
        raise typer.BadParameter("--tls-certificate and --tls-key must be passed together")
    listener = standalone.StandaloneListener(host, port, token_file, tls_certificate, tls_key)
    raise typer.Exit(standalone.run(folders, listener, level))


def canonical_root(text: str) -> str:
    """Return the canonical URL of a root.

    Raises:
        SfnError: the text is no path or URL, or no folder of this machine.
    """
    from sfn.errors import DirectoryNotFound, LocationRefused, SfnError
    from sfn.reader.files import directory_url
    from sfn.sfnfile.locations import check_any_scheme, scheme_of

    try:
        url = directory_url(text)
        # A root may be a whole bucket, which is no location of a table. So a table below it is checked.
        check_any_scheme(f"{url}/table")
    except ValueError as error:
        raise SfnError("ROOT", expected="a path or a URL of a directory", found=str(error)) from None
    except LocationRefused as refused:
        raise SfnError(text, expected=refused.expected, found=refused.found, remedy="check the path or URL") from None
    if url == "file://":
        remedy = "name the folders that hold the tables"
        raise SfnError(text, expected="a folder with tables below it", found="the whole machine", remedy=remedy)
    if scheme_of(url) == "local":
        # fsspec's scheme `local` follows symbolic links out of the root.
        raise SfnError(text, expected="a path or a file: URL", found="another spelling of this machine's files")
    if url.startswith("file://") and not Path(url.removeprefix("file://") or "/").is_dir():
        raise DirectoryNotFound(text, expected="a folder with tables below it", found="none", remedy="check the path")
    return url
