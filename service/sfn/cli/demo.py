"""`sfn demo`: all of it on this machine, in a few seconds."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

FAILED = 1


def demo(
    java: Annotated[
        Path | None, typer.Option(envvar="SFN_JAVA", help="A Java of version 17 or newer.", show_default=False)
    ] = None,
    jars: Annotated[
        Path | None,
        typer.Option(envvar="SFN_JARS", help="The folder with the catalog server's jars.", show_default=False),
    ] = None,
    cache: Annotated[Path | None, typer.Option(envvar="XDG_CACHE_HOME", hidden=True)] = None,
) -> None:
    """Show a real catalog, the service and a table, end to end, in a temporary folder.

    Java and jars are those that `make jars` fetched, unless they are given.
    """
    from sfn.errors import SfnError

    try:
        from sfn.demo.fixture import locate
        from sfn.demo.story import tell
    except ModuleNotFoundError as error:
        expected, remedy = "what it needs beside the service", "pip install '.[demo]'"
        typer.echo(str(SfnError("sfn demo", expected=expected, found=f"no {error.name}", remedy=remedy)), err=True)
        raise typer.Exit(FAILED) from None
    # Else the temporary folder would outlive a demo that is told to end.
    signal.signal(signal.SIGTERM, _end)
    try:
        tell(locate(java=java, jars=jars, cache=cache), typer.echo)
    except SfnError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from None


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
