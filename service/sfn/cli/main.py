"""The command `sfn` with all its subcommands, among them `serve`, `demo` and `healthcheck`."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.metadata import version
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer
from typer.core import TyperGroup, TyperOption

from sfn.cli import (
    audit,
    check,
    config,
    dead_letters,
    demo,
    facade,
    init,
    notify,
    operator_commands,
    options,
    read,
    status,
    sweep,
    tables,
)
from sfn.cli.options import FAILED, WRONG_USAGE, examples
from sfn.errors import SfnError
from sfn.extras import DISTRIBUTION


def serve(config: options.Config = None, roles: options.Roles = "receiver,worker,gateway,facade,admin") -> None:
    """Run the listener: accept events, ask the catalog, and write SFN files and version hints.

    Several processes can share an inbox in PostgreSQL. Each of them runs all roles, or those that --roles names.
    """
    from sfn.errors import SfnError
    from sfn.settings import load
    from sfn.settings.root import check_roles, parse_roles
    from sfn.settings.sources import ConfigurationError, find_file

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

    raise typer.Exit(service.run(settings, roles=chosen, file=find_file(config)))


TIMEOUT: Final = 5.0
"""Seconds for the connection, and again for the answer."""


def check_answers(url: str, path: str) -> None:
    """Check that a path of a service, such as `/livez`, answers 200. Proxy variables of the environment are ignored.

    Args:
        url: the service's base URL.

    Raises:
        SfnError: the service does not answer, or with another status.
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
    """Return a connection that accepts any certificate: the health check sends no secret.

    The certificate names the host that clients use, and its authority may be unknown on this machine.
    """
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(authority, timeout=TIMEOUT, context=trusting)


def healthcheck(
    *,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask whether it is ready for traffic (/readyz), not only alive.")
    ] = False,
    config: options.Config = None,
    url: options.Url = None,
) -> None:
    """End with 0 if the service answers, and with 1 if not: `HEALTHCHECK CMD ["sfn", "healthcheck"]`.

    Certificates are not verified, because no secret is sent.
    """
    from sfn.errors import SfnError
    from sfn.settings.sources import ConfigurationError

    try:
        if url is None:
            # Not the client of other commands: a container runs this command every 30 seconds.
            from sfn.settings import load_client, local_url

            url = local_url(load_client(config).listener)
        check_answers(url, "/readyz" if ready else "/livez")
    except SfnError as error:
        for problem in error.problems if isinstance(error, ConfigurationError) else [error]:
            typer.echo(str(problem), err=True)
        # 1 for wrong settings, too: Docker reserves the exit code 2.
        raise typer.Exit(FAILED) from None


_INSPECT, _ACT = "Inspect", "Act on the running service"

app = typer.Typer(
    name="sfn",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_set: bool) -> None:  # noqa: FBT001 - typer's callback
    if is_set:
        typer.echo(f"sfn {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def sfn(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Write the current metadata location of each Iceberg table next to the table, to read it without its catalog."""


app.command(
    "init",
    epilog=examples("sfn init", "sfn init --uri http://127.0.0.1:8181 --store s3://lake/warehouse /etc/sfn/sfn.toml"),
)(init.init)
app.command(
    "serve", epilog=examples("sfn serve --config sfn.toml", "sfn serve --config sfn.toml --roles receiver,worker,admin")
)(serve)
app.command("check", epilog=examples("sfn check --config sfn.toml", "sfn check --all --json"))(check.check)
app.add_typer(config.app)
app.command("facade", epilog=examples("sfn facade /warehouse", "sfn facade s3://lake --token-file readers"))(
    facade.facade
)
app.command("demo", epilog=examples("sfn demo"))(demo.demo)
app.command("demo-catalog", epilog=examples("sfn demo-catalog", "sfn demo-catalog build/lake --port 8182"))(
    demo.demo_catalog
)
app.command(
    "resolve",
    rich_help_panel=_INSPECT,
    epilog=examples(
        "sfn resolve /warehouse/sales/orders",
        "sfn resolve s3://lake/sales/orders --as-of 2026-08-21T12:00:00Z",
        "sfn resolve s3://lake/sales/orders --storage-option anon=true --json",
    ),
)(read.resolve)
app.command("history", rich_help_panel=_INSPECT, epilog=examples("sfn history s3://lake/sales/orders --limit 20"))(
    read.history
)
app.command("inspect", rich_help_panel=_INSPECT, epilog=examples("sfn inspect /warehouse/sales/orders --files"))(
    read.inspect
)
app.command(
    "verify",
    rich_help_panel=_INSPECT,
    epilog=examples(
        "sfn verify s3://lake/sales/orders", "sfn verify s3://lake/sales/orders --deep --config sfn.toml --catalog prod"
    ),
)(read.verify)
app.command(
    "status",
    rich_help_panel=_INSPECT,
    epilog=examples("sfn status", "sfn status --watch", "sfn status prod:sales.orders"),
)(status.status)
app.command(
    "tables", rich_help_panel=_INSPECT, epilog=examples("sfn tables --late", "sfn tables 'sales.*' --state retrying")
)(tables.tables)
app.command("audit-log", rich_help_panel=_INSPECT, epilog=examples("sfn audit-log --limit 20"))(
    operator_commands.audit_log
)
app.add_typer(audit.app, rich_help_panel=_INSPECT)
app.command("healthcheck", rich_help_panel=_INSPECT, epilog=examples("sfn healthcheck --ready"))(healthcheck)
app.command(
    "notify",
    rich_help_panel=_ACT,
    epilog=examples(
        "sfn notify prod:sales.orders --wait", "sfn notify sales.orders --operation rename --destination sales.sold"
    ),
)(notify.notify)
app.command(
    "reconcile",
    rich_help_panel=_ACT,
    epilog=examples("sfn reconcile --catalog prod --timeout 10m", "sfn reconcile --dry-run"),
)(sweep.reconcile)
app.add_typer(dead_letters.app, rich_help_panel=_ACT)
app.command("release", rich_help_panel=_ACT, epilog=examples("sfn release prod"))(operator_commands.release)
app.command(
    "adopt",
    rich_help_panel=_ACT,
    epilog=examples(
        "sfn adopt prod --from 0123456789abcdef0123456789abcdef",
        "sfn adopt prod sales.orders --from 0123456789abcdef0123456789abcdef --yes",
    ),
)(operator_commands.adopt)
app.command("retire", rich_help_panel=_ACT, epilog=examples("sfn retire prod", "sfn retire prod --undo"))(
    operator_commands.retire
)


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 wrong usage or wrong settings."""
    command = typer.main.get_command(app)
    _hide_flag_types(typer.Context(command, **command.context_settings))
    command()


def _hide_flag_types(context: typer.Context) -> None:
    """Remove the value type from the help of flags, which take no value, for a command and its subcommands."""
    command = context.command
    for option in command.get_params(context):
        if isinstance(option, TyperOption) and option.is_flag:
            option.metavar = ""
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            _hide_flag_types(typer.Context(below, context))
