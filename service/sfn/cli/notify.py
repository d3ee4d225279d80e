"""`sfn notify`: send an event about a table, and wait for its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.admin.remedies import remedy_for
from sfn.cli import options
from sfn.cli.options import FAILED, INTERRUPTED, exit_on_error
from sfn.cli.render import Line, Tone, escape
from sfn.clock import SystemClock, format_ago, format_duration

if TYPE_CHECKING:
    from sfn.admin.schemas import DeadLetterModel
    from sfn.admin.table_schemas import TableModel
    from sfn.cli.client import AcceptedEvents, EventAccess, ServiceAccess, ServiceClient
    from sfn.cli.options import TypedTable

FIRST_PAUSE: Final = 0.05
"""Seconds between the first two requests; each further pause is twice as long."""
MAX_PAUSE: Final = 1.0
"""The longest pause between two requests, in seconds."""
_AT_ONCE: Final = timedelta(seconds=1)
"""The longest wait that is not reported."""


class WaitOutcome(StrEnum):
    """The result of an event for a table."""

    PUBLISHED = "published"
    NOTHING_TO_DO = "nothing-to-do"
    NOT_FOUND = "not-found"
    WAITING = "waits"
    DEAD_LETTER = "dead-letter"
    UNSETTLED = "unsettled"


@dataclass(frozen=True, slots=True)
class WaitResult:
    """The state of a table after an event.

    Attributes:
        name: the table as it was typed.
        outcome: the result.
        text: the result in one line.
        remedy: the next step; may be empty.
        table: the table; None if the service does not know it any more.
    """

    name: str
    outcome: WaitOutcome
    text: str
    remedy: str
    table: TableModel | None

    @property
    def is_ok(self) -> bool:
        """Return whether the event is processed and needs no operator."""
        return self.outcome in {WaitOutcome.PUBLISHED, WaitOutcome.NOTHING_TO_DO}


@dataclass(frozen=True, slots=True)
class WaitClock:
    """The clock of a wait: the present time, monotonic seconds, and a sleep of some seconds."""

    now: Callable[[], datetime] = SystemClock().now
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


SYSTEM_WAIT: Final = WaitClock()
"""The machine's clock."""


def wait_for_table(
    service: ServiceClient,
    catalog: str,
    namespace: tuple[str, ...],
    name: str,
    timeout: timedelta,
    clock: WaitClock = SYSTEM_WAIT,
    on_waiting: Callable[[str], None] = lambda _: None,
) -> TableModel | None:
    """Wait until every notification of a table is processed, and return the table; None if it is not known any more.

    Return earlier if the timeout is over, or if the next check is due after that.

    Args:
        service: the client of the service.
        catalog: the catalog's name.
        namespace: the levels of the table's namespace.
        name: the table's name.
        timeout: the longest time to wait.
        clock: the clock.
        on_waiting: called with a text once for each check that is not due within a second.
    """
    from sfn.admin.table_verdict import table_verdict
    from sfn.cli.client import UnknownToService

    until, pause = clock.monotonic() + timeout.total_seconds(), FIRST_PAUSE
    reported_due_at: datetime | None = None
    while True:
        try:
            table = service.table(catalog, namespace, name)
        except UnknownToService:
            return None
        now, left = clock.now(), until - clock.monotonic()
        if left <= 0 or _is_finished(table, now, timedelta(seconds=left)):
            return table
        if table.due_at != reported_due_at and (table.due_at - now > _AT_ONCE or pause == MAX_PAUSE):
            reported_due_at = table.due_at
            on_waiting(f"{escape(table_verdict(table, now).text)}; Ctrl-C stops waiting, the service goes on")
        clock.sleep(min(pause, left))
        pause = min(2 * pause, MAX_PAUSE)


def _is_finished(table: TableModel, now: datetime, left: timedelta) -> bool:
    """Return whether no check within `left` will change the result."""
    if table.unapplied_events:
        return False
    is_pending = _is_pending(table, now)
    if is_settled(table, now) and not is_pending:
        return True
    is_far = table.state == "queued" and table.due_at - now > left
    return is_far and (is_pending or table.reason is not None)


def _is_pending(table: TableModel, now: datetime) -> bool:
    """Return whether a table is not published correctly until its next check."""
    from sfn.admin.table_verdict import VerdictSeverity, table_verdict, waiting_text

    return waiting_text(table, now) is not None and table_verdict(table, now).severity is VerdictSeverity.WARNING


def is_settled(table: TableModel, now: datetime) -> bool:
    """Return whether every notification of a table is processed, and no further check is due."""
    from sfn.admin.table_verdict import waiting_text

    if table.unapplied_events or table.state != "queued":
        return table.state == "dead" and not table.unapplied_events
    return not table.pending.has_unprocessed and (table.due_at > now or waiting_text(table, now) is None)


