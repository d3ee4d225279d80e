"""`Verdict`: whether the service needs an operator, since when, why, and the next command.

The status of the service, its page and the command line show the same verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from pydantic import Field

from sfn.admin.remedies import adopt_command
from sfn.admin.schemas import (
    AdminModel,
    CatalogModel,
    CircuitBreakerModel,
    DeadLetterGroup,
    ServiceStatus,
    StoreModel,
    SweepModel,
)
from sfn.admin.table_schemas import ListedTableModel
from sfn.clock import format_ago, format_duration, format_since
from sfn.domain.jobs import DeadLetterReason
from sfn.errors import pluralise

_MAX_NAMED: Final = 3
"""The most namespaces or tables in one line."""


class VerdictState(StrEnum):
    """Whether the service needs an operator.

    well       it does not: every catalog answers, and no table is late
    starting   it does not, but the first sweep of a catalog has not ended, so tables may be missing
    attention  it does
    """

    WELL = "well"
    STARTING = "starting"
    ATTENTION = "attention"


class StatusProblem(AdminModel):
    """One thing that needs an operator."""

    kind: str = Field(description="name of the kind of problem, such as `catalog-unanswered` or `late`")
    catalog: str | None = Field(default=None, description="the catalog; null if it is not about one")
    what: str = Field(description="the problem")
    since: datetime | None = Field(default=None, description="when it began; null if that is not known")
    cause: str | None = Field(default=None, description="why, as far as the service knows")
    command: str | None = Field(default=None, description="the next command to run")
    advice: str | None = Field(default=None, description="what to do, with commands between backticks")


class Verdict(AdminModel):
    """Whether the service needs an operator."""

    state: VerdictState
    since: datetime | None = Field(description="when the first of the problems began; null without one")
    problems: Sequence[StatusProblem] = Field(description="the most severe first")


class ServiceReport(ServiceStatus):
    """The state of the service, and whether it needs an operator."""

    verdict: Verdict


def verdict_of(status: ServiceStatus, late: Sequence[ListedTableModel], letters: Sequence[DeadLetterGroup]) -> Verdict:
    """Return the verdict about a service.

    Args:
        status: its state.
        late: the tables that have waited the longest, a few of each catalog.
        letters: the open dead letters by reason.
    """
    problems = list(_process_problems(status))
    known_stores = any(one.scope == "store" and "://" in one.name for one in status.breakers)
    for breaker in status.breakers:
        # A failed store has a breaker of its own.
        if not (known_stores and breaker.scope == "store" and "://" not in breaker.name):
            problems += _breaker_problems(breaker, status.stores)
    silent = {one.catalog for one in problems if one.kind == "catalog"}
    for catalog in status.catalogs:
        if catalog.unanswered_since is not None and catalog.name not in silent:
            problems.append(_unanswered(catalog))
            silent.add(catalog.name)
    outages = tuple(problems)
    for catalog in status.catalogs:
        problems += _catalog_problems(catalog, is_silent=catalog.name in silent)
        problems += _late_problems(catalog, [one for one in late if one.catalog == catalog.name], outages)
    problems += _unauthorized_problems(status)
    problems += [_letter_problem(group) for group in letters if group.reason != DeadLetterReason.HELD_DROP]
    if problems:
        since = min((one.since for one in problems if one.since is not None), default=None)
        return Verdict(state=VerdictState.ATTENTION, since=since, problems=problems)
    is_starting = any(catalog.first_sweep_pending for catalog in status.catalogs)
    return Verdict(state=VerdictState.STARTING if is_starting else VerdictState.WELL, since=None, problems=[])


def headline(status: ServiceReport, now: datetime) -> str:
    """Return the verdict in one line."""
    verdict = status.verdict
    if verdict.problems:
        since = "" if verdict.since is None else f" since {format_since(verdict.since, now)}"
        lasting = "" if verdict.since is None else f" ({format_duration(now - verdict.since)})"
        needs = "thing needs" if len(verdict.problems) == 1 else "things need"
        return f"{len(verdict.problems)} {needs} attention{since}{lasting}"
    if verdict.state == VerdictState.STARTING:
        first = [one.name for one in status.catalogs if one.first_sweep_pending]
        names = ", ".join(f"`{name}`" for name in first)
        sweeps = "the first sweep of" if len(first) == 1 else "the first sweeps of"
        verb = "has" if len(first) == 1 else "have"
        return f"starting: {sweeps} {names} {verb} not ended, so tables may not be known yet"
    live = sum(one.live_tables for one in status.catalogs)
    others = sum(one.tables.total for one in status.catalogs) - live
    waiting = sum(one.tables.due + one.tables.retrying + one.tables.leased for one in status.catalogs)
    work = f"{waiting:,} in the queue" if waiting else "queue empty"
    without = f" and {others:,} without a file (dropped, excluded, not published yet)" if others > 0 else ""
    return f"all is well: {pluralise(live, 'table')}{without}; {work}"


def describe_sweep(sweep: SweepModel | None, now: datetime) -> str:
    """Return the progress of a running sweep, or the result of an ended one."""
    if sweep is None:
        return "none yet"
    if sweep.is_running:
        total = max(sweep.known_tables, sweep.tables)
        return f"running for {format_duration(now - sweep.started_at)}: {sweep.tables:,} of {total:,}"
    when = format_ago(sweep.ended_at or sweep.started_at, now)
    if sweep.state != "ended":
        return f"{sweep.state} {when}"
    return f"{when}: {pluralise(sweep.tables, 'table')} checked, {sweep.differences_total:,} queued"


def _process_problems(status: ServiceStatus) -> Iterator[StatusProblem]:
    if not status.ready:
        yield StatusProblem(kind="not-ready", what=f"not ready: {', '.join(status.not_ready_reasons)}")
    alive = [one for one in status.processes if one.alive]
    if alive and not any(one.has_role("worker") for one in alive):
        gone = max((one.seen_at for one in status.processes if not one.alive and one.has_role("worker")), default=None)
        yield StatusProblem(
            kind="no-worker",
            what="no process with the role worker runs: nothing is published",
            since=gone,
            command="sfn serve --roles worker",
        )
    for source in status.pull_sources:
        if source.unavailable_since is not None:
            yield StatusProblem(
                kind="pull-source",
                what=f"the pull source {source.name} has not answered: its events come late",
                since=source.unavailable_since,
                cause=source.error,
                command="sfn check",
            )


def _breaker_problems(breaker: CircuitBreakerModel, stores: Sequence[StoreModel]) -> Iterator[StatusProblem]:
    if not breaker.failing:
        return
    verb = "has not answered" if breaker.scope == "catalog" else "has failed"
    yield StatusProblem(
        kind=breaker.scope,
        catalog=breaker.name if breaker.scope == "catalog" else None,
        what=f"{breaker_subject(breaker, {one.prefix: one.name for one in stores})} {verb}",
        since=breaker.failing_since,
        cause=breaker.error,
        command="sfn check",
    )


def breaker_subject(breaker: CircuitBreakerModel, stores: Mapping[str, str]) -> str:
    """Return what a breaker is about, by the names in the settings.

    Args:
        breaker: the breaker.
        stores: names of the configured stores by their prefix.
    """
    if breaker.scope != "store":
        return f"the {breaker.scope}{f' {breaker.name}' if breaker.name else ''}"
    if breaker.name in stores:
        return f"the store {stores[breaker.name]} ({breaker.name})"
    # Until the store of a table is known, its breaker has the name of the catalog.
    return f"the store {breaker.name}" if "://" in breaker.name else f"a store of tables of {breaker.name}"


def _unanswered(catalog: CatalogModel) -> StatusProblem:
    since, answered_at = catalog.unanswered_since, catalog.answered_at
    is_partial = since is not None and answered_at is not None and answered_at > since
    return StatusProblem(
        kind="catalog",
        catalog=catalog.name,
        what=f"the catalog {catalog.name} has not answered{' every request' if is_partial else ''}",
        since=catalog.unanswered_since,
        cause=catalog.error,
        command="sfn check",
    )


def _late_problems(
    catalog: CatalogModel, late: Sequence[ListedTableModel], outages: Sequence[StatusProblem]
) -> Iterator[StatusProblem]:
    """Yield the late tables of a catalog, without those that have a dead letter of their own.

    Args:
        catalog: the catalog.
        late: some of them.
        outages: the problems of catalogs and stores, which may be why.
    """
    waiting = [one for one in late if one.dead_letter is None]
    if not waiting:
        return
    number = max(catalog.late_tables - catalog.tables.dead, len(waiting))
    yield StatusProblem(
        kind="late",
        catalog=catalog.name,
        what=f"{catalog.name}: {pluralise(number, 'table')} {'has' if number == 1 else 'have'} waited for a publish",
        since=waiting[0].waiting_since,
        cause=_late_cause(catalog.name, waiting, number, outages),
        command=f"sfn tables --late --catalog {catalog.name}",
    )


def _late_cause(
    catalog: str, waiting: Sequence[ListedTableModel], number: int, outages: Sequence[StatusProblem]
) -> str:
    """Return why tables wait: each cause once, and what is known already not again."""
    causes: dict[str, list[str]] = {}
    for one in waiting:
        cause = one.cause or "no cause is known"
        because = next((one for one in outages if cause.startswith(f"{one.what.rpartition(' has ')[0]} has ")), None)
        if because is None and one.state == "leased":
            because = next((outage for outage in outages if outage.catalog == catalog), None)
        causes.setdefault(because.what if because is not None else cause, []).append(one.table)
    shown = []
    for cause, tables in list(causes.items())[:_MAX_NAMED]:
        more = ", …" if len(tables) > _MAX_NAMED or number > len(waiting) else ""
        shown.append(f"{cause} ({', '.join(tables[:_MAX_NAMED])}{more})")
    return "; ".join(shown) + ("; …" if len(causes) > _MAX_NAMED else "")


def _unauthorized_problems(status: ServiceStatus) -> Iterator[StatusProblem]:
    """Yield one problem for all clients with refused tokens; it is gone 10 minutes after the last refusal."""
    clients = status.unauthorized
    if not clients:
        return
    addresses = [one.client or "an unknown address" for one in clients[:_MAX_NAMED]]
    more = f" and {len(clients) - _MAX_NAMED:,} more" if len(clients) > _MAX_NAMED else ""
    last = max(clients, key=lambda one: one.last_at)
    why = f": {last.reason}" if last.reason else ""
    senders = list(dict.fromkeys(name for one in clients for name in one.senders))[:_MAX_NAMED]
    known = f"; the last accepted request of {', '.join(senders)} came from there" if senders else ""
    secrets = " or ".join(f"[senders.{name}]" for name in senders or ["NAME"])
    count = sum(one.count for one in clients)
    yield StatusProblem(
        kind="unauthorized",
        what=f"{pluralise(count, 'request')} with events {'was' if count == 1 else 'were'} refused with 401",
        since=min(one.since for one in clients),
        cause=f"no valid token or signature from {', '.join(addresses)}{more} "
        f"(last at {last.last_at:%H:%M:%S} UTC){why}{known}",
        advice=f"compare the secrets of {secrets} with the sender's, if no other cause is named; the next sweep finds "
        "the tables of refused events, and `sfn reconcile` finds them at once; requests of strangers do no harm",
    )


def _letter_problem(group: DeadLetterGroup) -> StatusProblem:
    number = pluralise(group.count, "dead letter")
    is_one = group.count == 1 and group.newest is not None
    cause = group.detail if is_one and group.detail else group.cause
    about = f" of {group.table}" if is_one and group.table is not None else ""
    more = "" if group.count == 1 else " (the newest of them)"
    return StatusProblem(
        kind="dead-letters",
        what=f"{number}{about} ({group.reason})",
        since=group.since,
        cause=f"{cause}{more}",
        command=f"sfn dead-letters show {group.newest}" if is_one else "sfn dead-letters list --by-cause",
    )


def _catalog_problems(catalog: CatalogModel, *, is_silent: bool) -> Iterator[StatusProblem]:
    name = catalog.name
    if catalog.foreign_catalog_id is not None:
        what = f"{name}: its files carry the catalog_id {catalog.foreign_catalog_id}, but the catalog's is now "
        yield StatusProblem(
            kind="foreign-catalog-id",
            catalog=name,
            what=f"{what}{catalog.catalog_id or 'unknown'}: new commits are not published",
            command=adopt_command(name, catalog.foreign_catalog_id),
        )
    if catalog.retired:
        what = _describe_retired(catalog, is_silent=is_silent)
        yield StatusProblem(kind="retired", catalog=name, what=what, command=f"sfn retire {name} --undo")
    if are_many_missing(catalog):
        yield StatusProblem(
            kind="missing-tables",
            catalog=name,
            what=describe_missing(catalog),
            since=catalog.missing_since,
            cause="the catalog does not list them, and nothing reported that they were dropped",
            command=f"sfn reconcile --catalog {name}",
            advice="check whether the catalog lost the tables or they were dropped; the command lists them",
        )
    yield from _drop_limit_problems(catalog)
    if catalog.sweep is not None:
        # A running sweep may reach the faulty tables last, so the previous sweep's findings are shown, too.
        sweeps = (catalog.sweep.previous, catalog.sweep) if catalog.sweep.is_running else (catalog.sweep,)
        found = {one.what: one for sweep in sweeps if sweep is not None for one in _sweep_problems(name, sweep)}
        yield from found.values()


def _drop_limit_problems(catalog: CatalogModel) -> Iterator[StatusProblem]:
    name, drop_limit = catalog.name, catalog.drop_limit
    if held := max(drop_limit.on_hold, catalog.tables.held):
        yield StatusProblem(
            kind="held-drops",
            catalog=name,
            what=f"{name}: the drop limit has held {pluralise(held, 'table')} that would be dropped or rolled back",
            since=drop_limit.held_since,
            cause=f"the limit is {pluralise(drop_limit.limit, 'table')} dropped or rolled back within an hour"
            + (f"; {drop_limit.steps:,} passed before it held the others" if drop_limit.steps else ""),
            command=f"sfn tables --held --catalog {name}",
            advice=f"if {name} lost the tables, restore them there, also those that passed, then "
            f"`sfn reconcile --catalog {name}`; if they were dropped on purpose, `sfn release {name}`",
        )
    elif drop_limit.limit_reached:
        what = f"{name}: the drop limit is reached, further drops will be held"
        yield StatusProblem(kind="drop-limit", catalog=name, what=what, command=f"sfn release {name}")


def are_many_missing(catalog: CatalogModel) -> bool:
    """Return whether more tables are missing than usual drops explain: more than one, and more than 1 %.

    Held drops do not count: they are a problem of their own.
    """
    return catalog.missing_tables - catalog.tables.held > max(1, catalog.live_tables // 100)


def describe_missing(catalog: CatalogModel) -> str:
    """Return how many tables of a catalog are missing from it."""
    verb = "has" if catalog.missing_tables == 1 else "have"
    total = pluralise(max(catalog.live_tables, catalog.missing_tables), "table")
    return f"{catalog.name}: {catalog.missing_tables:,} of its {total} {verb} been missing from the catalog"


def _describe_retired(catalog: CatalogModel, *, is_silent: bool) -> str:
    if not catalog.live_tables:
        return f"{catalog.name} is retired: no live table is left; remove it from the configuration, or undo"
    left = f"{catalog.live_tables:,} of its tables still {'has a file' if catalog.live_tables == 1 else 'have files'}"
    why = "the catalog does not answer, and is queried before each removal" if is_silent else "being removed"
    return f"{catalog.name} is retired: {left} ({why}); leave it in the configuration until no table has"


def _sweep_problems(name: str, sweep: SweepModel) -> Iterator[StatusProblem]:
    def problem(kind: str, what: str, cause: str | None = None, since: datetime | None = None) -> StatusProblem:
        return StatusProblem(
            kind=kind, catalog=name, what=f"{name}: {what}", since=since, cause=cause, command="sfn check"
        )

    if sweep.state == "failed":
        yield problem("sweep-failed", "its sweep has failed", sweep.error, sweep.started_at)
    if sweep.listing_failed:
        what = f"could not list {_shortened(sweep.listing_failed, 'namespace')}; nothing in them counts as dropped"
        yield problem("listing-failed", what, sweep.unlisted_reason)
    failed = set(sweep.listing_failed)
    if refused := [one for one in sweep.unlisted_namespaces if one not in failed]:
        yield problem("listing-denied", f"no permission to list {_shortened(refused, 'namespace')}")
    if sweep.failed_tables:
        yield problem("check-failed", f"could not check {_shortened(sweep.failed_tables, 'table')}")


def _shortened(names: Sequence[str], thing: str) -> str:
    shown = ", ".join(name or "(all)" for name in names[:_MAX_NAMED])
    return f"{pluralise(len(names), thing)}: {shown}{', …' if len(names) > _MAX_NAMED else ''}"
