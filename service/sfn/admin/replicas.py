"""`Replicas`: what this process sees, and what the others that share its inbox see.

Each process asks catalogs, runs sweeps and publishes by itself. The status of the service is what all of them see, or
else a process without a worker would show no outage. So each one stores a report in the inbox every few seconds.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn
from uuid import uuid4

import anyio
import structlog
from pydantic import ValidationError

from sfn.admin.routes import ProcessInfo
from sfn.admin.schemas import (
    AdminModel,
    CircuitBreakerModel,
    LagModel,
    ProcessModel,
    PullSourceModel,
    SenderModel,
    SweepModel,
    UnauthorizedClientModel,
)
from sfn.catalogs.activity import CatalogAnswers
from sfn.clock import Clock
from sfn.errors import ExternalError
from sfn.inbox.inbox import Inbox
from sfn.inbox.processes import StoredProcess

REPORT_INTERVAL: Final = timedelta(seconds=5)
ALIVE_WITHIN: Final = timedelta(seconds=30)
"""A process that reported nothing for so long is taken for dead. Its clock may differ by some seconds from ours."""
_MAX_DIFFERENCES: Final = 20
"""Differing tables of a sweep in a report: the process that swept has them all."""
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_READ_AGAIN: Final = 2.0
"""Seconds for which the reports of the others are cached."""

_log = structlog.stdlib.get_logger(__name__)


class CatalogView(AdminModel):
    """What one process sees of a catalog."""

    catalog_id: str | None = None
    answered_at: datetime | None = None
    unanswered_since: datetime | None = None
    error: str | None = None
    lag: LagModel | None = None
    sweep: SweepModel | None = None


class ProcessReport(ProcessModel):
    """What a process sees."""

    catalogs: Mapping[str, CatalogView]
    breakers: Sequence[CircuitBreakerModel]
    pull_sources: Sequence[PullSourceModel] = ()
    senders: Sequence[SenderModel] = ()
    unauthorized: Sequence[UnauthorizedClientModel] = ()

    def as_process(self) -> ProcessModel:
        """Return the process without what it sees."""
        return ProcessModel(**{name: getattr(self, name) for name in ProcessModel.model_fields})


class Replicas:
    """Stores what this process sees, and reads what the others see.

    Args:
        inbox: the inbox that they share.
        process: the state of this process.
        clock: the wall clock.
        is_shared: False if no other process can use the inbox: then nothing is stored or read.
    """

    def __init__(self, inbox: Inbox, process: ProcessInfo, clock: Clock, *, is_shared: bool) -> None:
        self._inbox, self._process, self._clock, self._is_shared = inbox, process, clock, is_shared
        self._id, self._host = uuid4().hex, socket.gethostname()
        self._others: Sequence[ProcessReport] = ()
        self._read_at = -_READ_AGAIN

    @property
    def process(self) -> ProcessInfo:
        """The state of this process."""
        return self._process

    @property
    def is_shared(self) -> bool:
        """True if other processes can use the inbox."""
        return self._is_shared

    def own_report(self) -> ProcessReport:
        """Return what this process sees now."""
        process, now = self._process, self._clock.now()
        answers, sweeps = process.catalog_answers(), process.sweep_reports()
        ids = process.catalog_ids()
        lags = {name: lag for name in process.lag.catalogs if (lag := process.lag.summary(name, now)) is not None}
        views = {
            name: _view(ids.get(name), answers.get(name, CatalogAnswers()), now).model_copy(
                update={
                    "lag": LagModel.from_summary(lags[name]) if name in lags else None,
                    "sweep": SweepModel.from_report(sweeps[name]) if name in sweeps else None,
                }
            )
            for name in {*ids, *answers, *lags, *sweeps}
        }
        return ProcessReport(
            id=self._id,
            host=self._host,
            pid=os.getpid(),
            version=process.version,
            roles=sorted(process.roles),
            started_at=process.started_at,
            seen_at=now,
            ready=not process.not_ready_reasons(),
            catalogs=views,
            breakers=[CircuitBreakerModel.from_state(breaker) for breaker in process.breakers()],
            pull_sources=process.pull_sources(),
            senders=[SenderModel.from_activity(name, one) for name, one in process.recent.activities.items()],
            unauthorized=[
                UnauthorizedClientModel(
                    client=one.client,
                    count=one.count,
                    since=one.since,
                    last_at=one.last_at,
                    senders=process.recent.senders_at(one.client),
                    reason=one.reason,
                )
                for one in process.recent.unauthorized()
            ],
        )

    async def reports(self) -> list[ProcessReport]:
        """Return what all processes see: this one first, then the others, even those that are dead.

        Raises:
            Transient: scope inbox.
        """
        return [self.own_report(), *await self._read_others()]

    async def run(self) -> NoReturn:
        """Store what this process sees, forever."""
        try:
            while True:
                # The verdict is no reason to end; a broken inbox ends the process elsewhere.
                with suppress(ExternalError):
                    await self._inbox.write_process(_stored(self.own_report()))
                await anyio.sleep(REPORT_INTERVAL.total_seconds())
        finally:
            with anyio.move_on_after(1, shield=True), suppress(ExternalError):
                await self._inbox.remove_process(self._id)

    async def _read_others(self) -> Sequence[ProcessReport]:
        if not self._is_shared:
            return ()
        if anyio.current_time() - self._read_at >= _READ_AGAIN:
            found = await self._inbox.list_processes()
            self._read_at = anyio.current_time()
            self._others = [one for row in found if row.id != self._id and (one := _parsed(row)) is not None]
        dead_since = self._clock.now() - ALIVE_WITHIN
        return [one.model_copy(update={"alive": one.seen_at > dead_since}) for one in self._others]


def merged_view(name: str, reports: Iterable[ProcessReport]) -> CatalogView:
    """Return what the processes see of a catalog: the newest answer, but an outage if one of them sees it."""
    seen = [(report, report.catalogs[name]) for report in reports if report.alive and name in report.catalogs]
    if not seen:
        return CatalogView()
    views = [view for _, view in seen]
    silent = [(view.unanswered_since, report, view) for report, view in seen if view.unanswered_since is not None]
    since, by, first = min(silent, key=lambda one: one[0]) if silent else (None, None, None)
    error = first.error if first is not None else None
    if by is not None and 0 < len(silent) < len(seen):
        error = f"{error or 'no answer'} (seen by {by.name}; others get answers)"
    lags = [view.lag for view in views if view.lag is not None]
    return CatalogView(
        catalog_id=next((view.catalog_id for view in views if view.catalog_id is not None), None),
        answered_at=max((view.answered_at for view in views if view.answered_at is not None), default=None),
        unanswered_since=since,
        error=error,
        lag=_worst(lags) if lags else None,
        sweep=max(
            (view.sweep for view in views if view.sweep is not None), key=lambda one: one.started_at, default=None
        ),
    )


def merged_breakers(reports: Iterable[ProcessReport]) -> list[CircuitBreakerModel]:
    """Return the breakers of all living processes; of one that several have, the one that failed first."""
    found: dict[tuple[str, str], CircuitBreakerModel] = {}
    for report in reports:
        for one in report.breakers if report.alive else ():
            known = found.get((one.scope, one.name))
            if known is None or one.failing_since < known.failing_since:
                found[one.scope, one.name] = one
    return list(found.values())


def merged_senders(reports: Iterable[ProcessReport]) -> list[SenderModel]:
    """Return the last requests of each sender to any living process."""
    found: dict[str, SenderModel] = {}
    for report in reports:
        for one in report.senders if report.alive else ():
            known = found.get(one.name, one)
            accepted = max(known, one, key=lambda seen: seen.accepted_at or _LONG_AGO)
            refused = max(known, one, key=lambda seen: seen.refused_at or _LONG_AGO)
            found[one.name] = SenderModel(
                name=one.name,
                accepted_at=accepted.accepted_at,
                client=accepted.client,
                refused_at=refused.refused_at,
                status=refused.status,
                reason=refused.reason,
            )
    return list(found.values())


def _worst(lags: Sequence[LagModel]) -> LagModel:
    """Return the lag over several processes. Quantiles cannot be added: each is the worst one."""
    return LagModel(
        count=sum(one.count for one in lags),
        p50=max(one.p50 for one in lags),
        p95=max(one.p95 for one in lags),
        worst=max(one.worst for one in lags),
    )


def _view(catalog_id: str | None, answers: CatalogAnswers, now: datetime) -> CatalogView:
    return CatalogView(
        catalog_id=catalog_id,
        answered_at=answers.answered_at,
        unanswered_since=answers.unanswered_since(now),
        error=answers.cause(now),
    )


def _stored(report: ProcessReport) -> StoredProcess:
    """Return the row of a report."""
    views = {
        name: view.model_copy(update={"sweep": _shortened(view.sweep) if view.sweep is not None else None})
        for name, view in report.catalogs.items()
    }
    shortened = report.model_copy(update={"catalogs": views})
    return StoredProcess(report.id, report.seen_at, shortened.model_dump_json().encode())


def _shortened(sweep: SweepModel) -> SweepModel:
    return sweep.model_copy(
        update={
            "differences": sweep.differences[:_MAX_DIFFERENCES],
            "failed_tables": sweep.failed_tables[:_MAX_DIFFERENCES],
            "unlisted_namespaces": sweep.unlisted_namespaces[:_MAX_DIFFERENCES],
            "listing_failed": sweep.listing_failed[:_MAX_DIFFERENCES],
            "previous": None,
        }
    )


def _parsed(row: StoredProcess) -> ProcessReport | None:
    """Return the report of a row; None if another version wrote it in a form that this one cannot read."""
    try:
        return ProcessReport.model_validate_json(row.record)
    except ValidationError as error:
        _log.info("report of another process not read", process=row.id, error=str(error))
        return None
