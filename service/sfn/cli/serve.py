"""`sfn serve`: the daemon."""

from __future__ import annotations

import typer

from sfn.cli import options

WRONG_USAGE = 2


def serve(config: options.Config = None) -> None:
    """Hear of commits, ask the catalog, keep the pointer files."""
    from sfn.settings import Misconfigured, load

    try:
        settings = load(config)

        from sfn import daemon
        from sfn.wiring import sources

        sources.check(settings)
    except Misconfigured as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(WRONG_USAGE) from None

    raise typer.Exit(daemon.run(settings))
