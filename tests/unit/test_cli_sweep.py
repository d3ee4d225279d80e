"""Sweeps followed to their end, dead letters by the page and the batch, and what a shell completes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pydantic_core import to_jsonable_python

from sfn.admin import schemas
from sfn.admin.schemas import (
    DeadLetterCriteria,
    DifferingTable,
    ServiceStatus,
    SweepAccepted,
    SweepModel,
    UndecodableRequestModel,
)
from sfn.cli import dead_letters
from sfn.cli.client import ServiceAccess, ServiceClient
from sfn.cli.notify import WaitClock
from sfn.cli.options import complete_catalog, complete_reason
from sfn.cli.render import to_plain_text
from sfn.cli.repairs import CatalogRepairs, TableRepair
from sfn.cli.sweep import all_succeeded, check_sweepable, describe_delays, sweep_page, wait_for_sweeps
from sfn.domain.jobs import DeadLetterReason
from sfn.settings.sources import ConfigurationError
from tests.unit.admin_server import ENDED, LETTER, NOON, PROD, SILENT, WELL, AdminServer, Reply, admin_server, copied

ASKED = SweepAccepted(catalogs=["prod", "dev"], requested_at=NOON, starts_at={})


@pytest.fixture(name="server")
def fixture_server() -> Iterator[AdminServer]:
    with admin_server() as server:
        yield server


@pytest.fixture(name="service")
def fixture_service(server: AdminServer) -> Iterator[ServiceClient]:
    with ServiceClient(ServiceAccess(server.url, "secret")) as service:
        yield service


def sweep(minutes: int, state: str = "ended", **more: Any) -> SweepModel:  # noqa: ANN401 - any attribute
    """A sweep that began so many minutes after it was asked for."""
    return copied(ENDED, started_at=NOON + timedelta(minutes=minutes), state=state, **more)


def status(prod: SweepModel | None, dev: SweepModel | None, **more: Any) -> Reply:  # noqa: ANN401 - any attribute
    catalogs = [
        copied(PROD, sweep=prod),
        copied(PROD, name="dev", sweep=dev),
        copied(PROD, name="other", sweep=sweep(1, "running")),
    ]
    told: ServiceStatus = copied(WELL, catalogs=catalogs, **more)
    return Reply(200, to_jsonable_python(told))


def test_sweeps_are_followed_until_all_that_were_asked_for_ended(server: AdminServer, service: ServiceClient) -> None:
    server.tell(
        "GET /admin/v1/status",
        status(sweep(-1), None),
        status(sweep(0, "running", tables=1, known_tables=3), sweep(-1)),
        status(sweep(0, "running", tables=4, known_tables=3), sweep(1, tables=2, known_tables=0)),
        status(sweep(0, "failed"), sweep(1)),
    )
    moved: list[tuple[int, int | None]] = []
    slept: list[float] = []
    clock = WaitClock(sleep=slept.append)
    found = wait_for_sweeps(
        service, ASKED, lambda done, total=None: moved.append((done, total)), lambda _: None, clock=clock
    )
    assert {name: one.state for name, one in found.items()} == {"prod": "failed", "dev": "ended"}
    assert moved == [(0, None), (1, None), (6, 6), (6, 6)]
    assert slept == [0.1, 0.2, 0.4]


def test_sweep_that_reads_no_files_is_not_the_requested_one(server: AdminServer, service: ServiceClient) -> None:
    """It was claimed between the request's time and its transaction."""
    cheap, thorough = sweep(1, thorough=False), sweep(2, thorough=True)
    server.tell("GET /admin/v1/status", status(cheap, thorough), status(thorough, thorough))
    found = wait_for_sweeps(service, ASKED, lambda *_: None, lambda _: None, clock=WaitClock(sleep=lambda _: None))
    assert found == {"prod": thorough, "dev": thorough}


