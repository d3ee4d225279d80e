"""`sfn config show`: the settings in effect, and where each was set."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from sfn.cli import options
from sfn.cli.options import exit_on_error

if TYPE_CHECKING:
    from sfn.settings.effective import EffectiveSetting

app = typer.Typer(name="config", help="Show the configuration.", no_args_is_help=True)


@app.command(epilog=options.examples("sfn config show", "sfn config show --changed --config sfn.toml"))
def show(
    *,
    changed: Annotated[bool, typer.Option("--changed", help="Only what a file or a variable sets.")] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Print the settings in effect as TOML, each with its source: a file, an environment variable, or the default.

    Secrets are masked. Without --config the file is ./sfn.toml or /etc/sfn/sfn.toml.
    """
    from sfn.cli.render import print_error, print_json
    from sfn.settings import mistaken_variables
    from sfn.settings.effective import DEFAULT, effective_settings
    from sfn.settings.sources import find_file

    with exit_on_error():
        found = effective_settings(config)
    shown = [one for one in found if one.source != DEFAULT] if changed else found
    file = find_file(config)
    if as_json:
        settings = [{"key": ".".join(one.keys), "value": one.value, "source": one.source} for one in shown]
        print_json({"file": None if file is None else str(file.resolve()), "settings": settings})
    else:
        typer.echo(f"# file: {'none' if file is None else file.resolve()}")
        for line in toml_lines(shown):
            typer.echo(line)
    for name, meant in mistaken_variables():
        print_error(f"{name} is no setting; did you mean {meant}?")


def toml_lines(settings: Sequence[EffectiveSetting]) -> list[str]:
    """Return settings as the lines of a TOML file that means the same: defaults are commented out."""
    from sfn.settings.effective import DEFAULT

    lines: list[str] = []
    for table, group in groupby(settings, key=lambda one: one.keys[:-1]):
        lines += ["", f"[{'.'.join(map(_key, table))}]"]
        for one in group:
            value = "" if one.value is None else f" {one.toml}"
            text = f"{'#' if one.source == DEFAULT else ''}{_key(one.keys[-1])} ={value}"
            lines.append(f"{text:<47} # {one.source}")
    return lines


def _key(key: str) -> str:
    """Return a key of TOML; quoted where it has a dot."""
    return key if key.replace("-", "").replace("_", "").isalnum() else f'"{key}"'
