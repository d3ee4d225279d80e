"""The command line `sfn`: one file a command.

Commands import what they need when they run: `sfn --version` should not wait for a web server.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer
from typer.core import TyperGroup, TyperOption

from sfn.cli import (
    adopt,
    audit,
    check,
    dead_letters,
    demo,
    facade,
    healthcheck,
    history,
    inspect,
    notify,
    reconcile,
    release,
    report,
    resolve,
    retire,
    serve,
    status,
    verify,
)

DISTRIBUTION = "iceberg-sfn"

_INSPECT, _ACT = "Look", "Act on the running service"

app = typer.Typer(name="sfn", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown")


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
app.command("check")(check.check)
app.command("facade")(facade.facade)
app.command("demo")(demo.demo)
app.command("resolve", rich_help_panel=_INSPECT)(resolve.resolve)
app.command("history", rich_help_panel=_INSPECT)(history.history)
app.command("inspect", rich_help_panel=_INSPECT)(inspect.inspect)
app.command("verify", rich_help_panel=_INSPECT)(verify.verify)
app.command("status", rich_help_panel=_INSPECT)(status.status)
app.command("audit", rich_help_panel=_INSPECT)(audit.audit)
app.command("report", rich_help_panel=_INSPECT)(report.report)
app.command("healthcheck", rich_help_panel=_INSPECT)(healthcheck.healthcheck)
app.command("notify", rich_help_panel=_ACT)(notify.notify)
app.command("reconcile", rich_help_panel=_ACT)(reconcile.reconcile)
app.add_typer(dead_letters.app, rich_help_panel=_ACT)
app.command("release", rich_help_panel=_ACT)(release.release)
app.command("adopt", rich_help_panel=_ACT)(adopt.adopt)
app.command("retire", rich_help_panel=_ACT)(retire.retire)


def main() -> None:
    """Run the command line: exit code 0 done, 1 failed, 2 wrong usage or wrong settings."""
    command = typer.main.get_command(app)
    _hide_flag_types(typer.Context(command))
    command()


def _hide_flag_types(context: typer.Context) -> None:
    """Have the help of flags, which take no value, name no type of one: of a command and those below it."""
    command = context.command
    for option in command.get_params(context):
        if isinstance(option, TyperOption) and option.is_flag:
            option.metavar = ""
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            _hide_flag_types(typer.Context(below, context))
