"""The command line `sfn`: one file a command.

Commands import what they need when they run: `sfn --version` should not wait for a web server.
"""

from __future__ import annotations

import signal
import ssl
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer
from typer.core import TyperGroup, TyperOption

from sfn.cli import catalog_commands, check, dead_letters, facade, notify, options, read, report, status, sweep
from sfn.cli.options import FAILED
from sfn.errors import SfnError

# ── serve: `sfn serve`

WRONG_USAGE = 2


def serve(config: options.Config = None, roles: options.Roles = "receiver,worker,gateway,facade,admin") -> None:
    """Hear of commits, ask the catalog, keep the pointer files.

    Processes that share an inbox in PostgreSQL may each do a part of it: all, or some of receiver, worker, gateway,
    facade and admin.
    """
    from sfn.errors import SfnError
    from sfn.settings import load
    from sfn.settings.model import check_roles, parse_roles
    from sfn.settings.sources import ConfigurationError

    try:
        chosen = parse_roles(roles)
        settings = load(config)
        check_roles(chosen, settings)

        from sfn.app import catalogs, service

        catalogs.check_adapters(settings)
    except SfnError as error:
        for problem in error.problems if isinstance(error, ConfigurationError) else (error,):
            typer.echo(str(problem), err=True)
        raise typer.Exit(WRONG_USAGE) from None

    raise typer.Exit(service.run(settings, roles=chosen))


# ── demo: `sfn demo`

_FAILED = 1


def demo(
    java: Annotated[
        Path | None, typer.Option(envvar="SFN_JAVA", help="A Java of version 17 or newer.", show_default=False)
    ] = None,
    jars: Annotated[
        Path | None,
        typer.Option(envvar="SFN_JARS", help="The folder with the catalog server's jars.", show_default=False),
    ] = None,
    cache: Annotated[Path | None, typer.Option(envvar="XDG_CACHE_HOME", hidden=True)] = None,
) -> None:
    """Show a real catalog, the service and a table, end to end, in a temporary folder.

    Java and jars are those that `make jars` fetched, unless they are given. Without them it says so in its first line,
    and runs on PyIceberg's SQL catalog.
    """
    from sfn.demo.demo import run_demo
    from sfn.demo.environment import find_runtime
    from sfn.errors import Permanent, SfnError

    # Else the temporary folder would outlive a demo that is told to end.
    signal.signal(signal.SIGTERM, _end)
    runtime, without = None, ""
    try:
        try:
            runtime = find_runtime(java=java, jars=jars, cache=cache)
        except Permanent as error:
            # Who names one wants that one.
            if java is not None or jars is not None:
                raise
            without = str(error)
        run_demo(runtime, typer.echo, without)
    except SfnError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(_FAILED) from None


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


# ── liveness: Whether a service answers

TIMEOUT: Final = 5.0
"""Seconds for the connection, and again for the answer."""


def check_answers(url: str, path: str) -> None:
    """Ask a path of a service, such as `/livez`. Proxies of the environment are passed by.

    Args:
        url: where it listens.

    Raises:
        SfnError: there is another answer than 200, or none.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise SfnError("--url", expected="a URL such as http://127.0.0.1:8085", found=repr(url))
    target = f"{parts.path.rstrip('/')}{path}"
    where = f"{parts.scheme}://{parts.netloc}{target}"
    connection = (
        _unverified_connection(parts.netloc)
        if parts.scheme == "https"
        else HTTPConnection(parts.netloc, timeout=TIMEOUT)
    )
    try:
        connection.request("GET", target)
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        found = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SfnError(where, expected="an answer", found=found) from error
    finally:
        connection.close()
    if status != HTTPStatus.OK:
        raise SfnError(where, expected="200", found=str(status))


def _unverified_connection(authority: str) -> HTTPSConnection:
    """A connection for which any certificate will do, as nothing secret is sent.

    The clients know the service by another name than this one, and by an authority that this machine need not trust.
    """
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(authority, timeout=TIMEOUT, context=trusting)


# ── healthcheck: `sfn healthcheck`


def healthcheck(
    *,
    ready: Annotated[bool, typer.Option("--ready", help="Whether it wants traffic (/readyz), not only lives.")] = False,
    config: options.Config = None,
    url: options.Url = None,
) -> None:
    """End with 0 if the service answers, and with 1 if not: `HEALTHCHECK CMD ["sfn", "healthcheck"]`.

    Certificates are not verified: nothing secret is sent.
    """
    from sfn.errors import SfnError
    from sfn.settings.sources import ConfigurationError

    try:
        if url is None:
            from sfn.cli.client import local_url
            from sfn.settings import load_client

            url = local_url(load_client(config).listener)
        check_answers(url, "/readyz" if ready else "/livez")
    except SfnError as error:
        for problem in error.problems if isinstance(error, ConfigurationError) else [error]:
            typer.echo(str(problem), err=True)
        # Also where the settings are wrong: 2 is a status that Docker reserves.
        raise typer.Exit(FAILED) from None


# ── cli: The command line `sfn`

DISTRIBUTION = "iceberg-sfn"

_INSPECT, _ACT = "Look", "Act on the running service"

app = typer.Typer(name="sfn", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown")


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        typer.echo(f"sfn {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def sfn(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keeps a small pointer file beside each Iceberg table, so that it can be read without its catalog."""


app.command("serve")(serve)
app.command("check")(check.check)
app.command("facade")(facade.facade)
app.command("demo")(demo)
app.command("resolve", rich_help_panel=_INSPECT)(read.resolve)
app.command("history", rich_help_panel=_INSPECT)(read.history)
app.command("inspect", rich_help_panel=_INSPECT)(read.inspect)
app.command("verify", rich_help_panel=_INSPECT)(read.verify)
app.command("status", rich_help_panel=_INSPECT)(status.status)
app.command("audit", rich_help_panel=_INSPECT)(catalog_commands.audit)
app.command("report", rich_help_panel=_INSPECT)(report.report)
app.command("healthcheck", rich_help_panel=_INSPECT)(healthcheck)
app.command("notify", rich_help_panel=_ACT)(notify.notify)
app.command("reconcile", rich_help_panel=_ACT)(sweep.reconcile)
app.add_typer(dead_letters.app, rich_help_panel=_ACT)
app.command("release", rich_help_panel=_ACT)(catalog_commands.release)
app.command("adopt", rich_help_panel=_ACT)(catalog_commands.adopt)
app.command("retire", rich_help_panel=_ACT)(catalog_commands.retire)


def main() -> None:
    """Run the command line: exit code 0 done, 1 failed, 2 wrong usage or wrong settings."""
    command = typer.main.get_command(app)
    _hide_flag_types(typer.Context(command))
    command()


def _hide_flag_types(context: typer.Context) -> None:
    """Have the help of flags, which take no value, name no type of one: of a command and those below it."""
    command = context.command
    for option in command.get_params(context):
        if isinstance(option, TyperOption) and option.is_flag:
            option.metavar = ""
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            _hide_flag_types(typer.Context(below, context))
