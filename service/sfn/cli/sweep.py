"""`sfn reconcile`: request a sweep and show what differed, or compare tables without the service (--dry-run)."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.notify import SYSTEM_WAIT, WaitClock
from sfn.cli.options import FAILED, INTERRUPTED, exit_on_error
from sfn.cli.render import Grid, Line, Page, ProgressCallback, Tone, escape, format_time, progress
from sfn.cli.repairs import CatalogRepairs, wait_for_repairs
from sfn.clock import format_duration
from sfn.domain.identifiers import encode_identifier
from sfn.domain.jobs import DeadLetterReason
from sfn.errors import SfnError, pluralise, suggest_name

if TYPE_CHECKING:
    from sfn.admin.schemas import ServiceStatus, SweepAccepted, SweepModel
    from sfn.cli.client import ServiceClient
    from sfn.worker.dry_run import DryRunResult

FIRST_PAUSE: Final = 0.1
"""Seconds between the first two requests; each further pause is twice as long."""
MAX_PAUSE: Final = 2.0
"""The longest pause between two requests, in seconds."""
_AT_ONCE: Final = timedelta(seconds=1)
"""The longest wait that is not reported."""


def check_sweepable(catalog: str | None, sweepable: Sequence[str], event_only: Collection[str]) -> None:
    """Check that a catalog can be swept.

    Args:
        catalog: the catalog's name; None for all.
        sweepable: the catalogs that can be swept.
        event_only: the event-only catalogs, which cannot.

    Raises:
        ConfigurationError: the catalog cannot be swept, or no catalog can.
    """
    from sfn.settings.sources import ConfigurationError

    not_sweepable = sorted(one for one in event_only if one == catalog or (catalog is None and not sweepable))
    if not_sweepable:
        found = "an event-only catalog: there is nothing to compare"
        where = ", ".join(not_sweepable)
        raise ConfigurationError([SfnError(where, expected="a catalog that can be queried", found=found)])
    if catalog is not None and catalog not in sweepable:
        expected = f"a configured catalog that can be queried ({', '.join(sweepable) or 'none'})"
        raise ConfigurationError(
            [SfnError("--catalog", expected=expected, found=catalog, remedy=suggest_name(catalog, sweepable))]
        )


def describe_delays(accepted: SweepAccepted, status: ServiceStatus) -> list[str]:
    """Return why requested sweeps do not start at once, and when they start."""
    lines = []
    # A sweep that began after the request is the requested one.
    running = {
        one.name
        for one in status.catalogs
        if one.sweep is not None and one.sweep.is_running and one.sweep.started_at < accepted.requested_at
    }
    for name in accepted.catalogs:
        begins = accepted.starts_at.get(name)
        if begins is None and name in running:
            lines.append(f"{name}: a sweep is running; the requested one follows after a pause")
        elif begins is not None and begins - accepted.requested_at > _AT_ONCE:
            wait = format_duration(begins - accepted.requested_at)
            at = format_time(begins)
            lines.append(f"{name}: the sweep starts in {wait}, at {at}: two sweeps of a catalog keep a distance")
    return lines


def wait_for_sweeps(
    service: ServiceClient,
    accepted: SweepAccepted,
    on_progress: ProgressCallback,
    on_waiting: Callable[[str], None],
    timeout: timedelta | None = None,
    clock: WaitClock = SYSTEM_WAIT,
) -> dict[str, SweepModel]:
    """Wait until all requested sweeps ended, and return them by catalog.

    Args:
        service: the client of the service.
        accepted: the accepted request.
        on_progress: receives the number of tables.
        on_waiting: called once with each catalog that does not answer, so that its sweep waits.
        timeout: the longest time to wait; None to wait for the end.
        clock: the clock.

    Raises:
        TimeoutError: a sweep has not ended in time; it goes on in the service.
    """
    pause, reported = FIRST_PAUSE, set[str]()
    until = None if timeout is None else clock.monotonic() + timeout.total_seconds()
    while True:
        status = service.status()
        silent = {one.name for one in status.breakers if one.scope == "catalog" and one.failing}
        # A sweep that failed while its catalog does not answer is tried again by the service.
        sweeps = {
            name: sweep
            for name, sweep in sweeps_since(status, accepted.catalogs, accepted.requested_at).items()
            if sweep.state != "failed" or name not in silent
        }
        total = sum(max(sweep.known_tables, sweep.tables) for sweep in sweeps.values())
        on_progress(
            sum(sweep.tables for sweep in sweeps.values()), total if len(sweeps) == len(accepted.catalogs) else None
        )
        if len(sweeps) == len(accepted.catalogs) and not any(sweep.is_running for sweep in sweeps.values()):
            return sweeps
        for name in sorted(silent.intersection(accepted.catalogs) - sweeps.keys() - reported):
            reported.add(name)
            on_waiting(name)
        left = pause if until is None else until - clock.monotonic()
        if left <= 0:
            raise TimeoutError
        clock.sleep(min(pause, left))
        pause = min(2 * pause, MAX_PAUSE)


def sweeps_since(status: ServiceStatus, catalogs: Sequence[str], since: datetime) -> dict[str, SweepModel]:
    """Return the sweeps of some catalogs that started at a time or later.

    A sweep that reads no files began before the request was stored. A service of an older version does not say that.
    """
    return {
        one.name: one.sweep
        for one in status.catalogs
        if one.name in catalogs
        and one.sweep is not None
        and one.sweep.started_at >= since
        and one.sweep.thorough is not False
    }


def all_succeeded(sweeps: Mapping[str, SweepModel], repairs: Mapping[str, CatalogRepairs]) -> bool:
    """Return whether every table that may be listed was checked, and each that differed is repaired."""
    is_checked = all(
        sweep.state == "ended" and not (sweep.failed_tables or sweep.listing_failed) for sweep in sweeps.values()
    )
    return is_checked and not any(one.unrepaired for one in repairs.values())


def sweep_page(
    sweeps: Mapping[str, SweepModel],
    repairs: Mapping[str, CatalogRepairs],
    retired: Collection[str] = (),
    missing: Mapping[str, datetime] | None = None,
) -> Page:
    """Return a page of what differed, whether that is repaired, and what could not be checked.

    Args:
        sweeps: the sweeps, by catalog.
        repairs: the state of the differing tables, by catalog; none for a sweep that has not ended.
        retired: the retired catalogs.
        missing: the time since when tables are missing, by catalog; the default is the start of the sweep.
    """
    page: list[Line | Grid] = []
    for name, sweep in sweeps.items():
        repaired = repairs.get(name)
        page.append(_headline(name, sweep, repaired, retired=name in retired))
        if sweep.missing_tables:
            verb = "table has" if sweep.missing_tables == 1 else "tables have"
            since = format_time((missing or {}).get(name, sweep.started_at))
            text = f"  {sweep.missing_tables:,} {verb} been missing from the catalog since {since}"
            page.append(Line(text, Tone.WARNING))
        page += list(_differences(sweep, repaired))
        page += list(_unlisted(sweep))
        page += [Line(f"  could not check {escape(one)}", Tone.BAD) for one in sweep.failed_tables]
        if sweep.failed_reason:
            page.append(Line(f"    {escape(sweep.failed_tables[0])}: {escape(sweep.failed_reason)}", Tone.QUIET))
    return page


def _differences(sweep: SweepModel, repaired: CatalogRepairs | None) -> Iterator[Line | Grid]:
    columns: tuple[str, ...] = ("  TABLE", "WAS")
    if repaired is not None:
        columns = (*columns, "NOW")
        rows: list[tuple[str, ...]] = [
            (f"  {escape(one.table)}", escape(one.kind), "repaired" if one.why is None else escape(one.why))
            for one in repaired.tables
        ]
    else:
        rows = [(f"  {escape(one.table)}", escape(one.kind)) for one in sweep.differences]
    if rows:
        yield Grid(columns, rows, wide_column=columns[-1] if repaired is not None else columns[0])
    if (more := sweep.differences_total - len(sweep.differences)) > 0:
        yield Line(f"  and {more:,} more{f': {repaired.others:,} not repaired' if repaired is not None else ''}")
    if repaired is not None and any(one.reason not in {None, DeadLetterReason.HELD_DROP} for one in repaired.tables):
        yield Line("  → `sfn dead-letters show ID` has the remedy for a table that was given up")


def _unlisted(sweep: SweepModel) -> Iterator[Line]:
    failed = set(sweep.listing_failed)
    for one in sweep.unlisted_namespaces:
        has_failed = one in failed
        problem = "could not" if has_failed else "no permission to"
        yield Line(f"  {problem} list the namespace {escape(one) or '(all)'}", Tone.BAD if has_failed else Tone.WARNING)
    if sweep.unlisted_namespaces and sweep.unlisted_reason:
        yield Line(
            f"    {escape((sweep.listing_failed or sweep.unlisted_namespaces)[0])}: {escape(sweep.unlisted_reason)}",
            Tone.QUIET,
        )


def _headline(name: str, sweep: SweepModel, repaired: CatalogRepairs | None, *, retired: bool) -> Line:
    checked = pluralise(sweep.tables, "table")
    if sweep.is_running:
        of = f" of about {sweep.known_tables:,}" if sweep.known_tables > sweep.tables else ""
        return Line(
            f"{name}: the sweep is running: {checked}{of} checked, {sweep.differences_total:,} differ", Tone.WARNING
        )
    if sweep.state != "ended":
        why = f": {escape(sweep.error)}" if sweep.error else ""
        return Line(f"{name}: the sweep {escape(sweep.state)} after {checked}{why}", Tone.BAD)
    if not sweep.differences_total:
        return Line(f"{name}: {checked}, nothing differed", Tone.GOOD)
    text = f"{name}: {checked}, {sweep.differences_total:,} differed"
    if retired:
        return Line(f"{text}; retired: nothing is written (`sfn retire {name} --undo`)", Tone.WARNING)
    if repaired is None:
        return Line(f"{text}, queued for publishing", Tone.WARNING)
    if not repaired.unrepaired:
        return Line(f"{text}, {'repaired' if sweep.differences_total == 1 else 'all repaired'}", Tone.GOOD)
    return Line(f"{text}, {repaired.unrepaired:,} not repaired", Tone.WARNING)


MAX_SHOWN: Final = 1_000
"""The most tables of a catalog on a page; JSON has all of them."""


@dataclass(frozen=True, slots=True)
class DryRunDifference:
    """A table that differs."""

    table: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class DryRunFailure:
    """A namespace that was not listed, or a table that was not checked.

    Attributes:
        name: the namespace or table.
        why: the reason.
        is_failure: True for a failure, False for a missing permission.
    """

    name: str
    why: str
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class CatalogDryRun:
    """The result of a dry run for one catalog."""

    name: str
    tables: int
    differences: list[DryRunDifference]
    unlisted_namespaces: list[DryRunFailure]
    failed_tables: list[DryRunFailure]

    @property
    def is_in_sync(self) -> bool:
        """Return whether nothing differs among the tables that may be listed."""
        return (
            not self.differences
            and not self.failed_tables
            and not any(one.is_failure for one in self.unlisted_namespaces)
        )


def dry_run_catalogs(config: Path | None, catalog: str | None, timeout: timedelta | None = None) -> list[CatalogDryRun]:
    """Compare the tables of all configured catalogs, or of one, with their files.

    Raises:
        ConfigurationError: the configuration is wrong, or has no such catalog.
        ExternalError: a catalog or a store does not answer.
        TimeoutError: the comparison takes longer than `timeout`.
    """
    import anyio

    from sfn.app import catalogs
    from sfn.app.catalogs import open_read_only
    from sfn.settings import load
    from sfn.telemetry import logs
    from sfn.worker.dry_run import DryRunSweep

    settings = load(config)
    catalogs.check_adapters(settings)
    names = [name for name in settings.catalogs if name not in settings.event_only_catalogs]
    check_sweepable(catalog, names, settings.event_only_catalogs)
    # Log records of the adapters would mix with the command's output.
    logs.configure_logging("error", "console")

    # Imported modules are never garbage: scanning them in each collection took a sixth of the time.
    gc.freeze()

    async def walk() -> list[CatalogDryRun]:
        found = []
        seconds = timeout.total_seconds() if timeout is not None else None
        with anyio.fail_after(seconds):
            async with open_read_only(settings) as parts:
                for name in names if catalog is None else [catalog]:
                    source = await parts.connect(name)
                    with progress(name, None) as on_progress:
                        sweep = DryRunSweep(
                            source,
                            parts.stores,
                            lambda so_far: on_progress(
                                so_far.tables, so_far.listed if so_far.is_fully_listed else None
                            ),
                        )
                        found.append(_to_catalog_dry_run(name, await sweep.run()))
        return found

    return anyio.run(walk, backend_options={"use_uvloop": True})


def dry_run_page(found: list[CatalogDryRun]) -> Page:
    """Return a page of what differs in each catalog."""
    page: list[Line | Grid] = []
    for one in found:
        checked = pluralise(one.tables, "table")
        if one.is_in_sync:
            page.append(Line(f"{one.name}: {checked}, nothing differs", Tone.GOOD))
        else:
            differ = f"{len(one.differences):,} {'differs' if len(one.differences) == 1 else 'differ'}"
            page.append(Line(f"{one.name}: {checked}, {differ}", Tone.WARNING))
        if one.differences:
            rows = [(f"  {escape(each.table)}", each.kind, escape(each.detail)) for each in one.differences[:MAX_SHOWN]]
            page.append(Grid(("  TABLE", "IS", "DETAIL"), rows, wide_column="DETAIL"))
        if (more := len(one.differences) - MAX_SHOWN) > 0:
            page.append(Line(f"  and {more:,} more: --json has them all"))
        page += [
            Line(f"  could not list {escape(each.name)}: {escape(each.why)}", Tone.WARNING)
            for each in one.unlisted_namespaces
        ]
        page += [
            Line(f"  could not check {escape(each.name)}: {escape(each.why)}", Tone.BAD) for each in one.failed_tables
        ]
    if not all(one.is_in_sync for one in found):
        text = "a dry run does not know the drop limit and retired catalogs: see `sfn status`"
        page.append(Line(text, Tone.QUIET))
    return page


def _to_catalog_dry_run(name: str, found: DryRunResult) -> CatalogDryRun:
    return CatalogDryRun(
        name,
        found.tables,
        [
            DryRunDifference(encode_identifier(one.table.namespace, one.table.name), one.kind, one.detail)
            for one in found.differences
        ],
        [DryRunFailure(".".join(one.namespace) or "(all)", one.message, one.is_failure) for one in found.unlisted],
        [DryRunFailure(encode_identifier(table.namespace, table.name), why) for table, why in found.failed],
    )


def reconcile(
    *,
    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog",
            metavar="NAME",
            help="Only this catalog.",
            show_default=False,
            autocompletion=options.complete_catalog,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Compare in this process, and write nothing.", show_default=False)
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait for the end of the sweep and of the repairs.")] = True,
    timeout: Annotated[
        timedelta | None,
        typer.Option(
            "--timeout",
            parser=options.parse_duration,
            metavar="DURATION",
            help="The longest time to wait, such as 10m. Default: as long as tables are compared and repaired.",
            show_default=False,
        ),
    ] = None,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Have the running service compare every table with its files now, and repair those that differ.

    The service reads the files as --dry-run does, and finds the same differences. A table that was given up is tried
    again. A table that the drop limit holds stays held: use `sfn release`.
    While a catalog does not answer, its sweep waits.

    Ends with 0 if nothing differs any more. Ends with 1 if a table that differed is not repaired, if the sweep failed,
    could not list a namespace or check a table, or if it has not ended within --timeout. The output says why a table is
    not repaired. After Ctrl-C, and after the timeout, the service goes on.

    With --dry-run this process lists the catalog, loads each table and reads its files, as the configuration says. It
    needs no service and no inbox, and writes nothing. It ends like `diff`: with 0 if nothing differs, with 1 if
    something differs or could not be checked. It does not find files of tables that the catalog no longer has.
    """
    if timeout is not None and not wait and not dry_run:
        raise typer.BadParameter("--timeout needs --wait")
    if dry_run:
        if url is not None or token_file is not None:
            raise typer.BadParameter("--dry-run does not use the service: do not pass --url or --token-file")
        good = _dry_run(config, catalog, timeout, as_json=as_json)
    else:
        flags = options.ServiceOptions(config, url, token_file, ca_file)
        good = _run_sweep(flags, catalog, timeout, wait=wait, as_json=as_json)
    if not good:
        raise typer.Exit(FAILED)