def wait_result(
    name: str, table: TableModel | None, now: datetime, timeout: timedelta, *, may_be_missing: bool = False
) -> WaitResult:
    """Return the result of an event after `wait_for_table`.

    Args:
        name: the table as it was typed.
        table: the table; None if the service does not know it any more.
        now: the present time.
        timeout: the time that was waited at most.
        may_be_missing: True if the event said that the catalog does not have the table any more.
    """
    from sfn.admin.table_verdict import table_verdict, waiting_text

    if table is None or (table.unpublished in {"missing", "dropped"} and is_settled(table, now)):
        files = "no file exists" if table is None or table.unpublished == "missing" else "its files say so"
        text = f"the catalog has no such table, and {files}"
        if may_be_missing:
            return WaitResult(name, WaitOutcome.NOTHING_TO_DO, f"nothing to publish: {text}", "", table)
        remedy = "check the spelling: `sfn tables` lists the names that the service knows"
        return WaitResult(name, WaitOutcome.NOT_FOUND, text, remedy, table)
    letter = next((one for one in table.dead_letters if one.status == "open"), None)
    if letter is not None:
        again = f"; next check {format_ago(table.due_at, now)}" if table.state == "queued" else ""
        return WaitResult(
            name,
            WaitOutcome.DEAD_LETTER,
            f"{_given_up(letter)}{again}",
            remedy_for(letter, table.foreign_catalog_id),
            table,
        )
    if not is_settled(table, now):
        text = f"not processed within {format_duration(timeout)}: {escape(table_verdict(table, now).text)}{_why(table)}"
        return WaitResult(name, WaitOutcome.UNSETTLED, text, f"`sfn status {name}` shows the result", table)
    waits = waiting_text(table, now)
    if waits is not None and _is_pending(table, now):
        return WaitResult(name, WaitOutcome.WAITING, waits, f"`sfn status {name}` shows the result", table)
    if table.listed_as is not None:
        text = f"another spelling of {escape(table.listed_as)}: the event is processed under that name"
        return WaitResult(
            name, WaitOutcome.NOTHING_TO_DO, text, f"`sfn status {table.listed_as}` shows the result", table
        )
    if table.published is None:
        text = "nothing to publish: the table has no live file, as in the catalog"
        return WaitResult(name, WaitOutcome.NOTHING_TO_DO, text, "", table)
    again = "" if waits is None else f"; {waits.partition('; ')[2]}"
    return WaitResult(name, WaitOutcome.PUBLISHED, f"published {table.published.metadata_location}{again}", "", table)


def result_lines(settled: WaitResult) -> list[Line]:
    """Return a result as lines of a page."""
    tones = {
        WaitOutcome.WAITING: Tone.WARNING,
        WaitOutcome.UNSETTLED: Tone.WARNING,
        WaitOutcome.DEAD_LETTER: Tone.BAD,
        WaitOutcome.NOT_FOUND: Tone.BAD,
    }
    page = [Line(f"{escape(settled.name)}: {escape(settled.text)}", tones.get(settled.outcome, Tone.GOOD))]
    return [*page, Line(f"  → {escape(settled.remedy)}")] if settled.remedy else page


def _given_up(letter: DeadLetterModel) -> str:
    return f"dead letter {letter.id}, {letter.reason}: {letter.detail}"


def _why(table: TableModel) -> str:
    return f" ({table.last_result.why})" if table.last_result is not None and table.last_result.why else ""


WAIT_TIMEOUT: Final = timedelta(seconds=60)
"""The default timeout of `--wait`."""
DROP_WAIT_TIMEOUT: Final = timedelta(minutes=3)
"""The default timeout for a drop or a rename, which take one or two `replica_lag` (60 s by default)."""


class Operation(StrEnum):
    """The change of the table."""

    COMMIT = "commit"
    CREATE = "create"
    REGISTER = "register"
    RENAME = "rename"
    DROP = "drop"


