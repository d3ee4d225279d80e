"""`sfn check`: proves a configuration."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from sfn.cli import options
from sfn.cli.exits import FAILED, WRONG_USAGE

if TYPE_CHECKING:
    from pathlib import Path

    from sfn.admin.schemas import Status
    from sfn.cli.checks.findings import Finding
    from sfn.cli.pages import Line
    from sfn.settings import Settings
    from sfn.settings.roles import Role


def check(
    *,
    thorough: Annotated[
        bool, typer.Option("--all", help="Look at every table, not at one of each namespace, of twenty at most.")
    ] = False,
    roles: options.Roles = "receiver,worker,gateway,facade,admin",
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Prove a configuration before it is served: every finding with its remedy.

    Looked at are the settings and the roles, files of tokens, the inbox's folder, the address, each source of events
    (reached, let in, its subject or stream and consumer), each catalog (reached, who we are, listed, a sample of its
    tables loaded, and whether their metadata files live as long as ours may be late) and each store (written, swapped
    and deleted on conditions). Sources, gateways and the facade are those of the roles. Nothing is changed but for
    probes, which are removed again.

    Ends with 1 where something would not work, and with 2 where the settings are wrong; warnings are no failure.
    """
    from sfn.cli.checks.findings import Severity, fine, wrong
    from sfn.errors import SfnError
    from sfn.settings import Misconfigured

    try:
        settings, chosen = _loaded(config, roles)
    except SfnError as error:
        problems = error.problems if isinstance(error, Misconfigured) else (error,)
        _finish([wrong(problem.where, problem) for problem in problems], as_json=as_json, shown=False)
        raise typer.Exit(WRONG_USAGE) from None
    first = fine("settings", f"{config or 'environment and defaults'}: {_extent(settings)}")
    found = _run(settings, chosen, first, config, thorough=thorough, as_json=as_json)
    _finish(found, as_json=as_json, shown=True)
    if any(one.severity is Severity.ERROR for one in found):
        raise typer.Exit(FAILED)


def _loaded(config: Path | None, roles: str) -> tuple[Settings, frozenset[Role]]:
    """The settings and the roles, as `sfn serve` would take them."""
    from sfn.settings import load
    from sfn.settings.roles import check_roles, roles_of
    from sfn.wiring import sources

    chosen = roles_of(roles)
    settings = load(config)
    check_roles(chosen, settings)
    sources.check_adapters(settings)
    return settings, chosen


def _run(
    settings: Settings,
    roles: frozenset[Role],
    first: Finding,
    config: Path | None,
    *,
    thorough: bool,
    as_json: bool,
) -> list[Finding]:
    """All findings; for people each is printed as it comes."""
    import anyio

    from sfn import telemetry
    from sfn.cli.checks import findings

    # What the adapters log would stand among what the command prints.
    telemetry.configure("error", "console")
    found: list[Finding] = []

    async def run() -> None:
        _take(first, found, as_json=as_json)
        async for one in findings(settings, thorough=thorough, running=lambda: _running(config), roles=roles):
            _take(one, found, as_json=as_json)

    anyio.run(run)
    return found


def _running(config: Path | None) -> Status | None:
    """How the service is; None where none answers, or not to us."""
    from sfn.cli.access import operators
    from sfn.cli.service import Service
    from sfn.errors import SfnError

    try:
        with Service(operators(options.Flags(config))) as service:
            return service.status()
    except SfnError:
        return None


def _take(finding: Finding, found: list[Finding], *, as_json: bool) -> None:
    from sfn.cli.printing import show

    found.append(finding)
    if not as_json:
        show(lines(finding))


def _finish(found: list[Finding], *, as_json: bool, shown: bool) -> None:
    from sfn.cli.checks.findings import Severity
    from sfn.cli.pages import Line, Tone, counted
    from sfn.cli.printing import show, show_json

    if as_json:
        show_json({"findings": found})
        return
    page = [] if shown else [line for finding in found for line in lines(finding)]
    number = Counter(one.severity for one in found)
    errors, warnings = number[Severity.ERROR], number[Severity.WARNING]
    if errors:
        page.append(Line(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}", Tone.BAD))
    else:
        page.append(Line(f"it works: no error, {counted(warnings, 'warning')}", Tone.GOOD))
    show(page)


def lines(finding: Finding) -> list[Line]:
    """A finding, and beneath it what to do."""
    from sfn.cli.checks.findings import Severity
    from sfn.cli.pages import Line, Tone, safe

    tones = {Severity.OK: Tone.PLAIN, Severity.WARNING: Tone.WARNING, Severity.ERROR: Tone.BAD}
    first = Line(f"{finding.severity:<9}{safe(finding.where)}: {safe(finding.text)}", tones[finding.severity])
    return [first, Line(f"         → {safe(finding.remedy)}")] if finding.remedy else [first]


def _extent(settings: Settings) -> str:
    from sfn.cli.pages import counted

    sections = [("catalog", settings.catalogs), ("store", settings.stores), ("sender", settings.senders)]
    if settings.pull:
        sections.append(("pull source", settings.pull))
    return ", ".join(counted(len(section), name) for name, section in sections)