def test_a_sweep_that_waits_for_its_catalog_is_told_of_once(server: AdminServer, service: ServiceClient) -> None:
    stores = copied(SILENT, scope="store", name="dev")
    waiting, failed = (status(prod, sweep(0), breakers=[SILENT, stores]) for prod in (None, sweep(0, "failed")))
    server.tell("GET /admin/v1/status", waiting, failed, failed, status(sweep(1), sweep(0), breakers=[SILENT]))
    told: list[str] = []
    found = wait_for_sweeps(service, ASKED, lambda *_: None, told.append, clock=WaitClock(sleep=lambda _: None))
    assert (told, found["prod"]) == (["prod"], sweep(1))


def test_a_sweep_is_waited_for_until_the_timeout(server: AdminServer, service: ServiceClient) -> None:
    running = status(sweep(0, "running", tables=1, known_tables=3), sweep(1))
    server.tell("GET /admin/v1/status", *[running] * 5)
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    clock = WaitClock(monotonic=lambda: now[0], sleep=sleep)
    with pytest.raises(TimeoutError):
        wait_for_sweeps(service, ASKED, lambda *_: None, lambda _: None, timedelta(seconds=1), clock)
    assert slept == [0.1, 0.2, 0.4, pytest.approx(0.3)]


def test_a_sweeps_end_says_what_differed_and_what_it_could_not_do() -> None:
    differed = [DifferingTable(table="sales.orders", kind="behind")]
    page = to_plain_text(
        sweep_page(
            {
                "prod": sweep(
                    0,
                    differences=differed,
                    differences_total=1_200,
                    unlisted_namespaces=["a", ""],
                    failed_tables=["sales.x", "sales.y"],
                    failed_reason="it hangs",
                ),
                "dev": sweep(0, "failed", error="the catalog is away"),
                "calm": sweep(0),
                "slow": sweep(0, "running", tables=3, known_tables=900),
            },
            {},
        )
    ).splitlines()
    assert page == [
        "prod: 3 tables, 1,200 differed, queued for publishing",
        "  TABLE         WAS",
        "  sales.orders  behind",
        "  and 1,199 more",
        "  no permission to list the namespace a",
        "  no permission to list the namespace (all)",
        "  could not check sales.x",
        "  could not check sales.y",
        "    sales.x: it hangs",
        "dev: the sweep failed after 3 tables: the catalog is away",
        "calm: 3 tables, nothing differed",
        "slow: the sweep is running: 3 tables of about 900 checked, 0 differ",
    ]


def test_namespaces_that_could_not_be_listed_are_named_with_a_reason() -> None:
    found = sweep(0, unlisted_namespaces=["a", "b"], listing_failed=["b"], unlisted_reason="status 500")
    assert to_plain_text(sweep_page({"prod": found}, {})).splitlines()[1:] == [
        "  no permission to list the namespace a",
        "  could not list the namespace b",
        "    b: status 500",
    ]


def repair(table: str, kind: str, why: str | None = None, **more: Any) -> TableRepair:  # noqa: ANN401 - any attribute
    return TableRepair(table, kind, "", held=False, repaired=why is None, why=why, **more)


def test_page_says_of_each_table_whether_it_is_repaired_and_why_not() -> None:
    letter = "given up: dead letter 7 (foreign-file): something is there"
    several = [
        repair("sales.a", "missing"),
        repair("sales.b", "foreign-file", letter, reason="foreign-file", dead_letter=7),
        repair("sales.c", "absent", "held by the drop limit: sfn release prod", reason="held-drop", dead_letter=8),
    ]
    found = {
        "prod": CatalogRepairs(several, 4),
        "dev": CatalogRepairs([repair("sales.a", "missing")]),
        "gone": CatalogRepairs([repair("sales.a", "missing")]),
    }
    sweeps = {
        name: sweep(
            0,
            differences=[DifferingTable(table=one.table, kind=one.kind) for one in repairs.tables],
            differences_total=len(repairs.tables) + (10 if name == "prod" else 0),
        )
        for name, repairs in found.items()
    }
    assert to_plain_text(sweep_page(sweeps, found, {"gone"})).splitlines() == [
        "prod: 3 tables, 13 differed, 6 not repaired",
        "  TABLE    WAS           NOW",
        "  sales.a  missing       repaired",
        f"  sales.b  foreign-file  {letter}",
        "  sales.c  absent        held by the drop limit: sfn release prod",
        "  and 10 more: 4 not repaired",
        "  → `sfn dead-letters show ID` has the remedy for a table that was given up",
        "dev: 3 tables, 1 differed, repaired",
        "  TABLE    WAS      NOW",
        "  sales.a  missing  repaired",
        "gone: 3 tables, 1 differed; retired: nothing is written (`sfn retire gone --undo`)",
        "  TABLE    WAS      NOW",
        "  sales.a  missing  repaired",
    ]
    assert [all_succeeded(sweeps, {name: found[name]}) for name in found] == [False, True, True]


