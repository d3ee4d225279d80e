"""What an audit is made of: slices, paces, trials, and the rows that tell of lag."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from sfn.audit import storage
from sfn.audit.report import AuditState, PreviousRow, is_valid_count, matching_slices, slice_of
from sfn.audit.slices import AuditRun
from sfn.audit.throttle import MAX_TRIES, CatalogRateLimiter, CatalogRetries
from sfn.domain.catalog_answer import Loaded, NoSuchTable, NotModified, StagedCreate
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Permanent, SfnError, Transient
from sfn.publish.comparison import ComparisonResult, DifferenceKind, TableDifference
from sfn.publish.existing_files import OurFile, TableFiles
from sfn.sfnfile.document import Document, DocumentState
from sfn.sfnfile.naming import FileLayout
from sfn.worker.compare import CachedAnswer, TableComparison
from sfn.worker.sweep import BoundedQueue

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
NAME = TableIdentifier("prod", ("sales.eu",), "orders")
RUN = AuditRun("20261122T120000000Z", NOW, 8)
HOUR = 3_600_000
NOON = int(NOW.timestamp() * 1_000)


def pointer(number: int) -> str:
    return f"file:///w/t/metadata/{number:05d}-x.metadata.json"


def table(version: int = 5, **more: Any) -> Table:  # noqa: ANN401 - any attribute
    """A commit an hour, the last one an hour ago."""
    versions = range(1, version)
    return Table(
        "u1",
        "file:///w/t",
        pointer(version),
        metadata_log=tuple(map(pointer, versions)),
        log_times=tuple(NOON - (version + 1 - number) * HOUR for number in versions),
        last_updated_ms=NOON - HOUR,
        **more,
    )


def examined(said: int, kind: DifferenceKind | None = None, **more: Any) -> TableComparison:  # noqa: ANN401 - any attribute
    doc = Document("c1", NAME.namespace, NAME.name, "u1", pointer(said), NOON, NOW - timedelta(hours=2), **more)
    own = TableFiles(FileLayout("file:///w/t"), "key", (OurFile("key", StoredObject(b"", "t"), doc),))
    difference = None if kind is None else TableDifference(NAME, kind, "how")
    return TableComparison(
        Loaded(table(), '"e"'), table(), ComparisonResult(own, difference, is_exact=kind is None), difference
    )


@pytest.mark.parametrize("slices", [1, 2, 32])
@pytest.mark.parametrize("before", [1, 4, 32, 64])
def test_the_slices_of_an_earlier_run_that_have_the_same_tables(slices: int, before: int) -> None:
    for number in range(500):
        identifier = f"ns.t{number}"
        now, then = slice_of("c", identifier, slices), slice_of("c", identifier, before)
        assert then in matching_slices(now, slices, before)


def test_tables_are_shared_out_evenly() -> None:
    counts = Counter(slice_of("c", f"ns.t{number}", 8) for number in range(8_000))
    assert len(counts) == 8
    assert max(counts.values()) < 1.2 * min(counts.values())


@pytest.mark.parametrize(
    ("number", "fits"), [(1, True), (32, True), (1 << 16, True), (0, False), (3, False), (1 << 17, False)]
)
def test_a_number_of_slices_is_a_power_of_two(number: int, fits: bool) -> None:
    assert is_valid_count(number) == fits


def test_a_table_that_is_current_has_no_lag() -> None:
    entry = RUN.found_row(NAME, examined(5), NOW)
    assert entry is not None
    assert (entry.state, entry.lag_seconds, entry.commits_behind, entry.etag) == (AuditState.CURRENT, 0, 0, '"e"')
    assert (entry.identifier, entry.sfn_age_seconds, entry.notified) == ("sales%2Eeu.orders", 7_200, False)


def test_lag_is_since_the_first_commit_that_a_file_does_not_know() -> None:
    entry = RUN.found_row(NAME, examined(3, DifferenceKind.BEHIND), NOW)
    assert entry is not None
    assert (entry.state, entry.commits_behind, entry.lag_seconds, entry.notified) == ("behind", 2, 7_200, True)


def test_behind_by_one_it_is_since_the_last_commit() -> None:
    entry = RUN.found_row(NAME, examined(4, DifferenceKind.BEHIND), NOW)
    assert entry is not None
    assert (entry.commits_behind, entry.lag_seconds) == (1, 3_600)


@pytest.mark.parametrize(
    "said", [examined(99, DifferenceKind.BEHIND), examined(3, DifferenceKind.BEHIND, state=DocumentState.DROPPED)]
)
def test_a_lag_that_nothing_tells_is_none(said: TableComparison) -> None:
    entry = RUN.found_row(NAME, said, NOW)
    assert entry is not None
    assert (entry.commits_behind, entry.lag_seconds) == (None, None)


def test_what_could_not_be_looked_at_is_as_it_was_for_the_next_run() -> None:
    """Else one outage would forget where the files of tables are that are dropped meanwhile, and every entity tag."""
    remembered = CachedAnswer('"e"', table(previous_versions_max=7))
    entry = RUN.failed_row(NAME, "away", NOW, PreviousRow(NAME, remembered, "file:///w/t/f.ver", 3_600.0, NOW))
    assert (entry.state, entry.error, entry.etag, entry.sfn_file) == ("unknown", "away", '"e"', "file:///w/t/f.ver")
    assert (entry.uuid, entry.location, entry.metadata_location) == ("u1", "file:///w/t", pointer(5))
    assert (entry.previous_versions_max, entry.lifetime_seconds, entry.last_updated_at) == (7, 3_600.0, NOW)
    assert RUN.failed_row(NAME, "away", NOW).etag is None


def test_states_without_files() -> None:
    assert RUN.found_row(NAME, TableComparison(NoSuchTable()), NOW) is None
    unwritten, left = RUN.found_row(NAME, TableComparison(StagedCreate()), NOW), table(skip_reason="encrypted")
    assert unwritten is not None
    assert unwritten.state == AuditState.UNWRITTEN
    alone = RUN.found_row(NAME, TableComparison(NotModified(), left), NOW)
    assert alone is not None
    assert (alone.state, alone.skip_reason, alone.unchanged) == (AuditState.SKIPPED, "encrypted", True)


async def test_a_pace_is_kept() -> None:
    pace, began = CatalogRateLimiter(100), anyio.current_time()
    for _ in range(11):
        await pace.wait()
    assert anyio.current_time() - began >= 0.1


async def test_a_table_s_own_trouble_is_tried_again_and_no_other_suffers() -> None:
    trials, asked = CatalogRetries(0.2), 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise Transient("t", scope=ErrorScope.TABLE, expected="e", found="f")

    with pytest.raises(Transient):
        await trials.call(ask)
    assert (asked, trials.final_error) == (MAX_TRIES, None)


async def test_what_is_permanent_is_tried_once() -> None:
    trials, asked = CatalogRetries(0.2), 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise Permanent("t", scope=ErrorScope.TABLE, expected="e", found="f")

    with pytest.raises(Permanent):
        await trials.call(ask)
    assert asked == 1


async def test_a_catalog_that_is_away_is_waited_for_once_and_asked_no_more() -> None:
    trials, asked = CatalogRetries(0.25), 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise Transient("c", scope=ErrorScope.CATALOG, expected="e", found="f")

    with pytest.raises(Transient):
        await trials.call(ask)
    before = asked
    assert before > 1
    with pytest.raises(Transient):
        await trials.call(ask)
    assert asked == before


async def test_a_catalog_that_comes_back_is_forgiven() -> None:
    trials, asked = CatalogRetries(5), 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise Transient("c", scope=ErrorScope.CATALOG, expected="e", found="f")
        return asked

    assert await trials.call(ask) == 3
    assert trials.final_error is None


async def test_a_feed_gives_all_in_order_and_holds_back_who_finds_too_much() -> None:
    feed, taken = BoundedQueue[int](max_queued=2), list[int]()

    async def find() -> None:
        for number in range(5):
            await feed.put(number)
        feed.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(find)
        await anyio.wait_all_tasks_blocked()
        while (one := await feed.get()) is not None:
            taken.append(one)
    assert taken == list(range(5))
    assert await feed.get() is None


class Theirs(Exception):
    """Of a library, which none of ours inherits."""


@pytest.mark.parametrize("error", [OSError("disk\nfull"), ValueError("garbage"), Theirs("locked")])
def test_what_others_raise_of_a_report_is_one_line_that_names_it(error: Exception) -> None:
    said = f"report here: .* found {type(error).__name__}: .*; try again$"
    with pytest.raises(SfnError, match=said), storage.map_report_errors("here", "try again"):
        raise error


@pytest.mark.parametrize("error", [TypeError("ours"), SfnError("a table", expected="one", found="none")])
def test_what_is_ours_is_not_put_down_to_others(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, storage.map_report_errors("here", "try again"):
        raise error
    assert raised.value is error
