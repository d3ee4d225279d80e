"""The command line `sfn`: one file a command.

Commands import what they need when they run: `sfn --version` should not wait for a web server.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from sfn.cli import demo, healthcheck, resolve, serve

DISTRIBUTION = "iceberg-sfn"

app = typer.Typer(name="sfn", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        typer.echo(f"sfn {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def sfn(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keeps a small pointer file beside each Iceberg table, so that it can be read without its catalog."""


app.command("serve")(serve.serve)
app.command("healthcheck")(healthcheck.healthcheck)
app.command("resolve")(resolve.resolve)
app.command("demo")(demo.demo)


def main() -> None:
    """Run the command line: exit code 0 done, 1 failed, 2 wrong usage or wrong settings."""
    app()
