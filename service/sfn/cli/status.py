"""`sfn status`: how the service is, or one table's whole story."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.exits import FAILED, reported

if TYPE_CHECKING:
    from sfn.cli.service import Service

EVERY: Final = 2.0
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
    from sfn.cli.access import operators
    from sfn.cli.service import Service

    with reported(), Service(operators(options.Flags(config, url, token_file, ca_file))) as service:

        def look() -> bool:
            return _all(service, as_json=as_json) if table is None else _one(service, table, catalog, as_json=as_json)

        good = _watched(look) if watch else look()
    if exit_code and not good:
        raise typer.Exit(FAILED)


def _watched(look: Callable[[], bool]) -> bool:
    """Look until Ctrl-C; what the last look found. A service that is away for a while is no end."""
    from sfn.cli.printing import clear, complain
    from sfn.errors import SfnError
    from sfn.settings import Misconfigured

    good = True
    try:
        while True:
            clear()
            try:
                good = look()
            except Misconfigured:
                raise
            except SfnError as error:
                complain(str(error))
                good = False
            time.sleep(EVERY)
    except KeyboardInterrupt:
        return good


def _all(service: Service, *, as_json: bool) -> bool:
    """Whether all is well."""
    from sfn.cli.overview import attention, overview
    from sfn.cli.printing import show, show_json
    from sfn.clock import SystemClock

    now, found = SystemClock().now(), service.status()
    wrong = attention(found, now)
    if as_json:
        show_json({"attention": wrong, **found.model_dump()})
    else:
        show(overview(found, service.url, now))
    return not wrong


def _one(service: Service, table: str, catalog: str | None, *, as_json: bool) -> bool:
    """Whether nobody has to do anything about the table."""
    from sfn.cli.pages import Tone
    from sfn.cli.printing import show, show_json
    from sfn.cli.service import NotKnown
    from sfn.cli.story import story, verdict
    from sfn.cli.tables import table_of
    from sfn.clock import SystemClock
    from sfn.errors import SfnError

    namespace, name = table_of(table)
    catalog = service.the_catalog(catalog)
    try:
        found = service.table(catalog, namespace, name)
    except NotKnown as error:
        remedy = f"check the name and --catalog; `sfn notify {table}` tells of a table, `sfn reconcile` finds all"
        expected = "a table that the service knows"
        raise SfnError(f"{catalog}:{table}", expected=expected, found=error.found, remedy=remedy) from None
    now = SystemClock().now()
    if as_json:
        show_json(found)
    else:
        show(story(found, now))
    return verdict(found, now).tone is not Tone.BAD