def notify(
    table: Annotated[
        str,
        typer.Argument(
            metavar="NS.TABLE",
            help="The table, such as sales.orders or prod:sales.orders; a dot in a part is %2E.",
            show_default=False,
        ),
    ],
    *,
    catalog: options.Catalog = None,
    metadata_location: Annotated[
        str | None,
        typer.Option(
            "--metadata-location", metavar="LOCATION", help="Its new metadata file, if known.", show_default=False
        ),
    ] = None,
    operation: Annotated[
        Operation, typer.Option("--operation", metavar="|".join(Operation), help="The change of the table.")
    ] = Operation.COMMIT,
    destination: Annotated[
        str | None,
        typer.Option("--destination", metavar="NS.TABLE", help="With rename: its new name.", show_default=False),
    ] = None,
    purge: Annotated[bool, typer.Option("--purge", help="With drop: the files were deleted, too.")] = False,
    event_id: Annotated[
        str | None,
        typer.Option(
            "--event-id",
            metavar="ID",
            help="The event's id; a second event with the same id is a duplicate.",
            show_default=False,
        ),
    ] = None,
    sender: options.Sender = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the result; needs the operators' token, too.")
    ] = False,
    timeout: options.WaitTimeout = None,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Send an event: the table may have changed. The service then asks the catalog, and publishes its answer.

    The token is a sender's, from the configuration or from --token-file. With --sender that file may hold the sender's
    signing secret.

    With --wait it ends with 0 if the table is published, or gone after a drop or a rename. It ends with 1 if the
    catalog has no such table, if the table became a dead letter, or if the event is not processed in time.
    """
    from sfn.cli.client import ServiceClient, admin_access, event_access
    from sfn.cli.options import parse_table_name

    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout needs --wait")
    if (destination is not None) != (operation is Operation.RENAME):
        raise typer.BadParameter("--destination needs --operation rename, and the other way round")
    if purge and operation is not Operation.DROP:
        raise typer.BadParameter("--purge needs --operation drop")
    typed = [parse_table_name(table, catalog=catalog)]
    event: dict[str, object] = {
        "namespace": typed[0].namespace,
        "name": typed[0].name,
        "operation": operation.value,
    }
    if destination is not None:
        typed.append(parse_table_name(destination, "--destination", typed[0].catalog))
        event["destination"] = {"namespace": typed[1].namespace, "name": typed[1].name}
    if purge:
        event["purge"] = True
    with exit_on_error():
        # Waiting needs the operators' token, which only the configuration has: --token-file is the sender's.
        watcher = admin_access(options.ServiceOptions(config, url, None, ca_file)) if wait else None
        access = event_access(options.ServiceOptions(config, url, token_file, ca_file), typed[0].catalog, sender)
        optional = {"catalog": access.sender_catalog, "metadata_location": metadata_location, "event_id": event_id}
        with ServiceClient(access.access) as service:
            accepted = service.post_events(event | {key: text for key, text in optional.items() if text is not None})
        is_ignored = not accepted.accepted and not accepted.duplicates
        message = _explain_ignored(access, typed) if is_ignored else _describe_accepted(accepted, table)
        if watcher is None or is_ignored:
            _show(accepted, message, as_json=as_json)
            return
        has_left = operation in {Operation.DROP, Operation.RENAME}
        timeout = timeout or (DROP_WAIT_TIMEOUT if has_left else WAIT_TIMEOUT)
        if not _wait_for_tables(watcher, access, typed, timeout, accepted, has_left=has_left, as_json=as_json):
            raise typer.Exit(FAILED)


def _show(accepted: AcceptedEvents, message: str, *, as_json: bool) -> None:
    from sfn.cli.render import print_json

    if as_json:
        print_json(accepted)
    else:
        typer.echo(message)


def _wait_for_tables(
    watcher: ServiceAccess,
    access: EventAccess,
    tables: list[TypedTable],
    timeout: timedelta,
    accepted: AcceptedEvents,
    *,
    has_left: bool,
    as_json: bool,
) -> bool:
    """Wait for the tables, and print the results. Return whether all of them need no operator.

    Args:
        has_left: True if the first of them has left its name, by a drop or a rename.
    """
    from sfn.cli.client import ServiceClient
    from sfn.cli.render import print_error, print_json, print_page

    watch = WaitClock()
    until = watch.monotonic() + timeout.total_seconds()
    ends = []
    with ServiceClient(watcher) as service:
        catalog = service.resolve_catalog(access.catalog)
        try:
            for table in tables:
                left = timedelta(seconds=until - watch.monotonic())
                name, report = f"{catalog}:{table.identifier}", partial(_report_waiting, table.identifier)
                found = wait_for_table(service, catalog, table.namespace, table.name, left, watch, report)
                may_be_missing = has_left and table is tables[0]
                ends.append(wait_result(name, found, watch.now(), timeout, may_be_missing=may_be_missing))
        except KeyboardInterrupt:
            print_error("stopped waiting: the event is stored, `sfn status` shows the result")
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json({**accepted.model_dump(), "tables": ends})
    else:
        print_page([line for end in ends for line in result_lines(end)])
    return all(end.is_ok for end in ends)


def _report_waiting(table: str, what: str) -> None:
    from sfn.cli.render import print_error

    print_error(f"{table}: {what}")


def _describe_accepted(accepted: AcceptedEvents, table: str) -> str:
    if accepted.accepted:
        return f"accepted and stored; `sfn status {table}` shows the result"
    return "duplicate: an event with this id was accepted before, so nothing is checked"


def _explain_ignored(access: EventAccess, tables: list[TypedTable]) -> str:
    """Return why the service ignores tables, as far as the configuration shows."""
    from sfn.domain.identifiers import TableIdentifier
    from sfn.publish.policy import TableFilter

    if access.settings is None or access.catalog is None:
        return "ignored: include and exclude leave the table out, or its catalog is retired"
    section, selected = f"catalogs.{access.catalog}", TableFilter(access.settings.include, access.settings.exclude)
    if any(selected.covers(TableIdentifier(access.catalog, one.namespace, one.name)) for one in tables):
        undo = f"`sfn retire {access.catalog} --undo`"
        return f"ignored: the catalog {access.catalog} is retired, so its tables get no files; undo with {undo}"
    return f"ignored: {section}.include and exclude leave the table out"
