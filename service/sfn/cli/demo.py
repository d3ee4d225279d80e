"""`sfn demo` and `sfn demo-catalog`: try the listener on this machine, with nothing else installed."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli.options import FAILED
from sfn.errors import SfnError

if TYPE_CHECKING:
    from sfn.demo.environment import ServerRuntime, SqlCatalogServer

DEMO_TABLE: Final = ("sales", "orders")
Uv = Annotated[str | None, typer.Option(envvar="UV", hidden=True)]
Fetched = Annotated[bool, typer.Option("--fetched", hidden=True)]


def demo(
    java: Annotated[
        Path | None,
        typer.Option(
            "--java",
            metavar="FILE",
            envvar="SFN_JAVA",
            help="The java executable, version 17 or newer.",
            show_default=False,
        ),
    ] = None,
    jars: Annotated[
        Path | None,
        typer.Option(
            "--jars",
            metavar="DIRECTORY",
            envvar="SFN_JARS",
            help="The folder with the jars of Iceberg's own catalog server.",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[Path | None, typer.Option(envvar="XDG_CACHE_HOME", hidden=True)] = None,
    uv: Uv = None,
    *,
    fetched: Fetched = False,
) -> None:
    """Run a catalog, the listener and a table in a temporary folder, and show each step.

    The catalog is PyIceberg's SQL catalog behind a small REST server. If `make jars` downloaded Java and Iceberg's own
    REST catalog server, the demo uses that server instead.
    """
    # Without a handler, SIGTERM would end the demo and leave its temporary folder behind.
    signal.signal(signal.SIGTERM, _end)
    try:
        runtime = _runtime(java, jars, cache)
        _require_packages(None if fetched else uv)
        from sfn.demo.demo import run_demo

        run_demo(runtime, typer.echo)
    except SfnError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from None


def _require_folder(folder: Path) -> Path:
    # A path has no double slash: s3://lake is s3:/lake here.
    if str(folder).partition("/")[0].endswith(":"):
        expected = "expected a folder of this machine: the demo's catalog keeps no tables on a store"
        raise typer.BadParameter(f"{expected}, found the URL {folder}")
    return folder


def demo_catalog(
    folder: Annotated[
        Path,
        typer.Argument(
            callback=_require_folder, metavar="DIRECTORY", help="The folder of the catalog's database and tables."
        ),
    ] = Path("lake"),
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65_535, help="The port; 0 for any free port.")
    ] = 8181,
    uv: Uv = None,
    *,
    fetched: Fetched = False,
) -> None:
    """Run a REST catalog with the table sales.orders, to try the listener with, until it is interrupted.

    Each line on standard input, such as an empty one, is a commit. The folder keeps the catalog: the next start
    continues with its tables. The catalog listens on the loopback interface, and checks no token.
    """
    signal.signal(signal.SIGTERM, _end)
    try:
        _require_packages(None if fetched else uv)
        from sfn.demo.environment import SqlCatalogServer

        with SqlCatalogServer(folder, port=port) as server, suppress(KeyboardInterrupt):
            _commit_each_line(server)
    except SfnError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from None


def _commit_each_line(server: SqlCatalogServer) -> None:
    from sfn.demo.lake import Lake

    namespace, name = DEMO_TABLE
    lake = Lake.connect(server)
    lake.create_namespace(namespace)
    lake.create(name, namespace)
    typer.echo(f"a catalog    {server.uri}")
    typer.echo(f"its tables   {server.warehouse.removeprefix('file://')}")
    typer.echo(f"one of them  {namespace}.{name}, at {lake.directory(name, namespace)}")
    typer.echo("Enter makes a commit, Ctrl-C ends it.")
    for number, _ in enumerate(sys.stdin, 1):
        typer.echo(lake.append(name, (number, f"item {number}", float(number)), namespace=namespace))
    signal.pause()


def _runtime(java: Path | None, jars: Path | None, cache: Path | None) -> ServerRuntime | None:
    """Return Java and jars, if they are there.

    Raises:
        Permanent: the user named one, and it is missing: another catalog must not replace it.
    """
    from sfn.demo.environment import find_runtime
    from sfn.errors import Permanent

    try:
        return find_runtime(java=java, jars=jars, cache=cache)
    except Permanent:
        if java is not None or jars is not None:
            raise
        return None


def _require_packages(uv: str | None) -> None:
    """Check that the packages of the extra `demo` are there.

    `uvx iceberg-sfn demo` makes an environment without extras. Then uv runs the same command once more, with the extra.
    That changes no environment of the user. Without uv, the error names the command that installs the extra.

    Args:
        uv: the program uv, if it started this process.

    Raises:
        SfnError: a package is missing.
    """
    from sfn.demo.lake import require_packages
    from sfn.extras import DISTRIBUTION, requirement

    try:
        require_packages()
    except SfnError:
        if not uv or not Path(uv).is_file():
            raise
        typer.echo(
            "The demo also needs DuckDB and PyIceberg. uv fetches them into its cache, and starts again.", err=True
        )
        command = [uv, "tool", "run", "--from", requirement("demo"), DISTRIBUTION, *sys.argv[1:], "--fetched"]
        os.execv(uv, command)  # noqa: S606 - it is the program that started this one


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
