"""`sfn report`: what an audit found."""

from __future__ import annotations

from typing import Annotated

import typer

from sfn.cli import options
from sfn.cli.exits import exit_on_error


def report(
    report: Annotated[
        str,
        typer.Argument(metavar="DIRECTORY|CATALOG:NS.TABLE", help="Where the audit wrote it.", show_default=False),
    ],
    *,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Which run; else the newest.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many tables each list names.")] = 10,
    past: Annotated[int, typer.Option("--past", min=1, help="How many runs are compared.")] = 10,
    report_option: options.ReportOptions = None,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Show what an audit (`python -m sfn.spark.audit`) found: how tables stand, the worst lag, foreign files, tables
    near their metadata's retention, what could not be looked at, and the trend over runs.

    The report is an Iceberg table: whatever reads one has all of it in SQL.
    """
    from sfn.cli.printing import print_json, print_page
    from sfn.cli.reported import report_page
    from sfn.cli.reporting import read_report

    with exit_on_error():
        content = read_report(config, report, options.parse_pairs("--report-option", report_option), run, limit, past)
    if as_json:
        print_json(content)
    else:
        print_page(report_page(content))
