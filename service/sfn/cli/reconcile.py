"""`sfn reconcile`: one sweep now."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfn.cli import options
from sfn.cli.exits import FAILED, INTERRUPTED, exit_on_error


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
        good = _dry_run(config, catalog, as_json=as_json)
    else:
        good = _run_sweep(options.ServiceOptions(config, url, token_file, ca_file), catalog, wait=wait, as_json=as_json)
    if not good:
        raise typer.Exit(FAILED)


def _dry_run(config: Path | None, catalog: str | None, *, as_json: bool) -> bool:
    from sfn.cli.printing import print_json, print_page
    from sfn.cli.rehearsal import dry_run_catalogs, dry_run_page

    with exit_on_error():
        found = dry_run_catalogs(config, catalog)
    if as_json:
        print_json({"catalogs": found})
    else:
        print_page(dry_run_page(found))
    return all(one.is_in_sync for one in found)


def _run_sweep(flags: options.ServiceOptions, catalog: str | None, *, wait: bool, as_json: bool) -> bool:
    from sfn.cli.access import admin_access
    from sfn.cli.printing import print_error, print_json, print_page, progress
    from sfn.cli.service import ServiceClient
    from sfn.cli.sweeping import all_succeeded, check_sweepable, describe_delays, sweep_page, wait_for_sweeps

    with exit_on_error(), ServiceClient(admin_access(flags)) as service:
        catalogs = service.status().catalogs
        event_only = [one.name for one in catalogs if one.is_event_only]
        check_sweepable(catalog, [one.name for one in catalogs if one.name not in event_only], event_only)
        accepted = service.reconcile([catalog] if catalog is not None else [])
        if not wait:
            if as_json:
                print_json(accepted)
            else:
                typer.echo(f"asked for: {', '.join(accepted.catalogs)}; `sfn status` tells how far it is")
            return True

        def waits(name: str) -> None:
            print_error(f"{name}: the sweep waits, as the catalog is in trouble; Ctrl-C leaves it queued")

        for delay in describe_delays(accepted, service.status()):
            print_error(delay)
        try:
            with progress("sweeping", None) as moved:
                sweeps = wait_for_sweeps(service, accepted, moved, waits)
            catalogs = service.status().catalogs
            retired = {one.name for one in catalogs if one.retired}
        except KeyboardInterrupt:
            print_error("the sweep goes on in the service: `sfn status` tells how far it is")
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        found = [{"name": name, "retired": name in retired, **sweeps[name].model_dump()} for name in sweeps]
        print_json({"catalogs": found})
    else:
        since = {one.name: one.missing_since for one in catalogs if one.missing_since is not None}
        print_page(sweep_page(sweeps, retired, since))
    return all_succeeded(sweeps)
