"""`sfn audit run` and `sfn audit report`: compare every table on Spark, and show what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.options import FAILED, INTERRUPTED, exit_on_error
from sfn.cli.render import Grid, Line, Page, Tone, escape, format_time
from sfn.clock import format_duration
from sfn.errors import NotInstalled, SfnError, pluralise

if TYPE_CHECKING:
    from sfn.audit.read import AuditReport, ReportedTable, RunSummary

CATALOG_TIMEOUT: Final = timedelta(seconds=60)
"""The default time to wait for an unreachable catalog."""

app = typer.Typer(name="audit", help="Compare every table with its directory, on Spark.", no_args_is_help=True)


RUN_EXAMPLES: Final = options.examples(
    "sfn audit run --report /reports/lake --config sfn.toml",
    "sfn audit run --report prod:ops.audit --catalog prod --deep --storage-option anon=true",
)


@app.command(epilog=RUN_EXAMPLES)
def run(
    *,
    report: Annotated[
        str, typer.Option("--report", metavar="DIRECTORY|CATALOG:NS.TABLE", help="Where the report is written.")
    ],
    catalog: options.OnlyCatalogs = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also check that all files of current snapshots exist.")] = False,
    notify: Annotated[
        bool, typer.Option("--notify/--no-notify", help="Notify the listener of tables that differ.")
    ] = True,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=0.1,
            metavar="N",
            help="The most tables a second to request from a catalog.",
            show_default=False,
        ),
    ] = None,
    slices: Annotated[
        int, typer.Option("--slices", metavar="N", help="For a new report: the parts of a run, a power of two.")
    ] = 32,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start a new run, even if the last one was interrupted.")
    ] = False,
    keep: Annotated[
        int, typer.Option("--keep", min=1, metavar="N", help="The number of runs that the report keeps.")
    ] = 90,
    catalog_timeout: Annotated[
        timedelta | None,
        typer.Option(
            "--catalog-timeout",
            parser=options.parse_duration,
            metavar="DURATION",
            help="The longest time to wait for an unreachable catalog, such as 5m. Default: 60s.",
            show_default=False,
        ),
    ] = None,
    report_option: options.ReportOptions = None,
    storage_option: options.StorageOptions = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help="Spark's master, if spark-submit does not set it.", show_default=False
        ),
    ] = None,
    sender: options.Sender = None,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Compare every table of the configured catalogs with its directory, and write a report.

    The running listener is notified of tables that differ, and writes their files. So a catalog without any SFN files
    gets its first ones, too. An interrupted run is resumed; `sfn audit report` shows the findings.

    With --deep it opens files by fsspec, with the options of --storage-option.

    Ends with 1 if a table could not be checked, or a notification was not accepted.
    """
    with exit_on_error():
        from sfn.cli.render import print_json, print_page
        from sfn.spark.start import check_packages

        check_packages()
        from sfn.audit.run import AuditArguments, render_summary, run_from_arguments

        arguments = AuditArguments(
            report=report,
            catalogs=tuple(catalog or ()),
            deep=deep,
            notify=notify,
            rate=rate,
            slices=slices,
            fresh=fresh,
            keep=keep,
            patience=(catalog_timeout or CATALOG_TIMEOUT).total_seconds(),
            report_options=options.parse_report_options(report_option),
            storage_options=options.parse_storage_options(storage_option),
            master=master,
            sender=sender,
            flags=options.ServiceOptions(config, url, token_file, ca_file),
        )
        try:
            summary = run_from_arguments(arguments)
        except KeyboardInterrupt:
            typer.echo("interrupted; finished slices stay in the report, and the next run resumes", err=True)
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(summary)
    else:
        print_page(render_summary(summary))
    if not summary.is_whole:
        raise typer.Exit(FAILED)


_NUMBERS = frozenset(
    {"TABLES", "LAG", "BEHIND", "RETAINED", "LIFETIME", "DIFFER", "UNCHECKED", "UNCHANGED", "WORST LAG"}
)


