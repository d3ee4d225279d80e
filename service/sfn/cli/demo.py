"""`sfn demo`: all of it on this machine, in a few seconds."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

_FAILED = 1


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

    Java and jars are those that `make jars` fetched, unless they are given. Without them it says so in its first line,
    and runs on PyIceberg's SQL catalog.
    """
    from sfn.demo.fixture import find_runtime
    from sfn.demo.story import run_demo
    from sfn.errors import Permanent, SfnError

    # Else the temporary folder would outlive a demo that is told to end.
    signal.signal(signal.SIGTERM, _end)
    runtime, without = None, ""
    try:
        try:
            runtime = find_runtime(java=java, jars=jars, cache=cache)
        except Permanent as error:
            # Who names one wants that one.
            if java is not None or jars is not None:
                raise
            without = str(error)
        run_demo(runtime, typer.echo, without)
    except SfnError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(_FAILED) from None


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
