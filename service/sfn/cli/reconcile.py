"""`sfn reconcile`: one sweep now."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfn.cli import options
from sfn.cli.exits import FAILED, INTERRUPTED, reported


def reconcile(
    *,
    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog",
            metavar="NAME",
            help="Of that catalog alone.",
            show_default=False,
            autocompletion=options.complete_catalog,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only look, in this process: see below.", show_default=False)
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait for the end of the sweep.")] = True,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Have the running service compare every table with its catalog now, and tell what differed.

    Ends with 1 if the sweep failed, or could not list a namespace or examine a table. Ctrl-C leaves it running.

    With --dry-run the service is not asked: this process lists the catalog, loads each table and reads the files beside
    it, from the configuration. It touches no inbox, writes nothing, and ends as `diff` does: 0 nothing differs,
    1 something does or could not be looked at. Files of tables that are gone are not found this way.
    """
    if dry_run:
        if url is not None or token_file is not None:
            raise typer.BadParameter("--dry-run asks no service: it takes neither --url nor --token-file")
        good = _rehearsed(config, catalog, as_json=as_json)
    else:
        good = _swept(options.Flags(config, url, token_file, ca_file), catalog, wait=wait, as_json=as_json)
    if not good:
        raise typer.Exit(FAILED)


def _rehearsed(config: Path | None, catalog: str | None, *, as_json: bool) -> bool:
    from sfn.cli.printing import show, show_json
    from sfn.cli.rehearsal import outcome, rehearse

    with reported():
        found = rehearse(config, catalog)
    if as_json:
        show_json({"catalogs": found})
    else:
        show(outcome(found))
    return all(one.agrees for one in found)


def _swept(flags: options.Flags, catalog: str | None, *, wait: bool, as_json: bool) -> bool:
    from sfn.cli.access import operators
    from sfn.cli.printing import complain, progress, show, show_json
    from sfn.cli.service import Service
    from sfn.cli.sweeping import check_named, delays, follow, outcome, went_well

    with reported(), Service(operators(flags)) as service:
        catalogs = service.status().catalogs
        told = [one.name for one in catalogs if one.is_told]
        check_named(catalog, [one.name for one in catalogs if one.name not in told], told)
        asked = service.reconcile([catalog] if catalog is not None else [])
        if not wait:
            if as_json:
                show_json(asked)
            else:
                typer.echo(f"asked for: {', '.join(asked.catalogs)}; `sfn status` tells how far it is")
            return True

        def waits(name: str) -> None:
            complain(f"{name}: the sweep waits, as the catalog is in trouble; Ctrl-C leaves it queued")

        for delay in delays(asked, service.status()):
            complain(delay)
        try:
            with progress("sweeping", None) as moved:
                sweeps = follow(service, asked, moved, waits)
            catalogs = service.status().catalogs
            retired = {one.name for one in catalogs if one.retired}
        except KeyboardInterrupt:
            complain("the sweep goes on in the service: `sfn status` tells how far it is")
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        found = [{"name": name, "retired": name in retired, **sweeps[name].model_dump()} for name in sweeps]
        show_json({"catalogs": found})
    else:
        since = {one.name: one.missing_since for one in catalogs if one.missing_since is not None}
        show(outcome(sweeps, retired, since))
    return went_well(sweeps)
