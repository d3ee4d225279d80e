"""The benchmarks themselves: each measures something in a second, and says so where its figure would not be true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bench import accept, backlog, freshness, gateway, publish, readers, servers, sizing, soak, stores, traces
from tests.bench.clients import Answers, installed, load
from tests.bench.record import ROOT, Figure, Goal, Record, Run, Unmeasured
from tests.bench.servers import uvicorn
from tests.bench.soak import Sample
from tests.faults import inspection
from tests.support.clock import HandClock
from tests.support.programs import found, runtime

MIB = 2**20
KEYS = {"name", "value", "unit", "compared_with", "ratio", "goal", "met", "runs", "measured"}


def needs(program: str) -> None:
    """Skip a test where a program is missing; on a build server that is a failure."""
    try:
        installed(program)
    except Unmeasured as error:
        if os.environ.get("CI") == "true":  # noqa: TID251 - the test run's own surroundings
            raise
        pytest.skip(str(error))


@pytest.fixture(name="_forks")
def fixture_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no interpreters where what they take is not the question."""
    monkeypatch.setattr(servers, "are_forks", True)


def quiet(_: str) -> None:
    """Print no progress."""


def figure(name: str, *ratios: float, goal: Goal | None = None, short: bool = False) -> Figure:
    runs = [Run(100 * ratio, 100) for ratio in ratios]
    return Figure(name=name, unit="events/s", runs=runs, compared_with="another", goal=goal, short=short)


def check(figures: Sequence[Figure], names: set[str]) -> None:
    assert {one.name for one in figures} == names
    for one in figures:
        assert one.value > 0
        # Whatever it was, so short a run has met no goal.
        assert not one.met


@pytest.mark.usefixtures("_forks")
def test_accept(tmp_path: Path) -> None:
    needs("wrk")
    # Where other tests run beside it, 64 requests of 100 events, or a publish, may take more than a second.
    figures = accept.measure(accept.Extent(runs=1, seconds=3, warm_up=0), tmp_path, quiet)
    beside = {"accept_vs_fastapi", "accept_vs_fastapi_reading", "accept_vs_raw_asgi"}
    check(figures, {*beside, "accept_while_publishing", "accept_batches"})
    # What was acknowledged and is not there would have been noticed.
    taken = len(inspection.logged(tmp_path / "0-ours" / "sfn" / "inbox.db"))
    with pytest.raises(Unmeasured, match="1000000 events were acknowledged"):
        accept.check_taken(taken, [Answers(1_000_000, 1.0, 1.0, 1.0)])


@pytest.mark.usefixtures("_forks")
def test_traces(tmp_path: Path) -> None:
    needs("wrk")
    figures = traces.measure(accept.Extent(runs=1, seconds=1, warm_up=0), tmp_path, quiet)
    check(figures, {"accept_with_traces_of_one_in_a_hundred", "accept_with_all_traces"})


@pytest.mark.usefixtures("_forks")
def test_postgres(tmp_path: Path) -> None:
    needs("wrk")
    found("SFN_POSTGRES")
    figures = accept.measure_postgres(accept.Extent(runs=1, seconds=1, warm_up=1), tmp_path, quiet)
    check(figures, {"postgres_accept_vs_sqlite", "postgres_accept_two_replicas"})


@pytest.mark.usefixtures("_forks")
def test_freshness(tmp_path: Path) -> None:
    figures = freshness.measure(freshness.Extent(runs=1, commits=4), tmp_path, quiet)
    check(figures, {"commit_to_file_p50", "commit_to_file_p99"})


def test_fsyncs(tmp_path: Path) -> None:
    needs("strace")
    [one] = accept.measure_fsyncs(5, tmp_path, quiet)
    assert one.kept
    assert not one.met


@pytest.mark.usefixtures("_forks")
def test_burst(tmp_path: Path) -> None:
    [one] = publish.measure_burst(1_000, tmp_path, quiet)
    check([one], {"burst_publishes"})


@pytest.mark.usefixtures("_forks")
def test_coalescing(tmp_path: Path) -> None:
    [one] = publish.measure_coalescing(20, tmp_path, quiet)
    assert one.value == 1
    assert not one.met