def _dry_run(config: Path | None, catalog: str | None, timeout: timedelta | None, *, as_json: bool) -> bool:
    from sfn.cli.render import print_error, print_json, print_page

    with exit_on_error():
        try:
            found = dry_run_catalogs(config, catalog, timeout)
        except TimeoutError:
            print_error(f"the comparison has not ended after {format_duration(timeout or timedelta())}")
            return False
    if as_json:
        print_json({"catalogs": found})
    else:
        print_page(dry_run_page(found))
    return all(one.is_in_sync for one in found)


def _run_sweep(
    flags: options.ServiceOptions, catalog: str | None, timeout: timedelta | None, *, wait: bool, as_json: bool
) -> bool:
    from sfn.cli.client import open_service
    from sfn.cli.render import print_error, print_json, print_page, progress

    with open_service(flags) as service:
        catalogs = service.status().catalogs
        event_only = [one.name for one in catalogs if one.is_event_only]
        check_sweepable(catalog, [one.name for one in catalogs if one.name not in event_only], event_only)
        accepted = service.reconcile([catalog] if catalog is not None else [])
        if not wait:
            if as_json:
                print_json(accepted)
            else:
                typer.echo(f"sweep requested: {', '.join(accepted.catalogs)}; `sfn status` shows its progress")
            return True

        for delay in describe_delays(accepted, service.status()):
            print_error(delay)
        until = None if timeout is None else SYSTEM_WAIT.monotonic() + timeout.total_seconds()
        repairs: dict[str, CatalogRepairs] = {}
        has_ended = True
        try:
            with progress("sweeping", None) as on_progress:
                sweeps = wait_for_sweeps(service, accepted, on_progress, _report_waiting, timeout)
            with progress("repairing", None) as on_progress:
                repairs = wait_for_repairs(service, sweeps, on_progress, until)
        except TimeoutError:
            after = format_duration(timeout or timedelta())
            print_error(f"no end after {after}: the sweep goes on in the service, `sfn status` shows its progress")
            has_ended = False
            # What is known so far helps to find what takes long.
            sweeps = sweeps_since(service.status(), accepted.catalogs, accepted.requested_at)
        except KeyboardInterrupt:
            print_error("stopped waiting: the sweep goes on in the service, `sfn status` shows its progress")
            raise typer.Exit(INTERRUPTED) from None
        catalogs = service.status().catalogs
    retired = {one.name for one in catalogs if one.retired}
    if as_json:
        print_json({"catalogs": [_to_json(name, sweeps[name], repairs.get(name), name in retired) for name in sweeps]})
    else:
        since = {one.name: one.missing_since for one in catalogs if one.missing_since is not None}
        print_page(sweep_page(sweeps, repairs, retired, since))
    return has_ended and sweeps.keys() >= set(accepted.catalogs) and all_succeeded(sweeps, repairs)


def _report_waiting(name: str) -> None:
    from sfn.cli.render import print_error

    print_error(f"{name}: the sweep waits: the catalog does not answer; Ctrl-C leaves it in the queue")


def _to_json(name: str, sweep: SweepModel, repaired: CatalogRepairs | None, retired: bool) -> dict[str, object]:  # noqa: FBT001
    found: dict[str, object] = {"name": name, "retired": retired, **sweep.model_dump()}
    return found if repaired is None else {**found, "differences": repaired.tables, "unrepaired": repaired.unrepaired}