def test_missing_tables_are_counted_with_the_time_since_when() -> None:
    gone = [DifferingTable(table="sales.a", kind="absent"), DifferingTable(table="sales.b", kind="absent")]
    lost = sweep(0, differences=gone, differences_total=2, missing_tables=2)
    since = NOON - timedelta(hours=9)
    assert to_plain_text(sweep_page({"prod": lost}, {}, (), {"prod": since})).splitlines()[1] == (
        f"  2 tables have been missing from the catalog since {since:%Y-%m-%d %H:%M:%S}Z"
    )
    line = to_plain_text(sweep_page({"prod": lost}, {})).splitlines()[1]
    assert line.endswith(f"{lost.started_at:%Y-%m-%d %H:%M:%S}Z")


def test_a_sweep_that_is_kept_apart_from_the_last_one_says_until_when() -> None:
    catalogs = [copied(PROD, name=name, sweep=sweep(-1, "running")) for name in ("prod", "dev")]
    found = copied(WELL, catalogs=catalogs)
    until = NOON + timedelta(seconds=24)
    asked = SweepAccepted(catalogs=["prod", "dev", "calm"], requested_at=NOON, starts_at={"prod": until, "calm": NOON})
    assert describe_delays(asked, found) == [
        f"prod: the sweep starts in 24 s, at {until:%Y-%m-%d %H:%M:%S}Z: two sweeps of a catalog keep a distance",
        "dev: a sweep is running; the requested one follows after a pause",
    ]


def test_a_catalog_that_can_not_be_swept_is_wrong_usage_with_the_nearest_name() -> None:
    check_sweepable(None, [], [])
    check_sweepable(None, ["prod"], ["outside"])
    check_sweepable("prod", ["prod", "dev"], [])
    with pytest.raises(ConfigurationError) as refused:
        check_sweepable("prd", ["prod", "dev"], ["outside"])
    assert str(refused.value.problems[0]) == (
        "--catalog: expected a configured catalog that can be queried (prod, dev), found prd; did you mean prod?"
    )


