"""What an operator at 3 a.m. reads first: whether all is well, else what to look at and what to type."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from sfn.admin.schemas import CircuitBreakerModel, DeadLetterGroup, DropLimitModel, TableCountsModel
from sfn.admin.table_schemas import ListedTableModel
from sfn.admin.tables import wait_cause
from sfn.admin.verdict import ServiceReport, StatusProblem, describe_sweep, verdict_of
from sfn.cli.render import to_plain_text
from sfn.cli.status import describe_problem, status_page
from sfn.domain.identifiers import TableIdentifier
from sfn.inbox.model import Job
from sfn.inbox.table_list import ListedTable
from tests.unit.admin_server import CALM, ENDED, NO_TABLES, NOON, SILENT, WELL, catalog, copied, swept

URL = "http://127.0.0.1:8085"


def changed(**more: object) -> ServiceReport:
    return copied(WELL, **more)


LATE = ListedTableModel(
    catalog="prod",
    namespace=["sales"],
    name="orders",
    table="sales.orders",
    state="retrying",
    late=True,
    waiting_since=NOON - timedelta(minutes=5),
    cause="the store hangs",
    next_attempt_at=NOON + timedelta(minutes=1),
    attempt=3,
    metadata_location=None,
    written_at=None,
    dead_letter=None,
)
POISON = DeadLetterGroup(reason="poison", count=1, since=NOON - timedelta(hours=1), cause="expected a, found b")


def judged(status: ServiceReport, late: Sequence[ListedTableModel] = (), *letters: DeadLetterGroup) -> ServiceReport:
    """A status with the verdict that a service would give."""
    return copied(status, verdict=verdict_of(status, late, letters))


def problems(status: ServiceReport) -> Sequence[StatusProblem]:
    return judged(status).verdict.problems


def lines_of(status: ServiceReport) -> list[str]:
    return to_plain_text(status_page(status, URL, NOON)).splitlines()


def test_all_is_well() -> None:
    assert problems(WELL) == []
    lines = lines_of(judged(WELL))
    assert lines[0] == "all is well: 3 tables; queue empty"
    assert f"sfn 1.2.3 at {URL}, up 3 h" in lines
    assert " ".join(lines[-1].split()) == "prod 3 3 0 0 0 0 - 9 s ago 1 min ago: 3 tables checked, 0 queued"


def test_a_service_starts_until_the_first_sweep_of_each_catalog_has_ended() -> None:
    starting = catalog(sweep=None, first_sweep_pending=True)
    lines = lines_of(judged(starting))
    assert lines[0] == "starting: the first sweep of `prod` has not ended, so tables may not be known yet"


def test_work_under_way_is_well() -> None:
    busy = catalog(
        tables=TableCountsModel(due=2, scheduled=3, retrying=1, leased=1, dead=0, held=0),
    )
    assert problems(busy) == []
    said = "all is well: 3 tables and 4 without a file (dropped, excluded, not published yet); 4 in the queue"
    assert lines_of(judged(busy))[0] == said


def test_tables_whose_letters_were_discarded_are_counted_as_such() -> None:
    given_up = catalog(live_tables=3, tables=TableCountsModel(due=0, scheduled=3, retrying=0, leased=0, dead=1, held=0))
    said = "3 tables and 1 without a file (dropped, excluded, not published yet); queue empty"
    first, second, *_ = lines_of(judged(given_up))
    assert (first, second) == (f"all is well: {said}", "  1 table given up; the dead letters were discarded")


SILENT_SINCE = NOON - timedelta(seconds=12)


@pytest.mark.parametrize(
    ("status", "what", "command"),
    [
        (changed(ready=False, not_ready_reasons=["draining"]), "not ready: draining", ""),
        (
            changed(breakers=[SILENT]),
            f"the catalog prod has not answered since 11:56:40 UTC (3 min 20 s): {SILENT.error}",
            "sfn check",
        ),
        (
            changed(breakers=[copied(SILENT, failing_since=NOON - timedelta(days=1))]),
            "the catalog prod has not answered since 2026-08-20 12:00:00 UTC (1 d)",
            "sfn check",
        ),
        (
            changed(breakers=[copied(SILENT, scope="process", name="")]),
            "the process has failed since 11:56:40 UTC (3 min 20 s)",
            "sfn check",
        ),
        (
            catalog(unanswered_since=SILENT_SINCE, answered_at=SILENT_SINCE),
            "the catalog prod has not answered since 11:59:48 UTC (12 s)",
            "sfn check",
        ),
        (
            catalog(unanswered_since=SILENT_SINCE, answered_at=NOON - timedelta(seconds=8)),
            "the catalog prod has not answered every request since 11:59:48 UTC (12 s)",
            "sfn check",
        ),
        (
            catalog(unanswered_since=SILENT_SINCE, answered_at=None, error="it answers with status 503"),
            "the catalog prod has not answered since 11:59:48 UTC (12 s): it answers with status 503",
            "sfn check",
        ),
        (
            catalog(foreign_catalog_id="old"),
            "prod: its files carry the catalog_id old, but the catalog's is now 0123:",
            "sfn adopt prod --from old",
        ),
        (
            catalog(drop_limit=DropLimitModel(limit_reached=True, on_hold=12, steps=0, limit=10)),
            "prod: the drop limit has held 12 tables that would be dropped or rolled back: the limit is 10 tables",
            "release prod",
        ),
        (
            catalog(live_tables=5, missing_tables=3, missing_since=NOON - timedelta(hours=9)),
            "prod: 3 of its 5 tables have been missing from the catalog since 03:00:00 UTC (9 h)",
            "sfn reconcile --catalog prod",
        ),
        (
            catalog(drop_limit=DropLimitModel(limit_reached=True, on_hold=0, steps=12, limit=10)),
            "prod: the drop limit is reached",
            "sfn release prod",
        ),
        (
            swept(state="failed", error="it said no"),
            "prod: its sweep has failed since 11:58:00 UTC (2 min): it said no",
            "sfn check",
        ),
        (swept(unlisted_namespaces=["a", ""]), "prod: no permission to list 2 namespaces: a, (all)", "sfn check"),
        (
            swept(unlisted_namespaces=["b"], listing_failed=["b"], unlisted_reason="status 500"),
            "prod: could not list 1 namespace: b; nothing in them counts as dropped: status 500",
            "sfn check",
        ),
        (swept(failed_tables=list("abcd")), "prod: could not check 4 tables: a, b, c, …", "sfn check"),
        (
            swept(state="running", ended_at=None, previous=copied(ENDED, unlisted_namespaces=["a"])),
            "prod: no permission to list 1 namespace: a",
            "sfn check",
        ),
        (
            swept(state="running", ended_at=None, failed_tables=["a"], previous=copied(ENDED, failed_tables=["a"])),
            "prod: could not check 1 table: a",
            "sfn check",
        ),
        (
            swept(state="running", ended_at=None, failed_tables=["a"], previous=ENDED),
            "prod: could not check 1 table: a",
            "sfn check",
        ),
    ],
)
def test_what_needs_somebody_comes_with_the_command_that_helps(status: ServiceReport, what: str, command: str) -> None:
    (found,) = problems(status)
    said = describe_problem(found, NOON)
    assert said.startswith(what)
    assert command in f"{found.command} {found.advice}"
    first, second, *_ = lines_of(judged(status))
    assert (first.startswith("1 thing needs attention"), second) == (True, f"  ! {said}")


def test_late_tables_and_dead_letters_come_with_their_causes() -> None:
    status = judged(catalog(late_tables=4, tables=copied(NO_TABLES, dead=1)), [LATE], POISON)
    assert [describe_problem(one, NOON) for one in status.verdict.problems] == [
        "prod: 3 tables have waited for a publish since 11:55:00 UTC (5 min): the store hangs (sales.orders, …)",
        "1 dead letter (poison) since 11:00:00 UTC (1 h): expected a, found b",
    ]
    assert lines_of(status)[0] == "2 things need attention since 11:00:00 UTC (1 h)"
    assert judged(catalog(late_tables=1), [copied(LATE, dead_letter=7)]).verdict.problems == []


def test_late_tables_of_one_cause_are_named_together_and_an_outage_is_told_once() -> None:
    refused = copied(SILENT, error="no connection")
    status = copied(catalog(late_tables=3), breakers=[refused])
    late = [
        copied(LATE, cause="the catalog prod has failed for 5 min: no connection"),
        copied(LATE, table="sales.stock", state="leased", cause="attempt 1 has run for 9 s"),
        copied(LATE, table="sales.returns", cause="the store hangs"),
    ]
    outage, waits = judged(status, late).verdict.problems
    assert outage.cause == "no connection"
    assert (
        waits.cause == "the catalog prod has not answered (sales.orders, sales.stock); the store hangs (sales.returns)"
    )


def test_one_dead_letter_is_named_with_its_table() -> None:
    one = copied(POISON, newest=12, table="prod:sales.orders")
    (problem,) = judged(WELL, (), one).verdict.problems
    assert (problem.what, problem.command) == (
        "1 dead letter of prod:sales.orders (poison)",
        "sfn dead-letters show 12",
    )
    (problem,) = judged(WELL, (), copied(one, count=2)).verdict.problems
    assert (problem.what, problem.command) == ("2 dead letters (poison)", "sfn dead-letters list --by-cause")


def test_held_drops_are_not_missing_as_well() -> None:
    held = catalog(tables=copied(NO_TABLES, held=4), missing_tables=4, missing_since=NOON)
    assert [one.kind for one in problems(held)] == ["held-drops"]


def test_a_store_that_failed_is_not_told_again_by_its_catalog() -> None:
    unknown = copied(SILENT, scope="store", name="prod")
    known = copied(unknown, name="s3://lake")
    assert [one.what for one in problems(copied(WELL, breakers=[unknown, known]))] == ["the store s3://lake has failed"]
    assert [one.what for one in problems(copied(WELL, breakers=[unknown]))] == ["a store of tables of prod has failed"]


def test_a_single_table_that_somebody_dropped_is_said_and_alarms_nobody() -> None:
    """It is missing until its drop is certain."""
    status = catalog(live_tables=5, missing_tables=1, missing_since=NOON - timedelta(minutes=9))
    assert problems(status) == []
    said = "prod: 1 of its 5 tables has been missing from the catalog since 11:51:00 UTC (9 min)"
    assert f"{said}; not counted as dropped yet" in lines_of(judged(status))


def test_what_the_brake_holds_is_said_once() -> None:
    held = catalog(drop_limit=DropLimitModel(limit_reached=True, on_hold=2, steps=12, limit=10))
    assert len(problems(copied(held, dead_letters={"held-drop": 2}))) == 1


@pytest.mark.parametrize(
    ("live", "breakers", "said"),
    [
        (
            9,
            [SILENT],
            "9 of its tables still have files (the catalog does not answer, and is queried before each removal); leave",
        ),
        (1, [], "1 of its tables still has a file (being removed); leave it in the configuration until"),
        (0, [SILENT], "no live table is left; remove it from the configuration, or undo"),
    ],
)
def test_a_retired_catalog_stays_configured_until_no_table_has_a_file(
    live: int, breakers: list[CircuitBreakerModel], said: str
) -> None:
    status = copied(catalog(retired=True, drop_limit=CALM, live_tables=live), breakers=breakers)
    found = problems(status)[-1]
    assert found.what.startswith(f"prod is retired: {said}")
    assert found.command == "sfn retire prod --undo"
    assert "prod (retired)" in to_plain_text(status_page(status, URL, NOON))


def test_a_sweep_that_runs_says_how_far_it_is() -> None:
    running = copied(ENDED, state="running", ended_at=None, tables=1, known_tables=3)
    assert describe_sweep(running, NOON) == "running for 2 min: 1 of 3"
    assert describe_sweep(None, NOON) == "none yet"
    assert describe_sweep(copied(ENDED, state="stopped"), NOON) == "stopped 1 min ago"


def test_a_catalog_that_is_told_of_is_never_swept() -> None:
    told = to_plain_text(status_page(catalog(type="events", sweep=None), URL, NOON)).splitlines()
    assert told[-1].split()[-2:] == ["-", "-"]


def test_commits_that_nobody_knows_the_outcome_of_are_said_but_alarm_nobody() -> None:
    waiting = catalog(open_intents=1_200, oldest_intent_at=NOON - timedelta(minutes=3))
    assert problems(waiting) == []
    told = lines_of(judged(waiting))
    said = "prod: 1,200 commits through a gateway with an outcome that is not known yet, the oldest from 3 min ago"
    assert told[-1] == said
    assert "gateway" not in to_plain_text(status_page(WELL, URL, NOON))


def test_names_of_others_steer_no_terminal() -> None:
    assert "\x1b" not in to_plain_text(status_page(swept(failed_tables=["\x1b[2J"]), URL, NOON))


def test_a_table_waits_for_its_own_store_whatever_the_catalog_s_name_says() -> None:
    place = frozenset({"s3://lake/orders"})
    job = Job(TableIdentifier("prod", ("sales",), "orders"), NOON, attempt=2, locations=place, pending_since=NOON)
    by_catalog = copied(SILENT, scope="store", name="prod", error="f: expected a, found the file of another table")
    by_store = copied(by_catalog, name="s3://lake", error="f: expected permission, found EACCES; do this")
    cause = wait_cause(ListedTable(job), [by_catalog, by_store], {"s3://lake": "lake"}, NOON)
    assert cause == "the store lake (s3://lake) has failed for 3 min 20 s: expected permission, found EACCES"
    assert wait_cause(ListedTable(job), [copied(by_store, name="s3://other")], {}, NOON) != cause
