"""`sfn serve`: the daemon."""

from __future__ import annotations

import typer

from sfn.cli import options

WRONG_USAGE = 2


def serve(config: options.Config = None, roles: options.Roles = "receiver,worker,gateway,facade,admin") -> None:
    """Hear of commits, ask the catalog, keep the pointer files.

    Processes that share an inbox in PostgreSQL may each do a part of it: all, or some of receiver, worker, gateway,
    facade and admin.
    """
    from sfn.errors import SfnError
    from sfn.settings import load
    from sfn.settings.model import check_roles, parse_roles
    from sfn.settings.sources import ConfigurationError

    try:
        chosen = parse_roles(roles)
        settings = load(config)
        check_roles(chosen, settings)

        from sfn.app import catalogs, service

        catalogs.check_adapters(settings)
    except SfnError as error:
        for problem in error.problems if isinstance(error, ConfigurationError) else (error,):
            typer.echo(str(problem), err=True)
        raise typer.Exit(WRONG_USAGE) from None

    raise typer.Exit(service.run(settings, roles=chosen))
