"""`sfn check`: test a configuration. The checks are in `run_checks`, `check_config` and `check_catalogs`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from sfn.cli import options
from sfn.cli.options import FAILED, WRONG_USAGE
from sfn.errors import SfnError

if TYPE_CHECKING:
    from pathlib import Path

    from sfn.admin.schemas import ServiceStatus
    from sfn.cli.check_config import CheckFinding
    from sfn.cli.render import Line
    from sfn.settings.root import Role, Settings


def check(
    *,
    thorough: Annotated[
        bool, typer.Option("--all", help="Check every table, not only one of each of the first 20 namespaces.")
    ] = False,
    roles: options.Roles = "receiver,worker,gateway,facade,admin",
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Test a configuration before you run the listener. Each problem is shown with its remedy.

    The checks cover the settings and roles, token files, the inbox, the listener's address, pull sources (connection,
    login, subject or stream and consumer), catalogs and stores. Each catalog is reached, authenticated with and listed,
    and a sample of its tables is loaded; their metadata files must live longer than the lag. In each store a probe file
    is written, swapped and deleted with conditional requests. Pull sources, gateways and the facade are checked if
    --roles has them. Nothing is changed: the probe files are removed.

    Ends with 1 if something would not work, and with 2 if the settings are wrong. Warnings are not failures.
    """
    from sfn.cli.check_config import Severity, error_finding, ok_finding
    from sfn.errors import SfnError
    from sfn.settings.sources import ConfigurationError, find_file

    try:
        settings, chosen = _load(config, roles)
    except SfnError as error:
        problems = error.problems if isinstance(error, ConfigurationError) else (error,)
        _finish([error_finding(problem.where, problem) for problem in problems], as_json=as_json, shown=False)
        raise typer.Exit(WRONG_USAGE) from None
    first = ok_finding("settings", f"{find_file(config) or 'environment and defaults'}: {_summarise(settings)}")
    found = _run(settings, chosen, first, config, thorough=thorough, as_json=as_json)
    _finish(found, as_json=as_json, shown=True)
    if any(one.severity is Severity.ERROR for one in found):
        raise typer.Exit(FAILED)


def _load(config: Path | None, roles: str) -> tuple[Settings, frozenset[Role]]:
    """Return the settings and the roles, validated as in `sfn serve`."""
    from sfn.app import catalogs
    from sfn.settings import load
    from sfn.settings.root import check_roles, parse_roles

    chosen = parse_roles(roles)
    settings = load(config)
    check_roles(chosen, settings)
    catalogs.check_adapters(settings)
    return settings, chosen


def _run(
    settings: Settings,
    roles: frozenset[Role],
    first: CheckFinding,
    config: Path | None,
    *,
    thorough: bool,
    as_json: bool,
) -> list[CheckFinding]:
    """Run all checks. Without --json each finding is printed at once."""
    import anyio

    from sfn.cli.run_checks import run_checks
    from sfn.telemetry import logs

    # Log records of the adapters would mix with the command's output.
    logs.configure_logging("error", "console")
    found: list[CheckFinding] = []

    async def run() -> None:
        _add_finding(first, found, as_json=as_json)
        async for one in run_checks(settings, thorough=thorough, running=lambda: _running_status(config), roles=roles):
            _add_finding(one, found, as_json=as_json)

    anyio.run(run)
    return found


def _running_status(config: Path | None) -> ServiceStatus | None:
    """Return the state of the running service; None if none answers, or it rejects the token."""
    from sfn.cli.client import ServiceClient, admin_access

    try:
        with ServiceClient(admin_access(options.ServiceOptions(config))) as service:
            return service.status()
    except SfnError:
        return None


def _add_finding(finding: CheckFinding, found: list[CheckFinding], *, as_json: bool) -> None:
    from sfn.cli.render import print_page

    found.append(finding)
    if not as_json:
        print_page(finding_lines(finding))


def _finish(found: list[CheckFinding], *, as_json: bool, shown: bool) -> None:
    from sfn.cli.check_config import Severity
    from sfn.cli.render import Line, Tone, print_json, print_page
    from sfn.errors import pluralise

    if as_json:
        print_json({"findings": found})
        return
    page = [] if shown else [line for finding in found for line in finding_lines(finding)]
    number = Counter(one.severity for one in found)
    errors, warnings = number[Severity.ERROR], number[Severity.WARNING]
    if errors:
        page.append(Line(f"{pluralise(errors, 'error')}, {pluralise(warnings, 'warning')}", Tone.BAD))
    else:
        page.append(Line(f"passed: no errors, {pluralise(warnings, 'warning')}", Tone.GOOD))
    print_page(page)


def finding_lines(finding: CheckFinding) -> list[Line]:
    """Return a finding as lines, with its remedy below."""
    from sfn.cli.check_config import Severity
    from sfn.cli.render import Line, Tone, escape

    tones = {Severity.OK: Tone.PLAIN, Severity.WARNING: Tone.WARNING, Severity.ERROR: Tone.BAD}
    first = Line(f"{finding.severity:<9}{escape(finding.where)}: {escape(finding.text)}", tones[finding.severity])
    return [first, Line(f"         → {escape(finding.remedy)}")] if finding.remedy else [first]


def _summarise(settings: Settings) -> str:
    from sfn.errors import pluralise

    sections = [("catalog", settings.catalogs), ("store", settings.stores), ("sender", settings.senders)]
    if settings.pull:
        sections.append(("pull source", settings.pull))
    return ", ".join(pluralise(len(section), name) for name, section in sections)
