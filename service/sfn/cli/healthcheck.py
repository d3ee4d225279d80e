"""`sfn healthcheck`: what a container's health check runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

NOT_ALIVE: Final = 1
"""Also where the settings are wrong: 2 is a status that Docker reserves."""


def healthcheck(
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="SFN_CONFIG",
            help="The service's TOML file; without it the environment and the defaults.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Ask the service on this machine whether it is alive: exit code 0 for yes, 1 for no."""
    from sfn.cli.liveness import ask  # noqa: PLC0415 - start-up time
    from sfn.errors import SfnError  # noqa: PLC0415 - start-up time
    from sfn.settings import Misconfigured, load  # noqa: PLC0415 - start-up time

    try:
        ask(load(config).listener)
    except SfnError as error:
        for problem in error.problems if isinstance(error, Misconfigured) else [error]:
            typer.echo(str(problem), err=True)
        raise typer.Exit(NOT_ALIVE) from None
