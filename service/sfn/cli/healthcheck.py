"""`sfn healthcheck`: whether the service answers, for containers; it starts quickly and shows no token."""

from __future__ import annotations

from typing import Annotated

import typer

from sfn.cli import options
from sfn.cli.exits import FAILED


def healthcheck(
    *,
    ready: Annotated[bool, typer.Option("--ready", help="Whether it wants traffic (/readyz), not only lives.")] = False,
    config: options.Config = None,
    url: options.Url = None,
) -> None:
    """End with 0 if the service answers, and with 1 if not: `HEALTHCHECK CMD ["sfn", "healthcheck"]`.

    Certificates are not verified: nothing secret is sent.
    """
    from sfn.cli.liveness import check_answers
    from sfn.errors import SfnError
    from sfn.settings.sources import ConfigurationError

    try:
        if url is None:
            from sfn.cli.access import local_url
            from sfn.settings import load_client

            url = local_url(load_client(config).listener)
        check_answers(url, "/readyz" if ready else "/livez")
    except SfnError as error:
        for problem in error.problems if isinstance(error, ConfigurationError) else [error]:
            typer.echo(str(problem), err=True)
        # Also where the settings are wrong: 2 is a status that Docker reserves.
        raise typer.Exit(FAILED) from None
