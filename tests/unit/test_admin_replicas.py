"""What several processes see of one service."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from structlog.testing import capture_logs

from sfn.admin.replicas import (
    ALIVE_WITHIN,
    CatalogView,
    ProcessReport,
    Replicas,
    merged_breakers,
    merged_view,
)
from sfn.admin.schemas import CircuitBreakerModel, LagModel
from sfn.admin.verdict import verdict_of
from sfn.catalogs.activity import CatalogAnswers
from sfn.inbox.processes import MAX_AGE, StoredProcess
from tests.support.listener import Office
from tests.unit.admin_server import NOON, SILENT, WELL

MINUTE = timedelta(minutes=1)


def report(host: str, view: CatalogView | None = None, **more: object) -> ProcessReport:
    """What a process sees of the catalog `prod`."""
    fields = {"id": host, "host": host, "pid": 7, "version": "1.2.3", "roles": [], "started_at": NOON, "seen_at": NOON}
    catalogs = {"prod": view} if view is not None else {}
    return ProcessReport.model_validate({**fields, "ready": True, "catalogs": catalogs, "breakers": [], **more})


def silent(at: datetime, error: str | None = "refused") -> CatalogView:
    return CatalogView(answered_at=NOON - 9 * MINUTE, unanswered_since=at, error=error)


def test_an_outage_that_one_process_sees_is_named_with_the_process() -> None:
    seen = merged_view("prod", [report("a", CatalogView(answered_at=NOON)), report("b", silent(NOON - MINUTE))])
    assert (seen.answered_at, seen.unanswered_since) == (NOON, NOON - MINUTE)
    assert seen.error == "refused (seen by b:7; others get answers)"


def test_an_outage_that_all_see_began_when_the_first_saw_it() -> None:
    seen = merged_view(
        "prod", [report("a", silent(NOON - MINUTE)), report("b", silent(NOON - 2 * MINUTE, "no answer"))]
    )
    assert (seen.unanswered_since, seen.error) == (NOON - 2 * MINUTE, "no answer")


def test_what_a_dead_process_saw_is_past() -> None:
    reports = [report("a", CatalogView(answered_at=NOON)), report("b", silent(NOON), alive=False, breakers=[SILENT])]
    assert merged_view("prod", reports).unanswered_since is None
    assert merged_breakers(reports) == []


def test_a_catalog_that_no_process_asked_has_no_answer() -> None:
    assert merged_view("prod", [report("a")]) == CatalogView()


def test_lag_is_that_of_the_worst_process() -> None:
    one, other = LagModel(count=3, p50=1, p95=2, worst=3), LagModel(count=5, p50=0.5, p95=4, worst=9)
    seen = merged_view("prod", [report("a", CatalogView(lag=one)), report("b", CatalogView(lag=other))])
    assert seen.lag == LagModel(count=8, p50=1, p95=4, worst=9)


def test_a_breaker_that_several_have_is_the_one_that_failed_first() -> None:
    later = CircuitBreakerModel.model_validate({**SILENT.model_dump(), "failing_since": NOON + MINUTE, "error": "late"})
    assert merged_breakers([report("a", breakers=[later]), report("b", breakers=[SILENT])]) == [SILENT]


async def test_a_process_reads_what_the_others_stored_and_knows_the_dead() -> None:
    office = Office(answers={"prod": CatalogAnswers(NOON, NOON, "refused")})
    first = Replicas(office.inbox, office.process, office.clock, is_shared=True)
    other = Replicas(office.inbox, office.process, office.clock, is_shared=True)
    stored = other.own_report()
    await office.inbox.write_process(StoredProcess(stored.id, stored.seen_at, stored.model_dump_json().encode()))
    assert [one.id for one in await first.reports()] == [first.own_report().id, stored.id]
    assert (await first.reports())[1].catalogs["prod"].error == "refused"
    assert (await first.reports())[1].alive
    office.clock.turn(ALIVE_WITHIN.total_seconds())
    assert not (await first.reports())[1].alive
    alone = Replicas(office.inbox, office.process, office.clock, is_shared=False)
    assert len(await alone.reports()) == 1


async def test_a_report_of_a_version_that_wrote_it_otherwise_is_left_out() -> None:
    office = Office()
    await office.inbox.write_process(StoredProcess("b", office.clock.now(), b'{"host": 7}'))
    with capture_logs() as logs:
        assert len(await Replicas(office.inbox, office.process, office.clock, is_shared=True).reports()) == 1
    assert [entry["process"] for entry in logs] == ["b"]


async def test_rows_of_the_killed_are_removed_after_an_hour() -> None:
    office = Office()
    await office.inbox.write_process(StoredProcess("a", office.clock.now(), b"{}"))
    office.clock.turn(MAX_AGE.total_seconds() + 1)
    await office.inbox.write_process(StoredProcess("b", office.clock.now(), b"{}"))
    assert [one.id for one in await office.inbox.list_processes()] == ["b"]
    await office.inbox.remove_process("b")
    assert await office.inbox.list_processes() == []


@pytest.mark.parametrize(
    ("roles", "alive", "kinds"),
    [
        ([["admin"], ["worker"]], True, []),
        ([["admin"], ["worker"]], False, ["no-worker"]),
        ([["admin"], []], True, []),
        ([["admin"]], True, ["no-worker"]),
    ],
)
def test_a_service_without_a_living_worker_needs_an_operator(
    roles: list[list[str]], alive: bool, kinds: list[str]
) -> None:
    processes = [
        report(f"{number}", roles=one, alive=alive or not number).as_process() for number, one in enumerate(roles)
    ]
    verdict = verdict_of(WELL.model_copy(update={"processes": processes}), [], [])
    assert [one.kind for one in verdict.problems] == kinds
    assert all(one.since == (NOON if len(roles) > 1 else None) for one in verdict.problems)
