"""`python -m sfn.spark.audit`, or this file given to `spark-submit`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from sfn.cli import options
from sfn.cli.options import FAILED, INTERRUPTED, exit_on_error
from sfn.spark.environment import check_packages

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")


@app.command()
def audit(
    *,
    report: Annotated[
        str, typer.Option("--report", metavar="DIRECTORY|CATALOG:NS.TABLE", help="Where the report is written.")
    ],
    catalog: Annotated[
        list[str] | None,
        typer.Option("--catalog", metavar="NAME", help="Only that catalog; may be repeated.", show_default=False),
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also: do all files of current snapshots exist?")] = False,
    notify: Annotated[bool, typer.Option("--hints/--no-hints", help="Tell the service of what differs.")] = True,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", min=0.1, metavar="N", help="Tables a second that a catalog is asked for.", show_default=False
        ),
    ] = None,
    slices: Annotated[
        int, typer.Option("--slices", metavar="N", help="Of a new report: the parts of a run, a power of two.")
    ] = 32,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew, where the last run was ended before its time.")
    ] = False,
    keep: Annotated[int, typer.Option("--keep", min=1, metavar="N", help="Runs that the report keeps.")] = 90,
    patience: Annotated[
        timedelta,
        typer.Option(
            "--patience", parser=options.parse_age, metavar="TIME", help="How long to wait for a catalog that is away."
        ),
    ] = timedelta(seconds=60),
    report_option: options.ReportOptions = None,
    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            "--storage-option", metavar="KEY=VALUE", help="With --deep: how fsspec opens files.", show_default=False
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help="Spark's, where spark-submit does not say it.", show_default=False
        ),
    ] = None,
    sender: Annotated[
        str | None,
        typer.Option("--sender", metavar="NAME", help="As which sender the service is told.", show_default=False),
    ] = None,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Compare every table of the configured catalogs with what lies in its directory, and write a report of it.

    What differs is told to the running service, which writes the files: so a catalog that never had any gets its first
    ones too. A run that was ended before its time is gone on with; `sfn report` shows what was found.

    Ends with 1 where something could not be looked at, or not be told of.
    """
    with exit_on_error():
        check_packages()
        from sfn.cli.render import print_json, print_page
        from sfn.spark.audit.command import AuditArguments, run_from_arguments
        from sfn.spark.audit.page import render_summary

        arguments = AuditArguments(
            report=report,
            catalogs=tuple(catalog or ()),
            deep=deep,
            notify=notify,
            rate=rate,
            slices=slices,
            fresh=fresh,
            keep=keep,
            patience=patience.total_seconds(),
            report_options=options.parse_pairs("--report-option", report_option),
            storage_options=options.parse_pairs("--storage-option", storage_option),
            master=master,
            sender=sender,
            flags=options.ServiceOptions(config, url, token_file, ca_file),
        )
        try:
            summary = run_from_arguments(arguments)
        except KeyboardInterrupt:
            typer.echo("what is in the report stays there: the next run goes on with it", err=True)
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(summary)
    else:
        print_page(render_summary(summary))
    if not summary.is_whole:
        raise typer.Exit(FAILED)


if __name__ == "__main__":
    app(prog_name="python -m sfn.spark.audit")