@pytest.mark.parametrize(
    ("catalog", "known", "named"), [(None, [], "hive, outside"), ("outside", [], "outside"), ("hive", ["prod"], "hive")]
)
def test_catalogs_that_are_told_of_by_events_are_compared_with_nothing(
    catalog: str | None, known: list[str], named: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_sweepable(catalog, known, frozenset({"outside", "hive"}))
    assert str(refused.value.problems[0]) == (
        f"{named}: expected a catalog that can be queried, found an event-only catalog: there is nothing to compare"
    )


@pytest.mark.parametrize(
    ("found", "well"),
    [
        (sweep(0, differences_total=3, unlisted_namespaces=["a"]), True),
        (sweep(0, unlisted_namespaces=["a", "b"], listing_failed=["b"]), False),
        (sweep(0, failed_tables=["a"]), False),
        (sweep(0, "stopped"), False),
    ],
)
def test_a_sweep_went_well_where_every_table_that_may_be_seen_was(found: SweepModel, well: bool) -> None:
    assert all_succeeded({"prod": found}, {}) is well


def letters(*numbers: int, following: int | None = None) -> Reply:
    found = [to_jsonable_python(copied(LETTER, id=number)) for number in numbers]
    return Reply(200, {"dead_letters": found, "next": following})


def test_letters_are_read_page_after_page(server: AdminServer, service: ServiceClient) -> None:
    pages = (letters(1, 2, following=2), letters(3, following=3), letters())
    server.tell("GET /admin/v1/dead-letters", *pages)
    found = dead_letters.fetch_letters(service, DeadLetterCriteria(reason=DeadLetterReason.POISON), "all", 0)
    assert ([letter.id for letter in found.dead_letters], found.next) == ([1, 2, 3], None)
    assert [asked.path.partition("?")[2] for asked in server.asked] == [
        "status=all&reason=poison&limit=1000",
        "status=all&reason=poison&limit=1000&after=2",
        "status=all&reason=poison&limit=1000&after=3",
    ]
    server.tell("GET /admin/v1/dead-letters", *pages)
    assert dead_letters.count_open(service, DeadLetterCriteria()) == 3


def test_no_more_letters_are_read_than_are_wanted(server: AdminServer, service: ServiceClient) -> None:
    server.tell("GET /admin/v1/dead-letters", letters(1, 2, following=2), letters(3, following=3))
    found = dead_letters.fetch_letters(service, DeadLetterCriteria(), "open", 3)
    assert (len(found.dead_letters), found.next) == (3, 3)
    assert server.asked[-1].path.endswith("limit=1&after=2")


def test_letters_are_replayed_batch_after_batch(
    server: AdminServer, service: ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "MAX_BATCH", 2)
    monkeypatch.setattr(dead_letters, "MAX_IDS", 2)
    failed = {"id": 3, "why": "half of it was kept"}
    server.tell(
        "POST /admin/v1/dead-letters:replay",
        Reply(200, {"replayed": 2, "failed": [], "skipped": [], "next": 2}),
        Reply(200, {"replayed": 0, "failed": [failed], "skipped": [], "next": None}),
    )
    done = dead_letters.replay_all(service, [], DeadLetterCriteria(catalog="prod"), 3)
    assert (done.count, [one.why for one in done.failed]) == (2, ["half of it was kept"])
    assert [msgspec.json.decode(asked.body) for asked in server.asked] == [
        {"filter": {"catalog": "prod"}, "after": 0, "limit": 2},
        {"filter": {"catalog": "prod"}, "after": 2, "limit": 2},
    ]
    server.asked.clear()
    server.tell("POST /admin/v1/dead-letters:discard", Reply(200, {"discarded": 2, "next": None, "skipped": [9]}))
    assert dead_letters.discard_all(service, [1, 2, 3], DeadLetterCriteria(), 3) == dead_letters.BatchResult(
        count=4, skipped=[9, 9]
    )
    assert [msgspec.json.decode(asked.body) for asked in server.asked] == [{"ids": [1, 2]}, {"ids": [3]}]
    server.asked.clear()
    assert dead_letters.discard_all(service, [], DeadLetterCriteria(), 0) == dead_letters.BatchResult()
    assert server.asked == []


def test_a_letter_that_is_not_open_says_what_became_of_it(server: AdminServer, service: ServiceClient) -> None:
    ago = NOON - timedelta(seconds=3)
    closed = copied(LETTER, status="replayed", changed_at=ago)
    server.tell("GET /admin/v1/dead-letters/7", Reply(200, to_jsonable_python(closed)))
    newest = to_jsonable_python(copied(LETTER, id=8))
    server.tell(
        "GET /admin/v1/dead-letters",
        Reply(200, {"dead_letters": [newest], "next": 8}),
        Reply(200, {"dead_letters": [], "next": None}),
    )
    said = "dead letter 7 is closed (replayed 3 s ago); "
    assert dead_letters.explain_not_open(service, 7, NOON) == f"{said}the open one of sales.orders is 8"
    assert dead_letters.explain_not_open(service, 7, NOON) == f"{said}sales.orders has no open one"
    request = copied(closed, catalog=None, namespace=None, name=None, table=None, sender="etl")
    server.tell("GET /admin/v1/dead-letters/7", Reply(200, to_jsonable_python(request)))
    assert dead_letters.explain_not_open(service, 7, NOON) == "dead letter 7 is closed (replayed 3 s ago)"


def test_a_letter_is_shown_whole() -> None:
    event = UndecodableRequestModel.model_validate(
        {"path": "/v1/events", "content_type": None, "size": 99_999, "body": '{\n"x": "\x1b[2J"'}
    )
    letter = copied(LETTER, actor="ann@host", sender="etl", request=event)
    page = to_plain_text(list(dead_letters.letter_lines(letter, NOON))).splitlines()
    assert page[0] == "dead letter 7: location-refused, open"
    assert "changed   2026-08-21 11:30:00Z (30 min ago) by ann@host" in page
    assert "request   POST /v1/events, no content type, 99,999 bytes; stored:" in page
    assert page[-2:] == ["  {", r'  "x": "\x1b[2J"']
    assert any(line.startswith("remedy    set stores.NAME.prefix or catalogs.prod.allowed_locations") for line in page)
    closed = to_plain_text(list(dead_letters.letter_lines(copied(letter, status="discarded"), NOON)))
    assert "remedy" not in closed


def test_a_shell_completes_the_configurations_catalogs_and_the_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text("[catalogs.prod]\n[catalogs.preview]\n[catalogs.dev]\n")
    monkeypatch.chdir(tmp_path)
    for named in (file, None):
        context: Any = SimpleNamespace(params={"config": named})
        assert complete_catalog(context, "pr") == ["prod", "preview"]
    assert complete_reason("p") == ["permanent", "poison"]


@pytest.mark.parametrize("text", [None, "no TOML", "catalogs = 1\n", "[listener]\n"])
def test_a_configuration_that_cannot_be_read_completes_nothing(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "sfn.toml"
    if text is not None:
        file.write_text(text)
    for named in (file, None):
        context: Any = SimpleNamespace(params={"config": named})
        assert complete_catalog(context, "") == []


DENIED, FULL = "expected permission to write here, found 403", "expected room for a small file, found ENOSPC"


def counted(*causes: tuple[str, int]) -> Reply:
    found = [
        {
            "reason": "permanent",
            "cause": cause,
            "count": count,
            "about": "sales.orders",
            "remedy": "repair it",
            "opened_at": NOON.isoformat(),
            "newest_at": NOON.isoformat(),
            "example": number,
        }
        for number, (cause, count) in enumerate(causes, start=1)
    ]
    return Reply(200, {"causes": found, "letters": 3, "has_more": False})


def test_letters_are_chosen_by_a_part_of_their_cause(server: AdminServer, service: ServiceClient) -> None:
    server.tell("GET /admin/v1/dead-letters", letters(1, following=7), letters(following=1007), letters(8))
    chosen = DeadLetterCriteria(cause_contains="PERMISSION to write")
    found = dead_letters.fetch_letters(service, chosen, "open", 0)
    assert ([letter.id for letter in found.dead_letters], found.next) == ([1, 8], None)
    assert server.asked[-1].path.endswith("cause_contains=PERMISSION+to+write&limit=1000&after=1007")


def test_letters_are_counted_by_cause_by_the_service(server: AdminServer, service: ServiceClient) -> None:
    server.tell("GET /admin/v1/dead-letter-causes", counted((DENIED, 2), (FULL, 1)))
    causes = service.dead_letter_causes({"status": "open"}).causes
    grid = dead_letters.causes_grid(causes, LETTER.opened_at)
    assert [(row[0], row[3], row[-1]) for row in grid.rows] == [("2", "1", DENIED), ("1", "2", FULL)]