@pytest.mark.usefixtures("_forks")
def test_backlog(tmp_path: Path) -> None:
    figures = backlog.measure(250, tmp_path, quiet)
    assert [one.name for one in figures] == [
        "letters_page_p50",
        "letters_replayed",
        "event_p99_while_paging",
        "event_p99_while_replaying",
    ]
    assert all(one.value > 0 and one.short for one in figures)


def test_publish(tmp_path: Path) -> None:
    check(publish.measure(1, tmp_path, quiet), {"ordinal_publish_p50", "ordinal_publish_requests"})


@pytest.mark.usefixtures("_forks")
def test_gateway(tmp_path: Path) -> None:
    needs("wrk")
    needs("nginx")
    runtime()
    figures = gateway.measure(gateway.Extent(runs=1, commits=4, seconds=1), tmp_path, quiet)
    check(figures, {"gateway_commit_p50_vs_direct", "gateway_get_vs_nginx", "gateway_get_vs_nginx_static"})


@pytest.mark.usefixtures("_forks")
def test_facade(tmp_path: Path) -> None:
    needs("wrk")
    check(readers.measure_facade(readers.Extent(runs=1, seconds=1), tmp_path, quiet), {"facade_304_vs_fastapi"})


def test_store(tmp_path: Path) -> None:
    check(stores.measure(1, 2, tmp_path, quiet), {"s3_publish_vs_bare"})


@pytest.mark.usefixtures("_forks")
def test_sizing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "EVERY", "1s")
    figures = list(sizing.swept(4, tmp_path / "swept", quiet))
    first = {f"first_sweep_{name}" for name in ("cpu", "time", "memory")}
    check(figures, {f"sizing_{name}_4" for name in {*first, "log_per_table", "inbox_per_table", "sweep_cpu", "memory"}})
    assert "4 tables loaded a sweep, 4 of them unchanged" in [one.note for one in figures]
    plain, large = (list(sizing.committed(count, 20, tmp_path / f"{count}", quiet)) for count in (0, 100))
    check(plain, {"sizing_commit_cpu_0_snapshots", "sizing_log_per_commit", "sizing_inbox_per_event"})
    check(large, {"sizing_commit_cpu_100_snapshots"})


def test_a_publish_that_fails_ends_the_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def broken(_: str) -> AsyncIterator[object]:
        yield object()

    monkeypatch.setattr(stores, "s3_store", broken)
    with pytest.raises(Unmeasured, match=r"a publish that was none: .*AttributeError"):
        stores.measure(1, 2, tmp_path, quiet)


def test_the_command_measures_and_keeps_the_figures(tmp_path: Path) -> None:
    record = tmp_path / "bench.json"
    command = [sys.executable, "-m", "tests.bench", "resolve", "--resolve-runs", "1", "--record", str(record)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in json.loads(record.read_text())] == ["resolve_vs_by_hand", "resolve_first_vs_by_hand"]


def test_filling(tmp_path: Path) -> None:
    (one,) = publish.measure_filling(300, tmp_path, quiet)
    assert (one.name, one.value, one.short) == ("ordinal_folder_most", 301, True)


def test_resolve(tmp_path: Path) -> None:
    check(readers.measure_resolve(1, tmp_path, quiet), {"resolve_vs_by_hand", "resolve_first_vs_by_hand"})


@pytest.mark.usefixtures("_forks")
def test_soak(tmp_path: Path) -> None:
    assert {one.name for one in soak.measure(3, tmp_path, quiet)} == {"rss_slope", "wal_most", "database_slope"}


def test_a_refused_request_spoils_a_run(tmp_path: Path) -> None:
    needs("wrk")
    with (
        uvicorn("tests.bench.accept:fastapi", tmp_path) as server,
        pytest.raises(Unmeasured, match=r"of \d+ answers [1-9]\d* were refusals"),
    ):
        load(f"{server}/nowhere", 1, series=0, warehouse=tmp_path)


def test_who_lacks_a_program_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unmeasured, match="apt-get install wrk"):
        load("http://127.0.0.1:9", 1, series=0, warehouse=tmp_path)
    with pytest.raises(Unmeasured, match="apt-get install strace"):
        accept.measure_fsyncs(1, tmp_path, quiet)


