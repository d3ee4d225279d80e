"""`sfn status`: how the service is, or one table's whole story."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.exits import FAILED, exit_on_error

if TYPE_CHECKING:
    from sfn.cli.service import ServiceClient

REFRESH_INTERVAL: Final = 2.0
"""Seconds from one look to the next."""


def status(
    table: Annotated[
        str | None,
        typer.Argument(metavar="NS.TABLE", help="One table; a dot in a part is %2E.", show_default=False),
    ] = None,
    *,
    catalog: options.Catalog = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every two seconds, until Ctrl-C.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="End with 1 where something needs attention.")] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Say how the service is: what needs attention, the queue, lag, breakers, sweeps. With a table, its whole story.

    Of the tables that it counts LIVE have a file that readers follow; DUE ones were told of and wait for their turn;
    SCHEDULED ones are looked at again when it is time; RETRYING ones failed and are tried again; LEASED ones are worked
    on; DEAD ones were given up, and stay so when their letter is discarded; HELD ones wait behind the brake.

    Ends with 0 whenever the service answered, however it is; for a probe there is --exit-code.
    """
    from sfn.cli.access import admin_access
    from sfn.cli.service import ServiceClient

    with (
        exit_on_error(),
        ServiceClient(admin_access(options.ServiceOptions(config, url, token_file, ca_file))) as service,
    ):

        def render() -> bool:
            return (
                _show_service(service, as_json=as_json)
                if table is None
                else _show_table(service, table, catalog, as_json=as_json)
            )

        good = _watch(render) if watch else render()
    if exit_code and not good:
        raise typer.Exit(FAILED)


def _watch(render: Callable[[], bool]) -> bool:
    """Look until Ctrl-C; what the last look found. A service that is away for a while is no end."""
    from sfn.cli.printing import clear_screen, print_error
    from sfn.errors import SfnError
    from sfn.settings.sources import ConfigurationError

    good = True
    try:
        while True:
            clear_screen()
            try:
                good = render()
            except ConfigurationError:
                raise
            except SfnError as error:
                print_error(str(error))
                good = False
            time.sleep(REFRESH_INTERVAL)
    except KeyboardInterrupt:
        return good


def _show_service(service: ServiceClient, *, as_json: bool) -> bool:
    """Whether all is well."""
    from sfn.cli.overview import attention_items, status_page
    from sfn.cli.printing import print_json, print_page
    from sfn.clock import SystemClock

    now, found = SystemClock().now(), service.status()
    wrong = attention_items(found, now)
    if as_json:
        print_json({"attention": wrong, **found.model_dump()})
    else:
        print_page(status_page(found, service.url, now))
    return not wrong


def _show_table(service: ServiceClient, table: str, catalog: str | None, *, as_json: bool) -> bool:
    """Whether nobody has to do anything about the table."""
    from sfn.cli.pages import Tone
    from sfn.cli.printing import print_json, print_page
    from sfn.cli.service import UnknownToService
    from sfn.cli.story import table_page, table_verdict
    from sfn.cli.tables import parse_table_name
    from sfn.clock import SystemClock
    from sfn.errors import SfnError

    namespace, name = parse_table_name(table)
    catalog = service.resolve_catalog(catalog)
    try:
        found = service.table(catalog, namespace, name)
    except UnknownToService as error:
        remedy = f"check the name and --catalog; `sfn notify {table}` tells of a table, `sfn reconcile` finds all"
        expected = "a table that the service knows"
        raise SfnError(f"{catalog}:{table}", expected=expected, found=error.found, remedy=remedy) from None
    now = SystemClock().now()
    if as_json:
        print_json(found)
    else:
        print_page(table_page(found, now))
    return table_verdict(found, now).tone is not Tone.BAD