def report_page(report: AuditReport) -> Page:
    found: list[Line | Grid] = []
    whole = "" if report.is_whole else ", incomplete: the next audit continues it"
    deep = ", with all files" if report.deep else ""
    found.append(Line(f"run {report.run} of {format_time(report.began_at)}{deep}{whole}", _tone(report)))
    states = [
        (f"  {escape(catalog)}", state, f"{number:,}")
        for catalog, counts in report.states.items()
        for state, number in counts.items()
    ]
    found.append(Grid(("  CATALOG", "STATE", "TABLES"), states, _NUMBERS))
    found += _listed("the worst lag", report.worst_lag, len(report.worst_lag))
    found += _listed("foreign files", report.foreign, report.foreign_total)
    found += _listed("near the end of their metadata retention", report.near_retention, report.near_retention_total)
    found += _listed("missing files of the current snapshot", report.missing_files, report.missing_files_total)
    found += _listed("not checked", report.unchecked, report.unchecked_total)
    if report.oldest_file_seconds is not None:
        oldest = format_duration(timedelta(seconds=report.oldest_file_seconds))
        found.append(Line(f"the oldest SFN file was written {oldest} before the run read it"))
    found.append(Line("the last runs"))
    columns = ("  RUN", "TABLES", "DIFFER", "UNCHECKED", "UNCHANGED", "WORST LAG")
    found.append(Grid(columns, _past(report.trend), _NUMBERS))
    return found


def _tone(report: AuditReport) -> Tone:
    from sfn.audit.report import FINE_STATES

    is_fine = all(state in FINE_STATES for counts in report.states.values() for state in counts)
    return Tone.GOOD if is_fine and report.is_whole and not report.missing_files_total else Tone.WARNING


def _listed(title: str, rows: Sequence[ReportedTable], total: int) -> list[Line | Grid]:
    if not rows:
        return []
    more = f" (the first {len(rows)} of {pluralise(total, 'table')}: --limit)" if total > len(rows) else ""
    cells = [
        (
            f"  {escape(f'{row.catalog}:{row.table}')}",
            row.state,
            _time(row.lag_seconds),
            "" if row.commits_behind is None else f"{row.commits_behind:,}",
            "" if row.previous_versions_max is None else f"{row.previous_versions_max:,}",
            _time(row.lifetime_seconds),
            escape(row.detail),
        )
        for row in rows
    ]
    heads = ("  TABLE", "STATE", "LAG", "BEHIND", "RETAINED", "LIFETIME", "DETAIL")
    return [Line(f"{title}{more}"), Grid(heads, cells, _NUMBERS, "DETAIL")]


def _time(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(timedelta(seconds=seconds))


def _past(trend: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    return [
        (
            f"  {one.run}{'' if one.is_whole else ' (incomplete)'}",
            f"{one.tables:,}",
            f"{one.differing:,}",
            f"{one.unchecked:,}",
            f"{one.unchanged:,}",
            _time(one.worst_lag_seconds),
        )
        for one in trend
    ]


def read_report(
    config: Path | None, where: str, opened_with: Mapping[str, str], run: str | None, most: int, past: int
) -> AuditReport:
    """Read a report; arguments as in `sfn.audit.read.read_report`.

    Raises:
        NotInstalled: PyIceberg or PyArrow is missing.
        SfnError: there is no report, or no such run.
    """
    from sfn.settings import load
    from sfn.settings.root import Settings

    try:
        from sfn.audit import read, storage
    except ImportError as error:
        from sfn.extras import install_command

        remedy = install_command("read")
        raise NotInstalled(
            "sfn audit report", expected="PyIceberg and PyArrow", found=str(error), remedy=remedy
        ) from None
    # A report in a directory needs no configuration.
    place = storage.parse_report_location(where, Settings() if config is None else load(config), opened_with)
    with storage.map_report_errors(str(place), "check that it can be reached, and try again"):
        table = storage.find_report(place)
    if table is None:
        remedy = "write one: sfn audit run --report …"
        raise SfnError(str(place), expected="a report", found="none", remedy=remedy)
    with storage.map_report_errors(str(place), "check that its files can be read, and try again"):
        return read.read_report(table, str(place), run, most, past)


@app.command(
    epilog=options.examples("sfn audit report /reports/lake", "sfn audit report prod:ops.audit --config sfn.toml")
)
def report(
    report: Annotated[
        str,
        typer.Argument(metavar="DIRECTORY|CATALOG:NS.TABLE", help="The report's place.", show_default=False),
    ],
    *,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="The run; default: the newest.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="The most tables in each list.")] = 10,
    past: Annotated[int, typer.Option("--past", min=1, metavar="N", help="The number of runs to compare.")] = 10,
    report_option: options.ReportOptions = None,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Show the report of an audit.

    It has tables by state, the worst lag, foreign files, tables near the end of their metadata retention, tables that
    could not be checked, and the trend over runs.

    The report is an Iceberg table, so any engine can query it in SQL.
    """
    from sfn.cli.render import print_json, print_page

    with exit_on_error():
        content = read_report(config, report, options.parse_report_options(report_option), run, limit, past)
    if as_json:
        print_json(content)
    else:
        print_page(report_page(content))