@pytest.mark.parametrize(
    ("ratios", "goal", "met"),
    [
        ((1.4, 1.6, 9.0), Goal("ratio", ">=", 1.5), True),
        ((1.4, 1.4, 9.0), Goal("ratio", ">=", 1.5), False),
        ((1.5,), Goal("ratio", "<=", 1.5), True),
        ((1.5,), Goal("value", "<", 150), False),
        ((1.0,), None, None),
    ],
)
def test_a_goal_is_for_the_median(ratios: tuple[float, ...], goal: Goal | None, met: bool | None) -> None:
    assert figure("any", *ratios, goal=goal).met is met


def test_a_short_run_meets_no_goal() -> None:
    one = figure("any", 9.0, goal=Goal("ratio", ">=", 1.5), short=True)
    assert (one.kept, one.met) == (True, False)


def test_figures_are_kept_by_their_names(tmp_path: Path) -> None:
    record = Record(tmp_path / "build" / "bench.json", HandClock(datetime(2026, 11, 22, 12, tzinfo=UTC)))
    record.add([figure("one", 1.0), figure("two", 2.0)])
    record.add([figure("one", 3.0, 4.0, 9.0, goal=Goal("ratio", ">=", 1.5))])
    found = json.loads(record.path.read_text())
    assert [(entry["name"], entry["ratio"]) for entry in found] == [("one", 4.0), ("two", 2.0)]
    assert all(set(entry) == KEYS for entry in found)
    assert (found[0]["goal"], found[0]["met"]) == ("ratio >= 1.5", True)
    assert found[0]["runs"] == [{"value": 100 * ratio, "compared": 100} for ratio in (3, 4, 9)]
    assert found[0]["measured"]["at"] == "2026-11-22T12:00:00Z"


def test_what_strace_tells_of_is_understood() -> None:
    told = [
        "strace: Process 12 attached",
        "11 100.5 fdatasync(7</inbox.db-wal>) = 0 <0.25>",
        "11 101.5 fdatasync(7</inbox.db-wal>) = -1 EIO (Input/output error) <0.25>",
        "12 102.0 fsync(9</a (b)> <unfinished ...>",
        "11 102.1 fdatasync(7</inbox.db-wal>) = 0 <0.125>",
        "12 102.5 <... fsync resumed>) = 0 <0.75>",
        "11 103.0 +++ exited with 0 +++",
    ]
    syncs = accept.parse(told)
    assert [(sync.path, sync.began, sync.ended) for sync in syncs] == [
        ("/inbox.db-wal", 100.5, 100.75),
        ("/inbox.db-wal", 102.1, 102.225),
        ("/a (b)", 102.0, 102.75),
    ]


def test_an_acknowledgement_without_a_sync_before_it_is_seen() -> None:
    syncs = [accept.Sync("log", 1.5, 1.75), accept.Sync("log", 2.5, 3.5)]
    assert accept.within(syncs, [(1, 2), (2, 3), (3, 4)]) == [1, 0, 0]


def samples(leak: float, growth: float) -> Iterator[Sample]:
    """Ten minutes that begin with twenty seconds of growth: MiB for each 10,000 events after that."""
    for second in range(600):
        events = 200 * second
        warming = min(second, 20)
        yield Sample(
            events,
            rss=int(MIB * (80 + warming + leak * events / 10_000)),
            log=MIB * (second % 40),
            database=int(MIB * (warming + growth * events / 10_000)),
        )


@pytest.mark.parametrize(
    ("leak", "growth", "met"),
    [(0.5, 0.5, [True, True, True]), (1.5, 0.0, [False, True, True]), (0, 2, [True, True, False])],
)
def test_what_grows_with_the_events_is_found_after_the_warm_up(leak: float, growth: float, met: list[bool]) -> None:
    figures = soak.figures(list(samples(leak, growth)), short=False)
    assert [one.met for one in figures] == met
    assert figures[0].value == pytest.approx(leak, abs=0.001)
    assert figures[2].value == pytest.approx(growth, abs=0.001)
