"""How a command ends: 0 done, 1 failed, 2 wrong usage or wrong settings; what is wrong goes to standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from sfn.errors import SfnError

FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
"""128 and the number of SIGINT, as shells have it."""


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn an error of the block into its message and its exit code."""
    try:
        yield
    except SfnError as error:
        from sfn.settings.sources import ConfigurationError

        problems = error.problems if isinstance(error, ConfigurationError) else (error,)
        for problem in problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(WRONG_USAGE if isinstance(error, ConfigurationError) else FAILED) from None
